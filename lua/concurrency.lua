-- Twin of store/concurrency.go, but that leases run out unless they are renewed
-- (renew.lua): a client that crashes gives back what it held.
--
-- State: a sorted set of lease ids, 16 bytes each, by the instant at which they
-- run out, in microseconds since 1970 and so above 0. Leases that have run out
-- count until the limit is full; only then are they looked for.
--
-- A lease that holds w > 1 slots has a second member, its id and 'w', at 1-w,
-- and '#' is at the sum of those.
--
-- The state found is how many slots are held.
--
-- Arguments:
--   cost
--   units
--   lasts: a lease, in us
--   lifetime: in ms
--:arguments cost units lasts lifetime
--:setup
local peek = cost == '0'
--:load
local name, weighed = KEYS[i], nil
local held = redis.pcall('ZCARD', name)
local foreign = type(held) ~= 'number'
if foreign then
  held = 0
elseif held > 0 then
  weighed = call('ZSCORE', name, '#')
  if weighed then held = held - call('ZCOUNT', name, '-inf', '(0') - weighed end
end
raw = held
--:look
if held > 0 and held + max(cost, 1) > units + 0 then
  local till = format('%.0f', now + 1767225600000000)
  if not weighed then
    held = held - call('ZREMRANGEBYSCORE', name, 0, till)
  else
    if not rare then lacking = row break end
    held = rare.purge(name, till, held)
  end
  raw = held
end
if peek or held + cost <= units + 0 then fits = 1 end
--:keep held foreign
--:charges
-- Where this column's id is among a decision's.
local offset = 0
for x = 2, j do
  local other = byte(kind, x)
  if other == letter or other == letter - 32 then offset = offset + 16 end
end
--:charge
local name, first = KEYS[i], offset + (row - 1) * each
local id = sub(leases, first + 1, first + 16)
if foreign then call('DEL', name) end
call('ZADD', name, format('%.0f', now + lasts + 1767225600000000), id)
if cost ~= '1' then
  call('ZADD', name, 1 - cost, id .. 'w')
  call('ZINCRBY', name, 1 - cost, '#')
end
-- Never sooner than it was: others may have longer leases. For twice as long as a
-- lease, and when half of it has gone.
if held == 0 or call('PTTL', name) * 2 < lifetime + 0 then
  local px, fade = lifetime, nil
  --EXPIRE--
end
--:amend
if held > 0 then
  if due == 0 and not weighed then
    held = held - call('ZREM', name, lease)
  else
    if not rare then lacking = row break end
    held = rare.hold(name, lease, due, held, weighed)
  end
end
left = held
--:functions
local function count(name)
  local n, more = call('ZCARD', name), call('ZSCORE', name, '#')
  if more then n = n - call('ZCOUNT', name, '-inf', '(0') - more end
  return n
end

local function release(name, id)
  if call('ZREM', name, id) == 0 then return end
  local w = call('ZSCORE', name, id .. 'w')
  if w then
    call('ZREM', name, id .. 'w')
    if call('ZINCRBY', name, text(-w), '#') + 0 == 0 then call('ZREM', name, '#') end
  end
end

-- Drops leases that have run out, some of which hold several slots.
function rare.purge(name, till, held)
  local gone = call('ZRANGEBYSCORE', name, 0, till)
  for i = 1, #gone do release(name, gone[i]) end
  return #gone > 0 and count(name) or held
end

-- Has a lease hold so many slots, or none.
function rare.hold(name, id, cost, held, weighed)
  local till = call('ZSCORE', name, id)
  if not till then return held end
  if cost == 0 or till + 0 <= now + 1767225600000000 then
    release(name, id)
    return count(name)
  end
  local was = weighed and call('ZSCORE', name, id .. 'w') or 0
  cost = min(cost, 1 - was + max(0, maxCost - held))
  if cost > 1 then
    call('ZADD', name, text(1 - cost), id .. 'w')
  elseif was ~= 0 then
    call('ZREM', name, id .. 'w')
  end
  if cost - 1 ~= -was and call('ZINCRBY', name, text(1 - cost - was), '#') + 0 == 0 then
    call('ZREM', name, '#')
  end
  return count(name)
end
