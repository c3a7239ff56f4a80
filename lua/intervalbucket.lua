-- Twin of store/intervalbucket.go. Needs window.lua.
--
-- Record: units, unit (store.Numbers.Unit), burst, window (window.lua).
-- State: A:token:unit:B:C:D:E, cut after C if D and E are 0.
local function intervalbucket()
  local function read(a)
    return {units = fields[a] + 0, unit = fields[a + 1] + 0, burst = fields[a + 2] + 0, window = window(a + 3)}
  end

  local function load(v)
    local s = {live = false, A = 0, token = 0, unit = 0, B = 0, C = 0, D = 0, E = 0}
    local w = words(v or '')
    if w[4] and w[2] > 0 and w[3] ~= 0 then -- else somebody else's
      s.live, s.A, s.token, s.unit = true, w[1], w[2], w[3]
      s.B, s.C, s.D, s.E = w[4], w[5] or 0, w[6] or 0, w[7] or 0
    end
    return s
  end

  local function save(l, s)
    if s.D == 0 and s.E == 0 then
      return format('%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B, s.C)
    end
    return format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B, s.C, s.D, s.E)
  end

  local function forget(s)
    s.live, s.dirty, s.A, s.token, s.unit, s.B, s.C, s.D, s.E = false, true, 0, 0, 0, 0, 0, 0, 0
  end

  -- One more than rounded up: the server counts from the millisecond that the
  -- present is in.
  local function ttl(l, s)
    return ceilDiv(max(l.window.latest(s.A, ceilDiv(s.B + s.D, l.units)) - now, 0), 1000) + 1
  end

  local function refill(s, k, units)
    local tokens = s.B + s.D
    if k < ceilDiv(tokens, units) then tokens = k * units end
    s.D = s.D - max(tokens - s.B, 0)
    s.B = max(s.B - tokens, 0)
    s.E = max(s.E - tokens, 0)
    s.dirty = true
  end

  -- what the intervals until now have brought
  local function advance(l, s, units)
    local w = l.window
    local k = w.passed(s.A, now)
    if k and k > 0 then
      refill(s, k, units)
      s.A = w.moved(s.A, k)
    end
    return k
  end

  local function change(l, s)
    local was, units, length = s.unit, s.token, intervalLength(s.unit)
    if was == l.unit then
      if not advance(l, s, units) then return end
    else
      local gone = now - s.A
      if length > 0 then refill(s, floor(gone / length), units) end
      if was < 0 or l.unit < 0 then
        s.A = l.window.opened(now)
      else
        s.A = now - l.unit + share(was - gone % was, l.unit, was, l.unit)
      end
    end
    s.token, s.unit, s.dirty = l.units, l.unit, true
  end

  local function rebase(l, s)
    if l.window.lost then return ask(now) end
    if not s.live then return end
    local start = l.window.begun(s.A)
    if start ~= s.A then s.A, s.dirty = start, true end
    if s.token ~= l.units or s.unit ~= l.unit then change(l, s) end
    if not advance(l, s, l.units) then return end
    if s.B == 0 and s.D == 0 then return forget(s) end
    if s.C ~= l.burst then
      local ahead = max(s.B - s.C, 0)
      s.B, s.D = resize(s.B - ahead, s.D, s.C, l.burst)
      s.B, s.C, s.dirty = s.B + ahead, l.burst, true
    end
  end

  -- ok, the start of the interval, and what is used with the charge
  local function look(l, s, cost, maxwait)
    local w = l.window
    if cost == 0 then return true end
    if cost > l.burst or w.lost then return false end
    local start, used = s.A, s.B
    if not s.live then start = w.opened(now) end
    local short = used + cost - l.burst
    if short > 0 then
      local k = ceilDiv(short, l.units)
      if maxwait == 0 or not w.by(start, k, now + maxwait) then return false end
      used = max(used, k * l.units)
    end
    return true, start, used + cost
  end

  local function commit(l, s, cost, start, used)
    s.live, s.dirty, s.token, s.unit = true, true, l.units, l.unit
    s.A, s.B, s.C = start, used, l.burst
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local w = l.window
    if w.lost then return end
    local diff = cost - rcost
    if not s.live then
      if diff <= 0 then return end
      s.live, s.token, s.unit = true, l.units, l.unit
      s.A, s.C = w.opened(now), l.burst
    end
    if diff < 0 or s.E > 0 then
      local k = w.passed(instant, s.A)
      if not k then return end
      if k >= ceilDiv(mark, l.units) then mark = 0 else mark = mark - k * l.units end
      mark = min(mark, s.B)
    end
    if diff > 0 then
      local debt = max(0, min(diff, l.burst + maxCost - s.B))
      if s.E > 0 and mark == s.E and mark == s.B then s.E = s.E + debt end
      s.B = s.B + debt
    elseif diff < 0 then
      local waiting, behind = s.B > l.burst, s.B - mark
      local back = refunded(-diff, mark, behind, l.burst, waiting)
      if mark == s.E and behind == 0 then
        s.E = s.E - back
      else
        back = max(min(back, s.B - s.E), 0)
      end
      if waiting and cost > 0 then s.E = max(s.E, mark - back) end
      if waiting and behind > 0 and back > 0 then s.E = max(s.E, s.B - l.burst + behind) end
      s.B = s.B - back
    end
    s.dirty = true
    if s.B == 0 and s.D == 0 then forget(s) end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
