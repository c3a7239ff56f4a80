-- Twin of internal/algorithm/ban.go, which explains the rules: the names are those of the step.
--
-- State: bannedUntil:banLength:period, and the instants of the denials that count, in order, with colons before
-- them. The key is banned if banLength isn't 0. period is
-- that of the limit that has counted the denials.
--
-- Lifetime: until the ban is over and the last denial counts no more.
--
-- Arguments:
--   limit: units, period and ban in us
--   cost
--   counts: the numbers of the charges whose denial it counts, comma separated; empty unless the charge is Final.
--     In a settlement: for how many us it bans by hand, or empty
--:arguments limit cost counts
--:setup
local peek = true -- who is let through isn't noted
--:load
-- log: the instants, each with a colon before it. period: in which they count, as text
local bannedUntil, banLength, log, period = 0, 0, '', match(limit, ',(%d+)')
if v then
  -- Most are as they were written: a ban that runs, or none, and denials that all count.
  local a, b, p, rest = match(v, '^(%d+):(%d+):(%d+)([:%d]*)$')
  local oldest, newest = match(rest or '', '^:(%d+)'), match(rest or '', ':(%d+)$')
  if p == period and #a < 16 and #b < 16 and (a == '0' and b == '0' or b ~= '0' and a + 0 > now and a - b <= now)
    and (rest == '' or oldest and newest and oldest + period > now and newest + 0 <= now) then
    bannedUntil, banLength, log = a + 0, b + 0, rest
  else
    if not rare then lacking = row break end
    bannedUntil, banLength, log, period, dirty = rare.readBan(v, period)
  end
end
--:look
if cost == '0' or banLength == 0 then fits = g end
--:carry fits bannedUntil banLength log period dirty
--:denied
-- countDenials in store/decide.go
if granted == 0 and fits > 0 and cost ~= '0' then
  local counted, denying = false, denials[row]
  for x in string.gmatch(counts, '%d+') do
    if string.find(denying, ',' .. x .. ',', 1, true) then counted = true end
  end
  for x in string.gmatch(denying, '%d+') do
    if byte(kind, x + 1) == letter then counted = false end
  end
  if counted then
    --COUNT--
  end
end
--:count
-- countDenial
local units, mine, length = match(limit, '(%d+),(%d+),(%d+)')
if period ~= mine then log, period = '', mine end
dirty, log = true, log .. format(':%.0f', now)
if select(2, string.gsub(log, ':', '')) >= units + 0 then bannedUntil, banLength, log = now + length, length + 0, '' end
--:save
if banLength == 0 and log == '' then
  new = false
else
  new = format('%.0f:%.0f:%s', bannedUntil, banLength, period) .. log
  local newest = match(log, '-?%d+$')
  fade = max(banLength > 0 and bannedUntil or now, newest and newest + period or now)
end
--:amend
if counts ~= '' then -- BanFor
  local byHand = counts + 0
  if banLength == 0 or bannedUntil < now + byHand then
    if log == '' then period = match(limit, ',(%d+)') end
    bannedUntil, banLength, dirty = now + byHand, byHand, true
  end
elseif diff > 0 and banLength == 0 then
  --COUNT--
end
--:functions
-- The state in v, brought to the present: nothing, of the limit's own period, if no limit has
-- written it; and whether the clock was set back since.
function rare.readBan(v, mine)
  local w = words(v)
  local bannedUntil, banLength, period = w[1], w[2], w[3]
  if #w < 3 or banLength < 0 or period < 1 or banLength == 0 and #w == 3 then return 0, 0, '', mine, false end
  for i = 5, #w do
    if w[i] < w[i - 1] then return 0, 0, '', mine, false end
  end
  local log, setBack = {}, banLength > 0 and bannedUntil > now + banLength
  for i = 4, #w do
    setBack = setBack or w[i] > now
    local at = min(w[i], now)
    if at + period > now then log[#log + 1] = format(':%.0f', at) end
  end
  bannedUntil = min(bannedUntil, now + banLength)
  if banLength == 0 or bannedUntil <= now then bannedUntil, banLength = 0, 0 end
  return bannedUntil, banLength, table.concat(log), text(period), setBack
end
