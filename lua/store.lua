-- How states get into the server, and how long they live there: all of it.
--
-- An algorithm's block save says what is to stand at key i, where v stood, in one of
--   new: the text, or false: nothing
--   add: a number to add to the integer there
--   put: digits to put in the place of others of the text there, from: behind how many
--     characters, as text
-- and for how long, in one of
--   px: in milliseconds
--   fade: the instant at which what it says is worth nothing more
-- If what add is for turns out to be no integer, the block fresh sets new, as for a key never
-- seen.
--
-- keep says that the key lives long enough as it is, because whoever wrote it gave it
-- as long as this charge would. renew says that what is added to or put into does not.
--
-- Lifetimes are counted from the millisecond that the server's present is in, so they
-- are a millisecond more than rounded up.
--
-- A server that is out of memory denies a script's first write if that takes memory, and
-- none that follow. So what is charged begins with a write that does: a lifetime comes
-- after what lives by it. And what is no charge asks for room first, and isn't written if
-- there is none: a look or a denial is answered all the same, and no charge behind it
-- passes.
--
-- A key that is a string has a lifetime from its first SET on. Any other that a script may
-- not give one is dropped again (begin).
--
-- If the call names the key again, it is read again then: until that, 0 stands for it.
--
-- What is no string is written by its algorithm, and lives by the block expire: name, and
-- px or fade.
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
if crammed == nil then
  -- Nothing, put into a string, changes nothing whatever stands there.
  local tried = not wrote and redis.pcall('SETRANGE', name, '0', '')
  crammed = type(tried) == 'table' and string.find(tried.err, 'OOM', 1, true) ~= nil
end
--:write
local new, add, put, from, px, fade, keep, renew
--SAVE--
--STORE--
--:rest
if granted >= 0 and (dirty or v and i == probe and call('PTTL', KEYS[i]) == -1) then
  local name = KEYS[i]
  --ROOM--
  write = not crammed
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
