-- Twin of store/ban.go.
--
-- State: A:B:period, and the instants of refusals, ascending, with colons before
-- them.
--
-- Arguments: limit (units, period and ban in us), cost, and the numbers of the charges
-- whose refusal it counts, comma separated.
--:arguments limit cost counts
--:setup
local peek = true -- who is let through isn't noted
--:load
local A, B, log = 0, 0, ''
if v then
  -- Most are as they were written: a ban that runs, or refusals that all count.
  local a, b, period, rest = string.match(v, '^(%d+):(%d+):(%d+)(.*)$')
  local oldest, newest = string.match(rest or '', '^:(%d+)'), string.match(rest or '', '(%d+)$')
  if a and period == string.match(limit, ',(%d+)') and (a == '0' or a + 0 > now and a - b <= now)
    and (rest == '' or oldest and oldest + period > now and newest + 0 <= now) then
    A, B, log = a + 0, b + 0, rest
  else
    if not rare then lacking = row break end
    A, B, log, dirty = rare.ban(limit, v)
  end
end
--:look
if cost == '0' or A <= now then fits = g end
--:keep A B log dirty
--:refused
-- As strike in store/ban.go.
if granted == 0 and fits > 0 and cost ~= '0' then
  local strikes, who = false, refusals[row]
  for x in string.gmatch(counts, '%d+') do
    if string.find(who, ',' .. x .. ',', 1, true) then strikes = true end
  end
  for x in string.gmatch(who, '%d+') do
    if byte(kind, x + 1) == letter then strikes = false end
  end
  if strikes then
    local units, length = string.match(limit, '(%d+),%d+,(%d+)')
    dirty, log = true, log .. format(':%.0f', now)
    if select(2, string.gsub(log, ':', '')) >= units + 0 then A, B, log = now + length, length, '' end
  end
end
--:save
if A == 0 and log == '' then
  new = false
else
  local period, newest = string.match(limit, ',(%d+)'), string.match(log, '-?%d+$')
  new, fade = format('%.0f:%.0f:%s', A, B, period) .. log, max(A, newest and newest + period or 0)
end
--:amend
--:functions
-- The state in v, brought to the present, and whether that has changed it.
function rare.ban(limit, v)
  local w, most = words(v), fields(limit)[2]
  if not (w[3] and w[3] > 0) then return 0, 0, '', false end -- somebody else's
  local period, till, log, n = min(most, w[3]), min(w[1], now + w[2]), {}, 0
  local dirty = till ~= w[1] or w[3] ~= most
  for i = 4, #w do
    local at = min(w[i], now)
    if at + period > now then
      n = n + 1
      log[n] = format(':%.0f', at)
    end
    dirty = dirty or at < w[i] or at + period <= now
  end
  if till <= now then
    dirty = dirty or till ~= 0
    return 0, 0, table.concat(log), dirty
  end
  return till, w[2], table.concat(log), dirty
end
