-- Decides: looks at every limit of a decision and charges all or none.
--
-- KEYS: the keys charged, each once. ARGV, after the clock: the number of
-- shapes. A shape is what many decisions have in common:
--   kind: g or G, and a letter for each charge of a decision; or f or F, if all of
--     them go the short way (below), with the letters that say which
--   per charge, kinds g and G: limit, cost, maximum wait in us, 1 for a dry run;
--     a ban has instead of the wait the numbers of the charges whose refusal it
--     counts, comma separated
--   per charge, kinds f and F: limit, cost, and five that the letter tells
--   the number of decisions, whose keys are the next ones in turn, unless
--   kinds F and G: the numbers of the decisions' keys, comma separated; empty:
--     the next ones, which nothing else in the call names
--   kinds F and G: how many times each is asked, comma separated; empty: once
--   kinds F and G: ids of leases, 16 bytes each, for charges on Concurrency
-- A limit is a letter and what its algorithm reads, comma separated.
--
-- The short way is for charges that neither wait nor are dry runs, on
--   b: a token bucket of which every state is one integer (tokenbucket.lua), with
--     no queue or debt: capacity, tag, lifetime in ms, increment, grid
--   w: a fixed window of the calendar: units, where the present window begins, the
--     next one, and the one after that, unit
--   p: a fixed window that the first request opens: units, period in us, nothing,
--     nothing, unit
--   c: concurrency, of which one slot is taken: units, length of a lease in us,
--     lifetime in ms
--   n: a ban of a key that has not been refused lately: the numbers of charges
--
-- Answers: now, then per shape how often its decisions were granted, and per
-- charge the state found. If the first is ? and instants, comma separated, windows of
-- the calendar are missing around those, and nothing was done.
-- MGET, also of one: it answers nil for what is no string, where GET fails.
local vals = call('MGET', unpack(KEYS, 1, nkeys))
local out, o, key = {now}, 1, 0
-- A key that somebody has taken the lifetime from is given one. To ask each would
-- be a third of what a batch takes, so one key of a call is asked, in turn as the
-- clock has it.
local probe = now % max(nkeys, 1) + 1
local later -- what the short way is not for
-- The keys of those, where others name them too: what is asked of a key is decided
-- in the order in which it was asked.
local behind = {}

