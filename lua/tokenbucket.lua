-- Twin of internal/algorithm/tokenbucket.go: TokenBucket and LeakyBucket. The names are those of the step,
-- which explains the rules, except that top is the step's at + l.capacity; g, v, i, row, many, fits, dirty, rare
-- and lacking are take.lua's, and due, charged, instant and mark are settle.lua's. It differs from the step:
--
--   - What is the same for all keys of a column is worked out once, in setup and looks. So
--     allowed is set before it is known whether a charge is short: one that isn't passes anyway.
--   - A denial is only fits = 0. The store works out Never, RetryAfter and the other results by
--     the step, from the state that the script answers with.
--   - g equal charges of a key are made together.
--   - A tat that isn't in the future, as after a refund, isn't written: the key is deleted, which
--     means a full bucket.
--   - In a batch, most states are compared as text: docs/internals/benchmarks-redis.md says what that buys.
--
-- State: tat:token:unit:burst, and behind that, if they are needed, :ahead, :keptUntil, :refundsFrom
-- and the levels, as :instant:use each. If the numbers are usual and only the tat is needed, the state is
-- plain: an integer of 19 digits, the tag of the numbers in four, and the tat in fifteen. One INCRBY
-- charges it. The tag is 1000 and the place of the numbers in a list (usual). A tat is plain from 2026 to
-- 2057, and up to top.
--
-- Lifetime: a plain state lives for as long as the capacity takes to refill, and a grid longer.
-- After INCRBY, that is renewed only if the charge has taken the tat past a multiple of the grid.
-- So the tat is less than a grid later than when the lifetime was last renewed, and the key
-- outlives it.
--
-- Arguments:
--   limit: what few charges need, the numbers in tokens: "largest,debt,queue:token:unit:burst".
--     debt is 1 or 0
--   how: "MaxWait,cost", in microseconds and tokens. Empty if neither matters: MaxWait is 0, the
--     cost is from 1 to largest, and the limit has no queue and no debt
--   capacity
--   by: the cost in units, as INCRBY reads it. If the cost is larger than largest, anything but 0
--   tag: of the numbers, or empty
--   lifetime, grid: of a plain state, in milliseconds and microseconds; empty without a tag. The
--     grid is a power of ten
--:arguments limit how capacity by tag lifetime grid
--:setup
local units, at, perTick, tick, pattern = by + 0, now, 1, 1, nil
local peek = units == 0
if tag ~= '' then
  pattern = '^' .. tag .. '(%d+)$'
else
  local numbers, unit = match(limit, '(:%d+:(%d+):%d+)$')
  pattern = '^(-?%d+)' .. numbers .. '$'
  perTick, tick = floor(unit / 8), 10 ^ (unit % 8) -- ScaleOf in internal/algorithm/scale.go
  at = floor(now / tick) * perTick
end
-- The tat of an exhausted bucket, and the latest that is plain: none without a tag.
local top, lastPlain = at + capacity, -1
if tag ~= '' then lastPlain = top < 1e15 and top or 1e15 - 1 end
-- With debt, a charge waits only for those before it; without, its own cost has to be there
-- as well.
local needed = units
if how ~= '' and match(limit, ',(%d),') == '1' then needed = 0 end
-- chargesetup sets below and late. written is the tat last written, and digits its text: buckets
-- that were empty get the same one.
local below, late, written, digits
--:looksetup
-- queue: the limit's queue in units. On a state of another rate, a charge that may wait for a year
-- or more is allowed only that (stepGeneral).
local allowed, queue, maxWait, tooLarge = 0, 0, 0, false
if how ~= '' then
  local largest, waiting, token = match(limit, '(%d+),%d,(%d+):(%d+)')
  local wait, cost = match(how, '(.+),(.+)')
  maxWait, tooLarge = wait + 0, cost + 0 > largest + 0
  queue = waiting * token
  allowed = queue
  if maxWait > 0 then
    local within = floor(maxWait / tick) * perTick
    if queue == 0 or within < queue then allowed = within end
  end
end
-- In a batch, plain states aren't decoded but compared as texts, which are in the order of their
-- tats. One charge fits on a tat from low, the present, to high, which it takes to top. Up to
-- denied, it is denied; if how may allow it more, denied is high, and what is above is decoded.
-- Whether all characters are digits is checked only of what is denied: INCRBY checks the others.
local low, high, denied
if many and now >= 0 and top == lastPlain and not tooLarge then
  low, high = tag .. format('%015.0f', at), tag .. format('%015.0f', top - units)
  denied = how == '' and tag .. format('%015.0f', top) or high
end
--:chargesetup
-- A charge takes such a tat past a multiple of the grid if the digits that follow those of the
-- multiple, from the place below on, are at least late.
if many and tag ~= '' then
  below, late = 21 - #grid, format('%0' .. #grid - 1 .. '.0f', max(grid - units, 0))
