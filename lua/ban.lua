-- Twin of store/ban.go.
--
-- Record: units, period and ban in us.
-- State: A:B:period, and the instants of refusals, ascending, with colons before
-- them.
local function ban()
  local function read(a)
    return {units = fields[a] + 0, period = fields[a + 1] + 0, ban = fields[a + 2] + 0, bans = true}
  end

  local function load(v)
    local s = {live = false, A = 0, B = 0, period = 0, log = {}}
    local w = words(v or '')
    if w[3] and w[3] > 0 then -- else somebody else's
      s.live, s.A, s.B, s.period = true, w[1], w[2], w[3]
      for i = 4, #w do s.log[i - 3] = w[i] end
    end
    return s
  end

  local function save(l, s)
    local w = {text(s.A), text(s.B), text(s.period)}
    for i = 1, #s.log do w[i + 3] = text(s.log[i]) end
    return table.concat(w, ':')
  end

  local function ttl(l, s)
    local till, n = s.A, #s.log
    if n > 0 then till = max(till, s.log[n] + l.period) end
    return ceilDiv(max(till - now, 0), 1000) + 1
  end

  local function rebase(l, s)
    if not s.live then return end
    local period, till, log = min(l.period, s.period), min(s.A, now + s.B), {}
    for i = 1, #s.log do
      local at = min(s.log[i], now)
      if at < s.log[i] then s.dirty = true end
      if at + period > now then log[#log + 1] = at end
    end
    if till <= now then till, s.B = 0, 0 end
    s.dirty = s.dirty or #log < #s.log or till ~= s.A or s.period ~= l.period
    s.A, s.log, s.period = till, log, l.period
    s.live = till > 0 or #log > 0
  end

  local function look(l, s, cost) return cost == 0 or s.A <= now end

  local function commit() end

  local function strike(l, s)
    s.live, s.dirty, s.period = true, true, l.period
    if #s.log + 1 >= l.units then
      s.A, s.B, s.log = now + l.ban, l.ban, {}
    else
      s.log[#s.log + 1] = now
    end
  end

  local function amend() end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend, strike = strike}
end
