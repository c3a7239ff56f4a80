-- Twin of store/tokenbucket.go in units: a bucket whose scale is wide. Needs wide.lua and
-- bucketstate.lua.
--
-- The state is ticks:token:unit:beyond, and if one of them isn't 0 :B:C:D:E and what was
-- added to D and E to make them whole ticks.
--
-- Arguments: limit as of a bucket that one number holds (tokenbucket.lua), in tokens where
-- that is in units, but longest, which is in ticks; and how long the charge may wait in
-- us, and its cost.
--:arguments limit how
--:setup
local wait, cost = string.match(how, '(.+),(.+)')
local peek = cost == '0'
--:load
local s
if not rare then lacking = row break end
s, dirty = rare.state(limit, v)
--:look
fits = rare.fit(s, wait + 0, cost + 0, g)
--:keep s dirty
--:charge
rare.pour(s, g * cost)
--:save
new, fade = rare.text(s)
--:amend
dirty = rare.amend(s, diff, due, charged, instant, mark) or dirty
--:functions
-- How many of g equal charges fit.
function rare.fit(s, wait, cost, g)
  if cost == 0 then return g end
  if cost > s.largest then return 0 end
  local allowed = s.queue
  if wait > 0 then
    local within = pair(floor(wait / s.tick), 0, s.p)
    if allowed == s.zero or within < allowed then allowed = within end
  end
  local last = s.at + s.full + allowed -- the latest tat that one more fits upon
  if not s.debt then last = last - product(cost, s.token, s.p) end
  if last < s.A then return 0 end
  local n = tokensIn(last - s.A, s.token)
  return min(g, floor(n / cost) + 1)
end

function rare.pour(s, tokens)
  s.A, s.live = s.A + product(tokens, s.token, s.p), true
end

-- The text of a state of a wide scale, and the instant at which it is worth nothing.
function rare.text(s)
  local B, C, D, E = upTicks(greater(s.A - s.at - s.full, s.zero)), 0, upTicks(s.D), upTicks(s.E)
  if B > 0 or D > 0 then C = s.burst end
  if E <= now then E = 0 end
  if not s.live or s.A + s.D <= s.at then return false end
  local new = format('%.0f:%.0f:%.0f:%.0f', s.A.ticks, s.token, s.unit, s.A.beyond)
  if B > 0 or D > 0 or E > 0 then
    local d, e = pair(D, 0, s.p) - s.D, E > 0 and pair(E, 0, s.p) - s.E or s.zero
    new = new .. format(':%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', B, C, D, E, d.beyond, e.beyond)
  end
  return new, upTicks(s.A + s.D)
end

function rare.amend(s, diff, due, charged, instant, mark)
  local at, tat, none, capacity = s.at, s.A, s.zero, s.full
  local m = lesser(told(mark, s.p), tat)
  if diff > 0 then
    local own = s.E ~= none and m == s.E and m == tat
    tat = tat + product(owed(diff, tat, at + capacity + s.longest, s.token), s.token, s.p)
    if own then s.E = tat end
  elseif diff < 0 then
    local behind, waiting, stands = tat - m, at + capacity < tat, greater(m - at, none)
    if s.debt and behind > none then behind = pair(9007199254740992, 0, s.p) end
    local back = refunded(worth(-diff, s.token, stands), stands, behind, capacity, waiting)
    if s.queue > none and not s.debt and charged > s.burst then
      local turn = pair(instant, 0, s.p)
      if behind > none and at < turn then
        back = none
      elseif due > 0 then
        back = greater(lesser(back, m - turn - worth(due, s.token, capacity)), none)
      end
    end
    if s.E ~= none and m == s.E and behind == none then
      s.E = m - back
    elseif s.E ~= none then
      back = greater(lesser(back, tat - s.E), none)
    end
    local bottom = m - back
    if due == 0 then bottom = at end
    if behind > none and back > none then bottom = greater(bottom, tat - capacity + behind) end
    if waiting and at < bottom and (s.E == none or s.E < bottom) then s.E = bottom end
    tat = tat - back
  end
  if not s.live and tat <= at then return false end
  s.A, s.live = tat, true
  return true
end
