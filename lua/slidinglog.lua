-- Twin of store/slidinglog.go: charges are entered where they are. Needs
-- sliding.lua.
--
-- Record: units, period in us.
local function slidinglog()
  local function read(a) return {units = fields[a] + 0, period = fields[a + 1] + 0} end
  local function entered(l, us) return us end
  local function leaves(l, us) return us + l.period end

  return sliding(read, entered, leaves)
end
