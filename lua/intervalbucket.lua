-- Twin of store/intervalbucket.go. Needs window.lua.
--
-- State: A:token:unit:B:C:D:E, cut after C if D and E are 0.
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that refuses at once, else how long it may wait in us
--   units
--   unit: store.Numbers.Unit
--   burst
--   start, next, after: as of a fixed window
--:arguments limit cost how units unit burst start next after
--:setup
local peek, n, capacity = cost == '0', units + 0, burst + 0
-- Where the present interval begins, as text, and ends: as of a fixed window.
local first, fin
if next == '' then
  first, fin = format('%.0f', now), now + start
else
  first, fin = start, next + 0
  if now >= fin then first, fin = next, after + 0 end
  if now < first + 0 or now >= fin then fin = nil end -- to be asked
end
--:load
local A, B, D, E, ends, live, waits = first, 0, 0, 0, fin, false, false
if v or not fin then
  local a, t, u, b, c
  if v then a, t, u, b, c = string.match(v, '^(%d+):(%d+):(-?%d+):(%d+):(%d+)$') end
  if fin and t == units and u == unit and c == burst and (a == first or next == '' and a + 0 <= now and now < a + start) then
    A, B, live = a, b + 0, true
    if next == '' then ends = A + start end
  else
    if not rare then lacking = row break end
    asked = nil
    A, B, D, E, ends, live, dirty = rare.interval(limit, v, n, unit + 0, capacity)
    if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
  end
end
--:look
if fits < 0 or peek then
  if fits == 0 then fits = g end
elseif B + cost <= capacity then
  fits = min(g, floor((capacity - B) / cost))
elseif how ~= '' and cost + 0 <= capacity then
  if not rare then lacking = row break end
  local k = math.ceil((B + cost - capacity) / n)
  asked = nil
  if rare.window(limit).by(A + 0, k, now + how) then fits, waits = 1, max(B, k * n) + cost end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
-- Whose lifetime is more than the present interval (save).
if fits > 0 and not rare and (waits or B + fits * cost) > n then lacking = row break end
--:keep A B D E ends live waits dirty
--:charge
if waits then B = waits else B = B + g * cost end
--:save
if B == 0 and D == 0 then
  new = false
else
  new = format('%s:%s:%s:%.0f:%s', A, units, unit, B, burst)
  if D ~= 0 or E ~= 0 then new = new .. format(':%.0f:%.0f', D, E) end
  fade, keep = ends, g > 0 and live and not dirty and B + D <= n
  if B + D > n and rare then
    fade = rare.window(limit).latest(A + 0, math.ceil((B + D) / n))
  elseif B > n then -- a lifetime that was lost: of windows of the calendar, enough
    local length, kind = string.match(limit, '(%d+),(%d)')
    fade = ends + math.ceil(B / n) * length * (kind == '2' and 2 or 1)
  end
end
--:amend
-- Where the charge stands today: less what the intervals since then gave.
local before = 0
asked = nil
if (diff < 0 or E > 0) and instant < A + 0 and (live or diff > 0) then
  if not rare then lacking = row break end
  before = rare.window(limit).passed(instant, A + 0) or 0
end
if asked then
  fits, raw = -1, '?' .. table.concat(asked, ',')
elseif live or diff > 0 then
  if before >= math.ceil(mark / n) then mark = 0 else mark = mark - before * n end
  mark, dirty = min(mark, B), true
  if diff > 0 then
    local debt = max(0, min(diff, capacity + 1099511627776 - B)) -- store.MaxCost
    if E > 0 and mark == E and mark == B then E = E + debt end
    B = B + debt
  elseif diff < 0 then
    local waiting, behind, back = B > capacity, B - mark, min(-diff, mark)
    if waiting and behind > 0 then -- refunded in store/decide.go
      back = min(min(back, capacity) - behind, mark - math.ceil((B - capacity) / n) * n)
    end
    back = max(back, 0)
    if mark == E and behind == 0 then
      E = E - back
    else
      back = max(min(back, B - E), 0)
    end
    if waiting and due > 0 then E = max(E, mark - back) end
    if waiting and behind > 0 and back > 0 then E = max(E, B - capacity + behind) end
    B = B - back
  end
  if not rare and B + D > n then lacking = row break end
end
--:functions
-- The state in v, brought to the present and the limit's numbers, where its interval
-- ends, whether there is one, and whether that has changed it.
function rare.interval(limit, v, n, unit, burst)
  local window, w = rare.window(limit), words(v or '')
  if window.lost then return ask(now) end
  local live = w[4] and w[2] > 0 and w[3] ~= 0 -- else somebody else's
  local A, token, u, B, C, D, E = w[1], w[2], w[3], w[4], w[5] or 0, w[6] or 0, w[7] or 0
  local dirty = false

  local function refill(k, units)
    local tokens = B + D
    if k < ceilDiv(tokens, units) then tokens = k * units end
    D = D - max(tokens - B, 0)
    B = max(B - tokens, 0)
    E = max(E - tokens, 0)
    dirty = true
  end

  -- what the intervals until now have brought
  local function advance(units)
    local k = window.passed(A, now)
    if k and k > 0 then
      refill(k, units)
      A = window.moved(A, k)
    end
    return k
  end

  if live then
    if u ~= unit then
      local gone, length = max(now - A, 0), intervalLength(u)
      if length > 0 then refill(floor(gone / length), token) end
      if u < 0 or unit < 0 then
        A = window.opened(now)
      else
        A = now - unit + share(u - gone % u, unit, u, unit)
      end
      dirty = true
    elseif token ~= n then
      if not advance(token) then return end
      dirty = true
    end
    local start = window.begun(A)
    if start ~= A then A, dirty = start, true end
    if not advance(n) then return end
    if B == 0 and D == 0 then
      live, E, dirty = false, 0, true
    elseif C ~= burst then
      local ahead = max(B - C, 0)
      B, D = resize(B - ahead, D, C, burst)
      B, dirty = B + ahead, true
    end
  end
  if not live then A, B, D, E = window.opened(now), 0, 0, 0 end
  return text(A), B, D, E, window.latest(A, 1), live, dirty
end
