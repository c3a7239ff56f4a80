local call, floor, min, max = redis.call, math.floor, math.min, math.max
local byte, sub, format, type, tonumber = string.byte, string.sub, string.format, type, tonumber
local unpack = unpack or table.unpack
local nkeys, now = #KEYS, ARGV[1]
if now == '' then
  local t = call('TIME')
  now = (t[1] - 1767225600) * 1000000 + t[2]
else
  local told, guarded = string.match(now, '(-?%d+),(%d+)')
  now = told + 0
  if guarded == '1' then
    local guard, day = KEYS[nkeys], 86400000
    nkeys = nkeys - 1
    local seen, left = tonumber(call('GET', guard) or nil), call('PTTL', guard)
    local gone = day - left
    local on = seen and left >= 0 and seen + max(gone - 1, 0) * 1000
    if not on or on < now then
      call('SET', guard, format('%.0f', now), 'PX', day)
    else
      now = on
      if left < day / 2 then call('SET', guard, format('%.0f', seen + gone * 1000), 'PX', day) end
    end
  end
end
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local out, many, a = {now}, ARGV[2] + 0, 3
for n = 1, many do
  local letter, i = ARGV[a], ARGV[a + 2] + 0
  local key, v, diff = KEYS[i], vals[i], ARGV[a + 3] - ARGV[a + 4]
  local raw, new, px = v or '', v, nil -- the state found; left, false if none
  if letter == 'c' then
    local held = redis.pcall('ZCARD', key)
    if type(held) ~= 'number' or held > 0 and call('ZSCORE', key, '#') then break end
    local left = held
    if held > 0 then left = held - call('ZREM', key, ARGV[a + 7]) end
    raw = format('%.0f|%.0f', held, left)
  elseif now < 0 or letter == '-' then
    break
  elseif letter == 'b' then
    local tag, tat, top = ARGV[a + 9], now, now + ARGV[a + 8]
    if v then
      if #v ~= 19 or sub(v, 1, 4) ~= tag then break end
      tat = max(sub(v, 5) + 0, now)
    end
    local was = tat
    if diff > 0 then
      tat = tat + diff * ARGV[a + 11]
    elseif diff < 0 and v then
      local made = max(ARGV[a + 6] - now, 0) -- what time has not given back
      tat = max(tat + diff * ARGV[a + 11], tat - made, now)
    end
    if was > top or tat > top or top >= 1e15 then break end
    new, px = tat > now and tag .. format('%015.0f', tat), ARGV[a + 10]
  else
    local start, fin, count = now, nil, 0
    local live, text = false, nil
    if letter == 'w' then
      text, fin = ARGV[a + 9], ARGV[a + 10] + 0
      if now >= fin then text, fin = ARGV[a + 10], ARGV[a + 11] + 0 end
      start = text + 0
      if now < start or now >= fin then break end
    end
    if v then
      local at, b, unit = string.match(v, '^(%d+):(%d+):(-?%d+)$')
      if not at or unit ~= ARGV[a + 12] or at + 0 > start then break end
      live = at == text or letter == 'p' and now < at + ARGV[a + 9]
      if live then start, count = at + 0, b + 0 else new = false end
    end
    local was = count
    if diff > 0 then
      count = min(count + diff, 1099511627776)
    elseif live and ARGV[a + 5] + 0 == start then
      count = max(count - min(-diff, ARGV[a + 6] + 0), 0)
    end
    if count ~= was then
      new = count > 0 and format('%.0f:%.0f:', start, count) .. ARGV[a + 12]
      px = format('%.0f', floor(((fin or start + ARGV[a + 9]) - now + 999) / 1000) + 1)
    end
  end
  if new ~= v then
    vals[i] = new
    if new then call('SET', key, new, 'PX', px) else call('DEL', key) end
  end
  out[n + 1] = raw
  a = a + 13
