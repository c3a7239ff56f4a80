-- Twin of stepBucket and stepInstant in store/tokenbucket.go: TokenBucket and LeakyBucket. The
-- names are those of the step. It differs from the step:
--
--   - What is the same for all keys of a column is worked out once, in setup. So MaxWait sets
--     allowed whether or not the charge is short: a charge that isn't passes whatever is allowed.
--   - A denial is only fits = 0. The store works out Never, RetryAfter and the other results by
--     the step, from the state that the script answers with.
--   - g equal charges of a key are made together.
--   - The step also decides on a tat beyond top, by State.B and State.C. Here functions do that,
--     as stepViews does (bucketstate.lua).
--   - A tat that isn't in the future, as after a refund, isn't written: the key is deleted, which
--     means a full bucket.
--   - In a batch, most states are compared as text: docs/benchmarks-redis.md says what that buys.
--
-- State: if possible it is plain, an integer of 19 digits: the tag of the rate in four, and the
-- tat in fifteen. One INCRBY charges it. Any other is text that begins with tat:token:unit
-- (bucketstate.lua). A rate has a tag if its token is m * 10^k microseconds, m below 1000, and
-- its capacity takes two years at most; the tag is k + 1 and m. A tat is plain from 2026 to
-- 2057, and up to top.
--
-- Lifetime: a plain state lives for as long as the capacity takes to refill, and a grid longer.
-- After INCRBY, that is renewed only if the charge has taken the tat past a multiple of the grid.
-- So the tat is less than a grid later than when the lifetime was last renewed, and the key
-- outlives it, also where limits of one rate, which have one grid, differ in capacity.
--
-- Arguments:
--   limit: what few charges need, the numbers in tokens: "largest,debt,queue,burst:token:unit".
--     debt is 1 or 0
--   how: "MaxWait,cost", in microseconds and tokens. Empty if neither matters: MaxWait is 0, the
--     cost is from 1 to largest, and the limit has no queue and no debt
--   capacity
--   by: inc, as INCRBY reads it. If the cost is larger than largest, anything but 0
--   tag: of the rate, or empty
--   lifetime, grid: of a plain state, in milliseconds and microseconds; empty without a tag. The
--     grid is a power of ten
--:arguments limit how capacity by tag lifetime grid
--:setup
local inc, at, perTick, tick, rate = by + 0, now, 1, 1, nil
local peek = inc == 0
if tag == '' then
  local unit
  rate, unit = string.match(limit, '(:%d+:(%d+))$')
  perTick, tick = floor(unit / 8), 10 ^ (unit % 8) -- ScaleOf in internal/engine
  at = floor(now / tick) * perTick
end
-- The tat of an exhausted bucket, and the latest that is plain: none without a tag.
local top, lastPlain = at + capacity, -1
if tag ~= '' then lastPlain = top < 1e15 and top or 1e15 - 1 end
-- What charges sets, and the tat last written, and its text: full buckets get the same one.
local below, late, written, digits
--:looks
-- With debt, a charge waits only for those before it; without, its own cost has to be there
-- as well.
local own, allowed, maxWait, tooLarge = inc, 0, 0, false
if how ~= '' then
  local largest, debt, queue, token = string.match(limit, '(%d+),(%d),(%d+),%d+:(%d+)')
  local wait, cost = string.match(how, '(.+),(.+)')
  maxWait, tooLarge = wait + 0, cost + 0 > largest + 0
  if debt == '1' then own = 0 end
  allowed = queue * token
  if maxWait > 0 then
    local within = floor(maxWait / tick) * perTick
    if allowed == 0 or within < allowed then allowed = within end
  end
end
-- In a batch, plain states aren't decoded but compared as texts, which are in the order of their
-- tats. One charge fits on a tat from low, the present, to high, which it takes to top. Up to
-- full, it is denied; if how may allow it more, full is high, and what is above is decoded.
local low, high, full
if many and now >= 0 and top == lastPlain and not tooLarge then
  low, high = tag .. format('%015.0f', at), tag .. format('%015.0f', top - inc)
  full = how == '' and tag .. format('%015.0f', top) or high
end
--:charges
-- A charge takes such a tat past a multiple of the grid if the digits that follow those of the
-- multiple, from the place below on, are at least late.
if many and tag ~= '' then
  below, late = 21 - #grid, format('%0' .. #grid - 1 .. '.0f', max(grid - inc, 0))
end
--:load
-- tat: false if v is compared as text. views: what v says if that isn't a tat of this rate, or one
-- beyond top.
local tat, views = at, false
if low and v and g == 1 and v >= low and v <= full and #v == 19 then
  tat = false
elseif v then
  local found
  if tag == '' then
    if sub(v, -#rate) == rate then found = tonumber(sub(v, 1, -#rate - 1)) end
  elseif #v == 19 and sub(v, 1, 4) == tag then
    found = tonumber(sub(v, 5))
  end
  if not found or found > top then
    if not rare then lacking = row break end
    views = rare.state(limit, v)
    dirty = views.changed and not peek
  elseif found > at then
    tat = found
  end
end
--:look
if tooLarge then
  fits = 0
elseif peek then
  fits = g
elseif views then
  fits = rare.fit(views, maxWait, inc / views.limit.token, g)
elseif not tat then
  fits = v <= high and 1 or 0
else
  local short = tat + own - top
  if short <= allowed then
    fits = g > 1 and min(g, floor((allowed - short) / inc) + 1) or g
  end
end
--:keep tat
--:more views dirty
--:charge
if views then
  rare.pour(views, inc / views.limit.token, g)
elseif tat then
  tat = tat + g * inc
end
--:save
if views then
  local alone -- the tat, if that is all there is to keep
  new, fade, alone = rare.text(views)
  if g == 0 and not dirty and new then
    new = v
  elseif alone and alone >= 0 and alone <= lastPlain then
    new, px = tag .. format('%015.0f', alone), lifetime
  end
elseif g > 0 and not tat then
  add, px, renew = by, lifetime, sub(v, below) >= late
elseif g > 0 and tat - g * inc > at and tat <= lastPlain then -- from the plain state in v
  add, px, renew = g == 1 and by or format('%.0f', g * inc), lifetime, tat % grid < g * inc
elseif not tat then -- nothing is charged: v has lost its lifetime
  new, px = v, lifetime
elseif tat <= at then -- nothing is charged, and the bucket is full
  new = false
elseif tat >= 0 and tat <= lastPlain then
  if tat ~= written then written, digits = tat, tag .. format('%015.0f', tat) end
  new, px = digits, lifetime
else -- with State.B and State.C if the tat is ahead of the capacity
  new = format('%.0f', tat) .. string.match(limit, ':%d+:%d+$')
  if tat > top then new = new .. format(':%.0f:', tat - top) .. string.match(limit, '(%d+):') end
  fade = now + math.ceil((tat - at) / perTick) * tick
end
--:amend
-- lease: 1 if settling has raised the cost before
if not rare then lacking = row break end
views = rare.amend(limit, v, due, charged, instant, mark, lease == '1') or false
dirty = views and true
