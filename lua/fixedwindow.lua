-- Twin of store/fixedwindow.go. Needs window.lua.
--
-- Record: units, period, aligned, bounds (window.lua).
-- State: A:B:C, cut after B if C is 0.
local function fixedwindow()
  local function read(a)
    return {units = fields[a] + 0, window = window(fields[a + 1] + 0, fields[a + 2] == '1', a + 3)}
  end

  local function load(v)
    local s = {live = false, A = 0, B = 0, C = 0}
    local w = words(v or '')
    if w[2] then s.live, s.A, s.B, s.C = true, w[1], w[2], w[3] or 0 end
    return s
  end

  local function save(l, s)
    if s.C == 0 then return format('%.0f:%.0f', s.A, s.B) end
    return format('%.0f:%.0f:%.0f', s.A, s.B, s.C)
  end

  local function forget(s) s.live, s.A, s.B, s.C = false, 0, 0, 0 end

  -- One more than rounded up: the server counts from the millisecond that the
  -- present is in.
  local function ttl(l, s)
    return ceilDiv(max(l.window.latest(s.A, 1 + ceilDiv(s.C, l.units)) - now, 0), 1000) + 1
  end

  local function rebase(l, s)
    local w, n = l.window, l.units
    if w.lost then
      stale = true
      return
    end
    if not s.live then return end
    local k, known = w.passed(s.A, now)
    if k == 0 then return end
    if s.C == 0 or k - 1 >= ceilDiv(s.C, n) then return forget(s) end
    if not known then
      stale = true
      return
    end
    s.A = w.boundary(s.A, k)
    s.C = s.C - (k - 1) * n
    s.B = min(s.C, n)
    s.C = s.C - s.B
  end

  -- ok, the start of the window that is open, and what is reserved behind it if
  -- the charge waits
  local function look(l, s, cost, maxwait)
    local w, n = l.window, l.units
    if cost == 0 then return true end
    if cost > n or w.lost then return false end
    local start = s.A
    if not s.live then start = w.opened(now) end
    if s.B + cost <= n then return true, start end
    if maxwait == 0 then return false end
    local later = s.C
    if later % n + cost > n then later = later + n - later % n end
    local at, opens = max(now, start), w.boundary(start, floor(later / n) + 1)
    if not opens then
      if max(start, w.last) - at <= maxwait then stale = true end
      return false
    end
    if opens - at > maxwait then return false end
    return true, start, later + cost
  end

  local function commit(l, s, cost, start, later)
    s.live, s.dirty, s.A = true, true, start
    if later then s.C = later else s.B = s.B + cost end
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local w, n = l.window, l.units
    if w.lost then return end
    local diff = cost - rcost
    local refund = min(-diff, mark)
    if diff > 0 then
      if not s.live then s.live, s.A = true, w.opened(now) end
      s.B, s.dirty = s.B + min(diff, maxCost - s.B), true
      return
    end
    if refund <= 0 or not s.live or instant < s.A then return end
    if instant == s.A then
      s.B = s.B - min(refund, s.B)
    else
      local last = ceilDiv(s.C, n)
      if last == 0 then return end
      local k, known = w.passed(s.A, instant)
      if not known and k <= last then
        stale = true
        return
      end
      if k ~= last then return end
      s.C = s.C - min(refund, s.C - (last - 1) * n)
    end
    s.dirty = true
    if s.B == 0 and s.C == 0 then forget(s) end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
