-- Twin of internal/algorithm/slidingcounter.go: the names are those of the step, which explains the rules.
-- g equal charges of a key are made together.
--
-- State: A:B:C:D. A is where a window begins, aligned to 1970; B is what was charged in it, C
-- what was charged in the one before, and D what is reserved in the one after. None of them is
-- above store.MaxCost, and not all are 0. The period is in the key's name.
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
local start = now - (now + 1767225600000000) % length
--:load
-- ahead: in which window, counted from this one, the charge is made
local B, C, D, ahead = 0, 0, 0, 0
if v then
  local a, b, c, d = match(v, '^(-?%d+):(%d+):(%d+):(%d+)$')
  if a and #a < 16 and #b < 13 and #c < 13 and #d < 13 then
    a, B, C, D = a + 0, b + 0, c + 0, d + 0
  else
    if not rare then lacking = row break end
    a, B, C, D = rare.readCounter(v)
    a = a or start
  end
  if a < start then
    local k = floor((start - a) / length)
    if k == 1 then C, B, D = B, D, 0 elseif k == 2 then B, C, D = 0, D, 0 elseif k > 2 then B, C, D = 0, 0, 0 end
  elseif a > start then
    dirty = true -- the clock was set back
  end
end
-- How much of C still counts.
local counting = 0
if C > 0 then
  if C < 9007199254740992 / length - 1 then
    counting = floor((C * (start + length - now) + length - 1) / length)
  else
    if not rare then lacking = row break end
    counting = rare.mulDiv(C, start + length - now, length)
  end
end
--:look
if peek then
  fits = g
elseif D == 0 and B + counting + inc <= n then
  fits = min(g, floor((n - B - counting) / inc))
elseif how ~= '' and inc <= n then
  if not rare then lacking = row break end
  fits, ahead = rare.firstFit(start, B, C, D, n - inc, length, now + how)
end
--:carry B C D dirty ahead
--:charge
if ahead == 1 then D = D + g * inc else B = B + g * inc end
--:save
if B + C + D == 0 then
  new = false
else
  new = format('%.0f:%.0f:%.0f:%.0f', start, B, C, D)
  fade = start + (D > 0 and 3 or B > 0 and 2 or 1) * length
end
--:amend
local mine, moved = instant - start, 0
local count = mine == 0 and B or mine == -length and C or mine == length and D
if diff > 0 then
  if not count or charged == 0 then mine, count = 0, B end
  moved = min(diff, max(0, 1099511627776 - count)) -- store.MaxCost
elseif count then
  moved = 0 - min(0 - diff, mark, count)
end
if mine == 0 then B = B + moved elseif mine < 0 then C = C + moved else D = D + moved end
dirty = dirty or moved ~= 0
--:functions
rare.mulDiv = mulDiv

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

-- firstFit in internal/algorithm/slidingcounter.go: whether a charge that leaves room fits by an instant,
-- and in which window.
function rare.firstFit(start, B, C, D, room, length, by)
  local counts = {C, B, D}
  for window = 0, 1 do
    local prev, left = counts[window + 1], room - counts[window + 2]
    if left >= 0 and (window > 0 or D == 0) then
      local gone = 0
      if prev > left then gone = length - mulDivRest(left, length, prev) end
      if gone < length then
        if max(now, start + window * length + gone) <= by then return 1, window end
        return 0, 0
      end
    end
  end
  return 0, 0
end
