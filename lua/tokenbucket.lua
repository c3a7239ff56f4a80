-- Twin of store/tokenbucket.go: TokenBucket and LeakyBucket. See there for what
-- the words mean.
--
-- Limit: token, perTick, tick, unit, capacity, queue, largest, debt (1 or 0),
-- longest, tag (- if it has none), grid.
--
-- A state that is nothing but an instant, of a rate whose token is m * 10^k
-- whole microseconds (m below 1000), is one integer of 19 digits: k + 1 and m in
-- four, which are the rate's tag, and the instant, not before 2026, in fifteen.
-- That is the shortest there is, one INCRBY charges it, and such texts are in the
-- order of their instants. It lives for as long as the limit takes to be full, and a
-- grid, which is the same for all limits of a rate, and whoever charges it past a
-- multiple of the grid renews that: so it outlives its instant whatever the capacity
-- of those that charged it. Any other is the words in decimal, A:token:unit:B:C:D:E,
-- cut after the unit if the others are 0.
local function tokenbucket()
  local within = 9007199254740992

  local function read(a)
    local l = {
      token = fields[a] + 0, perTick = fields[a + 1] + 0, tick = fields[a + 2] + 0, unit = fields[a + 3] + 0,
      capacity = fields[a + 4] + 0, queue = fields[a + 5] + 0, largest = fields[a + 6] + 0,
      debt = fields[a + 7] == '1', longest = fields[a + 8] + 0, tag = fields[a + 9], grid = fields[a + 10] + 0,
    }
    l.at = at(now, l.perTick, l.tick)
    return l
  end

  local function load(v)
    local s = {live = false, A = 0, token = 0, unit = 8, B = 0, C = 0, D = 0, E = 0}
    if not v then return s end
    if string.find(v, ':', 1, true) then
      local w = words(v)
      s.A, s.token, s.unit = w[1] or 0, w[2] or 0, w[3] or 0
      s.B, s.C, s.D, s.E = w[4] or 0, w[5] or 0, w[6] or 0, w[7] or 0
    elseif #v == 19 then
      local k = tonumber(sub(v, 1, 1)) or 0
      s.A = tonumber(sub(v, 5)) or 0
      if k > 0 then s.token = (tonumber(sub(v, 2, 4)) or 0) * 10 ^ (k - 1) end
    end
    s.live = s.token > 0 and s.unit >= 8 -- else somebody else's
    return s
  end

  local function save(l, s)
    if s.B == 0 and s.C == 0 and s.D == 0 and s.E == 0 then
      if l.tag ~= '-' and s.A >= 0 and s.A < 1e15 then return l.tag .. format('%015.0f', s.A) end
      return text(s.A) .. ':' .. text(s.token) .. ':' .. text(s.unit)
    end
    return format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.token, s.unit, s.B, s.C, s.D, s.E)
  end

  local function ttl(l, s)
    local left = s.A + s.D - l.at
    if left <= 0 then return 0 end
    if l.tag ~= '-' and s.B == 0 and s.C == 0 and s.D == 0 and s.E == 0 then
      return floor((l.capacity + l.grid) / 1000) + 2
    end
    return ceilDiv(ceilDiv(left, l.perTick) * l.tick, 1000) + 1
  end

  local function mark(l, s, ahead)
    s.B, s.C = max(ahead, 0), 0
    if s.B > 0 or s.D > 0 then s.C = l.capacity end
    if s.E <= l.at then s.E = 0 end
  end

  local function rebase(l, s)
    if not s.live then return end
    local same = s.token == l.token and s.unit == l.unit
    if same and s.D == 0 and (s.B == 0 or s.C == l.capacity) and s.A <= l.at + l.capacity + s.B then return end
    local perTick, tick = scale(s.unit)
    local was, is = l.at, l.at
    if not same then
      was, is = exactly(now, perTick, tick), exactly(now, l.perTick, l.tick)
    end
    local used, ahead, hidden, before, bottom = s.A - was, 0, s.D, s.C, 0
    if used < 0 then used, hidden = 0, max(0, hidden + used) end
    if s.B > 0 then
      ahead = min(max(used - before, 0), s.B)
      used = min(used - ahead, before)
    end
    if s.E ~= 0 then bottom = max(s.E - was, 0) end
    if not same then
      used = share(used, l.token, s.token, l.capacity + l.longest)
      hidden = share(hidden, l.token, s.token, l.longest)
      before = share(before, l.token, s.token, l.capacity + l.longest)
      ahead = min(convert(ahead, perTick, tick, l.perTick, l.tick), l.longest)
      bottom = convert(bottom, perTick, tick, l.perTick, l.tick)
    end
    if s.B == 0 and s.D == 0 then before = l.capacity end
    used, hidden = resize(used, hidden, before, l.capacity)
    local tat = is + used + ahead
    if used + ahead == 0 then
      tat = l.at
    elseif ahead == 0 then
      tat = min(tat, l.at + l.capacity)
    end
    s.token, s.unit, s.A, s.D, s.E = l.token, l.unit, tat, min(hidden, l.longest), 0
    if bottom > 0 then s.E = is + bottom end
    mark(l, s, tat - l.at - l.capacity)
    s.dirty = true
  end

  -- ok, and where the charge moves the tat
  local function look(l, s, cost, maxwait)
    if cost == 0 then return true end
    if cost > l.largest then return false end
    local tat = l.at
    if s.live and s.A > tat then tat = s.A end
    local inc = cost * l.token
    local own = inc
    if l.debt then own = 0 end
    local short = tat + own - l.at - l.capacity
    if short > 0 then
      local allowed = l.queue
      if maxwait > 0 then
        local w = floor(maxwait / l.tick) * l.perTick
        if l.queue == 0 or w < allowed then allowed = w end
      end
      if short > allowed then return false end
    end
    return true, tat + inc
  end

  local function commit(l, s, cost, tat)
    s.live, s.dirty, s.token, s.unit, s.A = true, true, l.token, l.unit, tat
    mark(l, s, tat - l.at - l.capacity)
  end

  local function refund(l, s, tat, m, cost, rcost, instant)
    local at = l.at
    local behind, waiting = tat - m, tat > at + l.capacity
    if l.debt and behind > 0 then behind = within end
    local back = refunded(worth(rcost - cost, l.token, max(m - at, 0)), m - at, behind, l.capacity, waiting)
    if l.queue > 0 and not l.debt and worth(rcost, l.token, within) > l.capacity then
      if behind > 0 and instant > at then
        back = 0
      elseif cost > 0 then
        back = max(min(back, m - instant - worth(cost, l.token, l.capacity)), 0)
      end
    end
    if s.E ~= 0 and m == s.E and behind == 0 then
      s.E = m - back
    elseif s.E ~= 0 then
      back = max(min(back, tat - s.E), 0)
    end
    local bottom = m - back
    if cost == 0 then bottom = at end
    if behind > 0 and back > 0 then bottom = max(bottom, tat - l.capacity + behind) end
    if waiting and bottom > at and (s.E == 0 or s.E < bottom) then s.E = bottom end
    return back
  end

  local function amend(l, s, cost, rcost, instant, rmark)
    local at = l.at
    local tat = at
    if s.live and s.A > at then tat = s.A end
    local m, diff = min(rmark, tat), cost - rcost
    if diff > 0 then
      local own = s.E ~= 0 and m == s.E and m == tat
      tat = tat + owed(diff, tat, at + l.capacity + l.longest, l.token) * l.token
      if own then s.E = tat end
    elseif diff < 0 then
      tat = tat - refund(l, s, tat, m, cost, rcost, instant)
    end
    if s.live or tat > at then
      s.live, s.dirty, s.token, s.unit, s.A = true, true, l.token, l.unit, tat
      mark(l, s, tat - at - l.capacity)
    end
  end

  return {read = read, load = load, save = save, ttl = ttl, rebase = rebase, look = look, commit = commit, amend = amend}
end
