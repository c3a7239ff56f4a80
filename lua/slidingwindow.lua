-- Twin of store/slidingwindow.go: charges are entered at the start of their
-- bucket. Needs sliding.lua.
--
-- Record: units, period in us, token, perTick, tick in us, buckets.
local function slidingwindow()
  local function read(a)
    return {
      units = fields[a] + 0, token = fields[a + 2] + 0, perTick = fields[a + 3] + 0,
      tick = fields[a + 4] + 0, buckets = fields[a + 5] + 0,
    }
  end

  local function start(l, us, buckets)
    local n = floor(at(us, l.perTick, l.tick) / l.token) + buckets
    return (0 - floor(-n * l.token / l.perTick)) * l.tick
  end

  local function entered(l, us) return start(l, us, 0) end
  local function leaves(l, us) return start(l, us, l.buckets) end

  return sliding(read, entered, leaves)
end
