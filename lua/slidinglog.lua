-- Twin of store/slidinglog.go: charges are entered where they are. Needs
-- sliding.lua.
--
-- Arguments: those of sliding.lua, and the period in us.
--:arguments units numbers cost how period
--:setup
local entry, counts, ends, slack = now, now - period + 1, now + period, min(period, 10000000)
local reads, here, there = 'log', false, nil
--:functions
function rare.log(token)
  local l = {slack = min(token, 10000000)}
  function l.entered(us) return us end
  function l.leaves(us) return us + token end
  return l
end
