-- Twin of internal/algorithm/slidingcounter.go: the names are those of the step, which explains the rules.
-- g equal charges of a key are made together.
--
-- State: start:count:previous:next. start is where a window begins; count is what was charged
-- in it, previous what was charged in the one before, and next what is reserved in the one after. None of them
-- is above store.MaxCost, and not all are 0. The period is in the key's name.
--
-- Lifetime: until the last window of which something is counted counts no more.
--
-- Arguments:
--   cost
--   how: empty for a charge that denies at once, else how long it may wait, in us: a period at
--     the most
--   units
--   period: in us
--:arguments cost how units period
--:setup
local peek, inc, n, length = cost == '0', cost + 0, units + 0, period + 0
local start = now - now % length
--:load
-- ahead: in which window, counted from this one, the charge is made
local count, previous, next, ahead = 0, 0, 0, 0
if v then
  local a, b, c, d = match(v, '^(-?%d+):(%d+):(%d+):(%d+)$')
  if a and #a < 16 and #b < 13 and #c < 13 and #d < 13 then
    a, count, previous, next = a + 0, b + 0, c + 0, d + 0
  else
    if not rare then lacking = row break end
    a, count, previous, next = rare.readCounter(v)
    a = a or start
  end
  -- rebaseCounter
  if a < start then
    for _ = 1, min(floor((start - a) / length), 3) do previous, count, next = count, next, 0 end
  elseif a > start then
    count, previous, dirty = min(count + previous, 1099511627776), 0, true -- store.MaxCost
  end
end
-- How much of previous still counts, as in estimate.
local counting = 0
if previous > 0 then
  if previous < 4503599627370496 / length - 1 then
    counting = floor((2 * previous * (start + length - now) + length) / (2 * length))
  else
    if not rare then lacking = row break end
    counting = rare.nearest(previous, start + length - now, length)
  end
end
--:look
if peek then
  fits = g
elseif next == 0 and count + counting + inc <= n then
  fits = min(g, floor((n - count - counting) / inc))
elseif how ~= '' and inc <= n then
  if not rare then lacking = row break end
  fits, ahead = rare.firstFit(start, count, previous, next, n - inc, length, now + how)
end
--:carry count previous next dirty ahead
--:charge
if ahead == 1 then next = next + g * inc else count = count + g * inc end
--:save
if count + previous + next == 0 then
  new = false
else
  new = format('%.0f:%.0f:%.0f:%.0f', start, count, previous, next)
  fade = start + (next > 0 and 3 or count > 0 and 2 or 1) * length
end
--:amend
local mine, moved = instant - start, 0
local counted = mine == 0 and count or mine == -length and previous or mine == length and next -- countAt
if diff > 0 then
  if not counted or charged == 0 then mine, counted = 0, count end
  moved = min(diff, max(0, 1099511627776 - counted)) -- store.MaxCost
elseif counted then
  moved = 0 - min(0 - diff, mark, counted)
end
if mine == 0 then count = count + moved elseif mine < 0 then previous = previous + moved else next = next + moved end
dirty = dirty or moved ~= 0
--:functions
function rare.nearest(n, part, whole)
  local q, r = mulDivRest(2 * n, part, 2 * whole)
  return r >= whole and q + 1 or q
end

-- The words of a state, or nil and nothing in it.
function rare.readCounter(v)
  local w = words(v)
  if #w ~= 4 then return nil, 0, 0, 0 end
  for i = 2, 4 do
    if w[i] < 0 or w[i] > maxCost then return nil, 0, 0, 0 end
  end
  if w[2] + w[3] + w[4] == 0 then return nil, 0, 0, 0 end
  return w[1], w[2], w[3], w[4]
end

-- firstFit: whether a charge that leaves room fits by an instant,
-- and in which window.
function rare.firstFit(start, count, previous, next, room, length, by)
  local counts = {previous, count, next}
  for window = 0, 1 do
    local before, left = counts[window + 1], room - counts[window + 2]
    if left >= 0 and (window > 0 or next == 0) then
      local gone = 0
      if before > left then
        local covered, rest = mulDivRest(2 * left + 1, length, 2 * before)
        gone = length - (rest > 0 and covered or covered - 1)
      end
      if gone < length then
        if max(now, start + window * length + gone) <= by then return 1, window end
        return 0, 0
      end
    end
  end
  return 0, 0
end
