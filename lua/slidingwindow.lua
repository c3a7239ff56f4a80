-- Twin of store/slidingwindow.go: charges are entered at the start of their
-- bucket. Needs sliding.lua.
--
-- Arguments: those of sliding.lua, and token, perTick, tick in us, and the number of
-- buckets.
--:arguments units numbers cost how token perTick tick buckets
--:setup
local nth, entry, counts, ends, slack = floor(now / tick) * perTick, nil, nil, nil, 0
if tick ~= '1' or max(nth, -nth) + 2 * buckets * token < 9007199254740992 then
  nth = floor(nth / token)
  entry = (0 - floor(-nth * token / perTick)) * tick
  counts = (0 - floor(-(nth + 1 - buckets) * token / perTick)) * tick
  ends = (0 - floor(-(nth + buckets) * token / perTick)) * tick
else -- of a wide scale, and too large for a product: five bits of a factor by themselves
  local periods = floor(now / token)
  local rest = now - periods * token
  local high = floor(rest / 32)
  local q = floor(high * perTick / token)
  nth = periods * perTick + q * 32 + floor(((high * perTick - q * token) * 32 + (rest - high * 32) * perTick) / token)
  local starts = {nth, nth + 1 - buckets, nth + buckets}
  high = floor(token / 32)
  for x = 1, 3 do
    periods = floor(starts[x] / perTick)
    rest = starts[x] - periods * perTick
    q = floor(rest * high / perTick)
    starts[x] = periods * token + q * 32 + math.ceil(((rest * high - q * perTick) * 32 + rest * (token - high * 32)) / perTick)
  end
  entry, counts, ends = starts[1], starts[2], starts[3]
end
local reads, here, there = 'buckets', false, nil
if many and entry >= 0 then
  there = format('%.0f', entry)
  here, there = '^' .. there .. ':(%d+):(%d+):(%d+):' .. numbers .. '$', there .. ':%.0f:%.0f:%.0f:' .. numbers
end
--:functions
function rare.buckets(token, unit)
  local buckets = unit % 1024
  local perTick, tick, wide = scale((unit - buckets) / 1024)

  local function start(us, buckets)
    if wide then -- too large for a product
      local whole = floor(us / token)
      local n = whole * perTick + divided(us - whole * token, perTick, token) + buckets
      whole = floor(n / perTick)
      local q, r = divided(n - whole * perTick, token, perTick)
      return whole * token + q + (r > 0 and 1 or 0)
    end
    local n = floor(at(us, perTick, tick) / token) + buckets
    return (0 - floor(-n * token / perTick)) * tick
  end

  local l = {slack = 0}
  function l.entered(us) return start(us, 0) end
  function l.leaves(us) return start(us, buckets) end
  return l
end