-- Nothing here makes a function: to make one costs as much as to decide.
local a = 3
for _ = 1, ARGV[2] + 0 do
  local kind = ARGV[a]
  local way, k = byte(kind), #kind - 1
  local per = (way == 102 or way == 70) and 7 or 4 -- f, F
  local c = a + 1
  a = c + per * k
  local count = ARGV[a] + 0
  a = a + 1
  local index, times, leases
  if way < 97 then
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
  o = o + 1
  local sum, total = o, 0

  if per == 4 or now < 0 then
    later = later or {}
    later[#later + 1] = {kind, c, per, count, index, times, leases, sum, o, key}
    for i = 1, index and #index or 0 do behind[index[i]] = true end
    o = o + count * k
  elseif kind == 'fb' and count > 3 then
    -- Digits of one length are in order as texts as they are as numbers, and to
    -- make numbers of so many values would be half of what this takes.
    local inc, tag, px = ARGV[c + 5], ARGV[c + 3], ARGV[c + 4]
    local top, grid = now + ARGV[c + 2], ARGV[c + 6]
    local first, last = tag .. format('%015.0f', now), tag .. format('%015.0f', top - inc)
    -- Whether a charge passes a multiple of the grid, which is a power of ten, is
    -- seen from the first two digits of what is less than that.
    local digit, passes = 21 - #grid, 528 + floor((grid - inc) * 100 / grid)
    local new = tag .. format('%015.0f', now + inc)
    local full = tag .. format('%015.0f', top)
    if top >= 1e15 then last, full = '', '' end -- no room for it
    for i = key + 1, key + count do
      local v = vals[i]
      o = o + 1
      out[o] = v
      if v and v >= first and v <= last and #v == 19 then
        call('INCRBY', KEYS[i], inc)
        local x, y = byte(v, digit, digit + 1)
        if x * 10 + y >= passes or i == probe and call('PTTL', KEYS[i]) < 0 then
          call('PEXPIRE', KEYS[i], px)
        end
        total = total + 1
      elseif (not v or v < first and #v == 19 and sub(v, 1, 4) == tag) and last ~= '' then
        call('SET', KEYS[i], new, 'PX', px)
        total = total + 1
      elseif not v or v < last or v > full or #v ~= 19 then
        later = later or {}
        later[#later + 1] = {kind, c, per, 1, {i}, nil, nil, sum, o - 1}
      end
    end
  else
    local number = ARGV -- as text, which is read each time
    if count > 3 then
      number = {}
      for p = c, a do number[p] = tonumber(ARGV[p]) end
    end
    local letters, bans = {byte(kind, 2, -1)}, string.find(kind, 'n', 2, true)
    -- of each charge: what is used, and where its window begins and ends
    local used, starts, ends = {}, {}, {}
    local lease = 0
    for n = 1, count do
      local before, g, aside, p = (n - 1) * k, times and times[n] or 1, false, c
      for j = 1, k do
        local i, letter, room = index and index[before + j] or key + before + j, letters[j], nil
        local v = vals[i]
        out[o + j] = v
        if behind[i] then
          aside = true
          break
        elseif letter == 98 then -- b
          local top, tat = now + number[p + 2], now
          if v then
            if #v ~= 19 or sub(v, 1, 4) ~= ARGV[p + 3] then
              aside = true
              break
            end
            tat = sub(v, 5) + 0
          end
          if tat > top or top >= 1e15 then
            aside = true
            break
          end
          used[j] = tat
          if tat < now then tat = now end
          if tat + g * number[p + 5] > top then g = floor((top - tat) / number[p + 5]) end
        elseif letter == 110 then -- n
          if v then
            aside = true
            break
          end
        elseif letter == 99 then -- c
          local held = redis.pcall('ZCARD', KEYS[i])
          if type(held) ~= 'number' or held > 0 and (held >= number[p + 2] + 0 or call('ZSCORE', KEYS[i], '#')) then
            aside = true
            break
          end
          out[o + j], used[j] = held, held
        else
          local start, fin, text
          if letter == 119 then -- w
            text, fin = ARGV[p + 3], number[p + 4] + 0
            if now >= fin then text, fin = ARGV[p + 4], number[p + 5] + 0 end
            start = text + 0
            if now < start or now >= fin then
              aside = true
              break
            end
          else
            start, text = now, nil
          end
          local count = 0
          if v then
            local at, b, unit = string.match(v, '^(%d+):(%d+):(-?%d+)$')
            if not at or unit ~= ARGV[p + 6] or at + 0 > start then
              aside = true
              break
            end
            if at == text then count = b + 0 end
            if not text and now < at + number[p + 3] then
              start, text, count = at + 0, at, b + 0
            end
          end
          used[j], starts[j], ends[j] = count, text or format('%.0f', start), fin or start + number[p + 3]
          if count + g * number[p + 1] > number[p + 2] + 0 then g = floor((number[p + 2] - count) / number[p + 1]) end
        end
        p = p + 7
      end
      if bans and g < 1 then aside = true end -- which is to be counted
      if aside then
        local keys, held = {}, 0
        for j = 1, k do
          keys[j] = index and index[before + j] or key + before + j
          behind[keys[j]] = true
          if letters[j] == 99 then held = held + 16 end
        end
        later = later or {}
        later[#later + 1] = {kind, c, per, 1, keys, times and {times[n]}, leases and sub(leases, lease + 1, lease + held), sum, o}
        lease = lease + held
      else
        if g > 0 then total = total + g end
        p = c
        if g < 1 and nkeys == k then
          for j = 1, k do
            local i = index and index[before + j] or key + before + j
            if i == probe and vals[i] and call('PTTL', KEYS[i]) < 0 then
              local px = ARGV[c + 7 * j - 3] -- b
              if letters[j] ~= 98 then px = format('%.0f', floor((ends[j] - now + 999) / 1000) + 1) end
              call('PEXPIRE', KEYS[i], px)
            end
          end
        end
        for j = 1, k do
          local letter, i = letters[j], index and index[before + j] or key + before + j
          if letter == 99 then lease = lease + 16 end
          if g > 0 and letter ~= 110 then
            local v = vals[i]
            if letter == 98 then
              local inc, tat = g * number[p + 5], used[j]
              if v and tat >= now then
                tat = tat + inc
                call('INCRBY', KEYS[i], g == 1 and ARGV[p + 5] or format('%.0f', inc))
                if tat % number[p + 6] < inc or i == probe and call('PTTL', KEYS[i]) < 0 then
                  call('PEXPIRE', KEYS[i], ARGV[p + 4])
                end
              else
                tat = now + inc
                call('SET', KEYS[i], ARGV[p + 3] .. format('%015.0f', tat), 'PX', ARGV[p + 4])
              end
              if index then vals[i] = ARGV[p + 3] .. format('%015.0f', tat) end
            elseif letter == 99 then
              call('ZADD', KEYS[i], format('%.0f', now + number[p + 3] + 1767225600000000), sub(leases, lease - 15, lease))
              -- For twice as long as a lease, and when half of it has gone.
              if used[j] == 0 or call('PTTL', KEYS[i]) * 2 < ARGV[p + 4] + 0 then
                call('PEXPIRE', KEYS[i], ARGV[p + 4])
              end
            else
              local new = starts[j] .. ':' .. format('%.0f', used[j] + g * number[p + 1]) .. ':' .. ARGV[p + 6]
              if used[j] > 0 and i ~= probe then
                call('SET', KEYS[i], new, 'KEEPTTL')
              else
                call('SET', KEYS[i], new, 'PX', format('%.0f', floor((ends[j] - now + 999) / 1000) + 1))
              end
              if index then vals[i] = new end
            end
          end
          p = p + 7
        end
      end
      o = o + k
    end
  end
  out[sum] = total
  if not index then key = key + count * k end
end
if not later then return out end

local states
--GENERAL--
local oks, x, y, found = {}, {}, {}, {}
for _, shape in ipairs(later) do
  local kind, c, per, count, index, times, leases, sum, o, key = unpack(shape, 1, 10)
  local charges, held, k, bans = {}, 0, #kind - 1, false
  for j = 1, k do
    local p = c + per * (j - 1)
    local l = limit(ARGV[p])
    charges[j] = {limit = l, cost = ARGV[p + 1] + 0, maxwait = 0}
    if per == 4 then
      charges[j].maxwait, charges[j].dry = tonumber(ARGV[p + 2]), ARGV[p + 3] == '1'
    end
    if l.bans then
      bans = true
      charges[j].counts = ',' .. ARGV[p + 2]
    end
    if l.leases then held = held + 1 end
  end
  local lease = 0 -- how much of the leases has been given
  for n = 1, count do
    local at, granted = (n - 1) * k, 0
    for time = 1, times and times[n] or 1 do
      asked = nil
      local pass = true
      for j = 1, k do
        local charge = charges[j]
        local l = charge.limit
        local m = l.module
        local s = fetch(l, index and index[at + j] or key + at + j)
        found[j] = s
        oks[j], x[j], y[j] = m.look(l, s, charge.cost, charge.maxwait)
        if time == 1 then out[o + j] = m.open and m.raw(l, s) or s.raw end
        if not oks[j] and not charge.dry then pass = false end
      end
      if asked then
        granted, out[o + 1] = 0, '?' .. table.concat(asked, ',')
      end
      if bans and not pass and not asked then
        for j = 1, k do -- as strike in store/ban.go
          if charges[j].counts and not oks[j] and not charges[j].dry then bans = false end
        end
        for j = 1, bans and k or 0 do
          local charge = charges[j]
          if charge.counts and charge.cost > 0 and oks[j] then
            for x in string.gmatch(charge.counts, '%d+') do
              if not oks[x + 0] and not charges[x + 0].dry then
                charge.limit.module.strike(charge.limit, found[j])
                break
              end
            end
          end
        end
        bans = true
      end
      if asked then break end
      if pass then granted = granted + 1 end
      for j = 1, k do
        local charge = charges[j]
        local l, id = charge.limit, nil
        if l.leases and pass then
          lease = lease + 16
          id = sub(leases, lease - 15, lease)
        end
        if pass and oks[j] and charge.cost > 0 then
          l.module.commit(l, found[j], charge.cost, x[j], y[j], id)
        elseif l.module.rest then
          l.module.rest(l, found[j])
        end
      end
      if not pass then break end
    end
    if held > 0 then
      lease = lease + 16 * held * ((times and times[n] or 1) - granted)
    end
    out[sum] = out[sum] + granted
    o = o + k
  end
end
write()
return out
