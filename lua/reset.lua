-- Forgets keys. Follows the prelude.
--
-- KEYS: the keys, then others that are to say that some of them have been reset.
-- ARGV, after the clock: the number of the first; for how many ms each of the others lives:
-- twice as long as a settlement (settle.lua) or a renewal (renew.lua) that asks for it may be
-- late.
local n = ARGV[2] + 0
call('UNLINK', unpack(KEYS, 1, n))
wrote = true
for i = n + 1, nkeys do call('SET', KEYS[i], format('%.0f', now), 'PX', ARGV[2 + i - n]) end
return 0
