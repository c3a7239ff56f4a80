-- Twin of internal/algorithm/warmup.go, which explains the rules: the names are those of the step.
--
-- State: free:warm:unit:cold:freeLead, and :refundsFrom behind that if it isn't 0. The words are those of the
-- step, in units of the numbers, which are the units of the whole warm-up and the code of the scale (ScaleOf in
-- internal/algorithm). Of a state that is only cooling down, freeLead is left out.
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
-- free and cold are in the limit's own units. other: the state, if it is of other numbers.
local free, cold, freeLead, refundsFrom, other = at, full, 0, 0, false
if v then
  local a, w, u, b, c = match(v, '^(-?%d+):(%d+):(%d+):(%d+):(%d+)$')
  if w == warm and u == unit and #a < 16 and #b < 15 and #c < 16 and b + 0 <= full then
    free, cold, freeLead = a + 0, b + 0, c + 0
    if free > at + freeLead then
      free, dirty = at + freeLead, true -- the clock was set back
    elseif free < at then
      cold, free, freeLead = min(cold + at - free, full), at, 0
    end
  else
    if not rare then lacking = row break end
    free, cold, freeLead, refundsFrom, other, dirty = rare.readWarmUp(v, at, perTick, tick + 0, unit + 0, full)
  end
end
--:look
local ahead, warmer = false, false
if peek then
  fits = g
elseif inc <= match(limit, '%d+') + 0 and free - at <= floor(how / tick) * perTick then
  local price = inc * token
  fits, warmer = 1, max(cold - price, 0)
  -- coldArea before and after
  local x, y = 2 * cold - full, 2 * warmer - full
  if x < 67108864 then
    if x > 0 then price = price + floor(x * x / (2 * full)) end
    if y > 0 then price = price - floor(y * y / (2 * full)) end
  else
    if not rare then lacking = row break end
    price = price + rare.coldArea(cold, full) - rare.coldArea(warmer, full)
  end
  ahead = free + price
end
--:carry free cold freeLead refundsFrom ahead warmer dirty other
--:charge
if other then refundsFrom, other = free, false end
free, cold, freeLead = ahead, warmer, ahead - at
if refundsFrom <= at then refundsFrom = 0 end
--:save
if other then
  new, fade = rare.warmUpText(other)
elseif free <= at and cold >= full then
  new = false
else
  new = format('%.0f:%s:%s:%.0f', free, warm, unit, cold)
  if freeLead > 0 or refundsFrom ~= 0 then new = new .. format(':%.0f', freeLead) end
  if refundsFrom ~= 0 then new = new .. format(':%.0f', refundsFrom) end
  fade = now + math.ceil((max(free - at, 0) + full - cold) / perTick) * tick
end
--:amend
if not rare then lacking = row break end
-- s: the state in the limit's own units, or the one of other numbers.
local own = {perTick = perTick + 0, tick = tick + 0, token = token + 0, at = at, warm = full, free = free, cold = cold,
  freeLead = freeLead, refundsFrom = refundsFrom}
local s, largest, longest = other or own, match(limit, '(%d+),(%d+)')
if diff > 0 then
  rare.addDebtWarmUp(own, s, diff, longest + 0)
  dirty = true
elseif diff < 0 and not other then
  dirty = rare.refundWarmUp(s, -diff, due, charged, instant, mark, largest + 0) or dirty
end
if not other then free, cold, freeLead, refundsFrom = s.free, s.cold, s.freeLead, s.refundsFrom end
--:functions
-- Scale.micros and Scale.ofMicros, in the scale of s
local function microsIn(s, units) return math.ceil(units / s.perTick) * s.tick end
local function unitsOf(s, us) return math.ceil(us / s.tick) * s.perTick end

-- coldArea
function rare.coldArea(cold, full)
  local x = max(2 * cold - full, 0)
  if x < 67108864 then return floor(x * x / (2 * full)) end
  return (mulDivRest(x, x, 2 * full))
end

