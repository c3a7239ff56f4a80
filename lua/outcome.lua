-- Around every script: an error says whether anything was written before it. It begins with
-- the word PARTIAL then, which package redisstore knows. If a right is missing, it names the
-- commands, which the server's own error doesn't; a server before Redis 7 can't say them.
-- noMemory: whether the server is out of memory, once that is known (store.lua).
local wrote, noMemory = false, nil
local ok, answer = pcall(function()
  --SCRIPT--
end)
if ok then return answer end
if redis.acl_check_cmd and string.find(answer, "can't run this command", 1, true) then
  local lacks, key = '', KEYS[1]
  for _, command in ipairs({COMMANDS}) do
    if not redis.acl_check_cmd(command, key, key, key) then lacks = lacks .. ' +' .. string.lower(command) end
  end
  answer = answer .. ': grant it' .. lacks
end
return {err = wrote and 'PARTIAL the script failed after its first write: ' .. answer or answer}
