-- The limits, read when they are needed, and the states at the keys:
-- each is read once, changed in place and written at the end. The modules that
-- are `open` keep theirs in something else than a string, read and write it by
-- themselves, and say what it is with `raw`.
local limits = {}
states = {}

local function limit(text)
  local l = limits[text]
  if not l then
    local n = #fields + 1
    for x in string.gmatch(text, '[^,]+') do fields[#fields + 1] = x end
    local module = modules[fields[n]]
    if type(module) == 'function' then
      module = module()
      modules[fields[n]] = module
    end
    l = module.read(n + 1)
    l.module = module
    limits[text] = l
  end
  return l
end

-- The state at a key, brought to the present; its raw is what was stored, or
-- would be by now, as the answer tells it.
local function fetch(l, i)
  local m = l.module
  if m.open then return m.rebase(l, KEYS[i]) end -- and writes what that changes
  local s = states[i]
  if s and s.dirty then
    s.raw = s.live and s.limit.module.save(s.limit, s) or ''
  else -- again, if nothing but time has changed it: it is told as it is stored
    s = m.load(vals[i])
    s.raw = vals[i] or ''
    states[i] = s
  end
  local was = s.limit
  s.limit = l
  m.rebase(l, s)
  if asked and was then s.limit = was end -- whose lifetime it has
  return s
end

local function write()
  for i, s in pairs(states) do
    if s.dirty then
      local m = s.limit.module
      local ttl = s.live and m.ttl(s.limit, s) or 0
      if ttl > 0 then
        call('SET', KEYS[i], m.save(s.limit, s), 'PX', format('%.0f', ttl))
      elseif vals[i] then
        call('DEL', KEYS[i])
      end
    elseif s.live and vals[i] and call('PTTL', KEYS[i]) < 0 then
      local ttl = s.limit.module.ttl(s.limit, s)
      if ttl > 0 then call('PEXPIRE', KEYS[i], format('%.0f', ttl)) end
    end
  end
end