-- setWarmUp, of a state in the limit's numbers
local function setWarmUp(s, free, cold)
  s.free, s.cold, s.freeLead = free, cold, max(free - s.at, 0)
  if s.refundsFrom <= s.at then s.refundsFrom = 0 end
end

-- cappedDebt. longest is a year.
local function cappedDebt(own, permits, reserved, longest)
  return min(permits, math.ceil(max(longest - unitsOf(own, reserved), 0) / own.token))
end

-- addDebtWarmUp, to a state s of a limit whose own numbers may be others.
function rare.addDebtWarmUp(own, s, permits, longest)
  local debt = cappedDebt(own, permits, microsIn(s, s.free - s.at), longest)
  if s == own then
    setWarmUp(s, s.free + debt * s.token, s.cold)
  else
    s.free = s.free + unitsOf(s, microsIn(own, debt * own.token))
    s.freeLead = s.free - s.at
  end
end

-- price
local function price(s, permits, cold)
  local units = permits * s.token
  return units + rare.coldArea(cold, s.warm) - rare.coldArea(max(cold - units, 0), s.warm)
end

-- refundWarmUp; reports whether that changes the state.
function rare.refundWarmUp(s, permits, due, charged, instant, mark, largest)
  local next, cold = s.free, s.cold
  local live = next > s.at or cold < s.warm
  if not live or s.refundsFrom ~= 0 and mark <= s.refundsFrom then return false end
  if due == 0 and instant >= 0 and next == mark and s.at < next then -- canceled
    local cost = min(charged, largest)
    cold = min(cold > 0 and cold + cost * s.token or instant, s.warm)
    next = next - price(s, cost, cold)
    if next < s.at then cold, next = min(cold + s.at - next, s.warm), s.at end
  elseif mark == next then
    next = next - min(min(permits, largest) * s.token, next - s.at)
  else
    return false
  end
  setWarmUp(s, next, cold)
  return true
end

-- rebaseWarmUp and present: the state in v as of now, in the limit's units; the state, if it is of other numbers;
-- and whether the clock was set back since.
function rare.readWarmUp(v, at, perTick, tick, unit, full)
  local w = words(v)
  local free, warm, code, cold, freeLead, refundsFrom = w[1], w[2], w[3], w[4], w[5] or 0, w[6] or 0
  if #w < 4 or #w > 6 or warm < 1 or warm >= 70368744177664 or not validScale(code) or cold < 0 or cold > warm
    or freeLead < 0 then
    return at, full, 0, 0, false, false
  end
  local s = {warm = warm, code = code, perTick = floor(code / 8), tick = 10 ^ (code % 8)}
  s.at = floor(now / s.tick) * s.perTick
  local setBack = free > s.at + freeLead
  free = min(free, s.at + freeLead)
  if refundsFrom ~= 0 then refundsFrom = min(refundsFrom, free) end
  if free < s.at then cold, free, freeLead, refundsFrom = min(cold + s.at - free, warm), s.at, 0, 0 end
  if free == s.at and cold == warm then return at, full, 0, 0, false, setBack end
  if warm == full and code == unit then return free, cold, freeLead, refundsFrom, false, setBack end
  s.free, s.cold, s.freeLead, s.refundsFrom = free, cold, freeLead, refundsFrom
  local own = at
  if free > s.at then own = max(unitsOf({perTick = perTick + 0, tick = tick}, microsIn(s, free)), at) end
  return own, mulDiv(full, cold, warm), 0, 0, s, setBack
end

-- What a state of other numbers says, and the instant at which it says nothing more.
function rare.warmUpText(s)
  local v = format('%.0f:%.0f:%.0f:%.0f', s.free, s.warm, s.code, s.cold)
  if s.freeLead > 0 or s.refundsFrom ~= 0 then v = v .. format(':%.0f', s.freeLead) end
  if s.refundsFrom ~= 0 then v = v .. format(':%.0f', s.refundsFrom) end
  return v, now + math.ceil((max(s.free - s.at, 0) + s.warm - s.cold) / s.perTick) * s.tick
end
