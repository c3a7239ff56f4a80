-- Twin of store/tokenbucket.go in units: a bucket whose scale is wide. Needs wide.lua,
-- levels.lua and bucketstate.lua, which says what its state is.
--
-- Arguments:
--   limit: as in tokenbucket.lua
--   how: "MaxWait,cost", in microseconds and tokens
--:arguments limit how
--:setup
local maxWait, cost = string.match(how, '(.+),(.+)')
local largest, peek = string.match(limit, '%d+'), cost == '0'
--:load
local s
if not rare then lacking = row break end
s = rare.state(limit, v)
dirty = s.changed and not peek
--:look
if peek then
  fits = g
elseif cost + 0 <= largest + 0 then
  fits = rare.fit(s, maxWait + 0, cost + 0, g)
end
--:keep s dirty
--:charge
rare.pour(s, cost + 0, g)
--:save
new, fade = rare.text(s)
if g == 0 and not dirty and new then new = v end
--:amend
-- lease: as in tokenbucket.lua
local views = rare.amend(limit, v, due, charged, instant, mark, lease == '1')
dirty = views and true
if views then s = views end
