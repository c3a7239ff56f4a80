-- What all scripts share. Numbers are doubles: exact below 2^53, which is all
-- that store counts in.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local byte, sub, format, type, tonumber = string.byte, string.sub, string.format, type, tonumber
local unpack = unpack or table.unpack

-- The script's one instant, in microseconds since 2026. ARGV[1] is empty; or,
-- from a caller whose server refuses TIME to scripts, "instant,n", where the last
-- n KEYS remember the newest instant seen: a slow clock must not take time back.
local nkeys, now = #KEYS, ARGV[1]
if now == '' then
  local t = call('TIME')
  now = (t[1] - 1767225600) * 1000000 + t[2]
else
  local told, guards = string.match(now, '(-?%d+),(%d+)')
  now = told + 0
  nkeys = nkeys - guards
  for i = nkeys + 1, #KEYS do
    local seen = tonumber(call('GET', KEYS[i]) or nil)
    if seen and seen > now then now = seen end
  end
  for i = nkeys + 1, #KEYS do
    call('SET', KEYS[i], format('%.0f', now), 'PX', '86400000')
  end
end
