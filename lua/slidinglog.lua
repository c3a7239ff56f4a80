-- Twin of store/slidinglog.go: charges are entered where they are. Needs
-- sliding.lua.
--:setup
local reads = 'log'
--:functions
function rare.log(limit)
  local f = fields(limit)
  local l = {units = f[1], token = f[2], unit = 0, numbers = string.match(limit, ',(.*)')}
  function l.entered(us) return us end
  function l.leaves(us) return us + l.token end
  function l.was(token) return {entered = l.entered, leaves = function(us) return us + token end} end
  return l
end
