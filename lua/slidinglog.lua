-- Twin of store/slidinglog.go: charges are entered at their instant, and leave a period
-- later.
--
-- State: a list of the entries, oldest first, each at:units:total:back:numbers and, if it
-- isn't 0, :E; numbers are the limit's token and unit, as its arguments have them. The
-- newest one's total is the sum of all in the list, and back is by how much the oldest
-- is older; what older ones say beside at:units means nothing, and to take it off would
-- cost as much again as the charge. No call reads the whole list but to drop it or to
-- deny a charge as large.
--
-- If several versions have charged it (versions.lua), :E and of each :token:unit:at follow,
-- where at is the entry of its latest charge. The state found is then the newest entry
-- and, with semicolons, all others as at:units, oldest first. Where others have charged
-- and this version hasn't, too.
--
-- Else the state found is the newest entry and, after a look that found no room at once, the
-- instant of the entry with whose leaving there is, unless that is the newest. The
-- step on a state with that entry alone gives the same result as on all of them.
--
-- Arguments:
--   units
--   numbers: token:unit
--   cost
--   how: how long the charge may wait in us, 0 if not at all
--   period: in us
--:arguments units numbers cost how period
--:strings
strings = ARGV[#ARGV] + 0
--:setup
local peek, most, n = cost == '0', units + 0, cost + 0
local counts, slack = now - period + 1, min(period, 10000000)
--:load
local A, B, C, back, E, foreign, live, at, rec = now, 0, 0, 0, 0, false, false, now, false
v = false -- or somebody else's
local name = KEYS[i]
local newest = redis.pcall('LINDEX', name, -1)
if newest then
  local a, b, c, o, rest
  if type(newest) == 'string' then
    a, b, c, o, rest = string.match(newest, '^(%d+):(%d+):(%d+):(%d+):(.*)$')
  elseif not string.find(newest.err, 'WRONGTYPE', 1, true) then
    call('LINDEX', name, -1) -- fails again
  end
  local plain = rest == numbers and a + 0 <= now and a + 0 >= counts
  if plain then
    A, B, C, back, live, raw = a + 0, b + 0, c + 0, o + 0, true, newest
    if A - back < counts then -- the oldest has left: dirty says that it is to be taken off
      local es = call('LRANGE', name, 0, 1)
      local second = es[2] and tonumber(string.match(es[2], '^%d+'))
      if second and second >= counts then
        C, back, dirty = C - string.match(es[1], ':(%d+):'), A - second, true
        raw = format('%.0f:%s:%.0f:%.0f:%s', A, b, C, back, numbers)
      else
        plain = false
      end
    end
  end
  if not plain then
    if not rare then lacking = row break end
    raw, A, B, C, back, E = rare.entries(name, newest, numbers)
    live, foreign = raw and true or false, raw == nil
    if not live then raw, A, B, C, back, E = nil, now, 0, 0, 0, 0 end
    if foreign then
      rec = rare.several(name, newest)
      live, foreign, rec = rec and true or false, rec == nil, rec or false
      if rec and not crammed and rare.alone(rec, numbers) then
        A, B, C, back, E, raw = rare.logAlone(rec)
        rec = false
      elseif rec then
        if rare.see(rec.vs, numbers, rec.es[#rec.es][1]) and not crammed then rare.keepLog(name, rec) end
        A, C, raw = rec.es[#rec.es][1], rare.counts(rec, numbers), rare.logText(rec, true)
      end
    end
  end
end
--:look
if peek or C + n <= most then
  fits = 1
elseif n <= most then
  if not rare then lacking = row break end
  if rec then
    local free = rare.room(rec, numbers, C + cost - most)
    if rare.waits(numbers, free, how + 0) then fits, at = 1, free end
  else
  local free = rare.oldest(name, dirty and 1 or 0, C + cost - most, A)
  if free + period - now <= how + 0 then fits, at = 1, free + period end
  if free < A then raw = raw .. (E == 0 and ':0:' or ':') .. format('%.0f', free) end
  end
end
--:keep A B C back foreign live at dirty rec
--:charge
local name, was, push, text = KEYS[i], A, not live or at > A, nil
if rec then
  rare.enter(rec, numbers, at, cost + 0)
  text = rare.keepLog(name, rec)
else
  if foreign then
    local px = '1000'
    --REPLACE--
  end
  if push then
    if live then back = back + at - A else back = 0 end
    A, B = at, 0
  end
  text = format('%.0f:%.0f:%.0f:%.0f:%s', A, B + cost, C + cost, back, numbers)
  if A > now then text = text .. format(':%.0f', A - now) end
  if push then
    local fade, px = A + period + slack, nil
    call('RPUSH', name, text)
    if not live then
      --BEGIN--
      wrote = true
    else
      wrote = true
      if floor(A / slack) > floor(was / slack) then -- it may live slack longer
        --EXPIRE--
      end
    end
  else
    call('LSET', name, -1, text)
    wrote = true
  end
end
if dirty then call('LPOP', name) end
--:rest
if dirty and granted >= 0 then
  local name = KEYS[i]
  --ROOM--
  if not crammed then
    call('LSET', name, -1, format('%.0f:%.0f:%.0f:%.0f:%s', A, B, C, back, numbers))
    call('LPOP', name)
    wrote = true
  end
end
--:amend
--REST--
dirty = false
if diff > 0 then
  local cost = min(diff, max(0, 1099511627776 - C)) -- store.MaxCost
  if cost > 0 then
    --CHARGE--
    left = rec and rare.logText(rec, true) or text
  end
elseif live and min(-diff, mark) > 0 then
  if not rare then lacking = row break end
  if rec then
    left = ''
    if rare.withdraw(rec, numbers, instant, min(-diff, mark)) then
      rare.keepLog(KEYS[i], rec)
      left = rare.logText(rec, true)
    else
      call('DEL', KEYS[i])
      wrote = true
    end
  else
  left = rare.refund(KEYS[i], A, B, C, back, numbers, E, instant, min(-diff, mark))
  end
end
raw = raw or ''
left = left or raw
--:functions
local function parse(v)
  local at, units = string.match(v, '^(-?%d+):(%d+):')
  return at + 0, units + 0
end

-- Says in the newest entry what there is, and has it live as long as that counts.
local function rewrite(name, A, B, C, back, numbers, E)
  local v = format('%.0f:%.0f:%.0f:%.0f:%s', A, B, C, back, numbers)
  if E > 0 then v = v .. ':' .. text(E) end
  local period = fields(numbers)[1]
  local fade, px = A + period + min(period, 10000000), nil
  --EXPIRE--
  call('LSET', name, -1, v)
  return v, A, B, C, back, E
end

-- The list of a version alone, brought to the present: its newest entry and what that
-- says; false if nothing is left of it, nil if it isn't such a list.
function rare.entries(name, newest, numbers)
  local A, B, C, back, was, E
  if type(newest) == 'string' then
    A, B, C, back, was, E = string.match(newest, '^(-?%d+):(%d+):(%d+):(%d+):([%de]+:%d+):?(%d*)$')
  end
  if was ~= numbers or outOfMemory(name) then return nil end -- rare.several writes only if it may
  A, B, C, E = A + 0, B + 0, C + 0, tonumber(E) or 0
  local oldest = A - back

  -- Enters what was made before the clock was set back now, or for the turn that was
  -- reserved, in one entry.
  local function clamp()
    if A <= now + E then return end
    A = now + E
    while true do
      call('RPOP', name)
      wrote = true
      local v = call('LINDEX', name, -1)
      local at, units = A - 1, 0
      if v then at, units = parse(v) end
      if at < A then break end
      B = B + units
    end
    call('RPUSH', name, text(A) .. ':' .. text(B) .. ':')
    oldest = min(oldest, A)
  end

  -- Takes off what no longer counts, and reports whether anything is left.
  local function drop(period)
    if A + period <= now then
      call('DEL', name)
      return false
    end
    local size, from = 2, 0
    while true do
      local es = call('LRANGE', name, from, from + size - 1)
      for i = 1, #es do
        local at, units = parse(es[i])
        if at + period > now then
          oldest = at
          if from + i > 1 then call('LTRIM', name, from + i - 1, -1) end
          return true
        end
        C = C - units
      end
      from = from + #es
      size = min(size * 8, 512)
    end
  end

  clamp()
  if not drop(fields(numbers)[1]) then return false end
  return rewrite(name, A, B, C, A - oldest, numbers, E)
end

-- The newest entry, of which several versions may tell.
function rare.logText(r, all)
  local es, vs = r.es, r.vs
  local last = es[#es]
  local v = format('%.0f:%.0f:%.0f:%.0f:%s', last[1], last[2], r.C, last[1] - es[1][1], vs[1].numbers)
  if r.E > 0 or #vs > 1 then v = v .. ':' .. text(r.E) end
  if #vs > 1 then
    local words = {v}
    for i = 1, #vs do words[i + 1] = vs[i].numbers .. ':' .. text(vs[i].at) end
    v = table.concat(words, ':')
  end
  if all then
    local words = {v}
    for i = 1, #es - 1 do words[i + 1] = format('%.0f:%.0f', es[i][1], es[i][2]) end
    v = table.concat(words, ';')
    if #es == 1 then v = v .. ';' end
  end
  return v
end

-- Has the list say what r does, and live as long as that counts; returns the newest entry.
function rare.keepLog(name, r)
  local es, v = r.es, rare.logText(r)
  local fade, px = now, nil
  for i = 1, #r.vs do fade = max(fade, r.vs[i].till + min(r.vs[i].d.token, 10000000)) end
  if r.anew then
    local old = call('LLEN', name)
    for from = 1, #es - 1, 1000 do
      local texts = {}
      for i = from, min(from + 999, #es - 1) do texts[#texts + 1] = format('%.0f:%.0f:', es[i][1], es[i][2]) end
      call('RPUSH', name, unpack(texts))
      wrote = true
    end
    call('RPUSH', name, v)
    wrote = true
    call('LTRIM', name, old, -1)
  else
    if r.pushed then call('RPUSH', name, v) else call('LSET', name, -1, v) end
    wrote = true
    if r.trim > 0 then call('LTRIM', name, r.trim, -1) end
  end
  --EXPIRE--
  r.anew, r.pushed, r.trim = false, false, 0
  return v
end

-- Of one version alone.
function rare.logAlone(r)
  local last = r.es[#r.es]
  return last[1], last[2], r.C, last[1] - r.es[1][1], r.E, rare.logText(r)
end

-- The list, brought to the present (versions.lua); false if nothing is left of it, nil if
-- it is somebody else's.
function rare.several(name, newest)
  local A, B, C, numbers, E, rest
  if type(newest) == 'string' then
    A, B, C, numbers, E, rest = string.match(newest, '^(-?%d+):(%d+):(%d+):%d+:([%de]+:%d+):?(%d*)(.*)$')
  end
  if not A then return nil end
  local r = {es = {}, C = C + 0, E = tonumber(E) or 0, vs = {}, trim = 0}
  local size, from = 512, 0
  repeat
    local es = call('LRANGE', name, from, from + size - 1)
    for i = 1, #es do
      local at, units = parse(es[i])
      r.es[from + i] = {at, units}
    end
    from = from + #es
  until #es < size
  for n, at in string.gmatch(rest, ':([%de]+:%d+):(-?%d+)') do r.vs[#r.vs + 1] = rare.keeper(n, at + 0) end
  if #r.vs == 0 then r.vs[1] = rare.keeper(numbers, A + 0) end
  local live, dirty = rare.present(r)
  if outOfMemory(name) then return live and r end
  if not live then
    call('DEL', name)
    return false
  end
  if dirty then rare.keepLog(name, r) end
  return r
end

-- the newest of the oldest entries with units in all
function rare.oldest(name, from, units, newest)
  local size = 16
  while true do
    local es = call('LRANGE', name, from, from + size - 1)
    for i = 1, #es do
      local at, n = parse(es[i])
      units = units - n
      if units <= 0 or at == newest then return at end
    end
    from = from + #es
    size = min(size * 2, 512)
  end
end

-- the entry at at: its place, counted from the oldest, and units
local function entryAt(name, at)
  local n, last = call('LLEN', name), 16
  local es = call('LRANGE', name, -last, -1)
  for i = #es, 1, -1 do
    local t, units = parse(es[i])
    if t == at then return n - #es + i - 1, units end
    if t < at then return nil end
  end
  local low, high = 0, n - last - 1
  while low <= high do
    local mid = floor((low + high) / 2)
    local t, units = parse(call('LINDEX', name, mid))
    if t == at then return mid, units end
    if t < at then low = mid + 1 else high = mid - 1 end
  end
end

-- Gives back of what was entered at an instant, and returns the newest entry, or
-- nothing if that was all.
function rare.refund(name, A, B, C, back, numbers, E, instant, refund)
  local oldest = A - back
  if instant == A then
    refund = min(refund, B)
    B, C = B - refund, C - refund
    while B == 0 do -- the one before it that isn't empty is the newest now
      call('RPOP', name)
      wrote = true
      local v = call('LINDEX', name, -1)
      if not v then return '' end
      A, B = parse(v)
      E = max(A - now, 0)
    end
  else
    local i, units = entryAt(name, instant)
    if i then
      refund = min(refund, units)
      C = C - refund
      call('LSET', name, i, format('%.0f:%.0f:', instant, units - refund))
      wrote = true
    end
  end
  return (rewrite(name, A, B, C, A - oldest, numbers, E))
end
