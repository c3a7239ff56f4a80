-- Twin of internal/algorithm/intervalbucket.go, which explains the rules. Needs window.lua and levels.lua.
--
-- State: A:token:unit:B:burst, where A is where the interval of the last charge begins, in us, B
-- how many tokens are in use, and token:unit:burst the numbers of the last charge: tokens per
-- interval, the interval (store.Numbers.Unit), and the capacity. Behind that, if they are needed,
-- :until (State.D), :changed (State.E) and the levels, as :instant:use each.
--
-- Lifetime: until the tokens in use are refilled, and up to until. A charge that the present
-- interval refills with the others doesn't change that.
--
-- Arguments:
--   limit: the window (window.lua)
--   cost
--   how: empty for a charge that denies at once, else how long it may wait, in us
--   units, unit, burst: token, unit and burst of the limit
--   start, next, after: as of a fixed window
--:arguments limit cost how units unit burst start next after
--:setup
local peek, n, capacity = cost == '0', units + 0, burst + 0
-- Where the present interval begins, as text, and ends: as of a fixed window.
local first, fin
if next == '' then
  first, fin = format('%.0f', now), now + start
else
  first, fin = start, next + 0
  if now >= fin then first, fin = next, after + 0 end
  if now < first + 0 or now >= fin then fin = nil end
end
--:load
-- lives: whether the lifetime of v ends with the interval, if that refills it. waits: B with a
-- charge that waits. state: the state in v if it is of other numbers, has more than A and B, or was written in an
-- earlier window of the calendar.
local A, B, ends, lives, waits, state = first, 0, fin or now, false, false, false
if v or not fin then
  local a, t, u, b, c
  if v then a, t, u, b, c = match(v, '^([1-9]%d*):(%d+):(-?%d+):([1-9]%d*):(%d+)$') end
  if fin and t == units and u == unit and c == burst and #b < 16 and (a == first or next == '' and a + 0 <= now) then
    B, lives = b + 0, true
    if next == '' then
      local k = floor((now - a) / start)
      if k > 0 then
        a, B, lives = format('%.0f', a + k * start), max(B - k * n, 0), false
      end
      if B > 0 then A, ends = a, a + start end
    end
  else
    if not rare then lacking = row break end
    asked = nil
    state, dirty = rare.readInterval(limit, v, n, unit + 0, capacity)
    if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
    if state then A, B = state.from, state.used end
  end
end
--:look
if fits < 0 or peek then
  if fits == 0 then fits = g end
elseif B + cost <= capacity then
  fits = min(g, floor((capacity - B) / cost))
elseif how ~= '' and cost + 0 <= capacity and not (state and state.other and (next ~= '' or how + 0 >= 31536000000000)) then
  if not rare then lacking = row break end
  local k = math.ceil((B + cost - capacity) / n)
  asked = nil
  if rare.window(limit).begunBy(A + 0, k, now + how) then fits, waits = 1, max(B, k * n) + cost end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:carry A B ends lives waits dirty state
--:charge
if state then
  rare.chargeInterval(state, n, unit + 0, capacity, cost + 0, waits, g)
else
  B = waits or B + g * cost
end
--:save
if state then
  new, fade = rare.intervalText(state, limit)
elseif B == 0 then
  new = false
else
  new = format('%s:%s:%s:%.0f:%s', A, units, unit, B, burst)
  fade, keep = ends, g > 0 and lives and B <= n
  if B > n then
    -- latestEnd in window.lua
    local length, kind = match(limit, '(%d+),(%d)')
    local slack = kind == '2' and min(tonumber(length), 90000000000) or 0
    fade = ends + min((math.ceil(B / n) - 1) * length + slack, 6307200000000000)
  end
end
--:amend
if not state and diff < 0 and instant >= A + 0 and mark == B and B <= capacity then -- the last charge
  B, dirty = B - min(-diff, B), true
elseif diff ~= 0 then
  if not rare then lacking = row break end
  asked = nil
  if not state then state = rare.readInterval(limit, v, n, unit + 0, capacity) end
  if not asked and rare.amendInterval(state, limit, n, unit + 0, capacity, due, charged, instant, mark) then dirty = true end
  if asked then fits, raw = -1, '?' .. table.concat(asked, ',') end
end
--:functions
-- The length of intervals with this unit, or of the longest if their lengths vary.
local function intervalLength(unit)
  if unit > 0 then return unit end
  local kind = -unit % 8
  if kind == 1 then return floor(-unit / 8) end
  return (({[2] = 2, [3] = 50, [4] = 216})[kind] or 792) * 3600000000
end

-- refills.untilAtLatest in internal/algorithm/intervalbucket.go, for the tokens in use and as an instant
local function refilledAt(s)
  local length = intervalLength(s.unit)
  return s.start + min(ceilDiv(s.used, s.token), floor(4503599627370496 / length)) * length
end

-- The words of a state, none if it isn't one.
local function intervalWords(v)
  local w = v and words(v) or {}
  local _, token, unit, used, burst, till = unpack(w, 1, 6)
  if not burst or token < 1 or token > maxCost or unit == 0 or unit < 0 and (unit == -1 or -unit % 8 < 1 or -unit % 8 > 5)
    or used < 0 or burst < 0 or burst > maxCost or not validLevels(w, 6) or used == 0 and not till then
    return {}
  end
  return w
