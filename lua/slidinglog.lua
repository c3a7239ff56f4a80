-- Twin of store/slidinglog.go: charges are entered where they are. Needs
-- sliding.lua.
--
-- Record: units, token, which is the period in us, unit.
local function slidinglog()
  local read = {}
  function read.numbers(token) return {token = token, unit = 0} end

  function read.record(a)
    local l = read.numbers(fields[a + 1] + 0)
    l.units, l.numbers = fields[a] + 0, fields[a + 1] .. ':' .. fields[a + 2]
    return l
  end

  local function entered(l, us) return us end
  local function leaves(l, us) return us + l.token end

  return sliding(read, entered, leaves)
end
