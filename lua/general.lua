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

-- The first number that a double can't tell from its neighbour: nothing that counts is as
-- large.
local maxExact = 9007199254740992

-- The words of a state, or none if not all are numbers that a limit may have written.
local function words(v)
  local w, n = {}, 0
  for x in string.gmatch(v .. ':', '([^:]*):') do
    n = n + 1
    w[n] = #x <= 17 and match(x, '^-?%d+$') and tonumber(x)
    if not w[n] or w[n] >= maxExact or w[n] <= -maxExact then return {} end
  end
  return w
end

local function ceilDiv(a, b) return floor((a + b - 1) / b) end

-- Whether a code is that of a scale that a limit may count in: instants of 20 years stay exact.
local function counted(code)
  return code >= 8 and code % 8 <= 4 and floor(code / 8) * (631152000000000 / 10 ^ (code % 8)) < maxExact
end

-- converted in store/scale.go
local function converted(n, from, to)
  local tokens = floor(n / from)
  if tokens >= floor(maxExact / to) then return maxExact end
  return tokens * to + math.ceil(math.ceil((n - tokens * from) * 1000 / from) * to / 1000)
end

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

-- weighed in store/scale.go
local function weighed(n, part, whole)
  local q, r = divided(n, part, whole)
  return r > 0 and q + 1 or q
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
