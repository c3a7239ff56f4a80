-- Twin of store/fixedwindow.go. Needs window.lua.
--
-- Record: units, unit (store.Numbers.Unit), window (window.lua).
-- State: A:B:unit, and :C:token if C isn't 0.
local function fixedwindow()
  local function read(a)
    return {units = fields[a] + 0, unit = fields[a + 1] + 0, window = window(a + 2), calendar = fields[a + 3] ~= '0'}
  end

  local function load(v)
    local s = {live = false, A = 0, B = 0, C = 0, unit = 0, token = 0}
    local w = words(v or '')
    if w[3] and w[3] ~= 0 then -- else somebody else's
      s.live, s.A, s.B, s.unit, s.C, s.token = true, w[1], w[2], w[3], w[4] or 0, w[5] or 0
    end
    return s
  end

  local function save(l, s)
    if s.C == 0 then return format('%.0f:%.0f:%.0f', s.A, s.B, s.unit) end
    return format('%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.B, s.unit, s.C, s.token)
  end

  local function forget(s) s.live, s.A, s.B, s.C, s.dirty = false, 0, 0, 0, true end

  local function open(l, s, start)
    s.live, s.dirty, s.A, s.unit, s.token = true, true, start, l.unit, l.units
  end

  -- One more than rounded up: the server counts from the millisecond that the
  -- present is in.
  local function ttl(l, s)
    return ceilDiv(max(l.window.latest(s.A, 1 + ceilDiv(s.C, l.units)) - now, 0), 1000) + 1
  end

  local function nextWindow(s, k, n, start)
    if s.C == 0 or k - 1 >= ceilDiv(s.C, n) then return forget(s) end
    s.A, s.dirty = start, true
    s.C = s.C - (k - 1) * n
    s.B = min(s.C, n)
    s.C = s.C - s.B
  end

  local function change(l, s)
    local length, units = intervalLength(s.unit), s.token
    if length > 0 then
      local k = floor((now - s.A) / length)
      if k > 0 then nextWindow(s, k, units, s.A + k * length) end
    end
    if l.calendar and s.live then
      local start = l.window.opened(now)
      if s.A < start then nextWindow(s, 1, units, start) end
      if s.live then s.A = start end
    end
    if s.live then open(l, s, s.A) end
  end

  local function rebase(l, s)
    local w = l.window
    if w.lost then return ask(now) end
    if not s.live then return end
    local start = w.begun(s.A)
    if start ~= s.A then s.A, s.dirty = start, true end
    if s.unit ~= l.unit or s.C > 0 and s.token ~= l.units then
      change(l, s)
      if not s.live then return end
    end
    local k = w.passed(s.A, now)
    if k and k > 0 then nextWindow(s, k, l.units, w.moved(s.A, k)) end
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
    if not w.by(start, floor(later / n) + 1, now + maxwait) then return false end
    return true, start, later + cost
  end

  local function commit(l, s, cost, start, later)
    open(l, s, start)
    if later then s.C = later else s.B = s.B + cost end
  end

  local function amend(l, s, cost, rcost, instant, mark)
    local w, n = l.window, l.units
    if w.lost then return end
    local diff = cost - rcost
    local refund = min(-diff, mark)
    if diff > 0 then
      if not s.live then open(l, s, w.opened(now)) end
      s.B, s.dirty = s.B + min(diff, maxCost - s.B), true
      return
    end
    if refund <= 0 or not s.live or instant < s.A then return end
    if instant == s.A then
      s.B = s.B - min(refund, s.B)
    else
      local last = ceilDiv(s.C, n)
      if last == 0 or w.passed(s.A, instant) ~= last then return end
      s.C = s.C - min(refund, s.C - (last - 1) * n)
    end
    s.dirty = true
    if s.B == 0 and s.C == 0 then forget(s) end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
