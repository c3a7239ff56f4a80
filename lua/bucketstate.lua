-- Twin of store/tokenbucket.go in units, for scales of any width: what a state's words
-- mean, and what becomes of one that was written under other numbers.
--:functions
-- The numbers that a limit tells.
local function numbersOf(limit)
  local f = fields(limit)
  local p, tick, wide = scale(f[6])
  local l = {token = f[5], unit = f[6], p = p, tick = tick, wide = wide, debt = f[3] == 1, largest = f[2], burst = f[9]}
  local measure = function(n) return wide and product(n, l.token, p) or paired(n, p) end
  l.queue, l.full = measure(f[1]), measure(f[9])
  l.longest = wide and pair(f[4], 0, p) or paired(f[4], p)
  l.at, l.zero = present(p, tick), zero(p)
  return l
end

-- The words of a state, or nothing if it is somebody else's.
local function bucketOf(v)
  local w = {}
  if string.find(v, ':', 1, true) then
    w = words(v)
  elseif #v == 19 then
    local k = tonumber(sub(v, 1, 1)) or 0
    if k > 0 then w = {tonumber(sub(v, 5)) or 0, (tonumber(sub(v, 2, 4)) or 0) * 10 ^ (k - 1), 8} end
  end
  local token, unit = w[2] or 0, w[3] or 0
  if token <= 0 or unit < 8 then return nil end
  local p, tick, wide = scale(unit)
  local b = {token = token, unit = unit, p = p, tick = tick}
  if wide then
    b.A, b.C = pair(w[1], w[4] or 0, p), product(w[6] or 0, token, p)
    b.B = pair(w[5] or 0, 0, p)
    b.D = pair(w[7] or 0, 0, p) - pair(0, w[9] or 0, p)
    b.E = pair(w[8] or 0, 0, p) - pair(0, w[10] or 0, p)
  else
    b.A, b.B, b.C, b.D, b.E = paired(w[1], p), paired(w[4] or 0, p), paired(w[5] or 0, p), paired(w[6] or 0, p), paired(w[7] or 0, p)
  end
  return b
end

-- The state in v in a limit's numbers, and whether that has changed it. A is no longer
-- than now.
function rare.state(limit, v)
  local s = numbersOf(limit)
  s.A, s.D, s.E, s.live = s.at, s.zero, s.zero, false
  local b = v and bucketOf(v)
  if not b then return s, false end
  s.live = true
  local none = zero(b.p)
  local same = b.token == s.token and b.unit == s.unit
  if same and b.D == none and (b.B == none or b.C == s.full) and b.A <= s.at + s.full + b.B then
    s.A, s.E = greater(b.A, s.at), b.E
    return s, false
  end
  local was, is = s.at, s.at
  if not same then
    was, is = presently(b.p, b.tick), presently(s.p, s.tick)
  end
  local used, ahead, hidden, before, bottom = b.A - was, none, b.D, b.C, none
  if used < none then used, hidden = none, greater(hidden + used, none) end
  if b.B > none then
    ahead = lesser(greater(used - before, none), b.B)
    used = lesser(used - ahead, before)
  end
  if b.E ~= none then bottom = greater(b.E - was, none) end
  if not same then
    local most = s.full + s.longest
    used = shared(used, s.token, b.token, s.p, most)
    hidden = shared(hidden, s.token, b.token, s.p, s.longest)
    before = shared(before, s.token, b.token, s.p, most)
    ahead = lesser(converted(ahead, b.tick, s.p, s.tick), s.longest)
    bottom = converted(bottom, b.tick, s.p, s.tick)
  end
  if b.B == none and b.D == none then before = s.full end
  used, hidden = resize(used, hidden, before, s.full)
  s.A = s.at
  if used + ahead ~= s.zero then s.A = is + used + ahead end
  s.D = lesser(hidden, s.longest)
  if bottom ~= s.zero then s.E = lesser(is + bottom, s.A) end
  if s.E <= s.at then s.E = s.zero end
  return s, true
end
