-- Decides: looks at every limit of a decision and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of
-- shapes. A shape is what many decisions have in common:
--   kind, and the number of charges in each of its decisions
--   per charge, kinds g and G: record, cost, maximum wait in us, 1 for a dry run
--   per charge, kinds f and F: record, cost, capacity, tag, lifetime in ms,
--     increment, and the increment as it is added to a value: token buckets of
--     which every state is one integer, with no wait, queue, debt or dry run
--   the number of decisions, whose keys are the next ones in turn, unless
--   kinds F and G: the numbers of the decisions' keys, comma separated; empty:
--     the next ones, which nothing else in the call names
--   kinds F and G: how many times each is asked, comma separated; empty: once
--   kinds F and G: ids of leases, 16 bytes each, for charges on Concurrency
-- Then the limits' records: a letter and what its algorithm reads, comma
-- separated. A charge names its record by the place in ARGV.
--
-- Answers: now, then per decision how often it was granted (-1: a bound of the
-- calendar is missing, nothing was done), and per charge the state found.
local vals = nkeys > 0 and call('MGET', unpack(KEYS, 1, nkeys)) or {}
local out, o = {now}, 1
local states -- of the keys that needed more than the shortest way

local decide, finish
local function general()
  --GENERAL--

  -- the states at keys, and whether the charges pass; x and y are what they
  -- would leave
  local function look(charges, keys, k, found, x, y, oks)
    local granted = true
    stale = false
    for j = 1, k do
      local c, i = charges[j], keys[j]
      local l = limit(c.record)
      local m = l.module
      local s = fetch(l, i)
      found[j] = s
      oks[j], x[j], y[j] = m.look(l, s, c.cost, c.maxwait)
      out[o + j] = m.open and m.raw(s) or s.raw
      if not oks[j] and not c.dry then granted = false end
    end
    return granted
  end

  local found, x, y, oks = {}, {}, {}, {}
  decide = function(charges, keys, k, times, leases, lease)
    local from, granted = o + 1, 0
    o = from
    local first
    for n = 1, times do
      local pass = look(charges, keys, k, found, x, y, oks)
      if n == 1 then
        first = {}
        for j = 1, k do first[j] = out[o + j] end
      end
      if stale then
        if n == 1 then granted = -1 end
        for j = 1, k do
          if states[keys[j]] and not states[keys[j]].dirty then states[keys[j]] = nil end
        end
        break
      end
      if not pass then break end
      granted = granted + 1
      for j = 1, k do
        local c = charges[j]
        local l = limits[c.record]
        local id
        if l.leases then
          lease = lease + 16
          id = sub(leases, lease - 15, lease)
        end
        if oks[j] and c.cost > 0 then
          l.module.commit(l, found[j], c.cost, x[j], y[j], id)
        end
      end
    end
    out[from] = granted
    for j = 1, k do out[from + j] = first[j] end
    o = from + k
  end

  finish = write
end

local function list(v)
  if v == '' then return nil end
  local t, n = {}, 0
  for x in string.gmatch(v, '%d+') do
    n = n + 1
    t[n] = x + 0
  end
  return t
end

local a, key = 3, 0
for _ = 1, ARGV[2] + 0 do
  local kind, k = ARGV[a], ARGV[a + 1] + 0
  local fast = kind == 'f' or kind == 'F'
  local per = fast and 7 or 4
  local c = a + 2
  a = c + per * k
  local count, index, times, leases = ARGV[a] + 0, nil, nil, ''
  a = a + 1
  if kind == 'F' or kind == 'G' then
    index, times, leases = list(ARGV[a]), list(ARGV[a + 1]), ARGV[a + 2]
    a = a + 3
  end

  local charges, held
  local function slow(n, keys)
    if not decide then general() end
    if not charges then
      charges, held = {}, 0
      for j = 1, k do
        local p = c + per * (j - 1)
        local maxwait, dry = 0, false
        if not fast then maxwait, dry = ARGV[p + 2] + 0, ARGV[p + 3] == '1' end
        if sub(ARGV[ARGV[p] + 0], 1, 1) == 'c' then held = held + 1 end
        charges[j] = {record = ARGV[p] + 0, cost = ARGV[p + 1] + 0, maxwait = maxwait, dry = dry}
      end
    end
    local t = times and times[n] or 1
    decide(charges, keys, k, t, leases, 0)
    leases = sub(leases, 1 + 16 * t * held)
  end

  if fast and k == 1 and now >= 0 then
    local capacity, tag, px = ARGV[c + 2] + 0, ARGV[c + 3], ARGV[c + 4]
    local inc, add = ARGV[c + 5] + 0, ARGV[c + 6]
    local top = now + capacity
    for n = 1, count do
      local i = index and index[n] or key + n
      local t, v, tat = times and times[n] or 1, vals[i], 0
      local plain = true
      if states and states[i] then
        plain = false
      elseif v then
        tat = sub(v, -4) == tag and tonumber(sub(v, 1, -5)) or top + 1
        plain = tat <= top
      end
      if not plain then
        slow(n, {i})
      else
        local base = tat > now and tat or now
        local room = floor((top - base) / inc)
        local g = t < room and t or room
        out[o + 1], out[o + 2] = g, tat
        o = o + 2
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
    end
  elseif fast and now >= 0 then
    local base, tats = {}, {}
    for n = 1, count do
      local t, plain = times and times[n] or 1, true
      local g, i = t, key + (n - 1) * k
      for j = 1, k do
        local p, x = c + 7 * j - 7, index and index[(n - 1) * k + j] or i + j
        local v, tat, top = vals[x], 0, now + ARGV[p + 2]
        if states and states[x] then
          plain = false
          break
        elseif v then
          tat = sub(v, -4) == ARGV[p + 3] and tonumber(sub(v, 1, -5)) or top + 1
          if tat > top then
            plain = false
            break
          end
        end
        tats[j] = tat
        base[j] = tat > now and tat or now
        local room = floor((top - base[j]) / ARGV[p + 5])
        if room < g then g = room end
      end
      if not plain then
        local keys = {}
        for j = 1, k do keys[j] = index and index[(n - 1) * k + j] or i + j end
        slow(n, keys)
      else
        o = o + 1
        out[o] = g
        for j = 1, k do
          out[o + j] = tats[j]
          if g > 0 then
            local p, x = c + 7 * j - 7, index and index[(n - 1) * k + j] or i + j
            local new = base[j] + g * ARGV[p + 5]
            if vals[x] and base[j] == tats[j] then
              call('INCRBY', KEYS[x], g == 1 and ARGV[p + 6] or format('%.0f0000', g * ARGV[p + 5]))
              if new % ARGV[p + 2] < g * ARGV[p + 5] then call('PEXPIRE', KEYS[x], ARGV[p + 4]) end
            else
              call('SET', KEYS[x], format('%.0f', new) .. ARGV[p + 3], 'PX', ARGV[p + 4])
            end
            if index then vals[x] = format('%.0f', new) .. ARGV[p + 3] end
          end
        end
        o = o + k
      end
    end
  else
    for n = 1, count do
      local keys = {}
      for j = 1, k do keys[j] = index and index[(n - 1) * k + j] or key + (n - 1) * k + j end
      slow(n, keys)
    end
  end
  if not index then key = key + count * k end
end
if finish then finish() end
return out
