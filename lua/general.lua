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

-- Whether the server has no memory for what isn't a charge (store.lua).
local function outOfMemory(name)
  --ROOM--
  return crammed
end

-- The words of a state, or none if not all are numbers.
local function words(v)
  local w, n = {}, 0
  for x in string.gmatch(v, '[^:]+') do
    n = n + 1
    w[n] = tonumber(x)
    if not w[n] then return {} end
  end
  return w
end

-- Tick lengths in microseconds, by exponent; 7 stands for a wide scale.
local ticks = {[0] = 1, 10, 100, 1000, 10000, 100000, 1, 1}

local function scale(q)
  local e = q % 8
  return (q - e) / 8, ticks[e], e == 7
end

local function at(us, perTick, tick) return floor(us / tick) * perTick end

local function ceilDiv(a, b) return floor((a + b - 1) / b) end

-- How often from goes into n * to, and what is left, for a from below 2^47. The product
-- has up to 99 bits, so it is made four bits at a time, which no double loses.
local function divided(n, to, from)
  local rest, q, r, digits = n % from, 0, 0, {}
  local times = (n - rest) / from * to
  while to > 0 do
    digits[#digits + 1] = to % 16
    to = floor(to / 16)
  end
  for i = #digits, 1, -1 do
    r = r * 16 + digits[i] * rest
    local x = floor(r / from)
    q, r = q * 16 + x, r - x * from
  end
  return times + q, r
end

-- ceil(n * to / from), or most
local function share(n, to, from, most)
  if n == 0 or to == from or from <= 0 then return min(n, most) end
  if floor(n / from) > floor(most / to) then return most end
  local q, r = divided(n, to, from)
  if r > 0 then q = q + 1 end
  return min(q, most)
end

-- The lesser and the greater of two numbers, or of two lengths of time (wide.lua).
local function lesser(a, b) if b < a then return b end return a end
local function greater(a, b) if a < b then return b end return a end

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
