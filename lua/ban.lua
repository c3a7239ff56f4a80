-- Twin of store/ban.go.
--
-- Record: units, period and ban in us.
-- State: until when it is banned, or 0, and the instants of refusals, ascending,
-- with colons between them.
local function ban()
  local function read(a)
    return {units = fields[a] + 0, period = fields[a + 1] + 0, ban = fields[a + 2] + 0, bans = true}
  end

  local function load(v)
    local s = {live = false, A = 0, log = {}}
    local w = words(v or '')
    if w[1] then
      s.live, s.A = true, w[1]
      for i = 2, #w do s.log[i - 1] = w[i] end
    end
    return s
  end

  local function save(l, s)
    local w = {text(s.A)}
    for i = 1, #s.log do w[i + 1] = text(s.log[i]) end
    return table.concat(w, ':')
  end

  local function ttl(l, s)
    local till, n = s.A, #s.log
    if n > 0 then till = max(till, s.log[n] + l.period) end
    return ceilDiv(max(till - now, 0), 1000) + 1
  end

  local function rebase(l, s)
    local log = {}
    for i = 1, #s.log do
      if s.log[i] + l.period > now then log[#log + 1] = s.log[i] end
    end
    s.log = log
    if s.A <= now then
      s.A = 0
      s.live = #log > 0
    end
  end

  local function look(l, s, cost) return cost == 0 or s.A <= now end

  local function commit() end

  local function strike(l, s)
    local n = #s.log
    local at = max(now, s.log[n] or 0)
    s.live, s.dirty = true, true
    if n + 1 >= l.units then
      s.A, s.log = at + l.ban, {}
    else
      s.log[n + 1] = at
    end
  end

  local function amend() end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend, strike = strike}
end
