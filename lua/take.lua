-- Decides: looks at every limit of a decision, and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of shapes.
-- A shape is what decisions have in common that differ only in their keys:
--   kind: - or +, and the letter of the algorithm of each charge of a decision, which
--     is a capital for a dry run
--   the number of decisions, whose keys are the next ones in turn, unless
--   kind +: the numbers of the decisions' keys; empty: the next ones, which nothing else
--     in the call names
--   kind +: where runs of decisions end in which no key is twice; empty: all are one
--   kind +: how many times each is asked; empty: once
--   kind +: ids of leases, 16 bytes each, for charges on Concurrency: those of the first
--     decision's first time, then of its second
--   per charge: the arguments of its algorithm (its file says which)
--
-- and last, if an algorithm has keys that aren't strings, how many of the first keys may be strings.
--
-- Lists of numbers have two bytes for each, the high one first.
--
-- Of a shape the keys and the answers are in columns: those of all decisions' first
-- charges, then those of their second.
--
-- Answers: now, then per shape how often its decisions were granted, and per charge
-- the state found. If that is ? and instants, comma separated, the script lacks the windows of the
-- calendar around those, and hasn't decided the decision.
--
-- A decision of one charge is made at once, key by key; several.lua makes those of several charges.
-- What is the same for a whole column is read once. A run stops at a row that needs functions
-- (lua.go), and goes on once they are made.
--:script
-- MGET, also of one: it answers nil for what is no string, where GET fails.
local strings = nkeys
--STRINGS--
local vals = strings > 0 and call('MGET', unpack(KEYS, 1, strings)) or {}
-- out is the answer, and o the last place in it that is filled; key is how many keys the
-- shapes before have.
local out, o, key = {now}, 1, 0
-- A key found without a lifetime is given one. Checking every key would take a quarter more of
-- a batch's time, so each call checks one of its keys, chosen by the clock. A call with one
-- key checks that: a tenth of its script's time, but a fiftieth of the server's for the
-- call, which is sent alone only while the server keeps up.
local probe = now % max(nkeys, 1) + 1
local rare, lacking, asked
--TOGETHER--

-- Places in ARGV: a of a shape, c of its first charge's arguments, p of what is read next. k
-- is how many charges a decision has, and j which of them is looked at or made.
local a = 3
for _ = 1, ARGV[2] + 0 do
  local kind, count, c = ARGV[a], ARGV[a + 1] + 0, a + 2
  local k, index, runs, times, leases = #kind - 1, nil, nil, nil, nil
  if byte(kind) == 43 then -- '+'
    local function numbers(text)
      if text == '' then return nil end
      local all, n = {}, 0
      for from = 1, #text, 1000 do -- a call gives back so many values at the most
        local bytes = {byte(text, from, from + 999)}
        for y = 1, #bytes, 2 do
          n = n + 1
          all[n] = bytes[y] * 256 + bytes[y + 1]
        end
      end
      return all
    end
    index, runs, times, leases, c = numbers(ARGV[c]), numbers(ARGV[c + 1]), numbers(ARGV[c + 2]), ARGV[c + 3], c + 4
  end
  -- Ids take each bytes every time, and starts is how many times come before a decision.
  local again, each, starts = index ~= nil, leases and #leases / count, nil
  if times and leases ~= '' then
    starts = {}
    local n = 0
    for row = 1, count do
      starts[row] = n
      n = n + times[row]
    end
    each = #leases / n
  end
  -- total: decisions granted, for the place sum in out; done: decisions made.
  local sum, total, done, run, p = o + 1, 0, 0, 1, c
  out[sum] = 0 -- tables grow by what comes next, or badly
  while done < count do
    local till = count
    if runs then
      if runs[run] == done then run = run + 1 end
      till = runs[run]
    end
    local many = till - done > 3
    p = c
    --DECIDE--
    if lacking then
      --FUNCTIONS--
      lacking = nil
    end
  end
  out[sum] = total
  o, a = sum + k * count, p
  if not again then key = key + k * count end
end
return out
--:decide
local j, letter = 1, byte(kind, 2)
local dry = letter < 97
if dry then letter = letter + 32 end
--ONE--
--:one
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKSETUP--
  --CHARGESETUP--
  for row = done + 1, till do
    local i = index and index[row] or key + row
    local v, g, fits, dirty, raw = vals[i], times and times[row] or 1, 0, false, nil
    if v == 0 then
      v = call('MGET', KEYS[i])[1]
      vals[i] = v
    end
    --LOAD--
    --LOOK--
    out[sum + row] = raw or v
    local granted, write = fits, false
    if dry and fits >= 0 then granted = g end
    if granted > 0 then total = total + granted end
    g = peek and 0 or fits
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
  done = lacking and lacking - 1 or till
end
