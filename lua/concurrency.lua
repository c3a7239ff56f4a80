-- Twin of internal/algorithm/concurrency.go, but that leases run out unless they are renewed
-- (renew.lua): the slots of a client that crashes come free.
--
-- State: a sorted set of lease ids, 16 bytes each, by the instant at which they
-- run out, in microseconds since 1970 and so above 0. Leases that have run out aren't
-- counted. They stay until their slots are needed, so that a client that was cut off can still renew
-- them.
--
-- While each lease holds one slot, the member '#' is below all leases, so that its rank
-- is how many there are. It tells when the set was last given a lifetime, rounded down to
-- as long as a lease lasts: it is at that instant, less so much that it is below 0. It
-- stays when the last lease goes, until the set runs out: making a set and giving it a
-- lifetime is half of what a slot's commands take, and most keys come back. If leases hold
-- several slots, '##' is there instead, and '###' tells the instant. A lease that holds n > 1
-- has a second member, its id and 'w', at 1-n, and '##' is at the sum of those.
--
-- That instant is ahead of a clock that was set back by more than a lease. Leases that
-- would last for longer than a lease are then set back by as much, so that those of dead
-- processes don't stay for as long as that was. Smaller steps leave nothing for longer than
-- two leases.
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
local us, low, clock, lapses = now + 1767225600000000, nil, nil, nil
--:load
-- fresh: there is no set yet, so that the one to be made is given a lifetime.
local name, weighted, foreign, fresh = KEYS[i], false, false, false
local held = pcall('ZREVRANK', name, '#')
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then call('ZREVRANK', name, '#') end -- fails again
  held, foreign, fresh = 0, true, true
elseif not held then
  held, weighted = 0, call('ZSCORE', name, '##')
  fresh = not weighted
  if weighted then
    if not rare then lacking = row break end
    held = rare.slotsIn(name)
  end
end
-- listed: held, and the slots of leases that have run out. In most sets no lease has, so counting those stops at
-- the first lease. Counting
-- the others would walk the whole set, since the server stores a small one as a list.
local listed = held
if held > 0 and not clock then
  -- '%.0f' takes twice as long as this, and '%d' of the whole overflows on 32-bit servers.
  low = us % 1e8
  clock = format('%d%08d', (us - low) / 1e8, low)
end
if held > 0 and call('ZCOUNT', name, '0', clock) > 0 then
  if not rare then lacking = row break end
  held, listed, weighted = rare.countSlots(name, lasts)
end
raw = held
--:look
-- If a lease lasts longer than one made now would, either its process makes longer leases or
-- the clock was set back. In most sets there is none, and counting stops at the last lease.
if held > 0 and not lapses then
  low = (us + lasts) % 1e8
  lapses = format('%d%08d', (us + lasts - low) / 1e8, low)
end
if held > 0 and call('ZCOUNT', name, '(' .. lapses, '+inf') > 0
  and (call('ZSCORE', name, weighted and '###' or '#') or -1e16) + 1e16 > us then
  if not rare then lacking = row break end
  rare.setBack(name, lasts, weighted and '###' or '#')
end
-- A group of decisions needs the slots of all.
if listed > held and listed + max(n, 1) * g > most then
  weighted = rare.dropExpired(name, 0)
  listed = held
end
fits = peek and g or max(min(g, floor((most - held) / n)), 0)
if fits > 0 and n > 1 and not rare then lacking = row break end
--:carry fresh weighted foreign
--:chargesetup
-- Where this column's id is among a decision's.
local offset, lasting = 0, lifetime + 0
for x = 2, j do
  local other = byte(kind, x)
  if other == letter or other == letter - 32 then offset = offset + 16 end
end
if not lapses then
  low = (us + lasts) % 1e8
  lapses = format('%d%08d', (us + lasts - low) / 1e8, low)
end
local cell = 1e16 - us + us % lasts
low = cell % 1e8
cell = format('-%d%08d', (cell - low) / 1e8, low)
--:charge
local name, first, members = KEYS[i], offset + (starts and starts[row] or row - 1) * each, {}
for x = 1, 2 * g, 2 do
  members[x], members[x + 1] = lapses, sub(leases, first + 1, first + 16)
  first = first + each
end
-- The set lives twice as long as a lease lasts: never shorter than it would have, since others
-- may have longer leases. One more changed than leases: they are the first since the instant of '#'.
local px, fade = lifetime, nil
if foreign then
  --REPLACE--
end
local changed = call('ZADD', name, 'GT', 'CH', cell, weighted and '###' or '#', unpack(members))
if fresh then
  --BEGIN--
  wrote = true
else
  wrote = true
  if changed == g + 1 and call('PTTL', name) < lasting then
    --EXPIRE--
  end
end
if n > 1 then
  for x = 2, 2 * g, 2 do rare.setExtraSlots(name, members[x], n - 1) end
