-- Twin of internal/algorithm/levels.go and refunds.go: what bounds a refund. s is a state with levels, a list in
-- pairs: an instant, and the lowest use since then. The functions change the list. Without notes, s.keptUntil is nil.
--:functions
local maxLevels, earliest = 8, -4503599627370496

-- levels.with and levels.marked, for levels with new uses: of those with one use, the first stays, and the last of all.
local function joinLevels(levels)
  local n, kept = #levels, 0
  local latest = levels[n - 1]
  for i = 2, n, 2 do
    if kept == 0 or levels[kept] ~= levels[i] then
      levels[kept + 1], levels[kept + 2] = levels[i - 1], levels[i]
      kept = kept + 2
    end
  end
  if levels[kept - 1] < latest then
    levels[kept + 1], levels[kept + 2] = latest, levels[kept]
    kept = kept + 2
  end
  for i = n, kept + 1, -1 do levels[i] = nil end
end

-- levels.lower
local function lowerLevels(levels, used)
  for i = 2, #levels, 2 do levels[i] = min(levels[i], used) end
  joinLevels(levels)
end

-- levels.charge, levels.withoutMark and levels.merge
local function chargeLevels(levels, at, before, after, waits)
  lowerLevels(levels, before)
  local n = #levels
  local latest = levels[n - 1]
  if waits and latest >= at - 1 then return end
  if latest < at and not (n > 2 and levels[n] == levels[n - 2]) then n = n + 2 end
  levels[n - 1], levels[n] = max(latest, at), after
  if n > 2 * maxLevels then
    local drop = n - 2
    for i = n - 4, 4, -2 do
      if levels[i] - levels[i - 2] < levels[drop] - levels[drop - 2] then drop = i end
    end
    for i = drop - 1, n do levels[i] = levels[i + 2] end -- the last two become nil
  end
end

-- levels.refund
local function refundLevels(levels, at, back)
  local first, n = 2, #levels
  while first < n and levels[first + 1] <= at do first = first + 2 end
  local most = max(levels[first] - back, 0)
  for i = 2, n, 2 do levels[i] = i < first and min(levels[i], most) or max(levels[i] - back, 0) end
  joinLevels(levels)
end

-- State.refunds
local function refunds(s, instant) return instant <= now and (not s.keptUntil or instant >= s.refundsFrom) end

-- levels.since and State.lowestUse: the lowest use since a charge, and the instant at which its mark bounds it.
local function lowestUse(s, instant, at)
  local levels = s.levels
  if not refunds(s, instant) then return 0, at end
  if #levels == 0 then return s.used, at end
  local low = levels[2]
  for i = 3, #levels, 2 do
    if levels[i] > instant then break end
    low = levels[i + 1]
  end
  return min(low, s.used), max(levels[1] + 1, instant)
end

-- State.keepNotes
local function keepNotes(s, untilAt)
  if not s.keptUntil then s.keptUntil, s.refundsFrom = untilAt, earliest end
  s.keptUntil = max(s.keptUntil, untilAt)
end

-- State.refuseRefunds
local function refuseRefunds(s, before, keptUntil) s.keptUntil, s.refundsFrom, s.levels = keptUntil, before, {} end

-- State.noteNumbers
local function noteNumbers(s, keptUntil)
  keepNotes(s, keptUntil)
  refuseRefunds(s, now, s.keptUntil)
end

-- State.noteCharge
local function noteCharge(s, before, after, waits)
  if #s.levels > 0 then chargeLevels(s.levels, now, before, after, waits) end
end

-- State.noteRefund
local function noteRefund(s, instant, back, last, keptUntil)
  if last and #s.levels == 0 then return end
  if #s.levels == 0 then s.levels = {now - 1, s.used} end
  lowerLevels(s.levels, s.used)
  refundLevels(s.levels, instant, back)
  keepNotes(s, keptUntil)
end

-- State.lastNoted
local function lastNoted(s) return max(s.refundsFrom, s.levels[#s.levels - 1] or s.refundsFrom) end

-- The part of a state's text with the notes.
local function notesText(s)
  local out = {format(':%.0f:%.0f', s.keptUntil, s.refundsFrom)}
  for i = 1, #s.levels do out[i + 1] = format(':%.0f', s.levels[i]) end
  return table.concat(out)
end

-- State.validNotes, for the words of a state from the i-th on: whether they are nothing, or keptUntil, refundsFrom
-- and levels that don't descend.
local function validNotes(w, i)
  local n = #w
  if n < i then return true end
  if (n - i) % 2 == 0 or n > i + 1 + 2 * maxLevels or w[i] == 0 then return false end
  for j = i + 2, n, 2 do
    if w[j + 1] < 0 or w[j + 3] and (w[j + 2] <= w[j] or w[j + 3] < w[j + 1]) then return false end
  end
  return true
end
