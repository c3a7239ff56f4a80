-- Decides: looks at every limit of a decision and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of shapes.
-- A shape is what many decisions have in common:
--   kind: - or +, and the letter of the algorithm of each charge of a decision, which
--     is a capital for a dry run
--   the number of decisions, whose keys are the next ones in turn, unless
--   kind +: the numbers of the decisions' keys; empty: the next ones, which nothing else
--     in the call names
--   kind +: where runs of decisions end in which no key is twice; empty: all are one
--   kind +: how many times each is asked; empty: once
--   kind +: ids of leases, 16 bytes each, for charges on Concurrency
--   per charge: the arguments of its algorithm (its file says which)
--
-- and last, where some algorithm keeps no strings, how many of the first keys may be some.
--
-- Numbers that are many are two bytes each, the high one first.
--
-- Of a shape the keys and the answers are in columns: those of all decisions' first
-- charges, then those of their second.
--
-- Answers: now, then per shape how often its decisions were granted, and per charge
-- the state found. If one is ? and instants, comma separated, windows of the calendar
-- are missing around those, and nothing of the decision was done.
--
-- Decisions of a run have no key in common, so that a run is gone through by columns:
-- all are looked at for their first charge, then for their second; then all are
-- charged. What is the same for a whole column is read once. Nothing in a look changes
-- what another look finds: a run that lacks functions (internal/scripts) is looked at again.
--:script
-- MGET, also of one: it answers nil for what is no string, where GET fails.
local strings = nkeys
--READS--
local vals = strings > 0 and call('MGET', unpack(KEYS, 1, strings)) or {}
local out, o, key = {now}, 1, 0
-- A key found without a lifetime is given one. Checking every key would take a third of a
-- batch's time, so each call checks one of its keys, chosen by the clock. A call with one
-- key checks that: a tenth of its script's time, but a fiftieth of the server's for the
-- call, which is sent alone only while the server keeps up.
local probe = now % max(nkeys, 1) + 1
local rare, lacking, asked
-- Of a run of decisions of several charges: how often each is granted as far as is
-- known, what charging needs to know of the looks, where that of each column begins, and
-- the numbers of those that deny.
local grants, kept, columns, denials

local a = 3
for _ = 1, ARGV[2] + 0 do
  local kind = ARGV[a]
  local k, count, c = #kind - 1, ARGV[a + 1] + 0, a + 2
  local index, runs, times, leases
  if byte(kind) == 43 then
    for x = 0, 2 do
      local text, numbers = ARGV[c + x], nil
      if text ~= '' then
        numbers = {}
        local n = 0
        for from = 1, #text, 1000 do -- a call gives back so many values at the most
          local bytes = {byte(text, from, from + 999)}
          for y = 1, #bytes, 2 do
            n = n + 1
            numbers[n] = bytes[y] * 256 + bytes[y + 1]
          end
        end
      end
      if x == 0 then index = numbers elseif x == 1 then runs = numbers else times = numbers end
    end
    leases, c = ARGV[c + 3], c + 4
  end
  local again, each = index ~= nil, leases and #leases / count
  local letters = k > 1 and {byte(kind, 2, -1)}
  local sum, total, done, run, p = o + 1, 0, 0, 1, c
  out[sum] = 0 -- tables grow by what comes next, or badly
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
    local x, others = 0, k > 1
    p = c
    if others then
      if not grants then
        grants, kept, columns = {1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0}
      end
      for row = done + 1, till do grants[row - done] = times and times[row] or 1 end
      denials = nil
    end
    local many = till - done > 3
    for j = 1, k - 1 do
      local letter, before = letters[j], (j - 1) * count
      local dry = letter < 97
      if dry then letter = letter + 32 end
      columns[j] = x
      --LOOKS--
      if lacking then break end
    end
    if not lacking then
      local j, letter, before, from = k, letters and letters[k] or byte(kind, 2), (k - 1) * count, done
      local dry = letter < 97
      if dry then letter = letter + 32 end
      --LAST--
      local next = p
      p = c
      for j = 1, k - 1 do
        local letter, before = letters[j], (j - 1) * count
        x = columns[j] -- the last column may have ended before the others did
        local dry = letter < 97
        if dry then letter = letter + 32 end
        --CHARGES--
      end
      p = next
    end
  end
  out[sum] = total
  o, a = sum + k * count, p
  if not again then key = key + k * count end
end
return out
--:reads
--STRINGS--
--:looks
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKS--
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
    --KEEP--
    --DENIES--
    if dry and fits >= 0 then fits = g end
    if fits < grants[row - done] then grants[row - done] = fits end
  end
end
--:last
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKS--
  --CHARGES--
  local special, answers, keys = others or dry or peek, sum + before, key + before
  for row = from + 1, till do
    local i = index and index[before + row] or keys + row
    local v, g, fits, dirty, raw = vals[i], times and times[row] or 1, 0, false, nil
    if v == 0 then
      v = call('MGET', KEYS[i])[1]
      vals[i] = v
    end
    --LOAD--
    --LOOK--
    out[answers + row] = raw or v
    --DENIES--
    local granted = fits
    if special then
      if dry and fits >= 0 then granted = g end
      if others then
        if grants[row - from] < granted then granted = grants[row - from] else grants[row - from] = granted end
      end
      g = granted
      if g > 0 then
        if peek then g = 0 elseif dry and fits < g then g = fits end
        total = total + granted - g
      end
    else
      g = fits
    end
    --DENIED--
    if g > 0 then
      total = total + g
      --CHARGE--
      --WRITE--
    else
      --REST--
    end
  end
  done = lacking and lacking - 1 or till
end
--:denies
if fits == 0 and not dry then
  denials = denials or {}
  denials[row] = (denials[row] or ',') .. j .. ','
end
--:charges
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --CHARGES--
  for row = from + 1, done do
    local i, g = index and index[before + row] or key + before + row, grants[row - from]
    local v, granted = vals[i], g
    --KEPT--
    if peek and g > 0 then g = 0 elseif dry and fits < g then g = fits end
    --DENIED--
    if g > 0 then
      --CHARGE--
      --WRITE--
    else
      --REST--
    end
  end
end
