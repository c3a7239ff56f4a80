-- Replaces parts of take.lua if decisions have several charges: all are looked at, then all are
-- charged, or none.
--
-- The decisions of a run have no key in common, so a run is processed by columns: first the looks at
-- the first charges of all, then those at the second ones; then the charges in the same order. What is
-- the same for a column is read once. No look changes what another look finds, so a
-- run that lacks functions is looked at again.
--:together
-- Of a run: how often each decision is granted as far as is known; what the looks carry over
-- to charging; and the numbers of the charges that deny.
local grants, carried, denials = {1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}, nil
--:decide
if k == 1 then
  local j, letter = 1, byte(kind, 2)
  local dry = letter < 97
  if dry then letter = letter + 32 end
  --ONE--
else
  for row = done + 1, till do grants[row - done] = times and times[row] or 1 end
  denials = nil
  local x = 0
  for j = 1, k do
    local letter, before = byte(kind, j + 1), (j - 1) * count
    local dry = letter < 97
    if dry then letter = letter + 32 end
    --LOOK_AT_ALL--
    if lacking then break end
  end
  if not lacking then
    for row = 1, till - done do
      if grants[row] > 0 then total = total + grants[row] end
    end
    p, x = c, 0
    for j = 1, k do
      local letter, before = byte(kind, j + 1), (j - 1) * count
      local dry = letter < 97
      if dry then letter = letter + 32 end
      --CHARGE_ALL--
    end
    done = till
  end
end
--:look_at_all
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKSETUP--
  for row = done + 1, till do
    local i = index and index[before + row] or key + before + row
    local v, g, fits, dirty, raw = vals[i], times and times[row] or 1, 0, false, nil
    if v == 0 then
      v = call('MGET', KEYS[i])[1]
      vals[i] = v
    end
    --LOAD--
    --LOOK--
    out[sum + before + row] = raw or v
    --CARRY--
    --DENIES--
    if dry and fits >= 0 then fits = g end
    if fits < grants[row - done] then grants[row - done] = fits end
  end
end
--:denies
if fits == 0 and not dry then
  denials = denials or {}
  denials[row] = (denials[row] or ',') .. j .. ','
end
--:charge_all
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --CHARGESETUP--
  for row = done + 1, till do
    local i, g, write = index and index[before + row] or key + before + row, grants[row - done], false
    local v, granted = vals[i], g
    --CARRIED--
    if peek and g > 0 then g = 0 elseif dry and fits < g then g = fits end
    --DENIED--
    if g > 0 then
      --CHARGE--
      write = true
    else
      --REST--
    end
    if write then
      --WRITE--
    end
  end
end
