-- Twin of store/concurrency.go, but that leases run out unless they are renewed
-- (renew.lua): a client that crashes gives back what it held.
--
-- State: a sorted set of lease ids, 16 bytes each, by the instant at which they
-- run out, in microseconds since 1970 and so above 0. Leases that have run out
-- count until the limit is full; only then are they looked for.
--
-- While each lease holds one slot, the member '#' is below all leases, so that its rank
-- is how many there are. It tells when the set was last given a lifetime, rounded down to
-- as long as a lease lasts: it is at that instant, less so much that it is below 0. It
-- goes with the last lease. If leases hold several slots, '##' is there instead. A lease
-- that holds n > 1 has a second member, its id and 'w', at 1-n, and '##' is at the sum of
-- those.
--
-- The state found is how many slots are held.
--
-- Arguments:
--   cost
--   units
--   lasts: a lease, in us
--   lifetime: in ms
--:arguments cost units lasts lifetime
--:strings
strings = ARGV[#ARGV] + 0
--:setup
local peek, most, n, pcall = cost == '0', units + 0, cost + 0, redis.pcall
--:load
local name, weighed, foreign = KEYS[i], false, false
local held = pcall('ZREVRANK', name, '#')
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then call('ZREVRANK', name, '#') end -- fails again
  held, foreign = 0, true
elseif not held then
  held, weighed = 0, call('ZSCORE', name, '##')
  if weighed then
    if not rare then lacking = row break end
    held = rare.held(name)
  end
end
raw = held
--:look
if held > 0 and held + max(n, 1) > most then
  local till = format('%.0f', now + 1767225600000000)
  if not weighed then
    held = held - call('ZREMRANGEBYSCORE', name, 0, till)
  else
    held, weighed = rare.purge(name, till, held)
  end
  raw = held
end
if peek or held + n <= most then
  fits = 1
  if n > 1 and not rare then lacking = row break end
end
--:keep held weighed foreign
--:charges
-- Where this column's id is among a decision's.
local offset, us, lasting = 0, now + 1767225600000000, lifetime + 0
for x = 2, j do
  local other = byte(kind, x)
  if other == letter or other == letter - 32 then offset = offset + 16 end
end
local lapses, cell = format('%.0f', us + lasts), format('%.0f', us - us % lasts - 1e16)
--:charge
local name, first = KEYS[i], offset + (row - 1) * each
local id = sub(leases, first + 1, first + 16)
if foreign then call('DEL', name) end
-- It is given twice as long as a lease lasts: never sooner than it was, since others may
-- have longer ones. 2: this is the first since '#'.
if weighed then call('ZADD', name, lapses, id) end
if (weighed or call('ZADD', name, 'GT', 'CH', lapses, id, cell, '#') == 2) and (held == 0 or call('PTTL', name) < lasting) then
  local px, fade = lifetime, nil
  --EXPIRE--
end
if n > 1 then rare.weigh(name, id, n - 1) end
--:amend
if held > 0 then
  if due == 0 and not weighed then
    if held > 1 then
      held = held - call('ZREM', name, lease)
    elseif call('ZREM', name, lease) == 1 then
      held = 0
      call('DEL', name)
    end
  else
    if not rare then lacking = row break end
    held = rare.hold(name, lease, due, held)
  end
end
left = held
--:functions
function rare.held(name)
  local n, more = call('ZCARD', name), call('ZSCORE', name, '##')
  return n - call('ZCOUNT', name, '-inf', '(0') - (more or 0)
end

-- Has a lease hold so many slots more than one.
function rare.weigh(name, id, more)
  local was = call('ZSCORE', name, id .. 'w') or 0
  if more + was == 0 then return end
  if more > 0 then
    call('ZADD', name, text(-more), id .. 'w')
    call('ZREM', name, '#')
  else
    call('ZREM', name, id .. 'w')
  end
  if call('ZINCRBY', name, text(-more - was), '##') + 0 == 0 then
    call('ZREM', name, '##')
    call('ZADD', name, '-1e16', '#')
  end
end

local function release(name, id)
  if call('ZREM', name, id) == 1 then rare.weigh(name, id, 0) end
end

-- Drops leases that have run out, some of which hold several slots.
function rare.purge(name, till, held)
  local gone = call('ZRANGEBYSCORE', name, 0, till)
  for i = 1, #gone do release(name, gone[i]) end
  return #gone > 0 and rare.held(name) or held, call('ZSCORE', name, '##')
end

-- Has a lease hold so many slots, or none, and returns how many are held.
function rare.hold(name, id, slots, held)
  local till = call('ZSCORE', name, id)
  if not till then return held end
  if slots == 0 or till + 0 <= now + 1767225600000000 then
    release(name, id)
  else
    local was = call('ZSCORE', name, id .. 'w') or 0
    rare.weigh(name, id, min(slots, 1 - was + max(0, maxCost - held)) - 1)
  end
  held = rare.held(name)
  if held == 0 then call('DEL', name) end
  return held
end