end
--:load
-- tat: false if v is compared as text. state: the state in v if it is of other numbers, or has
-- more than its tat.
local tat, state = at, false
if low and v and g == 1 and v >= low and v <= denied and #v == 19 and (v <= high or match(v, '^%d+$')) then
  tat = false
elseif v then
  local found = (tag == '' or #v == 19) and match(v, pattern)
  found = found and tonumber(found)
  if not found or found > top then
    if not rare then lacking = row break end
    state, found, dirty = rare.bucketUse(limit, v)
  end
  if found and found > at then tat = found end
end
--:look
if tooLarge then
  fits = 0
elseif peek then
  fits = g
elseif state then
  local most = capacity + allowed - needed
  if state.foreign and maxWait >= 31536000000000 then most = capacity + min(allowed, queue) - needed end
  -- The first charge converts the state, so those behind it are allowed as usual.
  if state.inUse <= most then fits = min(g, floor((capacity + allowed - needed - state.inUse) / units) + 1) end
elseif not tat then
  fits = v <= high and 1 or 0
else
  local short = tat + needed - top
  if short <= allowed then
    fits = g > 1 and min(g, floor((allowed - short) / units) + 1) or g
  end
end
--:carry tat
--:carryif state dirty
--:charge
if state then
  rare.chargeBucket(state, limit, at, capacity - needed, units, g)
elseif tat then
  tat = tat + g * units
end
--:save
if state then
  new, fade = rare.bucketText(state)
  if g == 0 and not dirty then new = v end -- the key has lost its lifetime: nothing else changes
elseif g > 0 and not tat then
  add, px, renew = by, lifetime, sub(v, below) >= late
elseif g > 0 and not dirty and tat - g * units > at and tat <= lastPlain and not string.find(v, ':', 1, true) then
  add, px, renew = g == 1 and by or format('%.0f', g * units), lifetime, tat % grid < g * units
elseif not tat then -- the key has lost its lifetime: nothing else changes
  new, px = v, lifetime
elseif tat <= at then -- nothing is charged, and the bucket is full
  new = false
elseif tat >= 0 and tat <= lastPlain then
  if tat ~= written then written, digits = tat, tag .. format('%015.0f', tat) end
  new, px = digits, lifetime
else
  new = format('%.0f', tat) .. match(limit, ':.+')
  if g == 0 and not dirty then
    new = v
  elseif tat > top then -- the last charge waits, or has left a debt
    new = new .. (tat - units + needed > top and ':' or ':-') .. format('%.0f', tat - top)
  end
  fade = now + math.ceil((tat - at) / perTick) * tick
end
--:fresh
new = tag .. format('%015.0f', at + units)
--:amend
if not rare then lacking = row break end
state, tat = rare.amendBucket(limit, v, due, charged, instant, mark)
dirty = state or tat
--:functions
-- The numbers that have a tag: so many a second, minute, hour or day, with such a burst.
local usual = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 100, 120, 150, 200, 250, 300, 400,
  500, 600, 750, 800, 1000, 1200, 1500, 2000, 2500, 3000, 5000, 6000, 10000, 20000, 50000, 100000, 1000000, 10000000}
local usualPeriods = {1000000, 60000000, 3600000000, 86400000000}

-- The words of a plain state.
local function plainWords(v)
  local n = tonumber(sub(v, 1, 4)) - 1000
  local burst, rest = usual[n % 45 + 1], floor(n / 45)
  local period, units = usualPeriods[floor(rest / 45) + 1], usual[rest % 45 + 1]
  if n < 0 or not period or period % units ~= 0 then return {} end
  return {tonumber(sub(v, 5)), period / units, 8, burst}
end

-- Scale.micros
local function microsAt(s, units) return math.ceil(units / s.perTick) * s.tick end

-- Scale.At, of an instant in us
local function unitsAt(s, at) return floor(at / s.tick) * s.perTick end

-- Sets the numbers of s, and the present in its units.
local function setNumbers(s, token, unit, burst)
  s.token, s.unit, s.burst = token, unit, burst
  s.perTick, s.tick = floor(unit / 8), 10 ^ (unit % 8)
  s.at = unitsAt(s, now)
  return s
end

-- Returns the state in v as of now, or nil if the bucket is full; and whether the clock was set back since. used is
-- by how much the tat is ahead of now: the tokens in use, in units of the state.
local function rebaseBucket(v)
  local w = #v == 19 and match(v, '^%d+$') and plainWords(v) or words(v)
  local tat, token, unit, burst, ahead, keptUntil = w[1], w[2], w[3], w[4], w[5] or 0, w[6]
  if not burst or token < 1 or token >= 9007199254740 or not validScale(unit) or burst < 0
    or burst * token >= exact or not validNotes(w, 6) then
    return nil -- another program wrote it
  end
  local s = {tat = tat, ahead = ahead, keptUntil = keptUntil, refundsFrom = w[7], levels = {unpack(w, 8)}}
  setNumbers(s, token, unit, burst)
  local latest, setBack = s.at + burst * token + max(ahead, -ahead), false
  if tat > latest then s.tat, setBack = latest, true end
  if keptUntil and keptUntil <= now and not setBack then
    s.keptUntil, s.levels = nil, {}
  elseif setBack or keptUntil and lastNoted(s) > now then -- refunds go by instants
    refuseRefunds(s, now, max(microsAt(s, s.tat), now + 1))
    setBack = true
  end
  s.used = max(s.tat - s.at, 0)
  if s.used == 0 and not s.keptUntil then return nil, setBack end
  return s, setBack
