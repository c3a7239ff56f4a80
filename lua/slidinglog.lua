-- Twin of internal/algorithm/slidinglog.go and of the step in internal/algorithm/sliding.go, which explains the rules:
-- charges are entered at their instant and leave a period later.
--
-- State: a list of the entries, oldest first. The newest is newest:newestUnits:counted:back, and
-- :newestLead behind that if it isn't 0; back is by how much the oldest is older. Older ones begin with
-- instant:units: and what follows that is ignored: removing it would cost as much
-- again as the charge. No entry is empty. The period is in the key's name.
--
-- What has left is taken off by the next charge or settlement; until then each look adds it up
-- anew. Otherwise no call reads more of a list than the entries that have to leave for a charge to
-- fit.
--
-- The state found, which the script answers, is the newest entry as of now, and behind semicolons
-- entries in between that the step asks for: of each its instant, and the units up to it.
--
-- Lifetime: until the newest entry counts no more, and slack longer. It is renewed only if a
-- charge has taken newest past a multiple of slack.
--
-- Arguments:
--   units
--   cost
--   how: how long the charge may wait, in us
--   period: in us
--:arguments units cost how period
--:strings
strings = ARGV[#ARGV] + 0
--:setup
local peek, most, n = cost == '0', units + 0, cost + 0
local counts, slack = now - period + 1, min(period + 0, 10000000)
--:load
-- was: the instant of the newest entry in the list, false if there is no list. gone: how many
-- entries at its beginning have left, as LTRIM reads it, or false. tail: how many at its end are
-- one by now, because the clock was set back. foreign: another program wrote the key. at: the instant
-- at which the charge runs.
local newest, newestUnits, counted, back, newestLead = now, 0, 0, 0, 0
local was, gone, tail, foreign, at = false, false, 1, false, now
v = false
local name = KEYS[i]
local last = redis.pcall('LINDEX', name, '-1')
if last then
  local a, b, c, o
  if type(last) == 'string' then
    a, b, c, o = match(last, '^(-?%d+):(%d+):(%d+):(%d+)$')
  elseif not string.find(last.err, 'WRONGTYPE', 1, true) then
    call('LINDEX', name, '-1') -- fails again
  end
  local usual = a and #a < 16 and #b < 14 and #c < 14 and #o < 16 and a + 0 <= now
  if usual and a + 0 < counts then -- all have left
    was, gone = a + 0, '-1'
  elseif usual then
    newest, newestUnits, counted, back, raw = a + 0, b + 0, c + 0, o + 0, last
    if newest - back < counts then -- the oldest has left
      local es, units, second = call('LRANGE', name, '0', '1'), nil, nil
      if es[2] then units, second = match(es[1], '^-?%d+:(%d+):'), match(es[2], '^(-?%d+):') end
      usual = units and second and second + 0 >= counts
      if usual then
        counted, back, gone = counted - units, newest - second, '1'
        raw = format('%s:%s:%.0f:%.0f', a, b, counted, back)
      end
    end
    was = newest
    usual = usual and newestUnits > 0 and (counted > newestUnits and back > 0 or counted == newestUnits and back == 0)
  end
  if not usual then
    if not rare then lacking = row break end
    newest, newestUnits, counted, back, newestLead, was, gone, tail, dirty = rare.readLog(name, last, period + 0)
    foreign, raw = not was, counted > 0 and rare.logText(newest, newestUnits, counted, back, newestLead) or nil
  end
end
--:look
-- So many units have to leave for more than none to be left, and for the charge to fit.
local over, short = counted + 1 - most, counted + n - most
local waits = not peek and short > 0 and n <= most
if peek or short <= 0 then fits = 1 end
-- With which the first unit leaves, the newest entry says.
if over > 1 or waits and (short > 1 or how ~= '0') then
  if not rare then lacking = row break end
  local told, free = rare.expiries(name, gone or 0, newest, counted - newestUnits, over, waits and short)
  raw = raw .. told
  if waits and free + period - now <= how + 0 then fits, at = 1, free + period end
end
--:carry newest newestUnits counted back newestLead was gone tail foreign at dirty
--:charge
local name, push, text = KEYS[i], counted == 0 or at > newest, nil
if foreign then
  local px = '1000'
  --REPLACE--
end
if dirty then
  rare.joinEntries(name, gone, tail, newest, newestUnits, counted, back, newestLead, period + 0)
  was, gone = newest, false
end
if push then
  back = counted > 0 and back + at - newest or 0
  newest, newestUnits = at, 0
end
text = format('%.0f:%.0f:%.0f:%.0f', newest, newestUnits + n, counted + n, back)
if newest > now then text = text .. format(':%.0f', newest - now) end
if push then
  local fade, px = newest + period + slack, nil
  call('RPUSH', name, text)
  if not was then
    --BEGIN--
    wrote = true
  else
    wrote = true
    if floor(newest / slack) > floor(was / slack) then
      --EXPIRE--
    end
  end
else
  call('LSET', name, '-1', text)
  wrote = true
end
if gone then call('LTRIM', name, gone, '-1') end
--:rest
if dirty and granted >= 0 then
  local name = KEYS[i]
  --ROOM--
  if not noMemory then
    rare.joinEntries(name, gone, tail, newest, newestUnits, counted, back, newestLead, period + 0)
  end
end
--:amend
if not rare then lacking = row break end
-- n: how many units are added, at most as many as make store.MaxCost
local n, place, units, is = max(0, min(diff, 1099511627776 - counted)), nil, nil, nil
left = raw or ''
if dirty then
  rare.joinEntries(name, gone, tail, newest, newestUnits, counted, back, newestLead, period + 0)
  was, gone, dirty = newest, false, false
end
if diff ~= 0 and counted > 0 and mark > 0 and instant >= counts then
  place, units, is = rare.entryAt(name, instant, newest, newestUnits)
end
if diff < 0 then n = place and 0 - min(0 - diff, mark, units) or 0 end
if n == 0 then
  -- there is nothing to change
elseif place then
  left, counted = rare.amendLog(name, gone or 0, place, units, is, n,
    newest, newestUnits, counted, back, newestLead, period + 0)
  gone = false
else
  --CHARGE--
  left, counted, gone = text, counted + n, false
end
if counted > most then left = left .. rare.expiries(name, gone or 0, newest, nil, counted + 1 - most, false) end
raw = raw or ''
--:functions
-- The text of the newest entry.
function rare.logText(newest, newestUnits, counted, back, newestLead)
  local v = format('%.0f:%.0f:%.0f:%.0f', newest, newestUnits, counted, back)
  if newestLead > 0 then v = v .. format(':%.0f', newestLead) end
  return v
end

-- The instant and the units of an entry; nothing if another program has written it.
local function entryIn(v)
  local at, units = match(v, '^(-?%d+):(%d+):')
  if at and #at < 17 and at + 0 > -exact and #units < 14 then return tonumber(at), tonumber(units) end
end

-- The list brought to the present, whose newest entry isn't usual: what the newest says then, was,
-- gone and tail, and whether the clock was set back since. Nothing is written.
function rare.readLog(name, last, period)
  local w = type(last) == 'string' and words(last) or {}
  local newest, newestUnits, counted, back, newestLead, tail, gone = w[1], w[2], w[3], w[4], w[5] or 0, 1, 0
  local foreign = {now, 0, 0, 0, 0, false, false, 1, false}
  if #w < 4 or #w > 5 or newestUnits <= 0 or counted < newestUnits or back < 0 or newestLead < 0
    or (counted == newestUnits) ~= (back == 0) then
    return unpack(foreign)
  end
  local was, oldest, setBack = newest, newest - back, newest > now + newestLead
  if newest + period <= now then return now, 0, 0, 0, 0, was, '-1', 1, false end

  if setBack then -- what was made before the clock was set back is one entry
    newest = now + newestLead
    local more, size = true, 16
    while more do
      local es = call('LRANGE', name, -tail - size, -tail - 1)
      more = #es == size
      for i = #es, 1, -1 do
        local at, units = entryIn(es[i])
        if not at or at < newest then more = false break end
        newestUnits, tail = newestUnits + units, tail + 1
      end
      size = min(size * 2, 512)
    end
  end

  local size = 2
  while oldest + period <= now do -- it has left
    local es = call('LRANGE', name, gone, gone + size - 1)
    if #es == 0 then return unpack(foreign) end
    for i = 1, #es do
      local at, units = entryIn(es[i])
      if not at then return unpack(foreign) end
      oldest = at
      if at + period > now then break end
      counted, gone = counted - units, gone + 1
    end
    size = min(size * 8, 512)
  end
  back = max(newest - oldest, 0)
  if counted < newestUnits or (counted == newestUnits) ~= (back == 0) then return unpack(foreign) end
  return newest, newestUnits, counted, back, newestLead, was, gone > 0 and text(gone), tail, setBack
end

-- Has the list say that the last entries are one, without those that are gone, and live as long
-- as that counts.
function rare.joinEntries(name, gone, tail, newest, newestUnits, counted, back, newestLead, period)
  call('LSET', name, 0 - tail, rare.logText(newest, newestUnits, counted, back, newestLead))
  wrote = true
  call('LTRIM', name, gone or '0', 0 - tail)
  local fade, px = newest + period + min(period, 10000000), nil
  --EXPIRE--
end

-- With which entries over units have left, if that is more than one, and short units, and one
-- more: for the answer; and the instant of the one for short. older is the sum of all but the
-- newest, if it is known.
function rare.expiries(name, from, newest, older, over, short)
  local wanted, told, units, free, size = {}, {}, 0, newest, 16
  if over > 1 then wanted[1] = over end
  if short then
    wanted[#wanted + 1] = short
    wanted[#wanted + 1] = short + 1
  end
  local k = 1
  from = tonumber(from)
  while wanted[k] do
    local es = call('LRANGE', name, from, from + size - 1)
    if #es == 0 then break end
    for i = 1, #es do
      local at, n = entryIn(es[i])
      units = units + (n or 0)
      at = min(at or newest, older and units <= older and newest - 1 or newest)
      if wanted[k] and units >= wanted[k] then
        told[#told + 1] = format(';%.0f:%.0f', at, units)
        while wanted[k] and units >= wanted[k] do
          if wanted[k] == short then free = at end
          k = k + 1
        end
      end
    end
    from, size = from + #es, min(size * 2, 512)
  end
  return table.concat(told), free
end

-- The entry at at: its place as LSET reads it, its units, and its text.
function rare.entryAt(name, at, newest, newestUnits)
  if at == newest then return -1, newestUnits end
  local n, last = call('LLEN', name), 16
  local es = call('LRANGE', name, 0 - last, -1)
  for i = #es, 1, -1 do
    local t, units = entryIn(es[i])
    if t == at then return n - #es + i - 1, units, es[i] end
    if not t or t < at then return nil end
  end
  local low, high = 0, n - last - 1
  while low <= high do
    local mid = floor((low + high) / 2)
    local v = call('LINDEX', name, mid)
    local t, units = entryIn(v)
    if not t then return nil end
    if t == at then return mid, units, v end
    if t < at then low = mid + 1 else high = mid - 1 end
  end
end

-- Adds n units, which may be less than 0, to the entry at a place, and takes off what is gone.
-- Returns the newest entry, or nothing if that was all, and the sum of all.
function rare.amendLog(name, gone, place, units, is, n, newest, newestUnits, counted, back, newestLead, period)
  local oldest = newest - back
  if place == -1 then
    newestUnits = newestUnits + n
    if newestUnits == 0 then -- the one before it is the newest now
      newest, newestUnits = entryIn(back > 0 and call('LINDEX', name, '-2') or '')
      if not newest then
        call('DEL', name)
        wrote = true
        return '', 0
      end
      call('RPOP', name)
      wrote = true
      newestLead = max(newest - now, 0)
      local fade, px = newest + period + min(period, 10000000), nil
      --EXPIRE--
    end
  elseif units + n > 0 then
    local at = entryIn(is)
    call('LSET', name, place, format('%.0f:%.0f:', at, units + n))
    wrote = true
  elseif place == tonumber(gone) then -- the one after it is the oldest now
    gone = place + 1
    oldest = entryIn(call('LINDEX', name, gone) or '') or newest
  else
    call('LREM', name, '-1', is)
    wrote = true
  end
  local v = rare.logText(newest, newestUnits, counted + n, newest - oldest, newestLead)
  call('LSET', name, '-1', v)
  wrote = true
  if tonumber(gone) > 0 then call('LTRIM', name, gone, '-1') end
  return v, counted + n
end
