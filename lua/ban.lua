-- Twin of store/ban.go.
--
-- State: A:B:period, and the instants of denials, ascending, with colons before
-- them. If several versions have counted some (versions.lua), ,at of the last and
-- ,period,at of the others stand behind the period.
--
-- Arguments: limit (units, period and ban in us), cost, and the numbers of the charges
-- whose denial it counts, comma separated.
--:arguments limit cost counts
--:setup
local peek = true -- who is let through isn't noted
--:load
local A, B, log, vs = 0, 0, '', false
if v then
  -- Most are as they were written: a ban that runs, or denials that all count.
  local a, b, period, rest = string.match(v, '^(%d+):(%d+):(%d+)(.*)$')
  local oldest, newest = string.match(rest or '', '^:(%d+)'), string.match(rest or '', '(%d+)$')
  if a and period == string.match(limit, ',(%d+)') and (a == '0' or a + 0 > now and a - b <= now)
    and (rest == '' or oldest and oldest + period > now and newest + 0 <= now) then
    A, B, log = a + 0, b + 0, rest
  else
    if not rare then lacking = row break end
    A, B, log, vs, dirty = rare.ban(limit, v)
  end
end
--:look
if cost == '0' or A <= now then fits = g end
--:keep fits A B log vs dirty
--:denied
-- As strike in store/ban.go.
if granted == 0 and fits > 0 and cost ~= '0' then
  local strikes, who = false, denials[row]
  for x in string.gmatch(counts, '%d+') do
    if string.find(who, ',' .. x .. ',', 1, true) then strikes = true end
  end
  for x in string.gmatch(who, '%d+') do
    if byte(kind, x + 1) == letter then strikes = false end
  end
  if strikes then
    local units, length = string.match(limit, '(%d+),%d+,(%d+)')
    dirty, log = true, log .. format(':%.0f', now)
    if vs then
      A, B, log = rare.strike(limit, log, vs)
      if A > 0 then vs = false end
    elseif select(2, string.gsub(log, ':', '')) >= units + 0 then
      A, B, log = now + length, length, ''
    end
  end
end
--:save
if A == 0 and log == '' then
  new = false
else
  local period, newest = string.match(limit, ',(%d+)'), string.match(log, '-?%d+$')
  fade = max(A, newest and newest + period or 0)
  if vs then period, fade = rare.strikers(vs) end
  new = format('%.0f:%.0f:%s', A, B, period) .. log
end
--:amend
--:functions
-- The state in v, brought to the present; the versions that keep its denials, if that
-- isn't this one alone; and whether that has changed it.
function rare.ban(limit, v)
  local a, b, who, rest = string.match(v, '^(%d+):(%d+):([%d,-]+)(.*)$')
  local f, most = who and fields(who) or {}, fields(limit)[2]
  if not (f[1] and f[1] > 0) then return 0, 0, '', false, false end -- somebody else's
  local till, es, dirty = min(a + 0, now + b), {}, false
  for x in string.gmatch(rest, '[^:]+') do
    es[#es + 1] = min(x + 0, now)
    dirty = dirty or x + 0 > now
  end
  if till <= now then till, b = 0, 0 end
  dirty = dirty or till ~= a + 0
  if #es == 0 then return till, b + 0, '', false, dirty end
  local vs, last = {}, es[#es]
  for i = 1, #f, 2 do vs[#vs + 1] = rare.keeper(text(f[i]) .. ':0', min(f[i + 1] or last, last)) end
  dirty = rare.forget(vs) or dirty
  if #vs == 0 then return till, b + 0, '', false, true end
  local log = {}
  for i = 1, #es do
    if rare.gone(vs, es[i]) > now then log[#log + 1] = format(':%.0f', es[i]) else dirty = true end
  end
  if rare.alone({vs = vs}, text(most) .. ':0') then vs = false end
  if vs and rare.see(vs, text(most) .. ':0', es[#es]) then dirty = true end
  return till, b + 0, table.concat(log), vs, dirty
end

-- What counting the last of the denials in log makes of the state.
function rare.strike(limit, log, vs)
  local f, n, size = fields(limit), 0, 0
  local own = text(f[2]) .. ':0'
  local l = rare.slide(own)
  for x in string.gmatch(log, '%d+') do
    size = size + 1
    if rare.ends(l, vs, x + 0) > now then n = n + 1 end
  end
  if n >= f[1] then return now + f[3], f[3], '' end
  rare.join(vs, own, now)
  if size > 1000 then log = string.gsub(log, '^:%d+', '') end -- no version counts more
  return 0, 0, log
end

-- What a state says of the versions, and how long they keep it.
function rare.strikers(vs)
  local words, fade = {}, vs[1].till
  for i = 1, #vs do
    fade = max(fade, vs[i].till)
    words[i] = string.match(vs[i].numbers, '%d+') .. (#vs > 1 and format(',%.0f', vs[i].at) or '')
  end
  return table.concat(words, ','), fade
end
