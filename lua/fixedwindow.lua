-- Twin of store/fixedwindow.go. Needs window.lua.
--
-- State: A:B:unit, and :C:token if C isn't 0. One of a window of a plain sort, which
-- begins at a whole minute not before 2026, with less than 10^10 in it and nothing
-- reserved, is one integer of 19 digits, which one INCRBY charges: a digit that names
-- the sort (sorts), the minute in eight, and B in ten.
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that denies at once, else how long it may wait in us
--   units
--   unit: store.Numbers.Unit
--   head: what integers of the window at start begin with, or its first digit if that
--     is before 2026; empty if the window is of no plain sort
--   room: the most that an integer may have of B for the charge to fit, in ten digits;
--     empty if the charge costs nothing, or more than units or ten digits are
--   start, next, after: where the present window begins, the next one, and the one
--     after that, of an aligned window; else period, and twice nothing
--:arguments limit cost how units unit head room start next after
--:setup
local peek, n = cost == '0', units + 0
-- Where the present window begins, as text, and ends. Without a calendar it is the one
-- that a charge would open.
local first, fin
if next == '' then
  first, fin = format('%.0f', now), now + start
else
  first, fin = start, next + 0
  if now >= fin then first, fin = next, after + 0 end
  if now < first + 0 or now >= fin then fin = nil end -- to be asked
