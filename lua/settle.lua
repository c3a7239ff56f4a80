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
local out, many, a = {now}, ARGV[2] + 0, 3

-- A lease that is given back, of a limit with none of more slots than one, needs
-- nothing made: see take.lua.
local short = true
for n = 1, many do
  short = false
  if byte(ARGV[a]) ~= 99 or ARGV[a + 2] ~= '0' then break end -- c
  local key = KEYS[ARGV[a + 1] + 0]
  local held = redis.pcall('ZCARD', key)
  if type(held) ~= 'number' or held > 0 and call('ZSCORE', key, '#') then break end
  local left = held
  if held > 0 then left = held - call('ZREM', key, ARGV[a + 6]) end
  out[n + 1] = format('%.0f|%.0f', held, left)
  short = true
  a = a + 7
end
if short then return out end

local states
--GENERAL--

for n = #out, many do
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
