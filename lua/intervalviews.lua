-- Twin of store/intervalviews.go: the views that versions of an interval bucket have. A
-- list b of tables; b.own is the limit's, b.begun whether that is new, b.moved whether the
-- clock has been set back. Needs window.lua and levels.lua.
--
-- The text is A:token:unit:B:C of one view, with :E behind it if that isn't 0; and of
-- several, or of one with levels, with :E, and for each view when it ends, stand, the
-- number of its levels, when it began, and those, and the second with token:unit:A:B:C:E before that.
--:functions
local mostAhead = 2 * maxCost

local function tokensOf(k, units, used)
  if k >= ceilDiv(used, units) then return used end
  return k * units
end

local function longestInterval(unit)
  local length = intervalLength(unit)
  if length > 0 then return length end
  return (({[2] = 2, [3] = 50, [4] = 216})[-unit % 8] or 792) * 3600000000
end

local function counts(v) return max(v.used, v.stand) end

local function dated(v)
  if v.began == 0 then return v.start end
  return max(v.start, v.began)
end

local function filled(v)
  local length = longestInterval(v.unit)
  return v.start + min(ceilDiv(counts(v), v.token) + 1, floor(4503599627370496 / length)) * length
end

-- What the intervals of other bring it until the last turn in v.
local function ahead(v, other)
  local k = ceilDiv(max(v.used - v.capacity, 0), v.token)
  if k == 0 then return 0 end
  if v.unit ~= other.unit then
    if v.unit < 0 or other.unit < 0 then return 0 end
    local turn = v.start + min(k, floor(4503599627370496 / v.unit)) * v.unit
    k = floor(max(turn - other.start, 0) / other.unit)
  end
  return tokensOf(k, other.token, mostAhead)
end

local function fill(v, by, cost)
  local ahead = ahead(by, v)
  local used = max(v.used, ahead) + cost
  if used <= v.capacity + ahead then
    chargeLevels(v.lows, dated(v), v.used, used)
    v.used = used
    return
  end
  v.used = max(v.used, v.capacity + ahead)
  sinkLevels(v.lows, 0)
  v.floor, v.stand = v.used, max(v.stand, v.used)
end

-- Brings a view to the present, as far as the window tells; nil if that is asked.
local function advance(b, v)
  local own = v.unit == b.unit
  local length = intervalLength(v.unit)
  if v.start > now and own then
    v.start = b.window.opened(now)
    v.till = min(v.till, filled(v))
    v.began = 0
    if #v.lows > 0 then v.lows = {-4503599627370496, 0} end
    b.moved = true
  end
  local k = 0
  if own then
    k = b.window.passed(v.start, now)
    if not k then return nil end
  elseif length > 0 then
    k = floor(max(now - v.start, 0) / length)
  end
  if k > 0 then
    local tokens = tokensOf(k, v.token, counts(v))
    v.used, v.floor, v.stand = max(v.used - tokens, 0), max(v.floor - tokens, 0), max(v.stand - tokens, 0)
    if own then v.start = b.window.moved(v.start, k) else v.start = v.start + k * length end
  end
  return true
end

-- Drops the views that have ended, but for the first.
local function drop(b)
  for i = #b, 2, -1 do
    if b[i].till <= now then table.remove(b, i) end
  end
end

local function begin(b)
  if #b == 4 then return end
  local v = {token = b.token, unit = b.unit, capacity = b.capacity, start = b.window.opened(now), used = 0, floor = 0, stand = 0, began = 0, lows = {}}
  for i = 1, #b do
    if b[i].unit == v.unit then v.start = b[i].start end
    if #b[i].lows == 0 then b[i].lows = {dated(b[i]) - 1, b[i].used} end
  end
  local clamped = false
  for i = 1, #b do
    local used, most = b[i].used, b.capacity + ahead(b[i], v)
    if used > most and most >= v.used then
      v.used, clamped = most, true
    elseif used <= most and used > v.used then
      v.used, clamped = used, false
    end
  end
  v.till = filled(v)
  table.insert(b, 1, v)
  if #b > 1 then
    v.lows, v.began, b.begun = {-4503599627370496, 0}, now, true
    if clamped then v.floor = v.used else chargeLevels(v.lows, now, 0, v.used) end
  end
  b.own = v
  drop(b)
end

local function inUse(b)
  for i = 1, #b do
    if counts(b[i]) > 0 and b[i].till > now then return true end
  end
end

-- Begins the intervals of views that are all full with the next charge.
local function restart(b)
  for i = 1, #b do
    if b[i].used > 0 then return end
  end
  for i = 1, #b do
    if b[i].unit == b.unit then
      b[i].start = b.window.opened(now)
    elseif b[i].unit > 0 then
      b[i].start = now
    end
  end
end

