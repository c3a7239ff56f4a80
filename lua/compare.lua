-- Notes what limits mean by their names, and tells who means what by the same names.
-- Follows the prelude.
--
-- KEYS: a sorted set. Its members are meanings: a name, a space, and the numbers in words.
-- Their scores are the instants at which a process last said so.
-- ARGV, after the clock: for how long a meaning stays that nobody repeats, in us; how many
-- there may be; the caller's meanings.
--
-- Answers the present, and all meanings of these names, each followed by its instant.
local key, keep = KEYS[1], ARGV[2] + 0
call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now - keep))
local room, at, mine = ARGV[3] - call('ZCARD', key), format('%.0f', now), {}
local find = string.find
for i = 4, #ARGV do
  if room > 0 then
    room = room - call('ZADD', key, at, ARGV[i])
  else
    call('ZADD', key, 'XX', at, ARGV[i])
  end
  mine[sub(ARGV[i], 1, find(ARGV[i], ' ', 1, true))] = true
end
call('PEXPIRE', key, format('%.0f', floor(keep / 1000) + 1))
local told = {at}
local all = call('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES')
for i = 1, #all, 2 do
  if mine[sub(all[i], 1, find(all[i], ' ', 1, true))] then
    told[#told + 1] = all[i]
    told[#told + 1] = format('%.0f', all[i + 1])
  end
end
return told
