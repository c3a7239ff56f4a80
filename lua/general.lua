-- What the functions of several algorithms need. Twins of the functions of the same
-- names in internal/algorithm.

local maxCost = 1099511627776 -- store.MaxCost

local function text(n) return format('%.0f', n) end

-- Adds an instant to asked: the script needs the windows of the calendar around it, which weren't sent.
-- Then nothing is decided.
local function ask(at)
  asked = asked or {}
  asked[#asked + 1] = text(floor(at))
end

-- Whether the server has no memory for what isn't a charge (store.lua).
local function outOfMemory(name)
  --ROOM--
  return noMemory
end

-- exact in internal/algorithm/scale.go: the first number that a double can't tell from its neighbour. Nothing that
-- counts is as large.
local exact = 9007199254740992

-- The words of a state, or none if not all are numbers that a limit may have written.
local function words(v)
  local w, n = {}, 0
  for x in string.gmatch(v .. ':', '([^:]*):') do
    n = n + 1
    w[n] = #x <= 17 and match(x, '^-?%d+$') and tonumber(x)
    if not w[n] or w[n] >= exact or w[n] <= -exact then return {} end
  end
  return w
end

local function ceilDiv(a, b) return floor((a + b - 1) / b) end

-- Whether a code is that of a scale that a limit may count in: instants of 20 years stay exact.
local function validScale(code)
  return code >= 8 and code % 8 <= 4 and floor(code / 8) * (631152000000000 / 10 ^ (code % 8)) < exact
end

-- convert in internal/algorithm/tokenbucket.go
local function convert(n, from, to)
  local tokens = floor(n / from)
  if tokens >= floor(exact / to) then return exact end
  return tokens * to + math.ceil(math.ceil((n - tokens * from) * 1000 / from) * to / 1000)
end

-- How often from goes into n * to, and what is left, for a from below 2^47. The product
-- has up to 99 bits, so it is made four bits at a time, which no double loses.
local function mulDivRest(n, to, from)
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

-- mulDiv in internal/algorithm/scale.go
local function mulDiv(n, part, whole)
  local q, r = mulDivRest(n, part, whole)
  return r > 0 and q + 1 or q
end

-- The words of an argument that has several, as numbers where they are.
local parsed = {}
local function fields(text)
  local f = parsed[text]
  if not f then
    f = {}
    for x in string.gmatch(text, '[^,:]+') do f[#f + 1] = tonumber(x) or x end
    parsed[text] = f
  end
  return f
end
