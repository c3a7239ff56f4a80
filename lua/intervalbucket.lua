-- Twin of internal/algorithm/intervalbucket.go, which explains the rules. Needs window.lua and levels.lua.
--
-- State: start:token:unit:used:burst, where start is where the interval of the last charge begins, in us, used
-- how many tokens are in use, and token:unit:burst the numbers of the last charge: tokens per interval, the
-- interval (Numbers.Unit in internal/algorithm), and the capacity. used is negative if what is beyond the
-- capacity is debts alone (Owed). Behind that, if they are needed, :keptUntil, :refundsFrom and the levels, as
-- :instant:use each.
--
-- Lifetime: until the tokens in use are refilled, and up to keptUntil. A charge that the present
-- interval refills with the others doesn't change that.
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that denies at once, else how long it may wait, in us
--   units, unit, burst: token, unit and burst of the limit
--   begin, next, after: as of a fixed window
--:arguments limit cost how units unit burst begin next after
--:setup
local peek, n, capacity = cost == '0', units + 0, burst + 0
-- Where the present interval begins, as text, and ends: as of a fixed window.
local first, fin
if next == '' then
  first, fin = format('%.0f', now), now + begin
else
  first, fin = begin, next + 0
  if now >= fin then first, fin = next, after + 0 end
  if now < first + 0 or now >= fin then fin = nil end
end
--:load
-- lives: whether the lifetime of v ends with the interval, if that refills it. waits: used with a
-- charge that waits. state: the state in v if it is of other numbers, has more than start and used, or was
-- written in an earlier window of the calendar.
local start, used, ends, lives, waits, state = first, 0, fin or now, false, false, false
if v or not fin then
  local a, t, u, b, c
  if v then a, t, u, b, c = match(v, '^([1-9]%d*):(%d+):(-?%d+):([1-9]%d*):(%d+)$') end
  if fin and t == units and u == unit and c == burst and #b < 16 and (a == first or next == '' and a + 0 <= now) then
    used, lives = b + 0, true
    if next == '' then
      local k = floor((now - a) / begin)
      if k > 0 then
        a, used, lives = format('%.0f', a + k * begin), max(used - k * n, 0), false
      end
      if used > 0 then start, ends = a, a + begin end
    end
  else
    if not rare then lacking = row break end
    asked = nil
    state, dirty = rare.readInterval(limit, v, n, unit + 0, capacity)
    if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
    if state then start, used = state.from, state.used end
  end
end
--:look
if fits < 0 or peek then
  if fits == 0 then fits = g end
elseif used + cost <= capacity then
  fits = min(g, floor((capacity - used) / cost))
elseif how ~= '' and cost + 0 <= capacity
  and not (state and state.other and (next ~= '' or how + 0 >= 31536000000000)) then
  if not rare then lacking = row break end
  local k = math.ceil((used + cost - capacity) / n)
  asked = nil
  if rare.window(limit).begunBy(start + 0, k, now + how) then fits, waits = 1, max(used, k * n) + cost end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:carry start used ends lives waits dirty state
--:charge
if state then
  rare.chargeInterval(state, n, unit + 0, capacity, cost + 0, waits, g)
else
  used = waits or used + g * cost
end
--:save
if state then
  new, fade = rare.intervalText(state, limit)
elseif used == 0 then
  new = false
else
  new = format('%s:%s:%s:%.0f:%s', start, units, unit, used, burst)
  fade, keep = ends, g > 0 and lives and used <= n
  if used > n then
    -- latestEnd in window.lua
    local length, kind = match(limit, '(%d+),(%d)')
    local slack = kind == '2' and min(tonumber(length), 90000000000) or 0
    fade = ends + min((math.ceil(used / n) - 1) * length + slack, 6307200000000000)
  end
end
--:amend
if not state and diff < 0 and instant >= start + 0 and instant <= now and mark == used and used <= capacity then
  -- the last charge
  used, dirty = used - min(-diff, used), true
elseif diff ~= 0 then
  if not rare then lacking = row break end
  asked = nil
  if not state then state = rare.readInterval(limit, v, n, unit + 0, capacity) end
  if not asked and rare.amendInterval(state, limit, n, unit + 0, capacity, due, charged, instant, mark) then
    dirty = true
  end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:functions
-- The length of intervals with this unit, or of the longest if their lengths vary.
local function intervalLength(unit)
  if unit > 0 then return unit end
  local kind = -unit % 8
  if kind == 1 then return floor(-unit / 8) end
  if kind == 7 then return 2 ^ min(floor(-unit / 8) % 64, 62) end
  return (({[2] = 2, [3] = 50, [4] = 216, [6] = 8832})[kind] or 792) * 3600000000
end

-- refills.untilAtLatest, for the tokens in use and as an instant
local function refilledAt(s)
  local length = intervalLength(s.unit)
  return s.start + min(ceilDiv(s.used, s.token), floor(4503599627370496 / length)) * length
end

-- The words of a state, none if it isn't one.
local function intervalWords(v)
  local w = v and words(v) or {}
  local _, token, unit, used, burst, keptUntil = unpack(w, 1, 6)
  if not burst or token < 1 or token > maxCost or unit == 0
    or unit < 0 and (unit == -1 or -unit % 8 < 1 or -unit % 8 == 7 and floor(-unit / 8) % 64 > 53)
    or burst < 0 or burst > maxCost or not validNotes(w, 6) or used == 0 and not keptUntil then
    return {}
  end
  return w
end