end
--:amend
-- Several leases are released one after the other, and left says how many slots are held after
-- each. A ZREM of all would say how many were there, not which; a ZMSCORE before it takes
-- as long as ZREMs one by one.
if listed > 0 and (due > 0 or weighted) and not rare then lacking = row break end
for first = 1, #lease, 16 do
  local id = sub(lease, first, first + 15)
  if listed > 0 then
    if due > 0 or weighted then
      held = rare.setSlots(name, id, due, held, lasts)
    elseif call('ZREM', name, id) == 1 then
      wrote = true
      if listed == held then
        held, listed = held - 1, listed - 1
      else
        held, listed = rare.countSlots(name, lasts)
      end
    end
  end
  left = left and left .. '|' .. held or held
end
--:functions
local function held(name)
  local n, more = call('ZCARD', name), call('ZSCORE', name, '##')
  return n - call('ZCOUNT', name, '-inf', '(0') - (more or 0)
end
rare.slotsIn = held

-- Has a lease hold one slot and so many more.
function rare.setExtraSlots(name, id, more)
  local was = call('ZSCORE', name, id .. 'w') or 0
  if more + was == 0 then return end
  if more > 0 then
    call('ZADD', name, text(-more), id .. 'w')
    local told = call('ZSCORE', name, '#')
    if told then
      call('ZADD', name, told, '###')
      call('ZREM', name, '#')
    end
  else
    call('ZREM', name, id .. 'w')
  end
  if call('ZINCRBY', name, text(-more - was), '##') + 0 == 0 then
    call('ZADD', name, call('ZSCORE', name, '###') or '-1e16', '#')
    call('ZREM', name, '##', '###')
  end
end

local function release(name, id)
  if call('ZREM', name, id) == 1 then
    wrote = true
    rare.setExtraSlots(name, id, 0)
  end
end

-- Drops leases that ran out so long ago, in us, some of which may hold several slots, and
-- reports whether others do.
function rare.dropExpired(name, ago)
  if outOfMemory(name) then return call('ZSCORE', name, '##') end
  local till = text(now + 1767225600000000 - ago)
  if not call('ZSCORE', name, '##') then
    call('ZREMRANGEBYSCORE', name, 0, till)
    return false
  end
  local gone = call('ZRANGEBYSCORE', name, 0, till)
  for i = 1, #gone do release(name, gone[i]) end
  return call('ZSCORE', name, '##')
end

-- Sets leases back by as much as the clock, which has been at the mark's instant.
function rare.setBack(name, lasts, mark)
  if outOfMemory(name) then return end
  local us = now + 1767225600000000
  local ahead = call('ZSCORE', name, mark) + 1e16 - us
  local late = call('ZRANGEBYSCORE', name, '(' .. text(us + lasts), '+inf', 'WITHSCORES')
  for i = 1, #late, 2 do
    call('ZADD', name, text(max(us + lasts, late[i + 1] - ahead)), late[i])
  end
  call('ZADD', name, text(us - us % lasts - 1e16), mark)
end

-- How many slots are held; how many are listed, with those of leases that have run out; and whether
-- some lease holds several. A client that could renew one has done so by the time that it has
-- run out for as long as it lasted.
function rare.countSlots(name, lasts)
  local weighted = rare.dropExpired(name, lasts)
  local listed, till = held(name), text(now + 1767225600000000)
  local held = listed - call('ZCOUNT', name, 0, till)
  if weighted and held < listed then
    for _, id in ipairs(call('ZRANGEBYSCORE', name, 0, till)) do
      held = held + (call('ZSCORE', name, id .. 'w') or 0)
    end
  end
  return held, listed, weighted
end

-- Has a lease hold so many slots, or none, and returns how many are held.
function rare.setSlots(name, id, slots, held, lasts)
  local till = call('ZSCORE', name, id)
  if not till then return held end
  if slots == 0 or till + 0 <= now + 1767225600000000 then
    release(name, id)
  else
    local was = call('ZSCORE', name, id .. 'w') or 0
    rare.setExtraSlots(name, id, min(slots, 1 - was + max(0, maxCost - held)) - 1)
    wrote = true
  end
  return (rare.countSlots(name, lasts))
end

-- Enters a lease again that the set has lost, or whose set is lost (renew.lua). The mark is older
-- than any, so the next charge gives the set its lifetime.
function rare.restoreLease(name, id, slots, till, px, foreign)
  local fade
  if foreign then
    --REPLACE--
  end
  local fresh = call('ZCARD', name) == 0
  if fresh or not call('ZSCORE', name, '##') then call('ZADD', name, 'NX', '-1e16', '#') end
  if fresh then
    --BEGIN--
    wrote = true
  end
  local more = min(slots - 1, max(0, maxCost - held(name)))
  call('ZADD', name, till, id)
  wrote = true
  if more > 0 then rare.setExtraSlots(name, id, more) end
end
