-- Twin of store/slidingwindow.go: charges are entered at the start of their
-- bucket. Needs sliding.lua.
--
-- Record: units, token, unit.
local function slidingwindow()
  local read = {}

  function read.numbers(token, unit)
    local l = {token = token, unit = unit, buckets = unit % 1024}
    l.perTick, l.tick = scale((unit - l.buckets) / 1024)
    return l
  end

  function read.record(a)
    local l = read.numbers(fields[a + 1] + 0, fields[a + 2] + 0)
    l.units, l.numbers = fields[a] + 0, fields[a + 1] .. ':' .. fields[a + 2]
    return l
  end

  local function start(l, us, buckets)
    local n = floor(at(us, l.perTick, l.tick) / l.token) + buckets
    return (0 - floor(-n * l.token / l.perTick)) * l.tick
  end

  local function entered(l, us) return start(l, us, 0) end
  local function leaves(l, us) return start(l, us, l.buckets) end

  return sliding(read, entered, leaves)
end
