-- Twin of store/slidingcounter.go.
--
-- State: A:B:C:D:unit. If several versions have views, units and the window of the last
-- charge follow, and for each other view :unit:units:A:B:C:D:last.
--
-- Arguments: cost; how: empty for a charge that denies at once, else how long it may
-- wait in us; units; period in us.
--:arguments cost how units period
--:setup
local peek, n, length = cost == '0', units + 0, period + 0
local start = now - (now + 1767225600000000) % length
--:load
-- ahead: in which window from this one a charge is made that waits
local A, B, C, D, dirty, ahead, views = start, 0, 0, 0, false, 0, false
if v then
  local a, b, c, d, u = string.match(v, '^(-?%d+):(%d+):(%d+):(%d+):([1-9]%d*)$')
  if u == period then
    A, B, C, D = a + 0, b + 0, c + 0, d + 0
    if A < start then
      local k = (start - A) / length
      if k == 1 then B, C, D = D, B, 0 elseif k == 2 then B, C, D = 0, D, 0 else B, C, D = 0, 0, 0 end
    end
    A, dirty = start, A > start and not peek
  else
    if not rare then lacking = row break end
    views = rare.counters(v)
    if views then
      local begun = rare.ownCounter(views, length, n)
      dirty = (begun or views.moved) and not peek
      B, C, D = views.own.B, views.own.C, views.own.D
    end
  end
end
-- How much of C still counts.
local counting = C * (A + length - now)
if C > 0 then
  if counting + length < 9007199254740992 then
    counting = floor((counting + length - 1) / length)
  else
    if not rare then lacking = row break end
    counting = rare.weighed(C, A + length - now, length)
  end
end
--:look
if peek then
  fits = g
elseif D == 0 and B + counting + cost <= n then
  fits = min(g, floor((n - B - counting) / cost))
elseif how ~= '' and cost + 0 <= n then
  if not rare then lacking = row break end
  fits, ahead = rare.counterAhead(A, B, C, D, n - cost, length, now + min(how, length))
end
--:keep A B C D dirty ahead views
--:charge
if views then
  views.own.B, views.own.C, views.own.D = B, C, D
  rare.enterCounter(views, ahead, g * cost, n)
elseif ahead == 1 then
  D = D + g * cost
else
  B = B + g * cost
end
--:save
if views then
  new, fade = rare.counterText(views)
elseif B + C + D == 0 then
  new = false
else
  new = format('%.0f:%.0f:%.0f:%.0f:%s', A, B, C, D, period)
  fade = A + (D > 0 and 3 or B > 0 and 2 or 1) * length
end
--:amend
dirty = false
local mine = instant - A
local count = mine == 0 and B or mine == -length and C or mine == length and D
local moved
if views and views.new and diff <= 0 then count = false end
if diff > 0 then
  if not count or charged == 0 then mine, count = 0, B end
  moved, dirty = min(diff, max(0, 1099511627776 - count)), true -- store.MaxCost
elseif count and B + C + D > 0 then
  moved = -min(-diff, mark, count)
  dirty = moved < 0
end
if moved then
  if mine == 0 then B = B + moved elseif mine < 0 then C = C + moved else D = D + moved end
  if views then
    local own = views.own
    own.B, own.C, own.D = B, C, D
    if diff > 0 then
      own.units, own.last = n, max(own.last, A + mine)
      rare.fillCounters(views, moved)
    end
  end
end
--:functions
function rare.weighed(count, covered, length) return share(count, covered, length, 9007199254740992) end

local function countsOf(w)
  return w.B + w.D + rare.weighed(w.C, w.A + w.length - now, w.length)
end

local function alive(w) return w.B + w.C + w.D > 0 and now < w.last + 2 * w.length end

-- Drops the views that have ended, but for the first.
local function dropCounters(views)
  for i = #views, 2, -1 do
    if not alive(views[i]) then table.remove(views, i) end
  end
end

