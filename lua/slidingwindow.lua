-- Twin of store/slidingwindow.go: charges are entered at the start of their bucket.
--
-- State: token:unit:E:A:C:P:back;older, with C in 16 digits. C is the sum of all entries,
-- P that of all but the newest, which is at A, and back is how long before it the oldest
-- is. older are the others, oldest first: of each, units:gap; with how long after it the
-- next one is.
--
-- A charge in the bucket of the newest entry changes nothing but C, and puts its digits in
-- place.
--
-- Arguments:
--   units
--   numbers: token:unit, in short
--   cost
--   how: how long a charge may wait, in us
--   token, perTick, tick in us, and the number of buckets
--:arguments units numbers cost how token perTick tick buckets
--:setup
local peek, most, n = cost == '0', units + 0, cost + 0
local nth, entry, counts, ends = floor(now / tick) * perTick, nil, nil, nil
if tick ~= '1' or max(nth, -nth) + 2 * buckets * token < 9007199254740992 then
  nth = floor(nth / token)
  entry = (0 - floor(-nth * token / perTick)) * tick
  counts = (0 - floor(-(nth + 1 - buckets) * token / perTick)) * tick
  ends = (0 - floor(-(nth + buckets) * token / perTick)) * tick
else -- of a wide scale, and too large for a product: five bits of a factor by themselves
  local periods = floor(now / token)
  local rest = now - periods * token
  local high = floor(rest / 32)
  local q = floor(high * perTick / token)
  nth = periods * perTick + q * 32 + floor(((high * perTick - q * token) * 32 + (rest - high * 32) * perTick) / token)
  local starts = {nth, nth + 1 - buckets, nth + buckets}
  high = floor(token / 32)
  for x = 1, 3 do
    periods = floor(starts[x] / perTick)
    rest = starts[x] - periods * perTick
    q = floor(rest * high / perTick)
    starts[x] = periods * token + q * 32 + math.ceil(((rest * high - q * perTick) * 32 + rest * (token - high * 32)) / perTick)
  end
  entry, counts, ends = starts[1], starts[2], starts[3]
end
-- What states begin with whose newest entry is of this bucket, and where C is behind it.
-- Nothing leaves within a bucket, so what is older need not be looked at.
local here = numbers .. ':0:' .. format('%.0f', entry) .. ':'
local place, behind = #here, format('%.0f', #here)
local same = '^' .. numbers .. ':0:(%d+):(%d+):(%d+):(%d+);(.*)$'
--:load
-- B: false if C is all that is known, and has to be.
local A, B, C, P, back, older, E, live, at = entry, 0, 0, 0, 0, '', 0, false, entry
if v and g > 0 and sub(v, 1, place) == here then
  B, C, live = false, tonumber(sub(v, place + 1, place + 16)) or 0, true
elseif v then
  local a, c, p, b, o = string.match(v, same)
  if a and a + 0 <= entry then
    A, C, P, back, older, live = a + 0, c + 0, p + 0, b + 0, o, true
    while A - back < counts do -- the oldest has left
      dirty = true
      local units, gap, next = string.match(older, '^(%d+):(%d+);()')
      if not units then
        A, C, live = entry, 0, false
        break
      end
      C, P, back, older = C - units, P - units, back - gap, sub(older, next)
    end
  else
    if not rare then lacking = row break end
    A, C, P, back, older, E, live, dirty = rare.slid(v, numbers)
    if not live then A = entry end
  end
  B = C - P
end
--:look
if peek then
  fits = g
elseif C + n <= most then
  fits = min(g, floor((most - C) / n))
elseif how ~= '0' and n <= most then
  if not rare then lacking = row break end
  if not B then A, C, P, back, older = rare.slid(v, numbers) end
  B = C - P
  local l = rare.buckets(numbers)
  local leaves = l.leaves(rare.frees(A, back, older, C + n - most))
  if leaves - now <= how + 0 then fits, at = 1, l.entered(leaves) end
end
--:keep C B
--:more A P back older E live at dirty
--:charge
C = C + g * n
if B then
  if not live then
    A = at
  elseif at > A then
    older, P, back, A = older .. format('%.0f:%.0f;', B, at - A), P + B, back + at - A, at
  end
  E, live = max(A - now, 0), true
end
--:save
if not B then
  fade = ends
  if g > 0 then
    put, from = format('%016.0f', C), behind
  else
    new = v
  end
elseif not live then
  new = false