end
local sort = sub(head, 1, 1)
if fin and head ~= '' and (first ~= start or #head == 1) then
  head = first + 0 < 0 and sort or sort .. format('%08.0f', first / 60000000)
end
--:looks
-- Digits of one length are in order as texts as they are as numbers: the least state of
-- the present window, the greatest that the charge fits upon, and the greatest of those
-- that it doesn't: a state of more digits may have room for it.
local low, high, most
if fin and #head == 9 and room ~= '' then
  low, high, most = head .. '0000000000', head .. room, head .. (n < 1e10 and '9999999999' or room)
end
--:load
-- C: what is reserved in the windows behind; waits: and with a charge that waits
-- B: false if v is an integer that is enough as it is; other: false if the window is the
-- limit's own, else the unit, token and length of the one that it is.
local A, B, C, ends, live, waits, other = first, 0, 0, fin, false, false, false
if low and v and g == 1 and v >= low and v <= high and #v == 19 then
  B, live, fits = false, true, 1
elseif low and v and g == 1 and how == '' and v > high and v <= most and #v == 19 then
  B, live = false, true
elseif v or not fin then
  local a, b, u
  if v and #v == 19 and sub(v, 1, 1) == sort then
    a, b = string.match(v, '^.(%d%d%d%d%d%d%d%d)(%d+)$')
    if a then a, u = format('%.0f', a * 60000000), unit end
  elseif v then
    a, b, u = string.match(v, '^(%d+):(%d+):(-?%d+)$')
  end
  if fin and u == unit and a + 0 <= first + 0 then -- or it is over
    if a == first or next == '' and now < a + start then A, B, live = a, b + 0, true else dirty = true end
    if next == '' then ends = A + start end
  else
    if not rare then lacking = row break end
    asked = nil
    A, B, C, ends, live, dirty, other = rare.fixed(limit, v, n, unit)
    if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
  end
end
--:look
if fits < 0 or peek then
  if peek and fits == 0 then fits = g end
elseif not B then
  -- known
elseif B + cost <= n then
  fits = min(g, floor((n - B) / cost))
elseif how ~= '' and cost + 0 <= n and not other then
  if not rare then lacking = row break end
  asked, waits = nil, C
  if waits % n + cost > n then waits = waits + n - waits % n end
  if rare.window(limit).by(A + 0, floor(waits / n) + 1, now + how) then fits, waits = 1, waits + cost else waits = false end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:keep ends B
--:more A C live waits dirty other
--:charge
if waits then C = waits elseif B then B = B + g * cost end
--:save
if not B then
  fade = ends
  if g > 0 then
    add = cost
  else
    new = v
  end
elseif B == 0 and C == 0 then
  new = false
elseif other then
  new, fade = rare.kept(A, B, C, other)
elseif C == 0 then
  if sort ~= '' and B < 1e10 and A + 0 >= 0 then
    new = (A == first and #head == 9 and head or sort .. format('%08.0f', A / 60000000)) .. format('%010.0f', B)
  else
    new = A .. ':' .. format('%.0f', B) .. ':' .. unit
  end
  fade, keep = ends, g > 0 and live and not dirty
else
  new = format('%s:%.0f:%s:%.0f:%s', A, B, unit, C, units)
  fade = rare.window(limit).latest(A + 0, 1 + math.ceil(C / n))
end
--:amend
local refund = min(-diff, mark)
asked = nil
if diff > 0 then
  B, dirty = B + min(diff, 1099511627776 - B), true -- store.MaxCost
elseif refund > 0 and live and instant >= A + 0 then
  dirty = true
  if instant == A + 0 then
    B = B - min(refund, B)
  else
    local each, passed = n, nil
    if other then
      each, passed = other.token, floor((instant - A) / other.length)
    elseif C > 0 then
      passed = rare.window(limit).passed(A + 0, instant)
    end
    local last = math.ceil(C / each)
    if C > 0 and passed == last then C = C - min(refund, C - (last - 1) * each) end
  end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:functions
-- The units of plain sorts: hours, days, weeks and months of UTC, and minutes, hours and
-- days of store.Every.
local sorts = {-2, -3, -4, -5, -480000001, -28800000001, -691200000001}

-- The words of a state.
local function counted(v)
  local sort, minute, count = string.match(v, '^(%d)(%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d%d)$')
  sort = sort and sorts[sort + 0]
  if sort then return {minute * 60000000, count + 0, sort} end
  return words(v)
end

-- The text of a state in the windows of other numbers, and the instant at which it is
-- worth nothing.
function rare.kept(A, B, C, other)
  local windows = 1 + (C > 0 and math.ceil(C / other.token) or 0)
  local fade = A + min(windows, floor(4503599627370496 / other.length)) * other.length
  if C > 0 then return format('%s:%.0f:%.0f:%.0f:%.0f', A, B, other.unit, C, other.token), fade end
  for sort = 1, #sorts do
    if sorts[sort] == other.unit and B < 1e10 and A + 0 >= 0 then
      return format('%.0f%08.0f%010.0f', sort, A / 60000000, B), fade
    end
  end
  return format('%s:%.0f:%.0f', A, B, other.unit), fade
end

-- The lengths of windows whose length varies, by the low three bits of their unit.
local nominal = {[2] = 3600000000, [3] = 86400000000, [4] = 604800000000}

-- The state in v, brought to the present, where its window ends, whether there is one,
-- whether that has changed it, and what other numbers it is in.
function rare.fixed(limit, v, n, unit)
  local w, s = rare.window(limit), counted(v or '')
  unit = unit + 0
  if w.lost then return ask(now) end
  local live = s[3] and s[3] ~= 0 -- else somebody else's
  local A, B, u, C, token = s[1], s[2], s[3], s[4] or 0, s[5] or 0
  local dirty, other = false, false

  local function forget() live, B, C, dirty = false, 0, 0, true end

  local function nextWindow(k, units, start)
    if C == 0 or k - 1 >= ceilDiv(C, units) then return forget() end
    A, dirty = start, true
    C = C - (k - 1) * units
    B = min(C, units)
    C = C - B
  end

  if live and u ~= unit then
    local length = intervalLength(u)
    if length == 0 then length = nominal[-u % 8] or 2678400000000 end
    local k = floor((now - A) / length)
    if k > 0 then nextWindow(k, token, A + k * length) end
    if live and A > now then
      A, dirty = w.opened(now), true
    elseif live then
      local start, till = w.longer(A, A + length)
      if asked then return end
      if not start then return text(A), B, C, A + length, true, dirty, {unit = u, token = token, length = length} end
      A, dirty = start, true
      return text(A), B, C, till, true, dirty, false
    end
  elseif live then
    local start, units = w.begun(A), C > 0 and token or n
    if start ~= A or units ~= n then A, dirty = start, true end
    local k = w.passed(A, now)
    if k and k > 0 then nextWindow(k, units, w.moved(A, k)) end
  end
  if asked then return end
  if not live then A, B, C = w.opened(now), 0, 0 end
  return text(A), B, C, w.latest(A, 1), live, dirty, false
end
