-- Makes earlier charges cost something else after all, one after the other.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of
-- settlements, and per settlement: limit, as in take, number of its key, cost,
-- and of the receipt cost, instant, mark and lease.
--
-- Answers: now, then per settlement the state found (of open modules that, '|',
-- and the state left), or -1: a bound of the calendar is missing, nothing was
-- done.
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local states
--GENERAL--

local out, a = {now}, 3
for n = 1, ARGV[2] + 0 do
  local l, i = limit(ARGV[a]), ARGV[a + 1] + 0
  local m = l.module
  stale = false
  local s = fetch(l, i)
  local raw = m.open and m.raw(s) or s.raw
  if not stale then
    m.amend(l, s, ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4] + 0, ARGV[a + 5] + 0, ARGV[a + 6])
    if m.open then raw = raw .. '|' .. m.raw(s) end
  end
  if stale then
    raw = -1
  end
  out[n + 1] = raw
  a = a + 7
end
write()
return out