-- The views in v; nil if that is asked.
function rare.intervals(limit, v, token, unit, capacity)
  local b = {window = rare.window(limit), token = token, unit = unit, capacity = capacity}
  if b.window.lost then return ask(now) end
  local w, all = words(v or ''), {}
  if w[4] and w[2] > 0 and w[3] ~= 0 then -- else somebody else's
    all[1] = {start = w[1], token = w[2], unit = w[3], used = w[4], capacity = w[5] or 0, floor = w[6] or 0, till = 0, stand = 0, began = 0, lows = {}}
    local i, view = 7, all[1]
    while w[i] do
      view.till, view.stand = w[i], w[i + 1] or 0
      view.began = w[i + 3] or 0
      local n = 2 * min(w[i + 2] or 0, maxLevels)
      for j = 1, n do view.lows[j] = w[i + 3 + j] or 0 end
      i = i + 4 + n
      if not w[i + 5] or #all == 4 then break end
      view = {token = w[i], unit = w[i + 1], start = w[i + 2], used = w[i + 3], capacity = w[i + 4], floor = w[i + 5], till = 0, stand = 0, began = 0, lows = {}}
      all[#all + 1] = view
      i = i + 6
    end
  end
  for i = 1, #all do
    if not advance(b, all[i]) then return nil end
    if not w[7] then all[i].till = filled(all[i]) end
    b[i] = all[i]
  end
  drop(b)
  restart(b)
  if not inUse(b) then
    for i = #b, 1, -1 do b[i] = nil end
  end
  if #b == 1 and b[1].stand == 0 then b[1].lows = {} end
  for i = 1, #b do
    local x = b[i]
    if x.token == token and x.unit == unit and x.capacity == capacity then b.own = x end
  end
  return b
end

-- The views that a charge goes by; without room for its own b.own is nil.
function rare.showInterval(b)
  if not b.own then begin(b) end
end

-- Makes a charge, after which used are in use in the limit's own view. waits: when it goes,
-- no more is in use than there is room for beside it.
function rare.enterInterval(b, cost, used, waits)
  local v = b.own
  local before = waits and min(v.used, v.capacity - cost) or v.used
  if #v.lows > 0 then chargeLevels(v.lows, dated(v), before, used) end
  v.used = used
  v.till = filled(v)
  local i = 1
  while b[i] ~= v do i = i + 1 end
  table.insert(b, 1, table.remove(b, i))
  drop(b)
  for i = 2, #b do fill(b[i], v, cost) end
end

-- The text, and the instant at which it is worth nothing.
function rare.intervalText(b)
  if not inUse(b) then return false end
  local fade = now
  for i = 1, #b do
    if b[i] ~= b.own then
      fade = max(fade, b[i].till)
    elseif counts(b.own) > 0 then
      fade = max(fade, b.window.latest(b.own.start, ceilDiv(counts(b.own), b.token)))
    end
  end
  local v = b[1]
  local out = format('%.0f:%.0f:%.0f:%.0f:%.0f', v.start, v.token, v.unit, v.used, v.capacity)
  if #b == 1 and v.stand == 0 then
    if v.floor > 0 then out = out .. format(':%.0f', v.floor) end
    return out, fade
  end
  out = {out, text(v.floor)}
  for i = 1, #b do
    v = b[i]
    if i > 1 then
      out[#out + 1] = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', v.token, v.unit, v.start, v.used, v.capacity, v.floor)
    end
    out[#out + 1] = format('%.0f:%.0f:%.0f:%.0f', v.till, v.stand, #v.lows / 2, v.began)
    for j = 1, #v.lows do out[#out + 1] = text(v.lows[j]) end
  end
  return table.concat(out, ':'), fade
end

-- Where a charge stands in the interval from start; nil if that is asked.
local function stands(b, instant, mark, start)
  local k
  if b.unit > 0 then
    k = ceilDiv(max(start - instant, 0), b.unit)
  else
    k = b.window.passed(instant, start)
  end
  return k and mark - tokensOf(k, b.token, mark)
end

local function giveBackOwn(b, v, due, refund, instant, mark)
  local stood, capacity, n = stands(b, instant, mark, v.start), b.capacity, b.token
  if not stood then return end
  local m = min(stood, v.used)
  local waiting, behind, back = v.used > capacity, v.used - m, min(refund, m)
  if waiting and behind > 0 then -- refunded in store/decide.go
    back = min(min(back, capacity) - behind, m - ceilDiv(v.used - capacity, n) * n)
  end
  back = max(back, 0)
  if #v.lows > 0 then
    local low, from = levelsSince(v.lows, instant)
    if from then
      stood = stands(b, instant, mark, from + 1)
      if not stood then return end
      low = min(low, stood)
    end
    back = min(back, low)
  end
  if m == v.floor and behind == 0 then
    v.floor = v.floor - back
  else
    back = max(min(back, v.used - v.floor), 0)
  end
  if waiting and due > 0 then v.floor = max(v.floor, m - back) end
  if waiting and behind > 0 and back > 0 then v.floor = max(v.floor, v.used - capacity + behind) end
  if back > 0 and (#v.lows > 0 or behind > 0) then
    if #v.lows == 0 then v.lows = {dated(v) - 1, v.used} end
    v.stand = max(v.stand, v.used)
    refundLevels(v.lows, instant, back, 0)
  end
  v.used = v.used - back
end

-- Has a charge cost something else after all.
function rare.amendInterval(b, due, charged, instant, mark)
  local diff = due - charged
  if diff > 0 then
    rare.showInterval(b)
    local v = b.own
    if not v then return end
    local stood = stands(b, instant, mark, v.start)
    if not stood then return end
    local m = min(stood, v.used)
    local debt = max(0, min(diff, b.capacity + maxCost - v.used))
    if v.floor > 0 and m == v.floor and m == v.used then v.floor = v.floor + debt end
    rare.enterInterval(b, debt, v.used + debt)
    return
  end
  for i = 1, #b do
    local v = b[i]
    if v == b.own then
      giveBackOwn(b, v, due, -diff, instant, mark)
    elseif #v.lows > 0 and v.used <= v.capacity and (v.unit < 0) == (b.unit < 0) then
      local used, from = levelsSince(v.lows, instant)
      local back = min(-diff, used, v.used - v.floor)
      if not from and back > 0 then
        v.stand = max(v.stand, v.used)
        refundLevels(v.lows, instant, back, 0)
        v.used = v.used - back
      end
    end
  end
end
