-- Replaces the costs of earlier charges, one after the other.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of settlements,
-- and per settlement: the letter of its algorithm, number of its key, cost, and of the
-- receipt cost, instant, mark and lease, or the leases of several that are all released. Then
-- empty, or the number of another key and the instant of the charge, or up to a tick before
-- it, with a comma between: nothing is changed if that key says that the limit was reset
-- since (reset.lua), or if the charge is so old that the key may have expired; then the
-- arguments of its algorithm, for a charge of one. Last, as in take.lua, how many keys may be
-- strings.
--
-- Answers: now, then per settlement the state found (of what is no string that, '|',
-- and the state left after each lease), or, as in take, what is asked.
--:script
local strings = nkeys
--STRINGS--
local vals = strings > 0 and call('MGET', unpack(KEYS, 1, strings)) or {}
noMemory = false -- a settlement is written, or the call fails
local out, count, settled, a = {now}, ARGV[2] + 0, 0, 3
local rare, lacking, asked
-- Locals that the blocks of take.lua read: a settlement is a decision of one charge.
local again, probe, g, many, times, row = true, 0, 0, false, nil, 1

while settled < count do
  if lacking then
    --FUNCTIONS--
    lacking = false
  end
  local letter, i, p = byte(ARGV[a]), ARGV[a + 1] + 0, a + 8
  if vals[i] == 0 then vals[i] = call('MGET', KEYS[i])[1] end
  local due, charged, instant = ARGV[a + 2] + 0, ARGV[a + 3] + 0, ARGV[a + 4] + 0
  local mark, lease = tonumber(ARGV[a + 5]) or ARGV[a + 5], ARGV[a + 6]
  local v, diff, fits, granted, dirty, raw, left = vals[i], due - charged, 0, 0, nil, nil, nil
  if ARGV[a + 7] ~= '' then
    local other, at = string.match(ARGV[a + 7], '(%d+),(-?%d+)')
    local reset = tonumber(vals[other + 0] or nil)
    if reset and reset >= at + 0 or now > at + 30000000 then due, diff = charged, 0 end
  end
  repeat
    --SETTLES--
    if fits < 0 then left = nil end
    out[#out + 1] = left and raw .. '|' .. left or raw or v or ''
    settled, a = settled + 1, p
  until true
end
return out
--:settles
if letter == LETTER then
  --ARGUMENTS--
  --SETUP--
  --LOOKSETUP--
  --LOAD--
  if fits >= 0 then
    --AMEND--
    granted = fits
    local write = false
    --REST--
    if write then
      --WRITE--
    end
  end
end
