-- Twin of store/sliding.go: SlidingWindow and SlidingLog are one step, in which
-- charges are entered and leave at different instants.
--
-- A limit has the token and unit of store.Numbers, and entered and leaves make the
-- instants of any with those out of an instant.
--
-- State: a list of the entries, oldest first, each at:units:total:numbers and, if it
-- isn't 0, :E; numbers are the limit's token and unit, as its record has them. The
-- newest one's total is the sum of all in the list; what older ones say beside
-- at:units means nothing, and to take it off would cost as much again as the charge.
-- No call reads the whole list but to drop it or to refuse a charge as large.
--
-- The state found is A:B:C:token:unit:E and, after a look that found no room at once, the
-- instant of the entry with whose leaving there is, unless that is the newest. The
-- step on a state with that entry alone gives the same result as on all of them.
--
-- Arguments: limit (units,token:unit), cost, and how long the charge may wait in us.
--:arguments limit cost how
--:setup
local peek = cost == '0'
--:load
if not rare then lacking = row break end
local l = rare[reads](limit)
local s, entry = rare.entries(l, KEYS[i]), false
--:look
local ok, at = rare.fits(l, s, cost + 0, how + 0)
fits, raw, entry = ok and 1 or 0, rare.told(l, s), at or false
--:keep l s entry
--:charge
rare.enter(l, s, cost + 0, entry)
--:rest
if granted >= 0 then rare.rest(l, s) end
--:amend
raw = rare.told(l, s)
rare.settle(l, s, due, charged, instant, mark)
left = rare.told(l, s)
--:functions
local function parse(v)
  local at, units = string.match(v, '^(-?%d+):(%d+):')
  return at + 0, units + 0
end

local function save(l, s, push)
  local v = format('%.0f:%.0f:%.0f:%s', s.A, s.B, s.C, l.numbers)
  if s.E > 0 then v = v .. ':' .. text(s.E) end
  if s.gone > 0 then
    call('LTRIM', s.key, s.gone, -1)
    s.gone = 0
  end
  if push then call('RPUSH', s.key, v) else call('LSET', s.key, -1, v) end
end

-- One more than rounded up: the server counts from the millisecond that the
-- present is in.
local function expire(l, s)
  call('PEXPIRE', s.key, text(ceilDiv(l.leaves(s.A) - now, 1000) + 1))
end

local function forget(s) s.live, s.A, s.B, s.C, s.E, s.gone = false, 0, 0, 0, 0, 0 end

-- Enters what was made before the clock was set back now, or for the turn that was
-- reserved, in one entry.
local function clamp(l, s, of)
  if s.A <= now + s.E then return end
  s.A = of.entered(now + s.E)
  while true do
    call('RPOP', s.key)
    local v = call('LINDEX', s.key, -1)
    local at, units = s.A - 1, 0
    if v then at, units = parse(v) end
    if at < s.A then break end
    s.B = s.B + units
  end
  save(l, s, true)
  expire(l, s)
end

-- Finds what no longer counts.
local function drop(s, of)
  if of.leaves(s.A) <= now then
    call('DEL', s.key)
    return forget(s)
  end
  local size, from = 2, s.gone
  while true do
    local es = call('LRANGE', s.key, from, from + size - 1)
    for i = 1, #es do
      local at, units = parse(es[i])
      if of.leaves(at) > now then
        s.gone = from + i - 1
        s.es, s.first, s.from = es, i, from -- where the walk goes on
        return
      end
      s.C = s.C - units
    end
    from = from + #es
    size = min(size * 8, 512)
  end
end

