-- Twin of internal/algorithm/slidingwindow.go and of the step in internal/algorithm/sliding.go, which explains
-- the rules: charges are entered at the start of their bucket. g equal charges of a key are made together.
--
-- State: newestLead:newest:counted:olderUnits:back;older. counted, in 16 digits, is the units of all entries,
-- olderUnits that of all but the newest, and back is how long before it the oldest is. older are the others,
-- oldest first: of each, units:gap; with how long after it the next one is. The period and the number of
-- buckets are in the key's name.
--
-- A charge in the bucket of the newest entry changes nothing but counted, and puts its digits in place.
-- It reads no more than that, and a charge in a later bucket reads only what has left. So entries
-- count as far as they are what a limit writes, and the rest of counted counts from newest on.
--
-- Lifetime: until the newest entry counts no more.
--
-- Arguments:
--   units
--   cost
--   how: how long a charge may wait, in us
--   token, perTick, tick in us, and the number of buckets
--:arguments units cost how token perTick tick buckets
--:setup
local peek, most, n = cost == '0', units + 0, cost + 0
local token, perTick, tick, buckets = token + 0, perTick + 0, tick + 0, buckets + 0
-- The number of the present bucket and where it begins; what is entered before counts doesn't
-- count; and when what is entered now stops counting. bucketStart
local nth = floor(floor(now / tick) * perTick / token)
local entry = (0 - floor(-nth * token / perTick)) * tick
local counts = (0 - floor(-(nth + 1 - buckets) * token / perTick)) * tick
local ends = (0 - floor(-(nth + buckets) * token / perTick)) * tick
-- What states begin with whose newest entry is of this bucket, and where counted is behind it.
-- Nothing leaves within a bucket, so what is older need not be looked at.
local here = '0:' .. format('%.0f', entry) .. ':'
local place, behind = #here, format('%.0f', #here)
--:load
-- newestUnits: false if counted is all that is known, and has to be. s: all entries, where few charges need
-- them (slid). at: the instant at which the charge runs. usual: what begins as it should and
-- wasn't reserved.
local newest, newestUnits, counted, olderUnits, back, older, s, at, usual = entry, 0, 0, 0, 0, '', false, now, false
if v and g > 0 and sub(v, 1, place) == here then
  local c = match(v, '^%d+', place + 1)
  newestUnits, counted = false, c and #c == 16 and tonumber(c)
  usual = counted and counted < 9007199254740992
elseif v and g > 0 then
  local a, c, p, b, o = match(v, '^0:(-?%d+):(%d+):(%d+):(%d+);(.*)$')
  if a and #a < 16 and #c == 16 and #p < 14 and #b < 16 and a + 0 < entry and c + 0 < 9007199254740992 then
    if a + 0 < counts then
      usual = true -- all of it has left
    else
      newest, counted, olderUnits, back, older = a + 0, tonumber(c), p + 0, b + 0, o
      local from = 1
      while newest - back < counts do -- the oldest has left
        local units, gap, next = match(older, '^([1-9]%d*):([1-9]%d*);()', from)
        if not units then break end
        counted, olderUnits, back, from = counted - units, olderUnits - units, back - gap, next
      end
      if from > 1 then older = sub(older, from) end
      newestUnits = counted - olderUnits
      usual = newestUnits > 0 and olderUnits >= 0 and back >= 0 and newest - back >= counts
        and counted < 9007199254740992
    end
  end
end
if v and not usual then
  if not rare then lacking = row break end
  s, dirty = rare.readSliding(v, token, perTick, tick, buckets)
  newestUnits, counted = 0, s.counted
end
--:look
if peek then
  fits = g
elseif counted + n <= most then
  fits = min(g, floor((most - counted) / n))
elseif how ~= '0' and n <= most then
  if not rare then lacking = row break end
  if not s then
    s = rare.readSliding(v, token, perTick, tick, buckets)
    counted = s.counted
  end
  local free = rare.freeAt(s, counted + n - most)
  -- newestUnits is a number, so that what the charge has to know is kept.
  if free - now + now % tick <= floor(how / tick) * tick then newestUnits, fits, at = 0, 1, max(free, now) end
end
--:carry counted newestUnits
--:carryif newest olderUnits back older s at dirty
--:charge
counted = counted + g * n
if s then
  rare.enter(s, at, g * n)
elseif newestUnits then
  if newest < entry then
    older = older .. format('%.0f:%.0f;', newestUnits, entry - newest)
    olderUnits, back = olderUnits + newestUnits, back + entry - newest
  end
  newest = entry
end
--:save
if not newestUnits then
  fade = ends
  if g > 0 then
    put, from = format('%016.0f', counted), behind
  else
    new = v
  end
elseif s then
  new, fade = rare.slidingText(s)
elseif counted == 0 then
  new = false
else
  new = format('0:%.0f:%016.0f:%.0f:%.0f;%s', newest, counted, olderUnits, back, older)
  fade = ends
