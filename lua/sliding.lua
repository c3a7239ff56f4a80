-- Twin of store/sliding.go: SlidingWindow and SlidingLog are one step, in which
-- charges are entered and leave at different instants.
--
-- State: a list of the entries, oldest first, each at:units:total. The newest
-- one's total is the sum of all in the list; older ones' mean nothing, and to
-- take them off would cost as much again as the charge. Entries that have left
-- stay until the next write, unless they are many: then they are dropped at
-- once, so that each is read a few times only. No call reads the whole list but
-- to drop it or to refuse a charge as large.
--
-- raw says A:B:C and, after a look that found no room at once, the instant of
-- the entry with whose leaving there is, unless that is the newest. The step on
-- a state with that entry alone gives the same result as on all of them.
local function sliding(read, entered, leaves)
  local few = 32

  local function parse(v)
    local at, units, total = string.match(v, '^(-?%d+):(%d+):(%d+)$')
    if not at then return nil end
    return at + 0, units + 0, total + 0
  end

  local function write(l, s, push)
    local v = format('%.0f:%.0f:%.0f', s.A, s.B, s.C)
    if s.gone > 0 then
      call('LTRIM', s.key, s.gone, -1)
      s.gone = 0
    end
    if push then call('RPUSH', s.key, v) else call('LSET', s.key, -1, v) end
  end

  -- One more than rounded up: the server counts from the millisecond that the
  -- present is in.
  local function expire(l, s)
    call('PEXPIRE', s.key, text(ceilDiv(leaves(l, s.A) - now, 1000) + 1))
  end

  local function rebase(l, key)
    local s = {key = key, live = false, A = 0, B = 0, C = 0, gone = 0}
    local v = redis.pcall('LINDEX', key, -1)
    if not v then return s end
    local a, b, c
    if type(v) == 'string' then a, b, c = parse(v) end
    if not a then -- somebody else's
      s.foreign = true
      return s
    end
    if leaves(l, a) <= now then
      call('DEL', key)
      return s
    end
    s.live, s.A, s.B, s.C = true, a, b, c

    local size, from = 2, 0
    while true do
      local es = call('LRANGE', key, from, from + size - 1)
      for i = 1, #es do
        local at, units = parse(es[i])
        if leaves(l, at) > now then
          s.gone = from + i - 1
          s.es, s.first, s.from = es, i, from -- where the walk goes on
          if s.gone > few then
            local gone = s.gone
            write(l, s, false)
            s.from = from - gone
          end
          return s
        end
        s.C = s.C - units
      end
      from = from + #es
      size = min(size * 8, 512)
    end
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
  local function look(l, s, cost, maxwait)
    if cost == 0 then return true end
    if cost > l.units then return false end
    local short = s.C + cost - l.units
    if short <= 0 then return true, entered(l, now) end
    s.free = oldest(s, short)
    local free = leaves(l, s.free)
    if free - now > maxwait then return false end
    return true, entered(l, free)
  end

  local function enter(l, s, units, at)
    local push = not s.live or at > s.A
    if s.foreign then call('DEL', s.key) end
    if push then s.live, s.A, s.B = true, at, 0 end
    s.B, s.C = s.B + units, s.C + units
    write(l, s, push)
    expire(l, s)
  end

  local function commit(l, s, cost, at) enter(l, s, cost, at) end

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
    write(l, s, false) -- drops what has left
    repeat
      call('RPOP', s.key)
      local v = call('LINDEX', s.key, -1)
      if not v then
        s.live, s.A, s.B, s.C = false, 0, 0, 0
        return
      end
      s.A, s.B = parse(v)
    until s.B > 0
    write(l, s, false)
    expire(l, s)
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local diff = cost - rcost
    if diff > 0 then
      local debt = min(diff, max(0, maxCost - s.C))
      if debt > 0 then enter(l, s, debt, entered(l, now)) end
      return
    end
    local refund = min(-diff, mark)
    if refund <= 0 or not s.live then return end
    if instant == s.A then
      refund = min(refund, s.B)
      s.B, s.C = s.B - refund, s.C - refund
      if s.B == 0 then pop(l, s) else write(l, s, false) end
      return
    end
    local i, units = find(s, instant)
    if not i or i < s.gone then return end
    refund = min(refund, units)
    s.C = s.C - refund
    call('LSET', s.key, i, format('%.0f:%.0f:0', instant, units - refund))
    write(l, s, false)
  end

  local function raw(s)
    if not s.live then return '' end
    if s.free and s.free < s.A then return format('%.0f:%.0f:%.0f:%.0f', s.A, s.B, s.C, s.free) end
    return format('%.0f:%.0f:%.0f', s.A, s.B, s.C)
  end

  return {open = true, read = read, rebase = rebase, look = look, commit = commit, amend = amend, raw = raw}
end
