-- Twin of store/slidingcounter.go.
--
-- State: A:B:C:D:unit.
--
-- Arguments: cost; how: empty for a charge that refuses at once, else how long it may
-- wait in us; units; period in us.
--:arguments cost how units period
--:setup
local peek, n, length = cost == '0', units + 0, period + 0
local start = now - (now + 1767225600000000) % length
--:load
-- ahead: in which window from this one a charge is made that waits
-- long, unit: the length of the state's windows, which may be another version's
local A, B, C, D, dirty, ahead, long, unit = start, 0, 0, 0, false, 0, length, period
if v then
  local a, b, c, d, u = string.match(v, '^(-?%d+):(%d+):(%d+):(%d+):([1-9]%d*)$')
  if u and u ~= period and a + 0 == now - (now + 1767225600000000) % u then
    A, B, C, D, long, unit = a + 0, b + 0, c + 0, d + 0, u + 0, u
  elseif u == period then
    A, B, C, D = a + 0, b + 0, c + 0, d + 0
    if A < start then
      local k = (start - A) / length
      if k == 1 then B, C, D = D, B, 0 elseif k == 2 then B, C, D = 0, D, 0 else B, C, D = 0, 0, 0 end
    end
    A, dirty = start, A ~= start
  elseif u then
    local begins = now - (now + 1767225600000000) % u
    if d ~= '0' and begins == a + u and length < u + 0 then -- a turn is in this window
      A, B, C, dirty, long, unit = begins, d + 0, b + 0, true, u + 0, u
    else
      if not rare then lacking = row break end
      B, C, D, dirty = rare.counterBegun(a + 0, b + 0, c + 0, d + 0, u + 0, start)
    end
  end
end
-- How much of C still counts.
local counting = C * (A + long - now)
if C > 0 then
  if counting + long < 9007199254740992 then
    counting = floor((counting + long - 1) / long)
  else
    if not rare then lacking = row break end
    counting = rare.weighed(C, A + long - now, long)
  end
end
--:look
if peek then
  fits = g
elseif D == 0 and B + counting + cost <= n then
  fits = min(g, floor((n - B - counting) / cost))
elseif how ~= '' and cost + 0 <= n then
  if not rare then lacking = row break end
  fits, ahead = rare.counterAhead(A, B, C, D, n - cost, long, now + min(how, long))
end
--:keep A B C D dirty ahead long unit
--:charge
if ahead == 1 then D = D + g * cost else B = B + g * cost end
--:save
if B + C + D == 0 then
  new = false
else
  new = format('%.0f:%.0f:%.0f:%.0f:%s', A, B, C, D, unit)
  fade = A + (D > 0 and 3 or B > 0 and 2 or 1) * long
end
--:amend
local mine = instant - A
local count = mine == 0 and B or mine == -long and C or mine == long and D
local moved
if diff > 0 then
  if not count or charged == 0 then mine, count = 0, B end
  moved, dirty = min(diff, max(0, 1099511627776 - count)), true -- store.MaxCost
elseif count and B + C + D > 0 then
  moved = -min(-diff, mark, count)
  dirty = dirty or moved < 0
end
if moved then
  if mine == 0 then B = B + moved elseif mine < 0 then C = C + moved else D = D + moved end
end
--:functions
function rare.weighed(count, covered, length) return share(count, covered, length, 9007199254740992) end

-- What counts of a state of windows of another length, in the window from start.
function rare.counterBegun(A, B, C, D, was, start)
  local begins = now - (now + 1767225600000000) % was
  for _ = 1, min((begins - A) / was, 3) do B, C, D = D, B, 0 end
  if B + C + D > 0 then B = B + D + rare.weighed(C, begins + was - now, was) end
  return B, 0, 0, true
end

-- Whether a charge that leaves room fits by an instant, and in which window from the one
-- that begins at A.
function rare.counterAhead(A, B, C, D, room, length, by)
  local counts = {C, B, D}
  for window = 0, 1 do
    local prev, left = counts[window + 1], room - counts[window + 2]
    if left >= 0 and (window > 0 or D == 0) then
      local gone = 0
      if prev > left then gone = length - divided(left, length, prev) end
      if gone < length then
        if max(now, A + window * length + gone) <= by then return 1, window end
        return 0, 0
      end
    end
  end
  return 0, 0
end
