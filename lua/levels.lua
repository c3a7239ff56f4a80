-- Twin of store/levels.go: what bounds a refund. Levels are a list in pairs: an instant,
-- and the lowest use since then, as a number or a length of time (wide.lua). The functions
-- change the list.
--:functions
local maxLevels = 8

local function sinkLevels(v, used)
  while #v > 0 and used < v[#v] do
    v[#v] = used
    if #v == 2 or v[#v - 2] < used then return end
    v[#v], v[#v - 1] = nil, nil
  end
end

local function chargeLevels(v, at, before, after)
  sinkLevels(v, before)
  local n = #v
  if n > 0 and v[n - 1] >= at then
    v[n] = after
    return
  end
  if n == 2 * maxLevels then
    local drop, least = n + 2, after - v[n]
    for i = n, 4, -2 do
      local gap = v[i] - v[i - 2]
      if gap < least then drop, least = i, gap end
    end
    if drop > n then return end
    for i = drop - 1, n do v[i] = v[i + 2] end -- the last two become nil
    n = n - 2
  end
  v[n + 1], v[n + 2] = at, after
end

local function refundLevels(v, at, back, none)
  local first, n = 2, #v
  while first < n and v[first + 1] <= at do first = first + 2 end
  for i = first, n, 2 do v[i] = greater(v[i] - back, none) end
  local kept = 0
  for i = 2, n, 2 do
    local used = v[i]
    if i < first then used = lesser(used, v[first]) end
    if kept == 0 or v[kept] < used then
      v[kept + 1], v[kept + 2] = v[i - 1], used
      kept = kept + 2
    end
  end
  for i = n, kept + 1, -1 do v[i] = nil end
end

-- The lowest use since a charge at at, and the instant since which it is known, if that is
-- later.
local function levelsSince(v, at)
  if at < v[1] then return v[2], v[1] end
  local used = v[2]
  for i = 3, #v, 2 do
    if v[i] <= at then used = v[i + 1] end
  end
  return used, nil
end