end
if #out > many then return out end
local states
local maxCost = 1099511627776 -- store.MaxCost
local function text(n) return format('%.0f', n) end
local asked
local function ask(at)
  asked = asked or {}
  asked[#asked + 1] = text(floor(at))
end
local function words(v)
  local w, n = {}, 0
  for x in string.gmatch(v, '[^:]+') do
    n = n + 1
    w[n] = tonumber(x) or 0
  end
  return w
end
local ticks = {[0] = 1, 10, 100, 1000, 10000, 100000}
local function scale(q)
  local e = q % 8
  return (q - e) / 8, ticks[e]
end
local function at(us, perTick, tick) return floor(us / tick) * perTick end
local function exactly(us, perTick, tick)
  local whole = floor(us / tick)
  return whole * perTick + floor((us - whole * tick) * perTick / tick)
end
local function ceilDiv(a, b) return floor((a + b - 1) / b) end
local function convert(units, perTick, tick, toPerTick, toTick)
  if units <= 0 then return 0 end
  if perTick == toPerTick and tick == toTick then return units end
  local rest = units % perTick
  local us = (units - rest) / perTick * tick + ceilDiv(rest * tick, perTick)
  rest = us % toTick
  return (us - rest) / toTick * toPerTick + ceilDiv(rest * toPerTick, toTick)
end
local function share(n, to, from, most)
  if n == 0 or to == from or from <= 0 then return min(n, most) end
  local rest = n % from
  local whole = (n - rest) / from
  if whole > floor(most / to) then return most end
  local digits, d = {}, 0
  local t = to
  while t > 0 do
    d = d + 1
    digits[d] = t % 64
    t = (t - digits[d]) / 64
  end
  local q, r = 0, 0
  for i = d, 1, -1 do
    r = r * 64 + digits[i] * rest
    local x = floor(r / from)
    q = q * 64 + x
    r = r - x * from
  end
  if r > 0 then q = q + 1 end
  return min(whole * to + q, most)
end
local function resize(used, hidden, was, is)
  if is > was then
    local back = min(hidden, is - was)
    return used + back, hidden - back
  end
  if used > is then return is, hidden + used - is end
  return used, hidden
end
local function owed(debt, till, top, token)
  if till >= top then return 0 end
  return min(debt, ceilDiv(top - till, token))
end
local function worth(tokens, token, most)
  if tokens > floor(most / token) then return most end
  return tokens * token
end
local function refunded(refund, standing, behind, capacity, waiting)
  refund = min(refund, max(standing, 0))
  if waiting and behind > 0 then refund = min(refund, capacity) - behind end
  return max(refund, 0)
end
local fields = {}
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
local function intervalLength(unit)
  if unit > 0 then return unit end
  return -unit % 8 == 1 and floor(-unit / 8) or 0
end
local function window(a)
  local length, kind, w = fields[a] + 0, fields[a + 1], {}
  local epoch = 1767225600000000
  if kind ~= '2' then
    local aligned, furthest = kind == '1', floor(4503599627370496 / length)
    if aligned then furthest = max(1, floor(6307200000000000 / length)) end
    function w.opened(at)
      if aligned then return at - (at + epoch) % length end
      return at
    end
    function w.passed(start, at)
      if at <= start then return 0 end
      if aligned then return floor((at + epoch) / length) - floor((start + epoch) / length) end
      return floor((at - start) / length)
    end
    function w.latest(start, k) return start + min(k, furthest) * length end
    function w.by(start, k, at) return w.latest(start, k) <= at end
  else
    local n, numbers, starts = fields[a + 2] + 0, {}, {}
    for i = 1, n do
      numbers[i], starts[i] = tonumber(fields[a + 2 * i + 1]) or false, fields[a + 2 * i + 2] + 0
    end
    local function known(at)
      local low, high = 0, n
      while low < high do
        local mid = floor((low + high + 1) / 2)
        if starts[mid] <= at then low = mid else high = mid - 1 end
      end
      return low > 0 and numbers[low] and low
    end
    w.lost = not known(now)
    local function find(at) return known(at) or ask(at) end
    function w.opened(at) return starts[find(at)] end
    function w.passed(start, at)
      if at <= start then return 0 end
      local i, j = find(start), find(at)
      return i and j and numbers[j] - numbers[i]
    end
    local slack = min(length, 90000000000)
    function w.latest(start, k)
      if w.lost then return start + (k + 1) * length + slack end
      local i, number = n, numbers[find(now)] + k
      while (numbers[i] or numbers[i - 1] + 1) > number do i = i - 1 end
      local more = number - (numbers[i] or numbers[i - 1] + 1)
      if more == 0 then return starts[i] end
      return starts[i] + min(more * length + slack, 6307200000000000)
    end
    function w.by(start, k, at)
      local i = find(at)
      return i and numbers[i] >= numbers[find(now)] + k
    end
  end
  function w.begun(start)
    if start > now then return w.opened(now) end
    return start
  end
  function w.moved(start, k)
    if kind == '0' then return start + k * length end
    return w.opened(now)
  end
  return w
end
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
local function sliding(read, entered, leaves)
  local function parse(v)
    local at, units = string.match(v, '^(-?%d+):(%d+):')
    return at + 0, units + 0
  end
  local function write(l, s, push)
    local v = format('%.0f:%.0f:%.0f:%s', s.A, s.B, s.C, l.numbers)
    if s.E > 0 then v = v .. ':' .. text(s.E) end
    if s.gone > 0 then
      call('LTRIM', s.key, s.gone, -1)
      s.gone = 0
    end
    if push then call('RPUSH', s.key, v) else call('LSET', s.key, -1, v) end
  end
  local function expire(l, s)
    call('PEXPIRE', s.key, text(ceilDiv(leaves(l, s.A) - now, 1000) + 1))
  end
  local function forget(s) s.live, s.A, s.B, s.C, s.E, s.gone = false, 0, 0, 0, 0, 0 end
  local function clamp(l, s, of)
    if s.A <= now + s.E then return end
    s.A = entered(of, now + s.E)
    while true do
      call('RPOP', s.key)
      local v = call('LINDEX', s.key, -1)
      local at, units = s.A - 1, 0
      if v then at, units = parse(v) end
      if at < s.A then break end
      s.B = s.B + units
    end
    write(l, s, true)
    expire(l, s)
  end
  local function drop(s, of)
    if leaves(of, s.A) <= now then
      call('DEL', s.key)
      return forget(s)
    end
    local size, from = 2, s.gone
    while true do
      local es = call('LRANGE', s.key, from, from + size - 1)
      for i = 1, #es do
        local at, units = parse(es[i])
        if leaves(of, at) > now then
          s.gone = from + i - 1
          s.es, s.first, s.from = es, i, from -- where the walk goes on
          return
        end
        s.C = s.C - units
      end
      from = from + #es
      size = min(size * 8, 512)
    end
  end
  local function rebase(l, key)
    local s = {key = key, live = false, A = 0, B = 0, C = 0, E = 0, gone = 0}
    local v = redis.pcall('LINDEX', key, -1)
    if not v then return s end
    local a, b, c, token, unit, ahead
    if type(v) == 'string' then
      a, b, c, token, unit, ahead = string.match(v, '^(-?%d+):(%d+):(%d+):([%de]+):(%d+):?(%d*)$')
    end
    if not a then -- somebody else's
      s.foreign = true
      return s
    end
    s.live, s.A, s.B, s.C, s.E = true, a + 0, b + 0, c + 0, tonumber(ahead) or 0
    if token .. ':' .. unit ~= l.numbers then -- what no longer counted then doesn't come back
      local was = read.numbers(token + 0, unit + 0)
      clamp(l, s, was)
      drop(s, was)
      if not s.live then return s end
      write(l, s, false)
      expire(l, s)
    end
    clamp(l, s, l)
    drop(s, l)
    return s
  end
  local function rest(l, s)
    if s.gone > 0 then write(l, s, false) end
  end
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
    s.B, s.C, s.E = s.B + units, s.C + units, max(s.A - now, 0)
    write(l, s, push)
    expire(l, s)
  end
  local function commit(l, s, cost, at) enter(l, s, cost, at) end
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
  local function pop(l, s)
    write(l, s, false) -- drops what has left
    repeat
      call('RPOP', s.key)
      local v = call('LINDEX', s.key, -1)
      if not v then
        return forget(s)
      end
      s.A, s.B = parse(v)
    until s.B > 0
    s.E = max(s.A - now, 0)
    write(l, s, false)
    expire(l, s)
  end
  local function amend(l, s, cost, rcost, instant, mark)
    local diff = cost - rcost
    if diff > 0 then
      local debt = min(diff, max(0, maxCost - s.C))
      if debt > 0 then return enter(l, s, debt, entered(l, now)) end
      return rest(l, s)
    end
    local refund = min(-diff, mark)
    if refund <= 0 or not s.live then return rest(l, s) end
    if instant == s.A then
      refund = min(refund, s.B)
      s.B, s.C = s.B - refund, s.C - refund
      if s.B == 0 then pop(l, s) else write(l, s, false) end
      return
    end
    local i, units = find(s, instant)
    if not i or i < s.gone then return rest(l, s) end
    refund = min(refund, units)
    s.C = s.C - refund
    call('LSET', s.key, i, format('%.0f:%.0f:', instant, units - refund))
    write(l, s, false)
  end
  local function raw(l, s)
    if not s.live then return '' end
    local v = format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.A, s.B, s.C, l.token, l.unit, s.E)
    if s.free and s.free < s.A then v = v .. ':' .. text(s.free) end
    return v
  end
  return {open = true, read = read.record, rest = rest, rebase = rebase, look = look, commit = commit, amend = amend, raw = raw}
