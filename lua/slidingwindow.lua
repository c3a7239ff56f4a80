-- Twin of store/slidingwindow.go: charges are entered at the start of their bucket.
--
-- State: token:unit:E:A:C:P:back;older, with C in 16 digits. C is the sum of all entries,
-- P that of all but the newest, which is at A, and back is how long before it the oldest
-- is. older are the others, oldest first: of each, units:gap; with how long after it the
-- next one is.
--
-- If several versions have charged it (versions.lua), +token:unit:at; of each stands before
-- that and a +: at is the entry of its latest charge.
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
local token, perTick, tick, buckets = token + 0, perTick + 0, tick + 0, buckets + 0
local nth, entry, counts, ends = floor(now / tick) * perTick, nil, nil, nil
if tick ~= 1 or max(nth, -nth) + 2 * buckets * token < 9007199254740992 then
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
--:looks
local same = '^' .. numbers .. ':0:(%d+):(%d+):(%d+):(%d+);(.*)$'
--:load
-- B: false if C is all that is known, and has to be. rec: what others have charged too
-- (versions.lua); C is how much of it counts.
local A, B, C, P, back, older, E, live, at, rec = entry, 0, 0, 0, 0, '', 0, false, entry, false
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
    rec, live, dirty = rare.slid(v)
    if not live then
      A, rec = entry, false
    elseif rare.alone(rec, numbers) then
      A, C, P, back, older, E, rec = rare.slidAlone(rec)
    else
      dirty = rare.see(rec.vs, numbers, rec.es[#rec.es][1]) or dirty
      C = rare.counts(rec, numbers)
    end
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
  local r = rec
  if not r then
    if not B then r = rare.slid(v) else r = rare.slidOne(numbers, A, C, P, back, older) end
    A, C, P, back, older = rare.slidAlone(r)
    B = C - P
  end
  local free = rare.room(r, numbers, C + n - most)
  if rare.waits(numbers, free, how + 0) then fits, at = 1, free end
end
--:keep C B
--:more A P back older E live at dirty rec
--:charge
C = C + g * n
if rec then
  rare.enter(rec, numbers, at == entry and now or at, g * n)
elseif B then
  if at > entry then at = rare.slide(numbers).entered(at) end
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
elseif rec then
  new, fade = rare.slidText(rec), rare.till(rec)
else
  new = format('%s:%.0f:%.0f:%016.0f:%.0f:%.0f;%s', numbers, E, A, C, P, back, older)
  if A == entry or not rare then -- or all that has changed is what has left
    fade, keep = ends, A ~= entry
  else
    fade = rare.slide(numbers).leaves(A)
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
  local r = rec
  if not r then
    r = rare.slidOne(numbers, A, C, P, back, older)
    r.E = E
  end
  live = rare.withdraw(r, numbers, instant, min(-diff, mark))
  if not live then
    C, rec = 0, false
  elseif not rec then
    A, C, P, back, older, E = rare.slidAlone(r)
  end
  dirty = true
end
--:functions
-- The entries of a version alone, as versions.lua has them.
function rare.slidOne(numbers, A, C, P, back, older)
  local es, from = {}, A - back
  for units, gap in string.gmatch(older, '(%d+):(%d+);') do
    es[#es + 1] = {from, units + 0}
    from = from + gap
  end
  es[#es + 1] = {A, C - P}
  return {es = es, C = C, E = 0, vs = {rare.keeper(numbers, A)}, trim = 0}
end

-- What a state says of those.
function rare.slidAlone(r)
  local es, older = r.es, ''
  local last = es[#es]
  for i = 1, #es - 1 do older = older .. format('%.0f:%.0f;', es[i][2], es[i + 1][1] - es[i][1]) end
  return last[1], r.C, r.C - last[2], last[1] - es[1][1], older, r.E, false
end

function rare.slidText(r)
  local A, C, P, back, older, E = rare.slidAlone(r)
  local text = format('%s:%.0f:%.0f:%016.0f:%.0f:%.0f;%s', r.vs[1].numbers, E, A, C, P, back, older)
  if #r.vs == 1 then return text end
  local vs = {}
  for i = 1, #r.vs do vs[i] = format('%s:%.0f', r.vs[i].numbers, r.vs[i].at) end
  return '+' .. table.concat(vs, ';') .. '+' .. text
end

-- The state in v, brought to the present, whether anything is left of it, and whether
-- that has changed it.
function rare.slid(v)
  local vs, plain = string.match(v, '^%+(.*)%+(.*)$')
  local was, E, A, C, P, back, older = string.match(plain or v, '^([%de]+:%d+):(%d+):(-?%d+):(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):(%d+):(%d+);(.*)$')
  if not was then return false, false, false end
  local r = rare.slidOne(was, A + 0, C + 0, P + 0, back + 0, older)
  r.E = E + 0
  if vs then
    r.vs = {}
    for numbers, at in string.gmatch(vs, '([%de]+:%d+):(-?%d+)') do r.vs[#r.vs + 1] = rare.keeper(numbers, at + 0) end
  end
  local live, dirty = rare.present(r)
  return r, live, dirty
end
