-- Twin of store/warmup.go in units: a warm-up whose scale is wide. Needs wide.lua and
-- warmupstate.lua.
--
-- State: ticks:warm:unit:beyond of the instant, and ticks:beyond of how cold it is; and :C
-- if that isn't 0.
--
-- Arguments: largest, longest in ticks, token, perTick, unit and warm; cost; how long the
-- charge may wait, in us.
--:arguments limit cost how
--:setup
local peek = cost == '0'
--:load
local s
if not rare then lacking = row break end
s, dirty = rare.cold(limit, v)
--:look
if peek then
  fits = g
elseif rare.warms(s, cost + 0, how + 0) then
  fits = 1
end
--:keep s dirty
--:charge
s.A, s.B, s.live = s.ahead, s.warmer, true
s.C = s.A - s.at
--:save
new, fade = rare.warmth(s)
--:amend
dirty = rare.reheat(s, diff, due, charged, instant, mark) or dirty
--:functions
function rare.cold(limit, v)
  local f = fields(limit)
  local s, dirty = coldness(v, f[4], 1, f[5], f[6], true)
  s.largest, s.longest, s.token, s.unit, s.warm = f[1], f[2], f[3], f[5], f[6]
  return s, dirty
end

-- slow in store/warmup.go
local function slow(s, cold)
  local double = cold + cold
  local x = double.ticks - s.warm
  if x < 0 then return zero(s.p) end
  local square, rest = divided(x, x, 2 * s.warm)
  return pair(square + floor((rest + 2 * divided(x, double.beyond, s.p)) / (2 * s.warm)), 0, s.p)
end

-- what a charge takes of a limit as cold as that, and how cold that leaves it
local function price(s, cost, cold)
  local t = product(cost, s.token, s.p)
  local warmer = greater(cold - t, zero(s.p))
  return t + slow(s, cold) - slow(s, warmer), warmer
end

-- Whether a charge may go, and what it would leave.
function rare.warms(s, cost, wait)
  if cost > s.largest or pair(floor(wait), 0, s.p) < s.A - s.at then return false end
  local price, warmer = price(s, cost, s.B)
  s.ahead, s.warmer = s.A + price, warmer
  return true
end

-- The text of the state, and the instant at which it is worth nothing.
function rare.warmth(s)
  if not s.live then return false end
  local new = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.A.ticks, s.warm, s.unit, s.A.beyond, s.B.ticks, s.B.beyond)
  local C = upTicks(s.C)
  if C ~= 0 then new = format('%s:%.0f', new, C) end
  return new, upTicks(greater(s.A + s.full - s.B, s.at))
end

function rare.reheat(s, diff, due, charged, instant, mark)
  local was, made, none = s.live, told(mark, s.p), zero(s.p)
  if diff > 0 then
    s.A = s.A + product(owed(diff, s.A, s.at + pair(s.longest, 0, s.p), s.token), s.token, s.p)
    s.live = true
  elseif s.live and diff < 0 then
    if due == 0 and instant >= 0 and s.A == made and s.at < s.A then
      local cold, cost = pair(instant, 0, s.p), min(charged, s.largest)
      if s.B > none then cold = s.B + product(cost, s.token, s.p) end
      s.B = lesser(cold, s.full)
      s.A = s.A - price(s, cost, s.B)
      if s.A < s.at then s.A, s.B = s.at, s.B + s.at - s.A end
    elseif s.A <= made then
      s.A = s.A - worth(-diff, s.token, s.A - s.at)
    end
  end
  if s.A <= s.at and s.full <= s.B then s.live = false end
  s.C = greater(s.A - s.at, none)
  return was or s.live
end
