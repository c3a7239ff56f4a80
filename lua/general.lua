-- What the functions of several algorithms need. Twins of the functions of the same
-- names in store.

local maxCost = 1099511627776 -- store.MaxCost

local function text(n) return format('%.0f', n) end

-- asked are the instants around which the windows of the calendar are needed and were
-- not sent, if there are any: then nothing is decided.
local function ask(at)
  asked = asked or {}
  asked[#asked + 1] = text(floor(at))
end

local function words(v)
  local w, n = {}, 0
  for x in string.gmatch(v, '[^:]+') do
    n = n + 1
    w[n] = tonumber(x) or 0
  end
  return w
end

-- tick lengths in microseconds, by exponent
local ticks = {[0] = 1, 10, 100, 1000, 10000, 100000}

local function scale(q)
  local e = q % 8
  return (q - e) / 8, ticks[e]
end

local function at(us, perTick, tick) return floor(us / tick) * perTick end

local function exactly(us, perTick, tick)
  local whole = floor(us / tick)
  return whole * perTick + floor((us - whole * tick) * perTick / tick)
end

local function ceilDiv(a, b) return floor((a + b - 1) / b) end

local function convert(units, perTick, tick, toPerTick, toTick)
  if units <= 0 then return 0 end
  if perTick == toPerTick and tick == toTick then return units end
  local rest = units % perTick
  local us = (units - rest) / perTick * tick + ceilDiv(rest * tick, perTick)
  rest = us % toTick
  return (us - rest) / toTick * toPerTick + ceilDiv(rest * toPerTick, toTick)
end

-- ceil(n * to / from), or most. The product has up to 92 bits, so it is made
-- six bits at a time, which no double loses.
local function share(n, to, from, most)
  if n == 0 or to == from or from <= 0 then return min(n, most) end
  local rest = n % from
  local whole = (n - rest) / from
  if whole > floor(most / to) then return most end
  local digits, d = {}, 0
  local t = to
  while t > 0 do
    d = d + 1
    digits[d] = t % 64
    t = (t - digits[d]) / 64
  end
  local q, r = 0, 0
  for i = d, 1, -1 do
    r = r * 64 + digits[i] * rest
    local x = floor(r / from)
    q = q * 64 + x
    r = r - x * from
  end
  if r > 0 then q = q + 1 end
  return min(whole * to + q, most)
end

local function resize(used, hidden, was, is)
  if is > was then
    local back = min(hidden, is - was)
    return used + back, hidden - back
  end
  if used > is then return is, hidden + used - is end
  return used, hidden
end

-- how many tokens of a debt are added
local function owed(debt, till, top, token)
  if till >= top then return 0 end
  return min(debt, ceilDiv(top - till, token))
end

-- the units of so many tokens, or most: the product may be beyond 2^53
local function worth(tokens, token, most)
  if tokens > floor(most / token) then return most end
  return tokens * token
end

local function refunded(refund, standing, behind, capacity, waiting)
  refund = min(refund, max(standing, 0))
  if waiting and behind > 0 then refund = min(refund, capacity) - behind end
  return max(refund, 0)
end

-- The words of an argument that has several, as numbers where they are.
local taken = {}
local function fields(text)
  local f = taken[text]
  if not f then
    f = {}
    for x in string.gmatch(text, '[^,:]+') do f[#f + 1] = tonumber(x) or x end
    taken[text] = f
  end
  return f
end
