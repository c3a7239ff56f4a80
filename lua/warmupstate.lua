-- Twin of store/warmup.go in units, for scales of any width: what a state's words mean,
-- and what becomes of one that was written under other numbers.
--:functions
-- The state in v, in the numbers of a limit with this scale and warm-up, and whether that
-- has changed it.
local function coldness(v, p, tick, unit, warm, wide)
  local s = {p = p, tick = tick, at = present(p, tick), live = false}
  s.full = wide and pair(warm, 0, p) or paired(warm, p)
  s.A, s.B, s.C = s.at, s.full, zero(p)
  local w = v and words(v) or {}
  local q, from, apart = scale(w[3] or 0)
  if not w[apart and 6 or 4] or w[2] <= 0 or w[3] < 8 then return s, false end -- none, or somebody else's
  local A, cold, ahead
  if apart then
    A, cold, ahead = pair(w[1], w[4], q), pair(w[5], w[6], q), pair(w[7] or 0, 0, q)
  else
    A, cold, ahead = paired(w[1], q), paired(w[4], q), paired(w[5] or 0, q)
  end
  local last = present(q, from) + ahead
  local dirty = last < A
  local next = lesser(A, last)
  if w[2] ~= warm or w[3] ~= unit then
    local wait, us = next - presently(q, from), w[2]
    if not apart then us = us / q * from end
    if wait > zero(q) then
      next = presently(p, tick) + converted(wait, from, p, tick)
    else
      next, cold = s.at, cold - wait
    end
    local all = micros(s.full, tick)
    cold, dirty = ofMicros(share(min(micros(cold, from), us), all, us, all), p, tick), true
  end
  if next < s.at then next, cold, dirty = s.at, cold + s.at - next, true end
  if next <= s.at and s.full <= cold then return s, true end
  s.A, s.B, s.C, s.live = next, cold, ahead, true
  if dirty then s.C = greater(next - s.at, zero(p)) end
  return s, dirty
end

-- The same of a limit that isn't wide, in its units.
function rare.warm(v, perTick, tick, unit, warm)
  local s, dirty = coldness(v, perTick, tick, unit, warm, false)
  local function units(a) return a.ticks * perTick + a.beyond end
  return units(s.A), units(s.B), units(s.C), s.live, dirty
end
