-- What all scripts share. Numbers are doubles: exact below 2^53, and no limit
-- counts further.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local KEYS, ARGV = KEYS, ARGV
local byte, sub, format, match, type, tonumber = string.byte, string.sub, string.format, string.match, type, tonumber
local unpack = unpack or table.unpack

-- now is the script's one instant, in microseconds since 2026: the server's time, or, if ARGV[1]
-- isn't empty, that of a caller's clock: "instant,n". If n is 1, the last of KEYS, the guard,
-- has the latest instant that a caller gave; its remaining lifetime says how long ago that was. Time goes on
-- from there by the server's clock, as the lifetimes of keys do, so a slow clock can't set it back.
-- Lifetimes are in milliseconds and rounded so that time isn't ahead of all clocks.
local nkeys, now = #KEYS, ARGV[1]
if now == '' then
  local t = call('TIME')
  now = (tonumber(t[1]) - 1767225600) * 1000000 + tonumber(t[2])
else
  local given, guarded = match(now, '(-?%d+),(%d+)')
  now = tonumber(given)
  if guarded == '1' then
    local guard, day = KEYS[nkeys], 86400000
    nkeys = nkeys - 1
    local seen, left = tonumber(call('GET', guard) or nil), call('PTTL', guard)
    local passed = day - left
    local guarding = seen and left >= 0 and seen + max(passed - 1, 0) * 1000
    local new = false
    if not guarding or guarding < now then
      new = now
    else
      now = guarding
      if left < day / 2 then new = seen + passed * 1000 end
    end
    -- A server without memory for this charges nothing either, and looks and denials need none.
    local set = new and redis.pcall('SET', guard, format('%.0f', new), 'PX', day)
    if set and set.err and not string.find(set.err, 'OOM', 1, true) then
      call('SET', guard, format('%.0f', new), 'PX', day) -- fails again
    end
  end
end