end

-- The state in v as of now, and whether the clock was set back since it was written. Nothing if
-- windows are asked for.
--   start, used: A and B as of now
--   token, unit, burst: its numbers; the limit's, if nothing was written
--   till, since, lows: D, E and the Log
--   sameNumbers: its numbers are the limit's. sameIntervals: its intervals are, whatever they bring
--   other: it is refilled in another way than the limit would
--   from: where the interval begins that the limit charges, as text
function rare.readInterval(limit, v, n, unit, capacity)
  local window, w = rare.window(limit), intervalWords(v)
  if window.unknown then return ask(now) end
  local s = {start = w[1], token = w[2] or n, unit = w[3] or unit, used = w[4] or 0, burst = w[5] or capacity, till = w[6], since = w[7], lows = {unpack(w, 8)}}
  local moved = false
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
    moved = start < s.start
    s.start, s.used = start, k < ceilDiv(s.used, s.token) and s.used - k * s.token or 0
  end
  if s.used == 0 then s.start = window.startAt(now) end
  if s.till and s.till <= now then
    s.till, s.lows = nil, {}
  elseif s.till and s.sameIntervals and max(s.since, s.lows[#s.lows - 1] or s.since) > now then
    s.till, s.since, s.lows, moved = max(refilledAt(s), now + 1), now, {}, true
  end
  if s.used == 0 and not s.till then
    s.token, s.unit, s.burst, s.sameNumbers, s.sameIntervals = n, unit, capacity, true, true
  end
  s.other = s.used > 0 and not (s.sameIntervals and s.token == n)
  s.from = text(s.other and window.startAt(now) or s.start)
  return s, moved
end

-- Makes g charges, or one that waits, after which waits are in use.
function rare.chargeInterval(s, n, unit, capacity, cost, waits, g)
  for _ = 1, g do
    local used = waits or s.used + cost
    if not s.sameNumbers then
      keepLevels(s, refilledAt(s))
      s.since, s.lows, s.sameNumbers, s.sameIntervals = now, {}, true, true
      s.start, s.token, s.unit, s.burst = tonumber(s.from), n, unit, capacity
    elseif #s.lows > 0 then
      chargeLevels(s.lows, now, min(s.used, capacity - cost), used)
    end
    s.used = used
  end
end

-- The text of a state, false if it says nothing, and the instant at which it says nothing more.
function rare.intervalText(s, limit)
  if s.used == 0 and not s.till then return false end
  local out, fade = format('%.0f:%.0f:%.0f:%.0f:%.0f', s.start, s.token, s.unit, s.used, s.burst), refilledAt(s)
  if s.sameIntervals and s.used > 0 then
    local window = rare.window(limit)
    fade = window.latestEnd(window.endOf(s.start), ceilDiv(s.used, s.token) - 1)
  end
  if s.till then return out .. levelsText(s), max(fade, s.till) end
  return out, fade
end

-- useLeft in internal/algorithm/intervalbucket.go, nil if windows are asked for
local function useLeft(s, window, instant, mark, at)
  local k = 0
  if s.unit < 0 then
    k = window.boundariesIn(instant, at)
  elseif at > instant then
    k = floor((at - s.start) / s.unit) - floor((instant - s.start) / s.unit)
  end
  return k and (k < ceilDiv(mark, s.token) and mark - k * s.token or 0)
end

-- Settles a charge, and reports whether that changes the state.
function rare.amendInterval(s, limit, n, unit, capacity, due, charged, instant, mark)
  local diff, window = due - charged, rare.window(limit)
  if diff > 0 then
    if s.used == 0 and not s.sameNumbers then
      s.since, s.lows, s.sameNumbers, s.sameIntervals = now, {}, true, true
      s.token, s.unit, s.burst = n, unit, capacity
    end
    local debt = max(0, min(diff, s.burst + maxCost - s.used))
    if debt == 0 then return false end
    if #s.lows > 0 then chargeLevels(s.lows, now, s.used, s.used + debt) end
    s.used = s.used + debt
    return true
  end
  if s.used == 0 or not s.sameNumbers or s.till and instant < s.since then return false end
  local left = useLeft(s, window, instant, mark, s.start)
  local last, refundable = left == s.used, left
  if s.used > capacity and not (last and due == 0) then return false end
  if #s.lows > 0 then
    local low, from = levelsSince(s.lows, instant)
    refundable = useLeft(s, window, instant, mark, from)
    refundable = refundable and min(low, refundable)
  end
  if asked then return false end
  local back = min(-diff, refundable, s.used)
  if back <= 0 then return false end
  if not last or #s.lows > 0 then
    if #s.lows == 0 then s.lows = {now - 1, s.used} end
    lowerLevels(s.lows, s.used)
    refundLevels(s.lows, instant, back)
    keepLevels(s, max(refilledAt(s), now + 1))
  end
  s.used = s.used - back
  return true
end
