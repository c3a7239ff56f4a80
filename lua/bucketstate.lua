-- Twin of store/views.go: what a bucket's state says beyond one instant, in scales of
-- any width. Needs wide.lua and levels.lua.
--
-- The text is A:token:unit, of a wide scale with the units beyond the ticks of A behind
-- that; then B:C, if B isn't 0; or 0:C and the numbers of the Log.
--:functions
local eternity, longestView = 4503599627370496, 3600000000

-- The numbers in the argument limit (tokenbucket.lua).
local function numbersOf(limit)
  local f = fields(limit)
  local p, tick, wide = scale(f[6])
  return {largest = f[1], debt = f[2] == 1, queue = f[3], burst = f[4], token = f[5], unit = f[6],
    p = p, tick = tick, wide = wide, at = present(p, tick), zero = zero(p)}
end

local function newView(token, unit, burst)
  local p, tick, wide = scale(unit)
  return {token = token, unit = unit, p = p, tick = tick, wide = wide, burst = burst, at = present(p, tick), zero = zero(p), floor = zero(p), turn = zero(p), last = now, lows = {}}
end

local function inTicks(w, us) return pair(floor(us / w.tick), 0, w.p) end
local function fullOf(w)
  if w.burst < 0 then return inTicks(w, 31536000000000) end
  return product(w.burst, w.token, w.p)
end
local function usedOf(w) return greater(w.tat - w.at, w.zero) end
local function aheadOf(w)
  if w.burst < 0 then return w.zero end
  return greater(w.tat - fullOf(w) - presently(w.p, w.tick), w.zero)
end
local function units(a) return a.ticks * a.p + a.beyond end
local function entryOf(w, a)
  if w.wide then return a.ticks, a.beyond end
  return units(a), 0
end
local function ofEntry(w, at, beyond)
  if w.wide then return pair(at, beyond, w.p) end
  return paired(at, w.p)
end

local function tell(w)
  local turn = w.tat - fullOf(w)
  if w.at < turn and (w.turn == w.zero or w.turn < turn) then w.turn = turn end
end

local function beginLows(w)
  if #w.lows == 0 then
    w.lows = {now, usedOf(w)}
    tell(w)
  end
end

local function noteCharge(w, before)
  if #w.lows > 0 then
    chargeLevels(w.lows, now, before, usedOf(w))
    tell(w)
  end
end

local function fills(w) return w.last + min(micros(fullOf(w), w.tick), longestView) end
local function ended(w)
  return w.tat <= w.at or now >= fills(w) and aheadOf(w) <= w.zero and (w.turn == w.zero or w.turn <= w.at)
end

