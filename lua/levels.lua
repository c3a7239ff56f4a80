-- Twin of internal/algorithm/levels.go: what bounds a refund. Levels are a list in pairs: an instant, and
-- the lowest use since then. The functions change the list.
--:functions
local maxLevels, earliest = 8, -4503599627370496

local function lowerLevels(v, used)
  while #v > 0 and used < v[#v] do
    v[#v] = used
    if #v == 2 or v[#v - 2] < used then return end
    v[#v], v[#v - 1] = nil, nil
  end
end

local function chargeLevels(v, at, before, after)
  lowerLevels(v, before)
  local n = #v
  if n > 0 and v[n - 1] >= at then
    v[n] = after
    return
  end
  n = n + 2
  v[n - 1], v[n] = at, after
  if n > 2 * maxLevels then
    local drop = n
    for i = n - 2, 4, -2 do
      if v[i] - v[i - 2] < v[drop] - v[drop - 2] then drop = i end
    end
    for i = drop - 1, n do v[i] = v[i + 2] end -- the last two become nil
  end
end

local function refundLevels(v, at, back)
  local first, n = 2, #v
  while first < n and v[first + 1] <= at do first = first + 2 end
  local most, kept = max(v[first] - back, 0), 0
  for i = 2, n, 2 do
    local used = i < first and min(v[i], most) or max(v[i] - back, 0)
    if kept == 0 or v[kept] < used then
      v[kept + 1], v[kept + 2] = v[i - 1], used
      kept = kept + 2
    end
  end
  for i = n, kept + 1, -1 do v[i] = nil end
end

-- The lowest use since a charge at at, as far as it is known: since the instant from, which is one
-- after the first level's.
local function levelsSince(v, at)
  local used = v[2]
  for i = 3, #v, 2 do
    if v[i] > at then break end
    used = v[i + 1]
  end
  return used, max(v[1] + 1, at)
end

-- Keeps since and the levels of a state at least until an instant.
local function keepLevels(s, till)
  if not s.till then s.till, s.since = till, earliest end
  s.till = max(s.till, till)
end

-- The part of a state's text with those.
local function levelsText(s)
  local out = {format(':%.0f:%.0f', s.till, s.since)}
  for i = 1, #s.lows do out[i + 1] = format(':%.0f', s.lows[i]) end
  return table.concat(out)
end

-- Whether the words of a state from the i-th on are nothing, or till, since and levels that
-- ascend.
local function validLevels(w, i)
  local n = #w
  if n < i then return true end
  if (n - i) % 2 == 0 or n > i + 1 + 2 * maxLevels or w[i] == 0 then return false end
  for j = i + 2, n, 2 do
    if w[j + 1] < 0 or w[j + 3] and (w[j + 2] <= w[j] or w[j + 3] <= w[j + 1]) then return false end
  end
  return true
end
