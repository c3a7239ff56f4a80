-- Makes earlier charges cost something else after all, one after the other.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of
-- settlements, and per settlement: letter, limit, as in take, number of its key,
-- cost, and of the receipt cost, instant, mark and lease; and what the letter
-- tells. It says that the charge may go the short way, which take.lua describes
-- (b, w, p, with its five arguments; c is for a lease given back), else it is -.
-- Then the first of the five may be the number of another key, and the second the
-- instant of the charge, or up to a tick before it: nothing is changed if the key
-- says that the limit has been reset since (reset.lua), or if that was so long ago
-- that it may say so no more.
--
-- Answers: now, then per settlement the state found (of open modules that, '|',
-- and the state left), or, as in take, what is asked.
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local out, many, a = {now}, ARGV[2] + 0, 3

-- As in take.lua, nothing here makes a function. What can't go this way sends all
-- behind it the general way.
for n = 1, many do
  local letter, i = ARGV[a], ARGV[a + 2] + 0
  local key, v, diff = KEYS[i], vals[i], ARGV[a + 3] - ARGV[a + 4]
  local raw, new, px = v or '', v, nil -- the state found; left, false if none
  if letter == 'c' then
    local held = redis.pcall('ZCARD', key)
    if type(held) ~= 'number' or held > 0 and call('ZSCORE', key, '#') then break end
    local left = held
    if held > 0 then left = held - call('ZREM', key, ARGV[a + 7]) end
    raw = format('%.0f|%.0f', held, left)
  elseif now < 0 or letter == '-' then
    break
  elseif letter == 'b' then
    local tag, tat, top = ARGV[a + 9], now, now + ARGV[a + 8]
    if v then
      if #v ~= 19 or sub(v, 1, 4) ~= tag then break end
      tat = max(sub(v, 5) + 0, now)
    end
    local was = tat
    if diff > 0 then
      tat = tat + diff * ARGV[a + 11]
    elseif diff < 0 and v then
      local made = max(ARGV[a + 6] - now, 0) -- what time has not given back
      tat = max(tat + diff * ARGV[a + 11], tat - made, now)
    end
    if was > top or tat > top or top >= 1e15 then break end
    new, px = tat > now and tag .. format('%015.0f', tat), ARGV[a + 10]
  else
    local start, fin, count = now, nil, 0
    local live, text = false, nil
    if letter == 'w' then
      text, fin = ARGV[a + 9], ARGV[a + 10] + 0
      if now >= fin then text, fin = ARGV[a + 10], ARGV[a + 11] + 0 end
      start = text + 0
      if now < start or now >= fin then break end
    end
    if v then
      local at, b, unit = string.match(v, '^(%d+):(%d+):(-?%d+)$')
      if not at or unit ~= ARGV[a + 12] or at + 0 > start then break end
      live = at == text or letter == 'p' and now < at + ARGV[a + 9]
      if live then start, count = at + 0, b + 0 else new = false end
    end
    local was = count
    if diff > 0 then
      count = min(count + diff, 1099511627776)
    elseif live and ARGV[a + 5] + 0 == start then
      count = max(count - min(-diff, ARGV[a + 6] + 0), 0)
    end
    if count ~= was then
      new = count > 0 and format('%.0f:%.0f:', start, count) .. ARGV[a + 12]
      px = format('%.0f', floor(((fin or start + ARGV[a + 9]) - now + 999) / 1000) + 1)
    end
  end
  if new ~= v then
    vals[i] = new
    if new then call('SET', key, new, 'PX', px) else call('DEL', key) end
  end
  out[n + 1] = raw
  a = a + 13
end
if #out > many then return out end

local states
--GENERAL--

for n = #out, many do
  local l, i = limit(ARGV[a + 1]), ARGV[a + 2] + 0
  local m = l.module
  asked = nil
  local s = fetch(l, i)
  local raw = m.open and m.raw(l, s) or s.raw
  if not asked then
    local cost, charged = ARGV[a + 3] + 0, ARGV[a + 4] + 0
    if ARGV[a] == '-' and ARGV[a + 8] ~= '' then
      local reset = tonumber(vals[ARGV[a + 8] + 0] or nil)
      if reset and reset >= ARGV[a + 9] + 0 or now > ARGV[a + 9] + 30000000 then cost = charged end
    end
    m.amend(l, s, cost, charged, ARGV[a + 5] + 0, ARGV[a + 6] + 0, ARGV[a + 7])
    if m.open then raw = raw .. '|' .. m.raw(l, s) end
  end
  if asked then
    raw = '?' .. table.concat(asked, ',')
  end
  out[n + 1] = raw
  a = a + 13
end
write()
return out