-- refillsOf and rebaseInterval: the state in v as of now, and whether the clock was set back since it was written.
-- Nothing if windows are asked for.
--   start, used: as of now
--   token, unit, burst: its numbers; the limit's, if nothing was written
--   owed: what is used beyond the capacity is debts alone
--   keptUntil, refundsFrom, levels: what bounds refunds
--   sameNumbers: its numbers are the limit's. sameIntervals: its intervals are, whatever they bring
--   other: it is refilled in another way than the limit would
--   from: where the interval begins that the limit charges, as text
function rare.readInterval(limit, v, n, unit, capacity)
  local window, w = rare.window(limit), intervalWords(v)
  if window.unknown then return ask(now) end
  local s = {start = w[1], token = w[2] or n, unit = w[3] or unit, used = math.abs(w[4] or 0), burst = w[5] or capacity,
    owed = w[4] and w[4] < 0, keptUntil = w[6], refundsFrom = w[7], levels = {unpack(w, 8)}}
  local setBack = false
  s.sameIntervals = s.unit == unit
  s.sameNumbers = s.sameIntervals and s.token == n and s.burst == capacity
  if s.used > 0 then
    local start, k = s.start, 0
    if s.sameIntervals then
      start = window.clampStart(start)
      k = window.boundariesIn(start, now)
      if asked then return end
      if k > 0 then start = window.startAfter(start, k) end
    elseif start > now then
      start = now
    else
      local length = intervalLength(s.unit)
      k = floor((now - start) / length)
      start = start + k * length
    end
    setBack = start < s.start
    s.start, s.used = start, k < ceilDiv(s.used, s.token) and s.used - k * s.token or 0
  end
  if s.used == 0 then s.start = window.startAt(now) end
  if s.keptUntil and s.keptUntil <= now and not (setBack and s.sameIntervals) then
    s.keptUntil, s.levels = nil, {}
  elseif s.sameIntervals and (setBack or s.keptUntil and lastNoted(s) > now) then
    refuseRefunds(s, now, max(refilledAt(s), now + 1))
    setBack = true
  end
  if s.used == 0 and not s.keptUntil then
    s.token, s.unit, s.burst, s.sameNumbers, s.sameIntervals = n, unit, capacity, true, true
  end
  s.other = s.used > 0 and not (s.sameIntervals and s.token == n)
  s.from = text(s.other and window.startAt(now) or s.start)
  return s, setBack
end

-- chargeInterval: makes g charges, or one that waits, after which waits are in use.
function rare.chargeInterval(s, n, unit, capacity, cost, waits, g)
  for _ = 1, g do
    local used = waits or s.used + cost
    if not s.sameNumbers then
      noteNumbers(s, refilledAt(s))
      s.sameNumbers, s.sameIntervals = true, true
      s.start, s.token, s.unit, s.burst = tonumber(s.from), n, unit, capacity
    else
      noteCharge(s, min(s.used, capacity - cost), used, waits)
    end
    s.used, s.owed = used, false
  end
end

-- The text of a state, false if it says nothing, and the instant at which it says nothing more.
function rare.intervalText(s, limit)
  if s.used == 0 and not s.keptUntil then return false end
  local used = s.owed and s.used > s.burst and -s.used or s.used
  local out = format('%.0f:%.0f:%.0f:%.0f:%.0f', s.start, s.token, s.unit, used, s.burst)
  local fade = refilledAt(s)
  if s.sameIntervals and s.used > 0 then
    local window = rare.window(limit)
    fade = window.latestEnd(window.endOf(s.start), ceilDiv(s.used, s.token) - 1)
  end
  if s.keptUntil then return out .. notesText(s), max(fade, s.keptUntil) end
  return out, fade
end

-- useLeft; nil if windows are asked for
local function useLeft(s, window, instant, mark, at)
  local ended = 0
  if s.unit < 0 then
    ended = window.boundariesIn(instant, at)
  elseif at > instant then
    ended = floor((at - s.start) / s.unit) - floor((instant - s.start) / s.unit)
  end
  return ended and (ended < ceilDiv(mark, s.token) and mark - ended * s.token or 0)
end

-- addDebtInterval; reports whether that changes the state.
local function addDebtInterval(s, tokens)
  local debt = max(0, min(tokens, s.burst + maxCost - s.used))
  if debt == 0 then return false end
  local waits = not s.owed and s.used > s.burst
  noteCharge(s, s.used, s.used + debt, waits)
  s.owed = not waits
  s.used = s.used + debt
  return true
end

-- refundableInterval; nil if windows are asked for
local function refundableInterval(s, window, instant, mark)
  local low, from = lowestUse(s, instant, s.start)
  local left = useLeft(s, window, instant, mark, from)
  return left and min(low, left)
end

-- refundInterval; reports whether that changes the state.
local function refundInterval(s, window, tokens, capacity, due, instant, mark)
  local last = useLeft(s, window, instant, mark, s.start) == s.used
  if s.used > capacity and not s.owed and not (last and due == 0) then return false end
  local refundable = refundableInterval(s, window, instant, mark)
  if asked then return false end
  local back = min(tokens, refundable)
  if back <= 0 then return false end
  noteRefund(s, instant, back, last, max(refilledAt(s), now + 1))
  s.used = s.used - back
  return true
end

-- amendInterval: settles a charge, and reports whether that changes the state.
function rare.amendInterval(s, limit, n, unit, capacity, due, charged, instant, mark)
  local diff = due - charged
  if diff > 0 then
    if s.used == 0 and not s.sameNumbers then
      s.refundsFrom, s.levels, s.sameNumbers, s.sameIntervals = now, {}, true, true
      s.token, s.unit, s.burst = n, unit, capacity
    end
    return addDebtInterval(s, diff)
  end
  if s.used == 0 or not s.sameNumbers or not refunds(s, instant) then return false end
  return refundInterval(s, rare.window(limit), -diff, capacity, due, instant, mark)
end
