-- Twin of store/versions.go: the entries of a sliding window or log that several versions
-- of a limit have charged, as a table r.
--
--   es: the entries, oldest first, each {at, units}
--   C: the units of all
--   E: how far ahead of the present the newest was when it was made
--   vs: the versions that keep them
--   trim: how many of the oldest have gone since they were read
--   pushed: whether the newest is new
--   anew: whether others have changed
--:functions
local slides = {}
-- The limit with these numbers (token:unit): when charges are entered, and when entries
-- leave.
function rare.slide(numbers)
  local l = slides[numbers]
  if l then return l end
  local f = fields(numbers)
  local token, buckets = f[1], f[2] % 1024
  l = {token = token, buckets = buckets, tick = 1}
  slides[numbers] = l
  if buckets == 0 then
    function l.entered(us) return us end
    function l.leaves(us) return us + token end
    return l
  end
  local perTick, tick, wide = scale((f[2] - buckets) / 1024)

  local function start(us, buckets)
    if wide then -- too large for a product
      local whole = floor(us / token)
      local n = whole * perTick + divided(us - whole * token, perTick, token) + buckets
      whole = floor(n / perTick)
      local q, r = divided(n - whole * perTick, token, perTick)
      return whole * token + q + (r > 0 and 1 or 0)
    end
    local n = floor(at(us, perTick, tick) / token) + buckets
    return (0 - floor(-n * token / perTick)) * tick
  end

  l.tick = tick
  function l.entered(us) return start(us, 0) end
  function l.leaves(us) return start(us, buckets) end
  return l
end

function rare.keeper(numbers, at)
  local d = rare.slide(numbers)
  return {numbers = numbers, d = d, at = at, till = d.leaves(at)}
end

-- Whether that is what one version alone has charged.
function rare.alone(r, numbers) return #r.vs == 1 and r.vs[1].numbers == numbers end

local function gone(vs, at)
  local g = min(vs[1].d.leaves(at), vs[1].till)
  for i = 2, #vs do g = max(g, min(vs[i].d.leaves(at), vs[i].till)) end
  return g
end

-- When nothing is kept any more.
function rare.till(r)
  local till = r.vs[1].till
  for i = 2, #r.vs do till = max(till, r.vs[i].till) end
  return till
end

-- Leaves out the versions of whose charges nothing is kept any more, and reports whether
-- there were any.
function rare.forget(vs)
  local i, n = 1, #vs
  while vs[i] do
    if gone(vs, vs[i].at) > now then i = i + 1 else table.remove(vs, i) end
  end
  return #vs < n
end

local function entered(vs, at)
  local e = vs[1].d.entered(at)
  for i = 2, #vs do e = max(e, vs[i].d.entered(at)) end
  return e
end

rare.gone = gone

local function redate(v, at)
  v.at, v.till = at, v.d.leaves(at)
end

