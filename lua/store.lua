-- How states are written, and how long they live in the server.
--
-- An algorithm's block save sets what replaces v at key i, in one of
--   new: the text; false deletes the key
--   add: a number to add to the integer there
--   put: digits that replace others in the text there; from: how many characters precede them,
--     as text
-- and how long the key lives, in one of
--   px: in milliseconds
--   fade: the instant at which the state equals that of a new key
-- If the value that add is for is no integer, the block fresh sets new, as for a new key.
--
-- keep: new doesn't change the lifetime of the key, which is long enough. renew: add or put
-- does change it.
--
-- Lifetimes are counted from the millisecond that the server's present is in, so they
-- are a millisecond more than rounded up.
--
-- A server that is out of memory denies a script's first write if that takes memory, and
-- no later one. So a charge begins with a write that takes memory, and sets the lifetime
-- after it. A look or a denial tests for memory first (the block room), and writes nothing if there is
-- none: it is answered all the same, and no later charge of the call passes.
--
-- A string has a lifetime from its first SET on. A key of another type is deleted again if the script
-- may not give it a lifetime (the block begin).
--
-- If the call names the key again, vals[i] is 0 until it is read again.
--
-- A key of another type is written by its algorithm, and gets its lifetime by the block expire, which
-- reads name, and px or fade.
--:expire
call('PEXPIRE', name, px or format('%.0f', floor((max(fade - now, 0) + 999) / 1000) + 1))
--:begin
local lives = redis.pcall('PEXPIRE', name, px or format('%.0f', floor((max(fade - now, 0) + 999) / 1000) + 1))
if type(lives) == 'table' then
  local others = wrote
  wrote = true
  call('DEL', name)
  wrote = others
  call('PEXPIRE', name, '1') -- fails again
end
--:replace
call('SET', name, '', 'PX', px)
wrote = true
call('DEL', name)
--:room
if noMemory == nil then
  -- An empty text put into a string changes nothing.
  local tried = not wrote and redis.pcall('SETRANGE', name, '0', '')
  noMemory = type(tried) == 'table' and string.find(tried.err, 'OOM', 1, true) ~= nil
end
--:write
local new, add, put, from, px, fade, keep, renew
--SAVE--
--STORE--
--:rest
if granted >= 0 and (dirty or v and i == probe and call('PTTL', KEYS[i]) == -1) then
  local name = KEYS[i]
  --ROOM--
  write = not noMemory
end
--:store
local name = KEYS[i]
if add and type(redis.pcall('INCRBY', name, add)) == 'table' then
  if match(vals[i], '^%d+$') then call('INCRBY', name, add) end -- fails again
  add = nil
  --FRESH--
end
if add or put then
  if put then call('SETRANGE', name, from, put) end
  wrote = true
  if renew or i == probe and call('PTTL', name) == -1 then
    --EXPIRE--
  end
elseif new then
  if keep then
    call('SET', name, new, 'KEEPTTL')
    wrote = true
    if i == probe and call('PTTL', name) == -1 then
      --EXPIRE--
    end
  else
    call('SET', name, new, 'PX', px or format('%.0f', floor((max(fade - now, 0) + 999) / 1000) + 1))
  end
elseif vals[i] then
  call('DEL', name)
end
wrote = true
if again then vals[i] = 0 end
