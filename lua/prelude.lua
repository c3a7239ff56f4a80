-- What all scripts share. Numbers are doubles: exact below 2^53, which is all
-- that store counts in.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local KEYS, ARGV = KEYS, ARGV
local byte, sub, format, match, type, tonumber = string.byte, string.sub, string.format, string.match, type, tonumber
local unpack = unpack or table.unpack

-- The script's one instant, in microseconds since 2026. ARGV[1] is empty; or,
-- from a caller whose server refuses TIME to scripts, "instant,n". If n is 1, the last
-- of KEYS remembers the latest instant that was told, and since when, by its own
-- lifetime: time goes on from there, whoever falls silent. Clocks that are slow can't
-- take it back, and the lifetimes of keys, which go by the server's clock, fit. What
-- is rounded to milliseconds is taken off: time is not to be ahead of all clocks.
local nkeys, now = #KEYS, ARGV[1]
if now == '' then
  local t = call('TIME')
  now = (tonumber(t[1]) - 1767225600) * 1000000 + tonumber(t[2])
else
  local told, guarded = match(now, '(-?%d+),(%d+)')
  now = tonumber(told)
  if guarded == '1' then
    local guard, day = KEYS[nkeys], 86400000
    nkeys = nkeys - 1
    local seen, left = tonumber(call('GET', guard) or nil), call('PTTL', guard)
    local gone = day - left
    local on = seen and left >= 0 and seen + max(gone - 1, 0) * 1000
    local says = false
    if not on or on < now then
      says = now
    else
      now = on
      if left < day / 2 then says = seen + gone * 1000 end
    end
    -- A server without memory for that charges nothing either: what needs none is answered.
    local kept = says and redis.pcall('SET', guard, format('%.0f', says), 'PX', day)
    if kept and kept.err and not string.find(kept.err, 'OOM', 1, true) then
      call('SET', guard, format('%.0f', says), 'PX', day) -- fails again
    end
  end
end