function rare.entries(l, key)
  local s = {key = key, live = false, A = 0, B = 0, C = 0, E = 0, gone = 0}
  local v = redis.pcall('LINDEX', key, -1)
  if not v then return s end
  local a, b, c, token, unit, ahead
  if type(v) == 'string' then
    a, b, c, token, unit, ahead = string.match(v, '^(-?%d+):(%d+):(%d+):([%de]+):(%d+):?(%d*)$')
  end
  if not a then -- somebody else's
    s.foreign = true
    return s
  end
  s.live, s.A, s.B, s.C, s.E = true, a + 0, b + 0, c + 0, tonumber(ahead) or 0
  if token .. ':' .. unit ~= l.numbers then -- what no longer counted then doesn't come back
    local was = l.was(token + 0, unit + 0)
    clamp(l, s, was)
    drop(s, was)
    if not s.live then return s end
    save(l, s, false)
    expire(l, s)
  end
  clamp(l, s, l)
  drop(s, l)
  return s
end

-- Writes down that what no longer counts is gone, where no charge does.
function rare.rest(l, s)
  if s.gone > 0 then save(l, s, false) end
end

-- the newest of the oldest entries with units in all
local function oldest(s, units)
  local es, i, from, size = s.es, s.first, s.from, 16
  while true do
    for j = i, #es do
      local at, n = parse(es[j])
      units = units - n
      if units <= 0 or at == s.A then return at end
    end
    from = from + #es
    es, i = call('LRANGE', s.key, from, from + size - 1), 1
    size = min(size * 2, 512)
  end
end

-- ok, and where the charge is entered
function rare.fits(l, s, cost, maxwait)
  if cost == 0 then return true end
  if cost > l.units then return false end
  local short = s.C + cost - l.units
  if short <= 0 then return true, l.entered(now) end
  s.free = oldest(s, short)
  local free = l.leaves(s.free)
  if free - now > maxwait then return false end
  return true, l.entered(free)
end

function rare.enter(l, s, units, at)
  local push = not s.live or at > s.A
  if s.foreign then call('DEL', s.key) end
  if push then s.live, s.A, s.B = true, at, 0 end
  s.B, s.C, s.E = s.B + units, s.C + units, max(s.A - now, 0)
  save(l, s, push)
  expire(l, s)
end

-- the entry at at: its place, counted from the oldest, and units
local function find(s, at)
  local n, last = call('LLEN', s.key), 16
  local es = call('LRANGE', s.key, -last, -1)
  for i = #es, 1, -1 do
    local t, units = parse(es[i])
    if t == at then return n - #es + i - 1, units end
    if t < at then return nil end
  end
  local low, high = s.gone, n - last - 1
  while low <= high do
    local mid = floor((low + high) / 2)
    local t, units = parse(call('LINDEX', s.key, mid))
    if t == at then return mid, units end
    if t < at then low = mid + 1 else high = mid - 1 end
  end
end

-- The newest entry has become empty: the one before it that is not is the
-- newest now.
local function pop(l, s)
  save(l, s, false) -- drops what has left
  repeat
    call('RPOP', s.key)
    local v = call('LINDEX', s.key, -1)
    if not v then
      return forget(s)
    end
    s.A, s.B = parse(v)
  until s.B > 0
  s.E = max(s.A - now, 0)
  save(l, s, false)
  expire(l, s)
end

function rare.settle(l, s, cost, rcost, instant, mark)
  local diff = cost - rcost
  if diff > 0 then
    local debt = min(diff, max(0, maxCost - s.C))
    if debt > 0 then return rare.enter(l, s, debt, l.entered(now)) end
    return rare.rest(l, s)
  end
  local refund = min(-diff, mark)
  if refund <= 0 or not s.live then return rare.rest(l, s) end
  if instant == s.A then
    refund = min(refund, s.B)
    s.B, s.C = s.B - refund, s.C - refund
    if s.B == 0 then pop(l, s) else save(l, s, false) end
    return
  end
  local i, units = find(s, instant)
  if not i or i < s.gone then return rare.rest(l, s) end
  refund = min(refund, units)
  s.C = s.C - refund
  call('LSET', s.key, i, format('%.0f:%.0f:', instant, units - refund))
  save(l, s, false)
end

function rare.told(l, s)
  if not s.live then return '' end
  local v = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.B, s.C, l.token, l.unit, s.E)
  if s.free and s.free < s.A then v = v .. ':' .. text(s.free) end
  return v
end