else
  new = format('%s:%.0f:%.0f:%016.0f:%.0f:%.0f;%s', numbers, E, A, C, P, back, older)
  if A == entry or not rare then -- or all that has changed is what has left
    fade, keep = ends, A ~= entry
  else
    fade = rare.buckets(numbers).leaves(A)
  end
end
--:amend
if diff > 0 then
  local n, g = min(diff, max(0, 1099511627776 - C)), 1 -- store.MaxCost
  if n > 0 then
    --CHARGE--
    dirty = true
  end
elseif live and min(-diff, mark) > 0 then
  if not rare then lacking = row break end
  A, C, P, back, older, E, live = rare.withdraw(A, C, P, back, older, E, instant, min(-diff, mark))
  dirty = true
end
--:functions
local slides = {}
-- The limit with these numbers: when charges are entered, and when entries leave.
function rare.buckets(numbers)
  local l = slides[numbers]
  if l then return l end
  local f = fields(numbers)
  local token, buckets = f[1], f[2] % 1024
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

  l = {}
  slides[numbers] = l
  function l.entered(us) return start(us, 0) end
  function l.leaves(us) return start(us, buckets) end
  return l
end

-- The entries of a state, oldest first.
local function entries(A, C, P, back, older)
  local es, from = {}, A - back
  for units, gap in string.gmatch(older, '(%d+):(%d+);') do
    es[#es + 1] = {from, units + 0}
    from = from + gap
  end
  es[#es + 1] = {A, C - P}
  return es
end

-- What a state says of entries.
local function summed(es)
  local C, older, last = 0, '', es[#es]
  for i = 1, #es do
    C = C + es[i][2]
    if i < #es then older = older .. format('%.0f:%.0f;', es[i][2], es[i + 1][1] - es[i][1]) end
  end
  return last[1], C, C - last[2], last[1] - es[1][1], older
end

-- The state in v, brought to the present and the limit's numbers, whether anything is
-- left of it, and whether that has changed it.
function rare.slid(v, numbers)
  local was, E, A, C, P, back, older = string.match(v, '^([%de]+:%d+):(%d+):(-?%d+):(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):(%d+):(%d+);(.*)$')
  if not was then return 0, 0, 0, 0, '', 0, false, false end
  A, C, P, back, E = A + 0, C + 0, P + 0, back + 0, E + 0
  local es, dirty = entries(A, C, P, back, older), was ~= numbers

  -- Enters what was made before the clock was set back now, or for the turn that was
  -- reserved, in one entry.
  local function clamp(of)
    if es[#es][1] <= now + E then return end
    dirty = true
    local at, units = of.entered(now + E), 0
    repeat
      units = units + table.remove(es)[2]
    until #es == 0 or es[#es][1] < at
    es[#es + 1] = {at, units}
  end

  -- Takes off what no longer counts.
  local function drop(of)
    local n = 0
    while n < #es and of.leaves(es[n + 1][1]) <= now do n = n + 1 end
    if n == 0 then return end
    dirty = true
    for i = 1, #es do es[i] = es[i + n] end
  end

  if was ~= numbers then -- what no longer counted then doesn't come back
    clamp(rare.buckets(was))
    drop(rare.buckets(was))
  end
  if #es > 0 then
    clamp(rare.buckets(numbers))
    drop(rare.buckets(numbers))
  end
  if #es == 0 then return 0, 0, 0, 0, '', 0, false, true end
  A, C, P, back, older = summed(es)
  return A, C, P, back, older, E, true, dirty
end

-- When the newest of the oldest entries is with units in all.
function rare.frees(A, back, older, units)
  local at = A - back
  for n, gap in string.gmatch(older, '(%d+):(%d+);') do
    units = units - n
    if units <= 0 then return at end
    at = at + gap
  end
  return A
end

-- Gives back of what was entered at an instant.
function rare.withdraw(A, C, P, back, older, E, instant, refund)
  local es = entries(A, C, P, back, older)
  for i = 1, #es do
    if es[i][1] == instant then es[i][2] = es[i][2] - min(refund, es[i][2]) end
  end
  while es[#es][2] == 0 do -- the one before it that isn't empty is the newest now
    table.remove(es)
    if #es == 0 then return A, 0, 0, 0, '', 0, false end
    E = max(es[#es][1] - now, 0)
  end
  A, C, P, back, older = summed(es)
  return A, C, P, back, older, E, true
end
