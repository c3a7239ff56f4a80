-- Lengths of time and instants that one number doesn't hold: whole ticks, and units
-- beyond them, of which p are a tick (internal/engine, Scale). They are values of the operators,
-- which keep them so; those of one calculation have one p. What is less often needed
-- than the charge of a bucket that one number holds is written in them whatever the
-- scale, so that it is written once.
--:functions
local span = {}

local function pair(ticks, beyond, p) return setmetatable({ticks = ticks, beyond = beyond, p = p}, span) end

function span.__add(a, b)
  local ticks, beyond = a.ticks + b.ticks, a.beyond + b.beyond
  if beyond >= a.p then return pair(ticks + 1, beyond - a.p, a.p) end
  return pair(ticks, beyond, a.p)
end

function span.__sub(a, b)
  local ticks, beyond = a.ticks - b.ticks, a.beyond - b.beyond
  if beyond < 0 then return pair(ticks - 1, beyond + a.p, a.p) end
  return pair(ticks, beyond, a.p)
end

function span.__lt(a, b) return a.ticks < b.ticks or a.ticks == b.ticks and a.beyond < b.beyond end
function span.__le(a, b) return not (b < a) end
function span.__eq(a, b) return a.ticks == b.ticks and a.beyond == b.beyond end

-- a number of units
local function paired(units, p) return pair(floor(units / p), units % p, p) end

local function zero(p) return pair(0, 0, p) end

-- in whole ticks, rounded up
local function upTicks(a) return a.beyond > 0 and a.ticks + 1 or a.ticks end

-- the units of n tokens
local function product(n, token, p)
  local ticks, beyond = divided(n, token, p)
  return pair(ticks, beyond, p)
end

-- how many tokens are in a length of time, rounded down, and the units left
local function tokensIn(a, token)
  local n, rest = divided(a.ticks, a.p, token)
  rest = rest + a.beyond
  local more = floor(rest / token)
  return n + more, rest - more * token
end

-- share in store/scale.go, of a length of time in one scale into one with p. There may
-- be more tokens in it than a number counts: they are divided out four bits of the ticks
-- at a time.
local function shared(a, to, from, p, most)
  local digits, ticks, rest, all = {}, a.ticks, 0, zero(p)
  while ticks > 0 do
    digits[#digits + 1] = ticks % 16
    ticks = floor(ticks / 16)
  end
  for i = #digits, 0, -1 do
    if i > 0 then
      rest = rest * 16 + digits[i] * a.p
      local sixteen = all.beyond * 16
      all = pair(all.ticks * 16 + floor(sixteen / p), sixteen % p, p)
    else
      rest = rest + a.beyond
    end
    local n = floor(rest / from)
    rest = rest - n * from
    all = all + product(n, to, p)
    if most < all then return most end
  end
  local q, r = divided(rest, to, from)
  return lesser(all + paired(r > 0 and q + 1 or q, p), most)
end

-- A length of time in microseconds, rounded up, and one of microseconds in another scale.
local function micros(a, tick) return a.ticks * tick + math.ceil(a.beyond * tick / a.p) end

local function ofMicros(us, p, tick)
  local ticks = floor(us / tick)
  return paired(math.ceil((us - ticks * tick) * p / tick), p) + pair(ticks, 0, p)
end

local function converted(a, tick, p, toTick)
  if a <= zero(a.p) then return zero(p) end
  if a.p == p and tick == toTick then return a end
  return ofMicros(micros(a, tick), p, toTick)
end

-- The instant now, rounded down to a tick, and to a unit.
local function present(p, tick) return pair(floor(now / tick), 0, p) end

local function presently(p, tick)
  local whole = floor(now / tick)
  return pair(whole, floor((now - whole * tick) * p / tick), p)
end

-- how many tokens of a debt are added: owed in store/tokenbucket.go
local function owed(debt, till, top, token)
  if top <= till then return 0 end
  local n, rest = tokensIn(top - till, token)
  return min(debt, rest > 0 and n + 1 or n)
end

-- the units of n tokens, or most
local function worth(n, token, most)
  if n * (token / most.p) > most.ticks + 2 then return most end
  return lesser(product(n, token, most.p), most)
end

local function refunded(refund, standing, behind, capacity, waiting)
  local none = zero(capacity.p)
  refund = lesser(refund, standing)
  if waiting and behind > none then refund = lesser(refund, capacity) - behind end
  return greater(refund, none)
end

-- An instant as a receipt tells it. One that was told under other numbers may have more
-- beyond a tick than one has now.
local function told(text, p)
  local ticks, beyond = string.match(text, '^(-?%d+):(%d+)$')
  if ticks then return pair(ticks + 0, 0, p) + paired(beyond + 0, p) end
  return paired(text + 0, p)
end
