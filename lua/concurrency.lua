-- Twin of store/concurrency.go, but that leases run out unless they are renewed
-- (renew.lua): a client that crashes gives back what it held.
--
-- Record: units, length of a lease in us.
-- State: a sorted set of lease ids, 16 bytes each, by the instant at which they
-- run out, in microseconds since 1970 and so above 0. Leases that have run out
-- count until the limit is full; only then are they looked for.
--
-- A lease that holds w > 1 slots has a second member, its id and 'w', at 1-w,
-- and '#' is at the sum of those.
--
-- raw says how many slots are held.
local function concurrency()
  local epoch = 1767225600000000

  local function read(a) return {units = fields[a] + 0, lease = fields[a + 1] + 0, leases = true} end

  local function count(s)
    local n = redis.pcall('ZCARD', s.key)
    if type(n) ~= 'number' then -- somebody else's
      s.foreign, s.held = true, 0
      return
    end
    local more = n > 0 and call('ZSCORE', s.key, '#')
    s.weighed = more and true or false
    if more then n = n - call('ZCOUNT', s.key, '-inf', '(0') - more end
    s.held = n
  end

  local function weigh(s, less)
    if call('ZINCRBY', s.key, text(less), '#') + 0 == 0 then
      call('ZREM', s.key, '#')
      s.weighed = false
    end
  end

  local function release(s, id)
    if call('ZREM', s.key, id) == 0 then return end
    local w = s.weighed and call('ZSCORE', s.key, id .. 'w')
    if w then
      call('ZREM', s.key, id .. 'w')
      weigh(s, -w)
    end
  end

  local function purge(s)
    local till = text(now + epoch)
    if not s.weighed then
      s.held = s.held - call('ZREMRANGEBYSCORE', s.key, 0, till)
      return
    end
    local gone = call('ZRANGEBYSCORE', s.key, 0, till)
    for i = 1, #gone do release(s, gone[i]) end
    if #gone > 0 then count(s) end
  end

  local function rebase(l, key)
    local s = {key = key}
    count(s)
    return s
  end

  local function look(l, s, cost)
    if s.held > 0 and s.held + max(cost, 1) > l.units then purge(s) end
    return cost == 0 or s.held + cost <= l.units
  end

  local function commit(l, s, cost, x, y, id)
    if s.foreign then call('DEL', s.key) end
    call('ZADD', s.key, text(now + l.lease + epoch), id)
    if cost > 1 then
      call('ZADD', s.key, text(1 - cost), id .. 'w')
      call('ZINCRBY', s.key, text(1 - cost), '#')
    end
    -- Never sooner than it was: others may have longer leases.
    local ms = ceilDiv(l.lease, 1000) + 1
    if call('PTTL', s.key) < ms then call('PEXPIRE', s.key, text(ms)) end
  end

  local function amend(l, s, cost, rcost, instant, mark, id)
    if s.held == 0 then return end
    if cost == 0 then
      release(s, id)
    else
      local till = call('ZSCORE', s.key, id)
      if not till then return end
      if till + 0 <= now + epoch then
        release(s, id)
      else
        local was = s.weighed and call('ZSCORE', s.key, id .. 'w') or 0
        cost = min(cost, 1 - was + max(0, maxCost - s.held))
        if cost > 1 then
          call('ZADD', s.key, text(1 - cost), id .. 'w')
        elseif was ~= 0 then
          call('ZREM', s.key, id .. 'w')
        end
        if cost - 1 ~= -was then weigh(s, 1 - cost - was) end
      end
    end
    count(s)
  end

  local function raw(l, s) return text(s.held) end

  return {open = true, read = read, rebase = rebase, look = look, commit = commit, amend = amend, raw = raw}
end
