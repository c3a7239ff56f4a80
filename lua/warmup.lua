-- Twin of store/warmup.go.
--
-- State: A:token:unit:B, where token is the warm-up's units, and :C if that isn't 0.
--
-- Arguments: largest and longest; cost; how long the charge may wait, in us; and token,
-- perTick, tick in us, unit, warm.
--:arguments limit cost how token perTick tick unit warm
--:setup
local peek, at, full = cost == '0', floor(now / tick) * perTick, warm + 0
--:load
local A, B, C, live = at, full, 0, false
if v then
  local a, t, u, b, c = string.match(v, '^(-?%d+):(%d+):(%d+):(%d+):?(%d*)$')
  if t == warm and u == unit then
    A, B, C, live = a + 0, b + 0, tonumber(c) or 0, true
  else
    if not rare then lacking = row break end
    A, B, C, live, dirty = rare.warm(v, perTick + 0, tick + 0, unit + 0, full)
  end
  if live then
    if A > at + C then A, dirty = at + C, true end
    if at > A then A, B, C, dirty = at, B + at - A, 0, true end
    if A <= at and B >= full then A, B, C, live, dirty = at, full, 0, false, true end
  end
end
--:look
local ahead, warmer = false, false
if peek then
  fits = g
elseif cost + 0 <= string.match(limit, '%d+') + 0 and A - at <= floor(how / tick) * perTick then
  fits, warmer = 1, max(0, B - cost * token)
  ahead = A + cost * token
  -- slow in store/warmup.go, of what it is before and after
  local x, y = 2 * B - full, 2 * warmer - full
  if x > 0 then ahead = ahead + floor(x * x / (2 * full)) end
  if y > 0 then ahead = ahead - floor(y * y / (2 * full)) end
end
--:keep A B C live ahead warmer dirty
--:charge
A, B, C, live = ahead, warmer, ahead - at, true
--:save
if live then
  new = format('%.0f:%s:%s:%.0f', A, warm, unit, B)
  if C ~= 0 then new = format('%s:%.0f', new, C) end
  fade = now + math.ceil(max(A - at + full - B, 0) / perTick) * tick
else
  new = false
end
--:amend
if diff > 0 then
  local longest = string.match(limit, ',(%d+)')
  -- owed in store/tokenbucket.go
  local tokens = min(diff, max(math.ceil((at + longest - A) / token), 0))
  A, live = A + tokens * token, true
elseif live and diff < 0 then
  if due == 0 and instant >= 0 and A == mark and A > at then
    local largest = string.match(limit, '%d+')
    local t = min(charged, largest) * token
    local cold = min(B > 0 and B + t or instant, full)
    local x, y = 2 * cold - full, 2 * max(0, cold - t) - full
    if x > 0 then t = t + floor(x * x / (2 * full)) end
    if y > 0 then t = t - floor(y * y / (2 * full)) end
    A, B = A - t, cold
    if at > A then A, B = at, B + at - A end
    if A <= at and B >= full then live = false end
  elseif mark >= A then
    A = A - min(-diff * token, A - at)
  end
end
if live then
  C, dirty = max(A - at, 0), true
elseif v then
  dirty = true
end
