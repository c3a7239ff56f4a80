-- Renews leases of concurrency limits. Follows the prelude.
--
-- KEYS: the sorted sets. ARGV, after the clock: the length of a lease in us,
-- then per key the number of ids and the ids.
--
-- Answers for each lease that is lost the number of its key, from 1, and its id.
-- A lease that has run out and still stands is renewed: its slot has not been
-- given to anybody.
local till = format('%.0f', now + ARGV[2] + 1767225600000000)
local ms = floor((ARGV[2] + 999) / 1000) + 1
local lost, a = {}, 3
for k = 1, nkeys do
  local key, last = KEYS[k], a + ARGV[a]
  a = a + 1
  while a <= last do
    local members, n = {}, 0
    local first = a
    while a <= last and n < 1000 do
      members[n + 1], members[n + 2] = till, ARGV[a]
      n = n + 2
      a = a + 1
    end
    local changed = redis.pcall('ZADD', key, 'XX', 'CH', unpack(members))
    if type(changed) == 'table' and not string.find(changed.err, 'WRONGTYPE', 1, true) then
      call('ZADD', key, 'XX', 'CH', unpack(members)) -- fails again
    end
    if changed ~= n / 2 then
      for i = first, a - 1 do
        local score = redis.pcall('ZSCORE', key, ARGV[i])
        if type(score) ~= 'string' then
          lost[#lost + 1] = k
          lost[#lost + 1] = ARGV[i]
        end
      end
    end
  end
  -- Never sooner than it was: others may have longer leases.
  if call('PTTL', key) < ms then call('PEXPIRE', key, format('%.0f', ms)) end
end
return lost