end
local function slidingwindow()
  local read = {}
  function read.numbers(token, unit)
    local l = {token = token, unit = unit, buckets = unit % 1024}
    l.perTick, l.tick = scale((unit - l.buckets) / 1024)
    return l
  end
  function read.record(a)
    local l = read.numbers(fields[a + 1] + 0, fields[a + 2] + 0)
    l.units, l.numbers = fields[a] + 0, fields[a + 1] .. ':' .. fields[a + 2]
    return l
  end
  local function start(l, us, buckets)
    local n = floor(at(us, l.perTick, l.tick) / l.token) + buckets
    return (0 - floor(-n * l.token / l.perTick)) * l.tick
  end
  local function entered(l, us) return start(l, us, 0) end
  local function leaves(l, us) return start(l, us, l.buckets) end
  return sliding(read, entered, leaves)
end
local function slidinglog()
  local read = {}
  function read.numbers(token) return {token = token, unit = 0} end
  function read.record(a)
    local l = read.numbers(fields[a + 1] + 0)
    l.units, l.numbers = fields[a] + 0, fields[a + 1] .. ':' .. fields[a + 2]
    return l
  end
  local function entered(l, us) return us end
  local function leaves(l, us) return us + l.token end
  return sliding(read, entered, leaves)
end
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
local modules = {
  b = tokenbucket,
  i = intervalbucket,
  f = fixedwindow,
  s = slidingwindow,
  g = slidinglog,
  w = warmup,
  c = concurrency,
  n = ban,
}
local limits = {}
states = {}
local function limit(text)
  local l = limits[text]
  if not l then
    local n = #fields + 1
    for x in string.gmatch(text, '[^,]+') do fields[#fields + 1] = x end
    local module = modules[fields[n]]
    if type(module) == 'function' then
      module = module()
      modules[fields[n]] = module
    end
    l = module.read(n + 1)
    l.module = module
    limits[text] = l
  end
  return l
end
local function fetch(l, i)
  local m = l.module
  if m.open then return m.rebase(l, KEYS[i]) end -- and writes what that changes
  local s = states[i]
  if s and s.dirty then
    s.raw = s.live and s.limit.module.save(s.limit, s) or ''
  else -- again, if nothing but time has changed it: it is told as it is stored
    s = m.load(vals[i])
    s.raw = vals[i] or ''
    states[i] = s
  end
  local was = s.limit
  s.limit = l
  m.rebase(l, s)
  if asked and was then s.limit = was end -- whose lifetime it has
  return s
end
local function write()
  for i, s in pairs(states) do
    if s.dirty then
      local m = s.limit.module
      local ttl = s.live and m.ttl(s.limit, s) or 0
      if ttl > 0 then
        call('SET', KEYS[i], m.save(s.limit, s), 'PX', format('%.0f', ttl))
      elseif vals[i] then
        call('DEL', KEYS[i])
      end
    elseif s.live and vals[i] and call('PTTL', KEYS[i]) < 0 then
      local ttl = s.limit.module.ttl(s.limit, s)
      if ttl > 0 then call('PEXPIRE', KEYS[i], format('%.0f', ttl)) end
    end
  end
end

for n = #out, many do
  local l, i = limit(ARGV[a + 1]), ARGV[a + 2] + 0
  local m = l.module
  asked = nil
  local s = fetch(l, i)
  local raw = m.open and m.raw(l, s) or s.raw
  if not asked then
    local cost, charged = ARGV[a + 3] + 0, ARGV[a + 4] + 0
    if ARGV[a] == '-' and ARGV[a + 8] ~= '' then
      local reset = tonumber(vals[ARGV[a + 8] + 0] or nil)
      if reset and reset >= ARGV[a + 9] + 0 or now > ARGV[a + 9] + 30000000 then cost = charged end
    end
    m.amend(l, s, cost, charged, ARGV[a + 5] + 0, ARGV[a + 6] + 0, ARGV[a + 7])
    if m.open then raw = raw .. '|' .. m.raw(l, s) end
  end
  if asked then
    raw = '?' .. table.concat(asked, ',')
  end
  out[n + 1] = raw
  a = a + 13
end
write()
return out