-- The views in v as of now; views.moved: the clock has been set back. Nothing if it is
-- somebody else's.
function rare.counters(v)
  local w, list = words(v), {moved = false}
  if not w[5] or w[5] <= 0 then return false end
  local all = {{length = w[5], units = w[6] or 0, A = w[1], B = w[2], C = w[3], D = w[4], last = w[7]}}
  for i = 8, #w - 6, 7 do
    if w[i] <= 0 or #all == 4 then break end
    all[#all + 1] = {length = w[i], units = w[i + 1], A = w[i + 2], B = w[i + 3], C = w[i + 4], D = w[i + 5], last = w[i + 6]}
  end
  for i = 1, #all do
    local w = all[i]
    local begins = now - (now + 1767225600000000) % w.length
    w.last = w.last or w.D > 0 and w.A + w.length or w.A
    for _ = 1, min((begins - w.A) / w.length, 3) do w.B, w.C, w.D = w.D, w.B, 0 end
    list.moved = list.moved or begins < w.A
    w.A, w.last = begins, min(w.last, begins + w.length)
    list[i] = w
  end
  dropCounters(list)
  if not list[2] and not alive(list[1]) then list[1] = nil end
  return list
end

-- Has views.own be the view of windows of this length, and reports whether it is new,
-- beside others.
function rare.ownCounter(views, length, units)
  for i = 1, #views do
    if views[i].length == length then
      views.own = views[i]
      return false
    end
  end
  local begins = now - (now + 1767225600000000) % length
  local own = {length = length, units = units, A = begins, B = 0, C = 0, D = 0, last = begins}
  for i = 1, #views do own.B = max(own.B, min(countsOf(views[i]), units)) end
  local begun = #views > 0
  views[4] = nil
  table.insert(views, 1, own)
  views.own, views.new = own, true
  dropCounters(views)
  return begun
end

-- Enters a charge of the version whose view is views.own into all others.
function rare.fillCounters(views, cost)
  local own = 1
  while views[own] ~= views.own do own = own + 1 end
  table.insert(views, 1, table.remove(views, own))
  dropCounters(views)
  for i = 2, #views do
    local w = views[i]
    if w.units == 0 then
      w.B = w.B + cost
    else
      w.B = w.B + max(0, min(cost, w.units - countsOf(w)))
    end
  end
end

-- Makes a charge in the present window, or the next.
function rare.enterCounter(views, ahead, cost, units)
  local own = views.own
  if ahead == 1 then own.D = own.D + cost else own.B = own.B + cost end
  own.units, own.last = units, own.A + ahead * own.length
  rare.fillCounters(views, cost)
end

-- The text of the views, and the instant at which nothing in them counts.
function rare.counterText(views)
  local out, fade, alone = {}, now, nil
  for i = 1, #views do
    local w = views[i]
    if w.B + w.C + w.D > 0 then fade = max(fade, w.A + (w.D > 0 and 3 or w.B > 0 and 2 or 1) * w.length) end
    if i == 1 then
      alone = format('%.0f:%.0f:%.0f:%.0f:%.0f', w.A, w.B, w.C, w.D, w.length)
      out[1] = format('%s:%.0f:%.0f', alone, w.units, w.last)
    else
      out[i] = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', w.length, w.units, w.A, w.B, w.C, w.D, w.last)
    end
  end
  if #views == 1 then return views[1].B + views[1].C + views[1].D > 0 and alone, fade end
  return table.concat(out, ':'), fade
end

-- Whether a charge that leaves room fits by an instant, and in which window from the one
-- that begins at A.
function rare.counterAhead(A, B, C, D, room, length, by)
  local counts = {C, B, D}
  for window = 0, 1 do
    local prev, left = counts[window + 1], room - counts[window + 2]
    if left >= 0 and (window > 0 or D == 0) then
      local gone = 0
      if prev > left then gone = length - divided(left, length, prev) end
      if gone < length then
        if max(now, A + window * length + gone) <= by then return 1, window end
        return 0, 0
      end
    end
  end
  return 0, 0
end