end
--:amend
if not rare then lacking = row break end
s = s or rare.readSliding('', token, perTick, tick, buckets)
dirty = rare.amendSliding(s, diff, instant, mark) or dirty
--:functions
-- bucket, bucketStart, entryAt and expiry. s says how long buckets are.
local function bucketOf(s, at) return floor(floor(at / s.tick) * s.perTick / s.token) end
local function bucketStart(s, n) return (0 - floor(-n * s.token / s.perTick)) * s.tick end
local function bucketEntry(s, at) return bucketStart(s, bucketOf(s, at)) end
local function bucketExpiry(s, at) return bucketStart(s, bucketOf(s, at) + s.buckets) end

-- Reads the entries in v into s: es, each an instant and units, oldest first, with newestLead and counted. None
-- if v doesn't begin as a limit has written it.
local function readEntries(s, v)
  local e, a, c, more = match(v, '^([^:]*):([^:]*):(%d+)(.*)$')
  local w = c and words(e .. ':' .. a) or {}
  local newestLead, newest, counted = w[1], w[2], tonumber(c)
  if #w ~= 2 or newestLead < 0 or #c ~= 16 or counted == 0 or counted >= exact then return end
  local back, older = match(more, '^:[^:;]*:([^:;]*);(.*)$')
  local es, at, sum, from = {}, newest - (words(back or '')[1] or 0), 0, 1
  if at <= -exact then at = newest end
  while at < newest do
    local entry, next = match(older, '^([^;]*);()', from)
    local n = words(entry or '')
    if #n ~= 2 or n[1] <= 0 or n[2] <= 0 or sum + n[1] >= counted then break end
    es[#es + 1] = {at, n[1]}
    at, sum, from = at + n[2], sum + n[1], next
  end
  es[#es + 1] = {newest, counted - sum}
  s.es, s.newestLead, s.counted = es, newestLead, counted
end

-- The state in v, brought to the present, and whether the clock was set back since.
function rare.readSliding(v, token, perTick, tick, buckets)
  local s = {token = token, perTick = perTick, tick = tick, buckets = buckets, es = {}, newestLead = 0, counted = 0}
  readEntries(s, v)
  local es, setBack = s.es, false
  local last = es[#es]
  if last and last[1] > now + s.newestLead then
    setBack, last[1] = true, bucketEntry(s, now + s.newestLead)
    while #es > 1 and es[#es - 1][1] >= last[1] do
      last[2] = last[2] + es[#es - 1][2]
      table.remove(es, #es - 1)
    end
  end
  local here = last and s.newestLead == 0 and last[1] == bucketEntry(s, now)
  s.es, s.counted = {}, 0
  for i = 1, #es do
    if here and bucketExpiry(s, es[i][1]) <= now then -- drop
      last[2] = last[2] + es[i][2]
    elseif bucketExpiry(s, es[i][1]) > now then
      s.es[#s.es + 1] = es[i]
      s.counted = s.counted + es[i][2]
    end
  end
  return s, setBack
end

-- freeAt. If v wasn't what it began as, there is room at once.
function rare.freeAt(s, units)
  local free = -exact
  for i = 1, #s.es do
    if units <= 0 then break end
    units, free = units - s.es[i][2], bucketExpiry(s, s.es[i][1])
  end
  return free
end

-- enter
function rare.enter(s, at, units)
  local es, entered = s.es, bucketEntry(s, at)
  if #es == 0 or entered > es[#es][1] then es[#es + 1] = {entered, 0} end
  local last = es[#es]
  last[2], s.counted, s.newestLead = last[2] + units, s.counted + units, max(last[1] - now, 0)
end

-- What a state says, false if nothing, and the instant at which it says nothing more.
function rare.slidingText(s)
  local es, n, older = s.es, #s.es, {}
  if n == 0 then return false end
  for i = 1, n - 1 do older[i] = format('%.0f:%.0f;', es[i][2], es[i + 1][1] - es[i][1]) end
  local newest, newestUnits = es[n][1], es[n][2]
  local olderUnits, back = s.counted - newestUnits, newest - es[1][1]
  local head = format('%.0f:%.0f:%016.0f:%.0f:%.0f;', s.newestLead, newest, s.counted, olderUnits, back)
  return head .. table.concat(older), bucketExpiry(s, newest)
end

-- amendSliding; reports whether that has changed anything.
function rare.amendSliding(s, diff, instant, mark)
  local es, place = s.es, nil
  if mark > 0 and bucketExpiry(s, instant) > now then
    for i = 1, #es do
      if es[i][1] == instant then place = i end
    end
  end
  if diff > 0 then
    local debt = min(diff, max(0, maxCost - s.counted))
    if debt == 0 then return false end
    if place then
      es[place][2], s.counted = es[place][2] + debt, s.counted + debt
    else
      rare.enter(s, now, debt)
    end
    return true
  end
  local refund = place and min(-diff, mark, es[place][2]) or 0
  if refund == 0 then return false end
  es[place][2], s.counted = es[place][2] - refund, s.counted - refund
  if es[place][2] == 0 then
    local newest = place == #es
    table.remove(es, place)
    if newest and #es > 0 then s.newestLead = max(es[#es][1] - now, 0) end
  end
  return true
end