end

-- Returns the state in v if it needs more than a tat of the limit's numbers, else false and the tat; and, third,
-- whether the clock was set back since. inUse is used in units of the limit.
function rare.bucketUse(limit, v)
  local s, setBack = rebaseBucket(v)
  if not s then return false, nil, setBack end
  local f = fields(limit)
  s.foreign = s.token ~= f[4] or s.unit ~= f[5]
  s.sameNumbers = not s.foreign and s.burst == f[6]
  if s.sameNumbers and not s.keptUntil and not setBack then return false, s.tat end
  s.inUse = s.foreign and convert(s.used, s.token, f[4]) or s.used
  return s, nil, setBack
end

-- The Ahead of a tat that is so many units ahead of the capacity.
local function aheadBy(excess, waits)
  if excess <= 0 then return 0 end
  return waits and excess or -excess
end

-- For g charges. room is the capacity that is left beside one of them.
function rare.chargeBucket(s, limit, at, room, units, g)
  local f = fields(limit)
  for _ = 1, g do
    if not s.sameNumbers then
      noteNumbers(s, microsAt(s, s.tat))
      s.sameNumbers = true
      setNumbers(s, f[4], f[5], f[6])
    else
      noteCharge(s, min(s.inUse, max(room, 0)), s.inUse + units, s.inUse > room)
    end
    s.inUse = s.inUse + units
  end
  s.tat, s.ahead = at + s.inUse, aheadBy(s.inUse - s.burst * s.token, s.inUse - units > room)
end

-- The text of a state, and the instant at which it says nothing more.
function rare.bucketText(s)
  local out = format('%.0f:%.0f:%.0f:%.0f', s.tat, s.token, s.unit, s.burst)
  local fade = now + math.ceil(max(s.tat - s.at, 0) / s.perTick) * s.tick
  if s.keptUntil then return out .. format(':%.0f', s.ahead) .. notesText(s), max(fade, s.keptUntil) end
  if s.ahead ~= 0 then out = out .. format(':%.0f', s.ahead) end
  return out, fade
end

-- Reports whether that changes the state.
local function addDebtBucket(s, tokens)
  local full = s.burst * s.token
  local year = floor(31536000000000 / s.tick) * s.perTick
  local debt = min(tokens, math.ceil(max(full + year - s.used, 0) / s.token))
  if debt == 0 then return false end
  local inUse, waits = s.used + debt * s.token, s.ahead > 0 and s.used > full
  noteCharge(s, s.used, inUse, waits)
  s.tat, s.ahead = s.at + inUse, aheadBy(inUse - full, waits)
  return true
end

local function refundableBucket(s, instant, mark)
  local low, from = lowestUse(s, instant, now)
  return max(min(low, mark - unitsAt(s, from)), 0)
end

-- Reports whether that changes the state.
local function refundBucket(s, tokens, due, instant, mark)
  local capacity, last = s.burst * s.token, mark == s.tat
  local waits = s.ahead > 0 and s.used > capacity
  if waits and not (last and due == 0) then return false end
  local back = min(tokens * s.token, refundableBucket(s, instant, mark))
  if back == 0 then return false end
  noteRefund(s, instant, back, last, max(microsAt(s, s.tat), now + 1))
  s.tat, s.ahead = s.at + s.used - back, aheadBy(s.used - back - capacity, waits)
  return true
end

-- Returns the state after a settlement, or only its tat if it has no more than that; nothing if it hasn't changed.
function rare.amendBucket(limit, v, due, charged, instant, mark)
  local f, s, setBack = fields(limit), nil, false
  if v then s, setBack = rebaseBucket(v) end
  local diff, changed = due - charged, setBack and s
  if diff > 0 then
    s = s or setNumbers({used = 0, ahead = 0, levels = {}}, f[4], f[5], f[6])
    changed = addDebtBucket(s, diff) or changed
  elseif diff < 0 and s and s.token == f[4] and s.unit == f[5] and s.burst == f[6] and refunds(s, instant) then
    changed = refundBucket(s, -diff, due, instant, mark) or changed
  end
  if not changed then return nil, nil end
  if s.keptUntil or s.ahead ~= 0 or s.token ~= f[4] or s.unit ~= f[5] or s.burst ~= f[6] then return s, nil end
  return nil, s.tat
end