local function shorten(r)
  local last = r.es[#r.es][1]
  for i = 1, #r.vs do
    if r.vs[i].at > last then redate(r.vs[i], last) end
  end
end

-- Notes a version that keeps for longer what others have charged, the last at at, and
-- reports whether it does.
function rare.see(vs, numbers, at)
  for i = 1, #vs do
    if vs[i].numbers == numbers then return false end
  end
  if rare.slide(numbers).leaves(at) <= rare.till({vs = vs}) then return false end
  rare.join(vs, numbers, at)
  return true
end

-- Takes off the n oldest.
local function trim(r, n)
  if n == 0 then return end
  local es = r.es
  for i = 1, n do r.C = r.C - es[i][2] end
  for i = 1, #es do es[i] = es[i + n] end
  r.trim = r.trim + n
end

-- Brings r to the present, and reports whether anything is left of it, and whether that
-- has changed it.
function rare.present(r)
  local es, vs, dirty = r.es, r.vs, false
  if es[#es][1] > now + r.E then
    local at, units = entered(vs, now + r.E), 0
    repeat
      units = units + table.remove(es)[2]
    until #es == 0 or es[#es][1] < at
    es[#es + 1] = {at, units}
    shorten(r)
    dirty, r.anew = true, true
  end
  if rare.forget(vs) then dirty = true end
  if #vs == 0 then return false, true end
  local n = 0
  while gone(vs, es[n + 1][1]) <= now do n = n + 1 end
  trim(r, n)
  return true, dirty or n > 0
end

local function ends(l, vs, at)
  local e = min(l.leaves(at), gone(vs, at))
  return e + -e % l.tick
end
rare.ends = ends

-- The oldest entry that counts for a limit, or the number behind the last.
local function first(r, l)
  local es, low, high = r.es, 1, #r.es + 1
  while low < high do
    local mid = floor((low + high) / 2)
    if ends(l, r.vs, es[mid][1]) > now then high = mid else low = mid + 1 end
  end
  return low
end

-- How much of r counts for a limit.
function rare.counts(r, numbers)
  local used, es = 0, r.es
  for i = first(r, rare.slide(numbers)), #es do used = used + es[i][2] end
  return used
end

-- When the oldest entries that count for a limit, with units in all, leave.
function rare.room(r, numbers, units)
  local l, es = rare.slide(numbers), r.es
  for i = first(r, l), #es do
    units = units - es[i][2]
    if units <= 0 or i == #es then return l.leaves(es[i][1]) end
  end
end

-- Whether a charge that finds room at free may wait for that.
function rare.waits(numbers, free, how)
  local tick = rare.slide(numbers).tick
  return free - (now - now % tick) <= how - how % tick
end

local function together(vs, a, b)
  local shortest = 1
  for i = 2, #vs do
    if vs[i].d.token < vs[shortest].d.token then shortest = i end
  end
  for i = 1, #vs do
    local d = vs[i].d
    if d.leaves(b) > now then
      if d.buckets > 0 then
        if d.leaves(a) ~= d.leaves(b) then return false end
      elseif i == shortest then
        if a ~= b then return false end
      else
        local part = max(floor(d.token / 1000), 1)
        if floor(a / part) ~= floor(b / part) then return false end
      end
    end
  end
  return true
end

-- Makes one of entries that no version tells apart, but for the newest.
local function merge(r)
  local es, log = r.es, {}
  for i = 1, #es - 1 do
    local last = log[#log]
    if last and together(r.vs, last[1], es[i][1]) then
      log[#log] = {es[i][1], last[2] + es[i][2]}
    else
      log[#log + 1] = es[i]
    end
  end
  log[#log + 1] = es[#es]
  r.es, r.anew = log, true
end

-- Makes one of the two versions with the shortest spans.
local function unite(vs)
  local function shorter(i, j) return vs[i].d.leaves(now) < vs[j].d.leaves(now) end
  local first, second = 1, 2
  if shorter(2, 1) then first, second = 2, 1 end
  for i = 3, #vs do
    if shorter(i, first) then
      first, second = i, first
    elseif shorter(i, second) then
      second = i
    end
  end
  redate(vs[second], max(vs[second].at, vs[first].at))
  table.remove(vs, first)
end

-- Notes that a version has charged what is entered at at.
function rare.join(vs, numbers, at)
  local own
  for i = 1, #vs do
    if vs[i].numbers == numbers then own = vs[i] end
  end
  if own then redate(own, at) else vs[#vs + 1] = rare.keeper(numbers, at) end
  if #vs > 4 then unite(vs) end
end

-- Enters a charge that runs at at beside others, or alone.
function rare.enter(r, numbers, at, units)
  local es, vs, own = r.es, r.vs, nil
  local beside = not rare.alone(r, numbers)
  for i = 1, #vs do
    if vs[i].numbers == numbers then own = vs[i] end
  end
  if not own then
    own = rare.keeper(numbers, at)
    vs[#vs + 1] = own
  end
  local e = entered(vs, at)
  if e > es[#es][1] then
    es[#es + 1] = {e, 0}
    r.pushed = true
    if beside then
      local n, C = 0, r.C
      while n < #es - 1 and C >= 4503599627370496 do
        n = n + 1
        C = C - es[n][2]
      end
      trim(r, n)
      if #es > 1024 and (#es - 1) % 256 == 0 then
        merge(r)
        es = r.es
      end
    end
  end
  local last = es[#es]
  last[2], r.C, r.E = last[2] + units, r.C + units, max(last[1] - now, 0)
  redate(own, last[1])
  if #vs > 4 then unite(vs) end
end

-- Gives back of what was entered at an instant and still counts for the limit with these
-- numbers, and reports whether anything is left.
function rare.withdraw(r, numbers, instant, refund)
  local es, i = r.es, #r.es
  if rare.slide(numbers).leaves(instant) <= now then return true end
  while i > 0 and es[i][1] > instant do i = i - 1 end
  if i == 0 or es[i][1] ~= instant then return true end
  refund = min(refund, es[i][2])
  es[i][2], r.C, r.anew = es[i][2] - refund, r.C - refund, true
  while es[#es][2] == 0 do -- the one before it that isn't empty is the newest now
    table.remove(es)
    if #es == 0 then return false end
    r.E = max(es[#es][1] - now, 0)
  end
  shorten(r)
  return true
end
