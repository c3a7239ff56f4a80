-- Twin of store/warmup.go.
--
-- Record: token, perTick, tick in us, unit, warm, largest, longest.
-- State: A:token:unit:B, where token is the warm-up's units, and :C if that isn't 0.
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
    local s = {live = false, A = 0, token = 0, unit = 0, B = 0, C = 0}
    local w = words(v or '')
    if w[4] and w[2] > 0 and w[3] >= 8 then -- else somebody else's
      s.live, s.A, s.token, s.unit, s.B, s.C = true, w[1], w[2], w[3], w[4], w[5] or 0
    end
    return s
  end

  local function save(l, s)
    if s.C == 0 then return format('%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B) end
    return format('%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B, s.C)
  end

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
      local wait, cold = min(s.A, at(now, perTick, tick) + s.C) - exactly(now, perTick, tick), s.B
      s.A = exactly(now, l.perTick, l.tick) + convert(wait, perTick, tick, l.perTick, l.tick)
      if wait <= 0 then s.A, cold = l.at, min(cold - wait, s.token) end
      s.B = share(cold, l.warm, s.token, l.warm)
      s.token, s.unit, s.C, s.dirty = l.warm, l.unit, max(s.A - l.at, 0), true
    end
    if s.A > l.at + s.C then s.A, s.dirty = l.at + s.C, true end
    if l.at > s.A then
      s.B = s.B + l.at - s.A
      s.A, s.C, s.dirty = l.at, 0, true
    end
    if s.A <= l.at and s.B >= l.warm then
      s.live, s.A, s.token, s.unit, s.B, s.C, s.dirty = false, 0, 0, 0, 0, 0, true
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
    s.live, s.dirty, s.token, s.unit, s.A, s.B, s.C = true, true, l.warm, l.unit, next, cold, next - l.at
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local diff = cost - rcost
    if diff > 0 then
      if not s.live then commit(l, s, 0, l.at, l.warm) end
      s.A = s.A + owed(diff, s.A, l.at + l.longest, l.token) * l.token
      s.dirty = true
    elseif not s.live then
      return
    elseif diff == 0 then -- as it was
    elseif cost == 0 and instant >= 0 and s.A == mark and s.A > l.at then
      local cold, t = min(instant, l.warm), worth(rcost, l.token, l.largest * l.token)
      s.A = s.A - (t + slow(l, cold) - slow(l, max(0, cold - t)))
      s.B, s.dirty = cold, true
      rebase(l, s)
    elseif mark >= s.A then
      s.A, s.dirty = s.A - worth(-diff, l.token, s.A - l.at), true
    end
    local ahead = s.live and max(s.A - l.at, 0) or 0
    if ahead ~= s.C then s.C, s.dirty = ahead, true end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
