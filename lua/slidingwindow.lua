-- Twin of store/slidingwindow.go: charges are entered at the start of their
-- bucket. Needs sliding.lua.
--:setup
local reads = 'buckets'
--:functions
local function bucketed(token, unit)
  local l, buckets = {token = token, unit = unit}, unit % 1024
  local perTick, tick = scale((unit - buckets) / 1024)

  local function start(us, buckets)
    local n = floor(at(us, perTick, tick) / token) + buckets
    return (0 - floor(-n * token / perTick)) * tick
  end

  function l.entered(us) return start(us, 0) end
  function l.leaves(us) return start(us, buckets) end
  return l
end

function rare.buckets(limit)
  local f = fields(limit)
  local l = bucketed(f[2], f[3])
  l.units, l.numbers, l.was = f[1], string.match(limit, ',(.*)'), bucketed
  return l
end
