-- Around every script: an error says whether anything was written before it. It begins with
-- the word PARTIAL then, which package redisstore knows.
-- noMemory: whether the server is out of memory, once that is known (store.lua).
local wrote, noMemory = false, nil
local ok, answer = pcall(function()
  --SCRIPT--
end)
if ok then return answer end
return {err = wrote and 'PARTIAL the script failed after its first write: ' .. answer or answer}
