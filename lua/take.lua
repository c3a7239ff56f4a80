-- Decides: looks at every limit of a decision and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of
-- shapes. A shape is what many decisions have in common:
--   kind, and the number of charges in each of its decisions
--   per charge, kinds g and G: limit, cost, maximum wait in us, 1 for a dry run
--   per charge, kinds f and F: limit, capacity, tag, lifetime in ms, increment,
--     and the increment as it is added to a value: token buckets of which every
--     state is one integer, with no wait, queue, debt or dry run
--   the number of decisions, whose keys are the next ones in turn, unless
--   kinds F and G: the numbers of the decisions' keys, comma separated; empty:
--     the next ones, which nothing else in the call names
--   kinds F and G: how many times each is asked, comma separated; empty: once
--   kinds F and G: ids of leases, 16 bytes each, for charges on Concurrency
-- A limit is a letter and what its algorithm reads, comma separated.
--
-- Answers: now, then per decision how often it was granted (-1: a bound of the
-- calendar is missing, nothing was done), and per charge the state found.
-- MGET, also of one: it answers nil for what is no string, where GET fails.
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local out, o, key = {now}, 1, 0
local later -- what the shortest way is not for

-- Nothing here makes a function: to make one costs as much as to decide.
local a = 3
for _ = 1, ARGV[2] + 0 do
  local kind, k = ARGV[a], ARGV[a + 1] + 0
  local fast = kind == 'f' or kind == 'F'
  local c, per = a + 2, fast and 6 or 4
  a = c + per * k
  local count = ARGV[a] + 0
  a = a + 1
  local index, times, leases
  if kind == 'F' or kind == 'G' then
    if ARGV[a] ~= '' then
      index = {}
      for x in string.gmatch(ARGV[a], '%d+') do index[#index + 1] = x + 0 end
    end
    if ARGV[a + 1] ~= '' then
      times = {}
      for x in string.gmatch(ARGV[a + 1], '%d+') do times[#times + 1] = x + 0 end
    end
    leases = ARGV[a + 2]
    a = a + 3
  end

  if not fast or now < 0 then
    later = later or {}
    later[#later + 1] = {c, per, k, count, index, times, leases, o, key}
    o = o + count * (k + 1)
  elseif k == 1 then
    local capacity, tag, px, inc, add = ARGV[c + 1] + 0, ARGV[c + 2], ARGV[c + 3], ARGV[c + 4] + 0, ARGV[c + 5]
    local top = now + capacity
    for n = 1, count do
      local i, t = key + n, 1
      if index then i = index[n] end
      if times then t = times[n] end
      local v, tat = vals[i], 0
      if v then tat = sub(v, -4) == tag and tonumber(sub(v, 1, -5)) or top + 1 end
      if tat > top then
        later = later or {}
        later[#later + 1] = {c, per, k, 1, {i}, {t}, '', o}
      else
        local base, g = now, 1
        if tat > now then base = tat end
        if base + t * inc > top then
          g = floor((top - base) / inc)
        else
          g = t
        end
        out[o + 1], out[o + 2] = g, tat
        if g > 0 then
          local new = base + g * inc
          if v and base == tat then
            call('INCRBY', KEYS[i], g == 1 and add or format('%.0f0000', g * inc))
            if new % capacity < g * inc then call('PEXPIRE', KEYS[i], px) end
          else
            call('SET', KEYS[i], format('%.0f', new) .. tag, 'PX', px)
          end
          if index then vals[i] = format('%.0f', new) .. tag end
        end
      end
      o = o + 2
    end
  else
    local F = ARGV -- numbers as text, which is read each time
    if count > 3 then
      F = {}
      for p = c, a do F[p] = tonumber(ARGV[p]) or ARGV[p] end
      for p = c + 2, a, 6 do F[p], F[p + 1], F[p + 3] = ARGV[p], ARGV[p + 1], ARGV[p + 3] end
    end
    local last = c + per * k - 1
    for n = 1, count do
      local at = key + (n - 1) * k
      local g, i = times and times[n] or 1, at
      o = o + 1
      for p = c, last, 6 do
        i = i + 1
        local v, tat, top = vals[index and index[i - key] or i], 0, now + F[p + 1]
        if v then tat = sub(v, -4) == F[p + 2] and tonumber(sub(v, 1, -5)) or top + 1 end
        if tat > top then
          g = -1
          break
        end
        out[o + i - at] = tat
        if tat < now then tat = now end
        if tat + g * F[p + 4] > top then g = floor((top - tat) / F[p + 4]) end
      end
      out[o] = g
      if g < 0 then
        local keys = {}
        for j = 1, k do keys[j] = index and index[at - key + j] or at + j end
        later = later or {}
        later[#later + 1] = {c, per, k, 1, keys, {times and times[n] or 1}, '', o - 1}
      elseif g > 0 then
        i = at
        for p = c, last, 6 do
          i = i + 1
          local x, tat, inc = index and index[i - key] or i, out[o + i - at], g * F[p + 4]
          if tat >= now and vals[x] then
            call('INCRBY', KEYS[x], g == 1 and F[p + 5] or format('%.0f0000', inc))
            tat = tat + inc
            if tat % F[p + 1] < inc then call('PEXPIRE', KEYS[x], F[p + 3]) end
          else
            tat = now + inc
            call('SET', KEYS[x], format('%.0f', tat) .. F[p + 2], 'PX', F[p + 3])
          end
          if index then vals[x] = format('%.0f', tat) .. F[p + 2] end
        end
      end
      o = o + k
    end
  end
  if not index then key = key + count * k end
end
if not later then return out end

local states
--GENERAL--
local oks, x, y, found = {}, {}, {}, {}
for _, shape in ipairs(later) do
  local c, per, k, count, index, times, leases, o, key = unpack(shape, 1, 9)
  local charges, held = {}, 0
  for j = 1, k do
    local p = c + per * (j - 1)
    local l = limit(ARGV[p])
    if per == 4 then
      charges[j] = {limit = l, cost = ARGV[p + 1] + 0, maxwait = ARGV[p + 2] + 0, dry = ARGV[p + 3] == '1'}
    else
      charges[j] = {limit = l, cost = ARGV[p + 4] / l.token, maxwait = 0}
    end
    if l.leases then held = held + 1 end
  end
  local lease = 0 -- how much of the leases has been given
  for n = 1, count do
    local at, granted = (n - 1) * k, 0
    for time = 1, times and times[n] or 1 do
      stale = false
      local pass = true
      for j = 1, k do
        local charge = charges[j]
        local l = charge.limit
        local m = l.module
        local s = fetch(l, index and index[at + j] or key + at + j)
        found[j] = s
        oks[j], x[j], y[j] = m.look(l, s, charge.cost, charge.maxwait)
        if time == 1 then out[o + 1 + j] = m.open and m.raw(s) or s.raw end
        if not oks[j] and not charge.dry then pass = false end
      end
      if stale then
        granted = -1
      end
      if stale or not pass then break end
      granted = granted + 1
      for j = 1, k do
        local charge = charges[j]
        local l, id = charge.limit, nil
        if l.leases then
          lease = lease + 16
          id = sub(leases, lease - 15, lease)
        end
        if oks[j] and charge.cost > 0 then l.module.commit(l, found[j], charge.cost, x[j], y[j], id) end
      end
    end
    if held > 0 then
      lease = lease + 16 * held * ((times and times[n] or 1) - max(granted, 0))
    end
    out[o + 1] = granted
    o = o + 1 + k
  end
end
write()
return out
