-- Twin of store/slidingwindow.go: charges are entered at the start of their
-- bucket. Needs sliding.lua.
--
-- Arguments: those of sliding.lua, and token, perTick, tick in us, and the number of
-- buckets.
--:arguments units numbers cost how token perTick tick buckets
--:setup
local nth, entry, counts, ends, slack = floor(floor(now / tick) * perTick / token), nil, nil, nil, 0
entry = (0 - floor(-nth * token / perTick)) * tick
counts = (0 - floor(-(nth + 1 - buckets) * token / perTick)) * tick
ends = (0 - floor(-(nth + buckets) * token / perTick)) * tick
local reads = 'buckets'
--:functions
function rare.buckets(token, unit)
  local buckets = unit % 1024
  local perTick, tick = scale((unit - buckets) / 1024)

  local function start(us, buckets)
    local n = floor(at(us, perTick, tick) / token) + buckets
    return (0 - floor(-n * token / perTick)) * tick
  end

  local l = {slack = 0}
  function l.entered(us) return start(us, 0) end
  function l.leaves(us) return start(us, buckets) end
  return l
end
