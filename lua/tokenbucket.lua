-- Twin of store/tokenbucket.go: TokenBucket and LeakyBucket. See there for what
-- the words mean.
--
-- A state that is nothing but an instant, of a rate whose token is m * 10^k
-- whole microseconds (m below 1000), is one integer of 19 digits: k + 1 and m in
-- four, which are the rate's tag, and the instant, not before 2026, in fifteen.
-- That is the shortest there is, one INCRBY charges it, and such texts are in the
-- order of their instants. It lives for as long as the limit takes to be full, and a
-- grid, which is the same for all limits of a rate, and whoever charges it past a
-- multiple of the grid renews that: so it outlives its instant whatever the capacity
-- of those that charged it. Any other is words in decimal, which begin with
-- A:token:unit (bucketstate.lua).
--
-- Arguments:
--   limit: what only some charges need: queue, largest, debt (1 or 0), longest,
--     :token:unit, perTick, tick, capacity, and in tokens capacity and queue
--   how: empty for a charge that is affordable, denies at once and has no queue or
--     debt; else how long it may wait in us, and its cost
--   capacity
--   form: the rate's tag, or :token:unit of a rate that has none
--   by: the units that the charge costs
--   lifetime, grid: of a rate with a tag, in ms and us; without, perTick,tick and nothing
--:arguments limit how capacity form by lifetime grid
--:setup
local tagged, peek, inc = grid ~= '', by == '0', by + 0
local at, perTick, tick = now, 1, 1
if not tagged then
  perTick, tick = string.match(lifetime, '(%d+),(%d+)')
  at = floor(now / tick) * perTick
end
local top, longest = at + capacity, -1 -- longest: the latest tat that is kept in digits
if tagged then longest = top < 1e15 and top or 1e15 - 1 end
-- The latest tat that a charge fits upon.
local last = top - inc
if how ~= '' then
  local queue, largest, debt = string.match(limit, '(%d+),(%d+),(%d)')
  local wait, cost = string.match(how, '(.+),(.+)')
  local allowed = queue + 0
  if wait ~= '0' then
    local within = floor(wait / tick) * perTick
    if allowed == 0 or within < allowed then allowed = within end
  end
  -- With debt, a charge waits only for those before it; without, its own cost has to be
  -- there as well.
  last = top + allowed - (debt == '1' and 0 or inc)
  if peek then last = math.huge elseif cost + 0 > largest + 0 then last = -math.huge end
end
-- The tat last written, and its text: keys that were full get the same. To write the text
-- for each of them would be a fifth of a batch's time.
local written, digits
-- In a batch, digits are compared as texts, which are in the order of their numbers: from
-- low, a tat of now, to high, the latest that a charge fits upon, one is charged, and up to
-- full it is denied. To make numbers of them would be a tenth of the time of a batch on keys
-- in use, and a sixth of the instructions; a third more instructions if all are denied. A
-- charge may pass a multiple of the grid, a power of ten, if the two digits below that are at
-- least late.
local low, high, full, digit, late
if many and now >= 0 and top == longest then
  low, high = form .. format('%015.0f', at), form .. format('%015.0f', min(last, top - inc))
  full = how == '' and form .. format('%015.0f', top) or high
  digit, late = 21 - #grid, format('%02d', max(floor((grid - inc) * 100 / grid), 0))
end
--:load
-- tat: false if v's digits are enough. stands: v is the tat's digits. views: what v says if
-- that is more than a tat of this limit (bucketstate.lua).
local tat, stands, views = at, false, false
if low and v and g == 1 and v >= low and v <= full and #v == 19 then
  tat = false
elseif v then
  local found
  if tagged then
    if #v == 19 and sub(v, 1, 4) == form then found = tonumber(sub(v, 5)) end
  elseif sub(v, -#form) == form then
    found = tonumber(sub(v, 1, -#form - 1))
  end
  if not found or found > top then
    if not rare then lacking = row break end
    views = rare.state(limit, v)
    dirty = views.changed and not peek
  elseif found >= at then
    tat, stands = found, tagged
  end
end
--:look
if views then
  local wait, cost = string.match(how, '(.+),(.+)')
  fits = rare.fit(views, (wait or 0) + 0, cost and cost + 0 or inc / views.limit.token, g)
elseif not tat then
  fits = v <= high and 1 or 0
elseif tat <= last then
  fits = g
  if g > 1 and not peek then fits = min(g, floor((last - tat) / inc) + 1) end
end
--:keep tat stands views
--:more dirty
--:charge
if views then
  rare.pour(views, inc / views.limit.token, g)
elseif tat then
  tat = tat + g * inc
end
--:save
if views then
  local alone
  new, fade, alone = rare.text(views)
  if g == 0 and not dirty and new then
    new = v
  elseif alone and alone >= 0 and alone <= longest then
    new, px = form .. format('%015.0f', alone), lifetime
  end
elseif g > 0 and not tat then
  add, px, renew = by, lifetime, sub(v, digit, digit + 1) >= late
elseif g > 0 and stands and tat <= longest then
  add, px, renew = g == 1 and by or format('%.0f', g * inc), lifetime, tat % grid < g * inc
elseif not tat then
  new, px = v, lifetime
elseif tat <= at then
  new = false
elseif tat >= 0 and tat <= longest then
  if tat ~= written then written, digits = tat, form .. format('%015.0f', tat) end
  new, px = digits, lifetime
else
  new = format('%.0f', tat) .. string.match(limit, ':%d+:%d+')
  if tat > top then new = new .. format(':%.0f:', tat - top) .. string.match(limit, '(%d+),%d+$') end
  fade = now + math.ceil((tat - at) / perTick) * tick
end
--:amend
if not rare then lacking = row break end
views = rare.amend(limit, v, due, charged, instant, mark, lease) or false
dirty = views and true
