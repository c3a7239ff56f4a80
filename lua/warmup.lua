-- Twin of store/warmup.go.
--
-- Record: token, perTick, tick in us, unit, warm, largest, longest.
-- State: A:token:unit:B, where token is the warm-up's units.
local function warmup()
  local function read(a)
    local l = {
      token = fields[a] + 0, perTick = fields[a + 1] + 0, tick = fields[a + 2] + 0, unit = fields[a + 3] + 0,
      warm = fields[a + 4] + 0, largest = fields[a + 5] + 0, longest = fields[a + 6] + 0,
    }
    l.at = at(now, l.perTick, l.tick)
    return l
  end

  local function load(v)
    local s = {live = false, A = 0, token = 0, unit = 0, B = 0}
    local w = words(v or '')
    if w[4] and w[2] > 0 and w[3] >= 8 then -- else somebody else's
      s.live, s.A, s.token, s.unit, s.B = true, w[1], w[2], w[3], w[4]
    end
    return s
  end

  local function save(l, s) return format('%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B) end

  -- One more than rounded up: the server counts from the millisecond that the
  -- present is in.
  local function ttl(l, s)
    local left = max(s.A - l.at + l.warm - s.B, 0)
    return ceilDiv(ceilDiv(left, l.perTick) * l.tick, 1000) + 1
  end

  local function slow(l, cold)
    local x = 2 * cold - l.warm
    if x <= 0 then return 0 end
    return floor(x * x / (2 * l.warm))
  end

  local function rebase(l, s)
    if not s.live then return end
    if s.token ~= l.warm or s.unit ~= l.unit then
      local perTick, tick = scale(s.unit)
      local wait, cold = s.A - exactly(now, perTick, tick), s.B
      s.A = exactly(now, l.perTick, l.tick) + convert(wait, perTick, tick, l.perTick, l.tick)
      if wait <= 0 then s.A, cold = l.at, min(cold - wait, s.token) end
      s.B = share(cold, l.warm, s.token, l.warm)
      s.token, s.unit, s.dirty = l.warm, l.unit, true
    end
    if l.at > s.A then
      s.B = s.B + l.at - s.A
      s.A = l.at
      if s.B >= l.warm then s.live, s.A, s.token, s.unit, s.B = false, 0, 0, 0, 0 end
    end
  end

  -- ok, the instant of the next charge, and how cold the limit is then
  local function look(l, s, cost, maxwait)
    if cost == 0 then return true end
    if cost > l.largest then return false end
    local next, cold = l.at, l.warm
    if s.live then next, cold = s.A, s.B end
    if next - l.at > floor(maxwait / l.tick) * l.perTick then return false end
    local warmer = max(0, cold - cost * l.token)
    return true, next + cost * l.token + slow(l, cold) - slow(l, warmer), warmer
  end

  local function commit(l, s, cost, next, cold)
    s.live, s.dirty, s.token, s.unit, s.A, s.B = true, true, l.warm, l.unit, next, cold
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local diff = cost - rcost
    if diff > 0 then
      if not s.live then commit(l, s, 0, l.at, l.warm) end
      s.A = s.A + owed(diff, s.A, l.at + l.longest, l.token) * l.token
      s.dirty = true
    elseif diff == 0 or not s.live then
      return
    elseif cost == 0 and instant >= 0 and s.A == mark and s.A > l.at then
      local cold, t = min(instant, l.warm), worth(rcost, l.token, l.largest * l.token)
      s.A = s.A - (t + slow(l, cold) - slow(l, max(0, cold - t)))
      s.B, s.dirty = cold, true
      rebase(l, s)
    elseif mark >= s.A then
      s.A, s.dirty = s.A - worth(-diff, l.token, s.A - l.at), true
    end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
