-- Twin of store/tokenbucket.go in units: a bucket whose scale is wide. Needs wide.lua,
-- levels.lua and bucketstate.lua, which says what its state is.
--
-- Arguments: limit as of a bucket that one number holds (tokenbucket.lua), in tokens where
-- that is in units, but longest, which is in ticks; and how long the charge may wait in
-- us, and its cost.
--:arguments limit how
--:setup
local wait, cost = string.match(how, '(.+),(.+)')
local peek = cost == '0'
--:load
local s
if not rare then lacking = row break end
s = rare.state(limit, v)
dirty = s.changed and not peek
--:look
fits = rare.fit(s, wait + 0, cost + 0, g)
--:keep s dirty
--:charge
rare.pour(s, cost + 0, g)
--:save
new, fade = rare.text(s)
if g == 0 and not dirty and new then new = v end
--:amend
local views = rare.amend(limit, v, due, charged, instant, mark, lease)
dirty = views and true
if views then s = views end
