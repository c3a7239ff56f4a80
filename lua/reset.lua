-- Forgets keys, and returns how many there were. Follows the prelude.
--
-- KEYS: the keys, then others that record that some of them were reset.
-- ARGV, after the clock: the number of the first ones; the lifetimes of the others in ms: twice as
-- long as a settlement (settle.lua) or a renewal (renew.lua) that reads them may be late.
local n = ARGV[2] + 0
local found = call('UNLINK', unpack(KEYS, 1, n))
wrote = true
for i = n + 1, nkeys do call('SET', KEYS[i], format('%.0f', now), 'PX', ARGV[2 + i - n]) end
return found
