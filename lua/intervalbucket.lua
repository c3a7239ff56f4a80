-- Twin of store/intervalbucket.go. Needs window.lua and intervalviews.lua.
--
-- State: A:token:unit:B:C. Some states have more words (intervalviews.lua).
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that denies at once, else how long it may wait in us
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
-- views: what a state is that has more words, is another version's, or of an earlier
-- interval.
local A, B, ends, live, waits, views = first, 0, fin, false, false, false
if v or not fin then
  local a, t, u, b, c
  if v then a, t, u, b, c = string.match(v, '^(%d+):(%d+):(-?%d+):(%d+):(%d+)$') end
  if fin and t == units and u == unit and c == burst and (a == first or next == '' and a + 0 <= now and now < a + start) then
    A, B, live = a, b + 0, true
    if next == '' then ends = A + start end
  else
    if not rare then lacking = row break end
    asked = nil
    views = rare.intervals(limit, v, n, unit + 0, capacity)
    if asked then
      views, fits, raw = false, -1, '?' .. table.concat(asked, ',')
    end
  end
end
--:look
if views then
  if not peek then
    rare.showInterval(views)
    dirty = views.begun or views.moved
  end
  if views.own then A, B = views.own.start, views.own.used end
end
if fits < 0 or peek then
  if fits == 0 then fits = g end
elseif views and not views.own then
  -- there is no room
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
--:keep A B ends live waits views dirty
--:charge
if views then
  for _ = 1, g do rare.enterInterval(views, cost + 0, waits or views.own.used + cost, waits) end
else
  B = waits or B + g * cost
end
--:save
if views then
  new, fade = rare.intervalText(views)
elseif B == 0 then
  new = false
else
  new = format('%s:%s:%s:%.0f:%s', A, units, unit, B, burst)
  fade, keep = ends, g > 0 and live and not dirty and B <= n
  if B > n and rare then
    fade = rare.window(limit).latest(A + 0, math.ceil(B / n))
  elseif B > n then -- a lifetime that was lost: of windows of the calendar, enough
    local length, kind = string.match(limit, '(%d+),(%d)')
    fade = ends + math.ceil(B / n) * length * (kind == '2' and 2 or 1)
  end
end
--:amend
if not views and live and diff < 0 and instant == A + 0 and mark == B and B <= n and B <= capacity then
  B, dirty = B - min(-diff, B), true
elseif diff ~= 0 then
  if not rare then lacking = row break end
  asked = nil
  views = rare.intervals(limit, v, n, unit + 0, capacity)
  if not asked then rare.amendInterval(views, due, charged, instant, mark) end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') else dirty = true end
end
