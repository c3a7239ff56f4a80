-- Decides: looks at every limit of a decision and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of shapes.
-- A shape is what many decisions have in common:
--   kind: - or +, and the letter of the algorithm of each charge of a decision, which
--     is a capital for a dry run
--   the number of decisions, whose keys are the next ones in turn, unless
--   kind +: the numbers of the decisions' keys, comma separated; empty: the next ones,
--     which nothing else in the call names
--   kind +: where runs of decisions end in which no key is twice, comma separated;
--     empty: all are one
--   kind +: how many times each is asked, comma separated; empty: once
--   kind +: ids of leases, 16 bytes each, for charges on Concurrency
--   per charge: the arguments of its algorithm (its file says which)
--
-- Answers: now, then per shape how often its decisions were granted, and per charge
-- the state found. If one is ? and instants, comma separated, windows of the calendar
-- are missing around those, and nothing of the decision was done.
--
-- Decisions of a run have no key in common, so that a run is gone through by columns:
-- all are looked at for their first charge, then for their second; then all are
-- charged. What is the same for a whole column is read once. Nothing in a look changes
-- what another look finds: a run that lacks functions (lua.go) is looked at again.
--:script
-- MGET, also of one: it answers nil for what is no string, where GET fails.
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local out, o, key = {now}, 1, 0
-- A key that somebody has taken the lifetime from is given one. To ask each would
-- be a third of what a batch takes, so one key of a call is asked, in turn as the
-- clock has it.
local probe = now % max(nkeys, 1) + 1
local rare, lacking, asked
local grants, fit -- of decisions of several charges
--KEPT--

local a = 3
for _ = 1, ARGV[2] + 0 do
  local kind = ARGV[a]
  local k, count, c = #kind - 1, ARGV[a + 1] + 0, a + 2
  local index, runs, times, leases
  if byte(kind) == 43 then
    for x = 0, 2 do
      local numbers
      if ARGV[c + x] ~= '' then
        numbers = {}
        for n in string.gmatch(ARGV[c + x], '%d+') do numbers[#numbers + 1] = n + 0 end
      end
      if x == 0 then index = numbers elseif x == 1 then runs = numbers else times = numbers end
    end
    leases, c = ARGV[c + 3], c + 4
  end
  local each, again = leases and #leases / count, index ~= nil
  local sum, total, done, run, p = o + 1, 0, 0, 1, c
  while done < count do
    if lacking then
      --FUNCTIONS--
      lacking = false
    end
    local till = count
    if runs then
      if runs[run] == done then run = run + 1 end
      till = runs[run]
    end
    local many, slots = till - done > 3, 0
    p = c
    if k == 1 then
      local letter, j = byte(kind, 2), 1
      local dry = letter < 97
      if dry then letter = letter + 32 end
      --ONE--
    else
      if not grants then
        grants, fit = {}, {}
        --TABLES--
      end
      for b = done * k, (till - 1) * k, k do grants[b] = times and times[b / k + 1] or 1 end
      for j = 1, k do
        local letter = byte(kind, j + 1)
        local dry = letter < 97
        if dry then letter = letter + 32 end
        --LOOKS--
        if lacking then break end
      end
      if not lacking then
        p, slots = c, 0
        for j = 1, k do
          local letter = byte(kind, j + 1)
          local dry = letter < 97
          if dry then letter = letter + 32 end
          --CHARGES--
        end
        for b = done * k, (till - 1) * k, k do
          if grants[b] > 0 then total = total + grants[b] end
        end
        done = till
      end
    end
  end
  out[sum] = total
  o, a = sum + k * count, p
  if not index then key = key + count * k end
end
return out
--:one
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKS--
  --CHARGES--
  for nth = done + 1, till do
    local i = index and index[nth] or key + nth
    local v, g, fits, dirty, raw = vals[i], times and times[nth] or 1, 0, false, nil
    --LOAD--
    --LOOK--
    out[sum + nth] = raw or v
    if not dry and fits > 0 then total = total + fits elseif dry and fits >= 0 then total = total + g end
    if fits < 1 or peek then g = 0 elseif fits < g then g = fits end
    if g > 0 then
      --CHARGE--
    end
    --WRITE--
    --REST--
    done = nth
  end
end
--:looks
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKS--
  for nth = done * k + j, (till - 1) * k + j, k do
    local i, b = index and index[nth] or key + nth, nth - j
    local v, g, fits, dirty, raw = vals[i], times and times[b / k + 1] or 1, 0, false, nil
    --LOAD--
    --LOOK--
    out[sum + nth], fit[nth] = raw or v, fits
    if fits < grants[b] and (not dry or fits < 0) then grants[b] = fits end
    --KEEP--
  end
end
--:charges
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --CHARGES--
  for nth = done * k + j, (till - 1) * k + j, k do
    local i, b = index and index[nth] or key + nth, nth - j
    local v, g, fits, dirty, raw = vals[i], grants[b], fit[nth], false, nil
    --KEPT--
    --REFUSED--
    if peek and g > 0 then g = 0 elseif dry and fits < g then g = fits end
    if g > 0 then
      --CHARGE--
    end
    --WRITE--
    --REST--
  end
end
