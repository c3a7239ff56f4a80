-- Renews leases of concurrency limits, and enters again those that the server has lost.
-- Follows the prelude.
--
-- KEYS: per limit and caller the sorted set, and the key with its last reset (reset.lua).
-- ARGV, after the clock: the length of a lease in us; the instant after which no lease is
-- entered; then per set the number of ids, the ids, and for each "slots:seen" and a space: how
-- many slots it holds, and the script's instant when it was taken or last renewed.
--
-- Answers now, and for each lease that is lost the number of its set, from 1, its id, and
--   entered: it counts again, even if more slots are held than the limit has
--   reset: it was reset, or may have been, and doesn't count
--   late: nothing was done about it
-- A lease that has run out and is still in the set is renewed: its slot has not been given away.
--
-- A lease is never entered after its holder has released it: the holder repeats releases that it sent
-- before the last instant (renewal.go). Nor is one that a
-- Reset has removed: the key that records the reset lives for a day, and a lease that wasn't renewed
-- for half a day isn't entered.
local lasts, late = tonumber(ARGV[2]), now > tonumber(ARGV[3])
local till = format('%.0f', now + lasts + 1767225600000000)
local ms = floor((lasts + 999) / 1000) + 1
local answer, a, rare, asked = {now}, 4, nil, nil
for k = 1, nkeys / 2 do
  local key, last, missing, foreign = KEYS[2 * k - 1], a + tonumber(ARGV[a]), {}, false
  a = a + 1
  local ids = a
  while a <= last do
    local members, n = {}, 0
    local first = a
    while a <= last and n < 1000 do
      members[n + 1], members[n + 2] = till, ARGV[a]
      n = n + 2
      a = a + 1
    end
    local changed = redis.pcall('ZADD', key, 'XX', 'CH', unpack(members))
    if type(changed) == 'table' then
      foreign = true
      if not string.find(changed.err, 'WRONGTYPE', 1, true) then
        call('ZADD', key, 'XX', 'CH', unpack(members)) -- fails again
      end
    elseif changed > 0 then
      wrote = true
    end
    if changed ~= n / 2 then
      for i = first, a - 1 do
        if foreign or not call('ZSCORE', key, ARGV[i]) then missing[#missing + 1] = i end
      end
    end
  end
  if #missing > 0 then
    local reset = tonumber(call('MGET', KEYS[2 * k])[1] or nil) or -1e16
    reset = max(reset, now - 43200000000)
    local slots, seen, n = {}, {}, 0
    for s, at in string.gmatch(ARGV[a], '(%d+):(-?%d+)') do
      n = n + 1
      slots[n], seen[n] = tonumber(s), tonumber(at)
    end
    for _, i in ipairs(missing) do
      local place, what = i - ids + 1, 'entered'
      if seen[place] <= reset then
        what = 'reset'
      elseif late then
        what = 'late'
      else
        if not rare then
          --FUNCTIONS--
        end
        rare.restoreLease(key, ARGV[i], slots[place], till, format('%.0f', ms), foreign)
        foreign = false
      end
      local o = #answer
      answer[o + 1], answer[o + 2], answer[o + 3] = k, ARGV[i], what
    end
  end
  a = a + 1
  -- Never sooner than it was: others may have longer leases.
  if not foreign and call('PTTL', key) < ms then call('PEXPIRE', key, format('%.0f', ms)) end
end
return answer