-- Reads a view's last charge, floor and levels from the i-th number on.
local function decode(w, list, i)
  w.last, w.floor = list[i] or 0, ofEntry(w, list[i + 2] or 0, list[i + 3] or 0)
  w.turn = ofEntry(w, list[i + 4] or 0, list[i + 5] or 0)
  local n = 2 * min(list[i + 1] or 0, maxLevels)
  i = i + 6
  while #w.lows < n do
    w.lows[#w.lows + 1] = list[i] or 0
    w.lows[#w.lows + 1] = ofEntry(w, list[i + 1] or 0, w.wide and list[i + 2] or 0)
    i = i + (w.wide and 4 or 2)
  end
  return i
end

local maxViews = 4

-- Drops the views that have ended, except one, and returns where that is then.
local function endViews(b, except)
  local n, at, count = 0, 0, #b
  for i = 1, count do
    local w = b[i]
    if i ~= except and ended(w) then
      b.mark = max(b.mark, micros(w.tat, w.tick))
    else
      n = n + 1
      b[n] = w
      if i == except then at = n end
    end
  end
  for i = n + 1, count do b[i] = nil end
  return at
end

-- Drops what says nothing more at this instant.
local function tidy(b)
  local latest = 1
  for i, w in ipairs(b) do
    if w.last >= b[latest].last then latest = i end
  end
  endViews(b, latest)
  for _, w in ipairs(b) do
    if w.floor <= w.at then w.floor = w.zero end
  end
  if not b[2] and b.mark <= now then
    b[1].lows, b[1].turn = {}, b[1].zero
    if b[1].tat <= b[1].at then b[1] = nil end
  end
end

-- The views in v as of now. Nothing is one of somebody else's.
local function bucketOf(v)
  local b = {mark = now, last = now, moved = false}
  local w = {}
  if v and string.find(v, ':', 1, true) then
    w = words(v)
  elseif v and #v == 19 then
    local k = tonumber(sub(v, 1, 1)) or 0
    if k > 0 then w = {tonumber(sub(v, 5)) or 0, (tonumber(sub(v, 2, 4)) or 0) * 10 ^ (k - 1), 8} end
  end
  local token, unit = w[2] or 0, w[3] or 0
  if token <= 0 or unit < 8 then return b end
  local first, i = newView(token, unit, 0), 4
  if first.wide then
    first.tat, i = pair(w[1], w[4] or 0, first.p), 5
  else
    first.tat = paired(w[1], first.p)
  end
  local ahead = w[i] or 0
  first.burst, b[1] = w[i + 1] or 0, first
  i = i + 2
  if not w[i] then
    if ahead > 0 then
      local top = first.at + fullOf(first) + ofEntry(first, ahead, 0)
      if top < first.tat then first.tat, b.moved = top, true end
    else
      local n, rest = tokensIn(usedOf(first), first.token)
      first.burst = -min(rest > 0 and n + 1 or n, 2 * maxCost)
    end
    if first.tat <= first.at then b[1] = nil end
    return b
  end
  b.last, b.mark = w[i], w[i + 1]
  i = decode(first, w, i + 2)
  while w[i] and #b < maxViews do
    local token, unit = w[i], w[i + 1] or 0
    if token <= 0 or unit < 8 then break end
    local other = newView(token, unit, w[i + 4] or 0)
    other.tat, b[#b + 1] = ofEntry(other, w[i + 2] or 0, w[i + 3] or 0), other
    i = decode(other, w, i + 6)
  end
  if now < b.last then
    local by = b.last - now
    b.last, b.mark, b.moved = now, b.mark - by, true
    for _, w in ipairs(b) do
      local back = inTicks(w, by)
      w.tat, w.last = w.tat - back, w.last - by
      if w.floor ~= w.zero then w.floor = w.floor - back end
      if w.turn ~= w.zero then w.turn = w.turn - back end
      for j = 1, #w.lows, 2 do w.lows[j] = w.lows[j] - by end
    end
  end
  tidy(b)
  return b
end

local function top(w, other)
  local from, ahead = w.at, aheadOf(other)
  if ahead > other.zero then
    from = presently(w.p, w.tick) + lesser(converted(ahead, other.tick, w.p, w.tick), inTicks(w, 31536000000000))
  end
  return from + fullOf(w)
end

local function find(b, l)
  for i, w in ipairs(b) do
    if w.token == l.token and w.unit == l.unit then
      if w.burst >= 0 and w.burst == l.burst then return i end
      if w.burst < 0 and l.burst >= -w.burst then
        local highest = w.at + product(l.burst, l.token, l.p)
        if highest < w.tat then
          w.tat, b.moved = highest, true
          sinkLevels(w.lows, w.zero)
        end
        w.burst = l.burst
        tidy(b) -- it may have ended
        return find(b, l)
      end
    end
  end
end

local function show(b, l)
  local i = find(b, l)
  if i then return i, i, b.moved end
  if #b == maxViews then return 1, maxViews, b.moved end
  local w = newView(l.token, l.unit, l.burst)
  w.tat = w.at
  b[#b + 1] = w
  if #b == 1 then return 1, 1, false end
  local own, clamped, most = #b, false, inTicks(w, 31536000000000)
  for i = 1, own - 1 do -- takeOver in store/views.go
    local other = b[i]
    beginLows(other)
    local ahead = aheadOf(other)
    local used = greater(other.tat - presently(other.p, other.tick), other.zero) - ahead
    local tat = presently(w.p, w.tick) + shared(used, l.token, other.token, l.p, fullOf(w) + most)
    tat = tat + lesser(converted(ahead, other.tick, w.p, w.tick), most)
    local highest, over = top(w, other), false
    if highest < tat then tat, over = highest, true end
    if w.tat < tat then w.tat, clamped = tat, over end
  end
  w.lows = {-eternity, w.zero}
  if not clamped then noteCharge(w, w.zero) end
  own = endViews(b, own)
  return own, own, true
end

local function enter(b, cost, needs, first, last)
  for i = first, last do
    local w = b[i]
    local used = usedOf(w)
    w.tat = w.at + used + product(cost, w.token, w.p)
    if needs >= 0 then used = lesser(used, greater(fullOf(w) - product(needs, w.token, w.p), w.zero)) end
    noteCharge(w, used)
  end
  b.last = now
  if first ~= last then return end
  local own = b[first]
  own.last = now
  for i, w in ipairs(b) do
    if i ~= first then
      local used = usedOf(w)
      local was = w.at + used
      local filled, highest = was + product(cost, w.token, w.p), top(w, own)
      if filled <= highest then
        w.tat = filled
        noteCharge(w, used)
      else
        w.tat = greater(was, highest)
        sinkLevels(w.lows, w.zero)
        tell(w)
      end
    end
  end
end

-- The views in v, and those that a charge of the limit goes by.
function rare.state(limit, v)
  local b = bucketOf(v)
  b.limit = numbersOf(limit)
  b.from, b.to, b.changed = show(b, b.limit)
  return b
end

-- How many of g equal charges fit: ask in store/views.go.
function rare.fit(b, maxWait, cost, g)
  local l = b.limit
  for i = b.from, b.to do
    local w = b[i]
    local queue, own = product(l.queue, w.token, w.p), product(cost, w.token, w.p)
    if l.debt then own = w.zero end
    local short, allowed = usedOf(w) + own - fullOf(w), queue
    if maxWait > 0 then
      local within = inTicks(w, maxWait)
      if queue == w.zero or within < allowed then allowed = within end
    end
    if allowed < short then return 0 end
    g = min(g, floor(tokensIn(allowed - short, w.token) / cost) + 1)
  end
  return g
end

function rare.pour(b, cost, g)
  for n = 1, g do
    if n > 1 then -- as for a charge that comes by itself: the one before may have ended a view
      tidy(b)
      b.from, b.to = show(b, b.limit)
    end
    enter(b, cost, b.limit.debt and 0 or cost, b.from, b.to)
  end
  if b.from ~= b.to and g > 0 then
    local l = b.limit
    b.mark = max(b.mark, micros(l.at + product(cost, l.token, l.p), l.tick))
  end
end

-- The text of a bucket, the instant at which it says nothing more, and the limit's tat if
-- that is all it says.
function rare.text(b)
  local first = b[1]
  if not first then return false end
  local till = 0
  local list, n = {}, 0
  local function add(a, c)
    list[n + 1], list[n + 2] = text(a), text(c)
    n = n + 2
  end
  for _, w in ipairs(b) do till = max(till, micros(greater(w.tat, w.at), w.tick)) end
  list[1], list[2], list[3], n = 0, text(first.token), text(first.unit), 3
  if first.wide then
    list[1], list[4], n = text(first.tat.ticks), text(first.tat.beyond), 4
  else
    list[1] = text(units(first.tat))
  end
  if not b[2] and b.mark <= now then
    if first.tat <= first.at then return false end
    local ahead = first.tat - first.at - fullOf(first)
    if ahead > first.zero then
      add(first.wide and upTicks(ahead) or units(ahead), first.burst)
    elseif first.token == b.limit.token and first.unit == b.limit.unit then
      return table.concat(list, ':'), till, units(first.tat)
    end
    return table.concat(list, ':'), till
  end
  add(0, first.burst)
  add(now, b.mark)
  local function encode(w)
    add(w.last, #w.lows / 2)
    add(entryOf(w, w.floor))
    add(entryOf(w, w.turn))
    for j = 1, #w.lows, 2 do
      local used, beyond = entryOf(w, w.lows[j + 1])
      add(w.lows[j], used)
      if w.wide then add(beyond, 0) end
    end
  end
  encode(first)
  for i = 2, #b do
    local w = b[i]
    add(w.token, w.unit)
    add(entryOf(w, w.tat))
    add(w.burst, 0)
    encode(w)
  end
  return table.concat(list, ':'), max(till, b.mark)
end

local function owe(b, tokens, charged, mark)
  local l = b.limit
  for i = b.from, b.to do
    local w = b[i]
    tokens = owed(tokens, w.at + usedOf(w), w.at + fullOf(w) + inTicks(w, 31536000000000), w.token)
  end
  if tokens == 0 then return false end
  local w = b[b.from]
  local tat = w.at + usedOf(w)
  local m = lesser(mark, tat)
  local kept = mark.ticks > -eternity and b.from == b.to and w.floor ~= w.zero and w.floor == m and m == tat
  enter(b, tokens, -1, b.from, b.to)
  m = greater(m, l.at) + product(tokens, l.token, l.p)
  if kept then w.floor = m end
  if b.from ~= b.to then b.mark = max(b.mark, micros(m, l.tick)) end
  return true
end

-- giveBack in store/views.go
local function giveBack(l, w, made, stands, due, charged, raised)
  local none, at, tat, capacity = w.zero, w.at, w.tat, fullOf(w)
  local m = lesser(made, tat)
  local behind, waiting = tat - m, at + capacity < tat
  if l.debt and behind > none then behind = pair(9007199254740992, 0, w.p) end
  local back = refunded(worth(charged - due, w.token, stands), stands, behind, capacity, waiting)
  if l.queue > 0 and not l.debt and charged > l.burst and not raised then
    local turn = made - capacity
    if behind > none and at < turn then
      back = none
    elseif due > 0 then
      back = greater(lesser(back, m - turn - worth(due, w.token, capacity)), none)
    end
  end
  if w.floor ~= none and w.floor == m and behind == none then
    w.floor = m - back
  elseif w.floor ~= none then
    back = greater(lesser(back, tat - w.floor), none)
  end
  local bottom = m - back
  if due == 0 then bottom = at end
  if behind > none and back > none then bottom = greater(bottom, tat - capacity + behind) end
  if waiting and at < bottom and (w.floor == none or w.floor < bottom) then w.floor = bottom end
  return back
end

local function refund(b, due, charged, instant, made, raised)
  local l, changed = b.limit, false
  local own = find(b, l)
  for i, w in ipairs(b) do
    local used = usedOf(w)
    local floored, back = w.floor, w.zero
    w.tat = w.at + used
    sinkLevels(w.lows, used)
    if i == own then
      local stands
      if #w.lows == 0 then
        stands = lesser(greater(made - w.at, w.zero), used)
      else
        local low, from = levelsSince(w.lows, instant)
        local stood = inTicks(w, from or instant)
        if w.turn ~= w.zero then stood = greater(stood, lesser(w.turn, w.at)) end
        stands = lesser(low, greater(made - stood, w.zero))
      end
      back = giveBack(l, w, made, stands, due, charged, raised)
    elseif #w.lows > 0 and w.turn <= inTicks(w, instant) then
      local low, from = levelsSince(w.lows, instant)
      if not from then
        back = lesser(low, w.tat - greater(w.floor, w.at))
        back = greater(worth(charged - due, w.token, back), w.zero)
      end
    end
    if not b[2] and i == own and w.floor == floored and made == w.tat and #w.lows == 0 and b.mark <= now and not raised then
      w.tat, changed, back = w.tat - back, back > w.zero, w.zero
    elseif back > w.zero or w.floor ~= floored then
      changed, b.mark = true, max(b.mark, micros(w.tat, w.tick))
    end
    if back > w.zero then
      beginLows(w)
      refundLevels(w.lows, instant, back, w.zero)
      w.tat = w.tat - back
    end
  end
  return changed
end

-- mark is that of the receipt, or a number before all instants if another version has made
-- the charge. raised: settling has raised its cost before.
function rare.amend(limit, v, due, charged, instant, mark, raised)
  local b = bucketOf(v)
  b.limit = numbersOf(limit)
  local made = told(mark, b.limit.p)
  if due > charged then
    b.from, b.to = show(b, b.limit)
    if not owe(b, due - charged, charged, made) then return nil end
  elseif due == charged or not refund(b, due, charged, instant, made, raised) then
    return nil
  end
  return b
end
