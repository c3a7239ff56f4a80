-- Twin of internal/algorithm/fixedwindow.go, which explains the rules. Needs window.lua.
--
-- State: start:count, where start is where the window begins, in us, and count what is counted in it; and
-- :later behind that if something is reserved in later windows. If the window is aligned and begins at
-- a whole minute not before 2026, and less than 10^10 is counted, the state is one integer of 19
-- digits, which one INCRBY charges: 1, the minute in eight digits, and the count in ten.
--
-- Lifetime: up to the end of the last window in which something counts. A charge in the window of
-- the one before it doesn't change that.
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that denies at once, else how long it may wait, in us
--   units
--   head: the first nine digits of the integers of the window at begin; empty if it has none
--     (a state in another window is written as start:count until the caller's clock is there)
--   room: the most that may be counted for the charge to fit into ten digits and the units, in
--     ten digits; empty if it costs nothing or can't fit
--   begin, next, after: where the present window begins, the next one, and the one after that, if
--     windows are aligned; else the period, and twice nothing
--:arguments limit cost how units head room begin next after
--:setup
local peek, n = cost == '0', units + 0
-- Where the present window begins, as text, and ends. If windows aren't aligned, it is the one
-- that a charge would open.
local first, fin
if next == '' then
  first, fin = format('%.0f', now), now + begin
else
  first, fin = begin, next + 0
  if now >= fin then first, fin, head = next, after + 0, '' end
  if now < first + 0 or now >= fin then fin = nil end -- it isn't one of them
end
--:looksetup
-- Integers of the present window aren't decoded but compared as texts, which are in the order of
-- their numbers. One charge fits on one from low to high. Up to full it is denied. If it may wait,
-- or if a count of more than ten digits may fit, full is high, and the integers above are decoded.
-- Whether all characters are digits is checked only of what is denied: INCRBY checks the others.
local low, high, full
if fin and head ~= '' and room ~= '' then
  low, high = head .. '0000000001', head .. room
  full = how == '' and n < 1e10 and head .. '9999999999' or high
end
--:load
-- count: false if v is compared as text. lives: whether the lifetime of v ends with the window.
-- waits: later with a charge that waits.
local start, count, later, ends, lives, waits = first, 0, 0, fin, false, false
if low and v and g == 1 and v >= low and v <= full and #v == 19 and (v <= high or match(v, '^%d+$')) then
  count, lives = false, true
elseif v or not fin then
  local a, b
  if v then
    a, b = match(v, '^([1-9]%d*):([1-9]%d*)$')
    if not a and #v == 19 then
      a, b = match(v, '^1(%d%d%d%d%d%d%d%d)(%d+)$')
      if a then a = format('%.0f', tonumber(a) * 60000000) end
    end
    b = tonumber(b)
  end
  if fin and a and a + 0 <= first + 0 and b > 0 and b <= 1099511627776 then -- store.MaxCost
    if next == '' and now < a + begin then
      start, count, ends, lives = a, b, a + begin, true
    elseif next ~= '' and a + 0 == first + 0 then
      start, count, lives = first, b, true
    end -- else its window is over
  else
    if not rare then lacking = row break end
    asked = nil
    start, count, later, ends, lives, dirty = rare.readFixed(limit, v, n)
    if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
  end
end
--:look
if fits < 0 or peek then
  if fits == 0 then fits = g end
elseif not count then
  fits = v <= high and 1 or 0
elseif count + cost <= n then
  fits = min(g, floor((n - count) / cost))
elseif how ~= '' and cost + 0 <= n then
  if not rare then lacking = row break end
  -- laterWindow
  asked, waits = nil, later
  if waits % n + cost > n then waits = waits + n - waits % n end
  local begun = rare.window(limit).begunBy(start + 0, floor(waits / n) + 1, now + how)
  if begun then fits, waits = 1, waits + cost else waits = false end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:carry ends count
--:carryif start later lives waits dirty
--:charge
if waits then later = waits elseif count then count = count + g * cost end
--:save
if not count then
  fade = ends
  if g > 0 then add = cost else new = v end -- v may have lost its lifetime
elseif count + later == 0 then
  new = false
elseif later > 0 then
  new = format('%s:%.0f:%.0f', start, count, later)
  fade = rare.window(limit).latestEnd(ends, math.ceil(later / n))
else
  if head ~= '' and start == first and count < 1e10 then
    new = head .. format('%010.0f', count)
  else
    new = start .. ':' .. format('%.0f', count)
  end
  fade, keep = ends, g > 0 and lives and not dirty
end
--:fresh
new = head .. format('%010.0f', cost)
--:amend
local refund = min(-diff, mark)
if diff > 0 then
  count, dirty = count + min(diff, 1099511627776 - count), true
elseif refund > 0 and count > 0 and instant == start + 0 then
  count, dirty = count - min(refund, count), true
elseif refund > 0 and instant > start + 0 and later > 0 then
  asked = nil
  local last = math.ceil(later / n) -- inLastWindow
  if rare.window(limit).boundariesIn(start + 0, instant) == last then
    later, dirty = later - min(refund, later - (last - 1) * n), true
  end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:functions
-- The words of a state, nil if it isn't one.
local function fixedWords(v)
  local minute, digits = match(v, '^1(%d%d%d%d%d%d%d%d)(%d%d%d%d%d%d%d%d%d%d)$')
  local w = minute and {tonumber(minute) * 60000000, tonumber(digits)} or words(v)
  local count, later = w[2], w[3] or 0
  if not count or #w > 3 or count < 0 or count > maxCost or later < 0 or count + later == 0 then return nil end
  return w[1], count, later
end

-- rebaseFixed and presentWindow: the state in v as of now, where its window ends, whether the lifetime of v does too,
-- and whether the clock was set back since v was written. Nothing if windows are asked for.
function rare.readFixed(limit, v, n)
  local w = rare.window(limit)
  if w.unknown then return ask(now) end
  local start, count, later
  if v then start, count, later = fixedWords(v) end
  if not start then start, count, later = w.startAt(now), 0, 0 end
  local clamped = w.clampStart(start)
  local k, lives, setBack = w.boundariesIn(clamped, now), later == 0 and count > 0, clamped ~= start
  if asked then return end
  start = clamped
  if k > 0 then
    lives = false
    if k > ceilDiv(later, n) then
      start, count, later = w.startAt(now), 0, 0
    else
      start, later = w.startAfter(start, k), later - (k - 1) * n
      count = min(later, n)
      later = later - count
    end
  end
  return text(start), count, later, w.endOf(start), lives, setBack
end
