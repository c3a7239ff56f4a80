-- Twin of internal/algorithm/warmup.go, which explains the rules: the names are those of the step.
--
-- State: A:warm:unit:B:C, and :E behind that if it isn't 0. A is the instant at which the next
-- charge may go, B how cold the limit is then, C how far A was ahead when it was written, and E
-- is A when the numbers last changed. They are in units of the numbers, which are the units of the
-- whole warm-up and the code of the scale (ScaleOf in internal/algorithm). Of a state that is only
-- cooling down, C is left out.
--
-- Lifetime: until the limit is cold, by the state's own numbers.
--
-- Arguments:
--   limit: the largest cost, and the units of a year
--   cost
--   how: how long the charge may wait, in us
--   token, perTick, tick in us, unit, warm: of a permit, of the scale and its code, and of the
--     whole warm-up
--:arguments limit cost how token perTick tick unit warm
--:setup
local peek, inc, at, full = cost == '0', cost + 0, floor(now / tick) * perTick, warm + 0
--:load
-- A and B are in the limit's own units. other: the state, if it is of other numbers.
local A, B, C, E, other = at, full, 0, 0, false
if v then
  local a, w, u, b, c = match(v, '^(-?%d+):(%d+):(%d+):(%d+):(%d+)$')
  if w == warm and u == unit and #a < 16 and #b < 15 and #c < 16 and b + 0 <= full then
    A, B, C = a + 0, b + 0, c + 0
    if A > at + C then
      A, dirty = at + C, true -- the clock was set back
    elseif A < at then
      B, A, C = min(B + at - A, full), at, 0
    end
  else
    if not rare then lacking = row break end
    A, B, C, E, other, dirty = rare.readWarmUp(v, at, perTick, tick + 0, unit + 0, full)
  end
end
--:look
local ahead, warmer = false, false
if peek then
  fits = g
elseif inc <= match(limit, '%d+') + 0 and A - at <= floor(how / tick) * perTick then
  local price = inc * token
  fits, warmer = 1, max(B - price, 0)
  -- coldArea before and after
  local x, y = 2 * B - full, 2 * warmer - full
  if x < 67108864 then
    if x > 0 then price = price + floor(x * x / (2 * full)) end
    if y > 0 then price = price - floor(y * y / (2 * full)) end
  else
    if not rare then lacking = row break end
    price = price + rare.coldArea(B, full) - rare.coldArea(warmer, full)
  end
  ahead = A + price
end
--:carry A B C E ahead warmer dirty other
--:charge
if other then E, other = A, false end
A, B, C = ahead, warmer, ahead - at
if E <= at then E = 0 end
--:save
if other then
  new, fade = rare.warmUpText(other)
elseif A <= at and B >= full then
  new = false
else
  new = format('%.0f:%s:%s:%.0f', A, warm, unit, B)
  if C > 0 or E ~= 0 then new = new .. format(':%.0f', C) end
  if E ~= 0 then new = new .. format(':%.0f', E) end
  fade = now + math.ceil((max(A - at, 0) + full - B) / perTick) * tick
end
--:amend
if not rare then lacking = row break end
local own, moves = {perTick = perTick + 0, tick = tick + 0}, false -- moves: by how much A does
local largest, longest = match(limit, '(%d+),(%d+)')
largest = largest + 0
if diff > 0 then
  local taken = other and rare.microsIn(other, other.A - other.at) or rare.microsIn(own, A - at)
  local debt = min(diff, math.ceil(max(longest - rare.unitsOf(own, taken), 0) / token)) -- cappedDebt
  if other then
    other.A = other.A + rare.unitsOf(other, rare.microsIn(own, debt * token))
    other.C, dirty = other.A - other.at, true
  else
    moves = debt * token
  end
elseif diff < 0 and not other and (A > at or B < full) and (E == 0 or mark > E) then
  if due == 0 and instant >= 0 and A == mark and A > at then
    -- Canceled, and no charge came after it.
    local t = min(charged, largest) * token
    B = min(B > 0 and B + t or instant, full)
    A, moves = A - t - rare.coldArea(B, full) + rare.coldArea(max(B - t, 0), full), 0
    if A < at then B, A = min(B + at - A, full), at end
  elseif mark >= A then
    moves = 0 - min(min(0 - diff, largest) * token, A - at)
  end
end
if moves then
  A, dirty = A + moves, true
  C = max(A - at, 0)
  if E <= at then E = 0 end
end
--:functions
-- micros and ofMicros in internal/algorithm/scale.go
function rare.microsIn(s, units) return math.ceil(units / s.perTick) * s.tick end
function rare.unitsOf(s, us) return math.ceil(us / s.tick) * s.perTick end

-- coldArea in internal/algorithm/warmup.go
function rare.coldArea(cold, full)
  local x = max(2 * cold - full, 0)
  if x < 67108864 then return floor(x * x / (2 * full)) end
  return (mulDivRest(x, x, 2 * full))
end

-- present in internal/algorithm/warmup.go, of the state in v as of now: A, B, C and E; the state, if it is of
-- other numbers; and whether the clock was set back since.
function rare.readWarmUp(v, at, perTick, tick, unit, full)
  local w = words(v)
  local A, W, code, B, C, E = w[1], w[2], w[3], w[4], w[5] or 0, w[6] or 0
  if #w < 4 or #w > 6 or W < 1 or W >= 70368744177664 or not validScale(code) or B < 0 or B > W or C < 0 then
    return at, full, 0, 0, false, false
  end
  local s = {W = W, code = code, perTick = floor(code / 8), tick = 10 ^ (code % 8)}
  s.at = floor(now / s.tick) * s.perTick
  local moved = A > s.at + C
  A = min(A, s.at + C)
  if E ~= 0 then E = min(E, A) end
  if A < s.at then B, A, C, E = min(B + s.at - A, W), s.at, 0, 0 end
  if A == s.at and B == W then return at, full, 0, 0, false, moved end
  if W == full and code == unit then return A, B, C, E, false, moved end
  s.A, s.B, s.C, s.E = A, B, C, E
  local next = at
  if A > s.at then next = max(rare.unitsOf({perTick = perTick + 0, tick = tick}, rare.microsIn(s, A)), at) end
  return next, mulDiv(full, B, W), 0, 0, s, moved
end

-- What a state of other numbers says, and the instant at which it says nothing more.
function rare.warmUpText(s)
  local v = format('%.0f:%.0f:%.0f:%.0f', s.A, s.W, s.code, s.B)
  if s.C > 0 or s.E ~= 0 then v = v .. format(':%.0f', s.C) end
  if s.E ~= 0 then v = v .. format(':%.0f', s.E) end
  return v, now + math.ceil((max(s.A - s.at, 0) + s.W - s.B) / s.perTick) * s.tick
end
