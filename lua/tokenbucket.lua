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
--   inc: the units that the charge costs
--   lifetime, grid: of a rate with a tag, in ms and us; without, perTick,tick and nothing
--:arguments limit how capacity form inc lifetime grid
--:setup
local tagged, peek, more, at, perTick, tick = grid ~= '', inc == '0', inc + 0, now, 1, 1
if not tagged then
  perTick, tick = string.match(lifetime, '(%d+),(%d+)')
  at = floor(now / tick) * perTick
end
local top = at + capacity
-- Digits of one length are in order as texts as they are as numbers, and to make
-- numbers of so many values would be half of what a batch takes: the present, and the
-- latest instants that one more fits upon, and that are no further than the capacity.
local low, high, full
-- Of a key that is full and is charged one: the tat that it gets, and its text.
local soonest, text
-- Whether a charge passes a multiple of the grid, which is a power of ten, is seen
-- from the first two digits of what is less than that.
local digit, passes
--:looks
local last = top - more -- the latest tat that one more fits upon
if how ~= '' then
  local queue, largest, debt = string.match(limit, '(%d+),(%d+),(%d)')
  local wait, cost = string.match(how, '(.+),(.+)')
  local allowed = queue + 0
  if wait ~= '0' then
    local within = floor(wait / tick) * perTick
    if allowed == 0 or within < allowed then allowed = within end
  end
  -- With debt a charge waits only for what stands before it.
  last = top + allowed - (debt == '1' and 0 or more)
  if peek then last = math.huge elseif cost + 0 > largest + 0 then last = -math.huge end
end
if many and tagged and now >= 0 and top < 1e15 then
  low, high = form .. format('%015.0f', now), form .. format('%015.0f', min(last, top - more))
  full = how == '' and form .. format('%015.0f', top) or high
end
--:load
-- A: the tat; false if v says it in digits that are enough. odd: true if v is that and no
-- more, false if it is to be written anew, else the views, which say it instead.
local A, odd = false, true
if low and v and g == 1 and v >= low and v <= high and #v == 19 then
  fits = 1
elseif low and v and g == 1 and v > high and v <= full and #v == 19 then
  fits = 0
else
  A, odd = at, false
  if v then
    local tat
    if not tagged then
      if sub(v, -#form) == form then tat = tonumber(sub(v, 1, -#form - 1)) end
    elseif #v == 19 and sub(v, 1, 4) == form then
      tat = tonumber(sub(v, 5))
    end
    if not tat or tat > top then
      if not rare then lacking = row break end
      odd = rare.state(limit, v)
      dirty = odd.changed and not peek
    elseif tat >= at then
      A, odd = tat, true
    end
  end
end
--:look
if odd and odd ~= true then
  local wait, cost = string.match(how, '(.+),(.+)')
  fits = rare.fit(odd, (wait or 0) + 0, cost and cost + 0 or more / odd.limit.token, g)
elseif A and A <= last then
  fits = (g > 1 and not peek) and min(g, floor((last - A) / more) + 1) or g
end
--:keep A odd dirty
--:charges
if many and tagged and now >= 0 and top < 1e15 then
  soonest, digit, passes = at + more, 21 - #grid, 528 + floor((grid - more) * 100 / grid)
  text = form .. format('%015.0f', soonest)
end
--:charge
if odd and odd ~= true then rare.pour(odd, more / odd.limit.token, g) elseif A then A = A + g * more end
--:save
if not A then
  px = lifetime
  if g > 0 then
    local x, y = byte(v, digit, digit + 1)
    add, renew = inc, x * 10 + y >= passes
  else
    new = v
  end
elseif odd == true and tagged and g > 0 and A <= top and A < 1e15 then
  add, px, renew = g == 1 and inc or format('%.0f', g * more), lifetime, A % grid < g * more
elseif odd and odd ~= true then
  local alone
  new, fade, alone = rare.text(odd)
  if g == 0 and not dirty and new then
    new = v
  elseif alone and tagged and alone >= 0 and alone <= top and alone < 1e15 then
    new, px = form .. format('%015.0f', alone), lifetime
  end
elseif A <= at then
  new = false
elseif tagged and A <= top and A >= 0 and A < 1e15 then
  new, px = A == soonest and text or form .. format('%015.0f', A), lifetime
else
  new = format('%.0f', A) .. string.match(limit, ':%d+:%d+')
  if A > top then new = new .. format(':%.0f:', A - top) .. string.match(limit, '(%d+),%d+$') end
  fade = now + math.ceil((A - at) / perTick) * tick
end
--:amend
if not rare then lacking = row break end
local views = rare.amend(limit, v, due, charged, instant, mark, lease)
dirty = views and true
if views then A, odd = at, views end
