-- Forgets keys. Follows the prelude.
--
-- KEYS: the keys, then others that are to say that some of them have been reset.
-- ARGV, after the clock: the number of the first.
--
-- What says so lives for twice as long as a settlement that asks for it may be late
-- (settle.lua).
local n = ARGV[2] + 0
call('UNLINK', unpack(KEYS, 1, n))
wrote = true
for i = n + 1, nkeys do call('SET', KEYS[i], format('%.0f', now), 'PX', '60000') end
return 0
