-- Runs scripts for lua54.go as Dragonfly's interpreter does, which is Lua 5.4. Each call of a script
-- is an array of the instant in microseconds, the script's SHA-1, its text or nothing if that came
-- before, and what follows these in EVAL. Standard input and output are a connection to the server
-- that executes commands.
local server, commands, exit = io.stdin, io.stdout, os.exit
local calls, answers = assert(io.open('/dev/fd/3', 'rb')), assert(io.open('/dev/fd/4', 'wb'))

-- Reads a value of the server's protocol.
local function read(from)
  local line = from:read('l')
  if not line then exit() end
  local kind, rest = line:sub(1, 1), line:sub(2, -2)
  if kind == '+' then return {ok = rest} end
  if kind == '-' then return {err = rest} end
  local n = math.tointeger(tonumber(rest))
  if kind == ':' then return n end
  if n < 0 then return false end
  if kind == '$' then return from:read(n + 2):sub(1, -3) end
  local all = {}
  for i = 1, n do all[i] = read(from) end
  return all
end

local function bulk(text) return '$' .. #text .. '\r\n' .. text .. '\r\n' end

-- As text, an integer has no fraction, and another number 17 digits.
local function number(n) return string.format(math.type(n) == 'integer' and '%d' or '%.17g', n) end

-- What a script answers. A number that isn't an integer is answered as text.
local function reply(value)
  local kind = math.type(value) or type(value)
  if kind == 'integer' then return ':' .. number(value) .. '\r\n' end
  if kind == 'float' then return bulk(number(value)) end
  if kind == 'string' then return bulk(value) end
  if value == true then return ':1\r\n' end
  if kind ~= 'table' then return '$-1\r\n' end
  if value.err then return '-' .. value.err:gsub('[\r\n]', ' ') .. '\r\n' end
  if value.ok then return '+' .. value.ok .. '\r\n' end
  local all = {'*' .. #value .. '\r\n'}
  for i = 1, #value do all[i + 1] = reply(value[i]) end
  return table.concat(all)
end

-- Sends a command to the server, and returns the answer.
local function ask(words)
  local all = {'*' .. #words .. '\r\n'}
  for i = 1, #words do all[i + 1] = bulk(words[i]) end
  commands:write(table.concat(all))
  commands:flush()
  return read(server)
end

-- Time is the caller's, so keys expire here. The server gives a key whose lifetime it accepts one that
-- no test sees the end of; ends has the real end, which counts while the key has a lifetime there.
local now, ends = 0, {}

local function outlast(words, i)
  local lifetime = math.tointeger(tonumber(words[i]))
  if lifetime and lifetime > 0 and words[i]:find('^%d+$') then
    ends[words[2]] = now + lifetime * 1000
    words[i] = '100000000000000'
  end
end

local function expire(keys)
  for _, key in ipairs(keys) do
    if ends[key] and ends[key] <= now then
      ends[key] = nil
      if ask({'PTTL', key}) >= 0 then ask({'DEL', key}) end
    end
  end
end

local special = {
  TIME = function() return {number(now // 1000000), number(now % 1000000)} end,
  PEXPIRE = function(words)
    outlast(words, 3)
    return ask(words)
  end,
  SET = function(words)
    if words[4] == 'PX' then outlast(words, 5) end
    return ask(words)
  end,
  PTTL = function(words)
    local left = ask(words)
    return left >= 0 and (ends[words[2]] - now) // 1000 or left
  end,
  -- The answer is a number there, where Redis has text.
  ZSCORE = function(words)
    local score = ask(words)
    if type(score) ~= 'string' then return score end
    score = tonumber(score)
    return math.tointeger(score) or score
  end,
}
special.ZINCRBY = special.ZSCORE

local function pcalled(...)
  local words = {...}
  for i = 1, select('#', ...) do
    local kind = type(words[i])
    if kind == 'number' then
      words[i] = number(words[i])
    elseif kind ~= 'string' then
      return {err = 'Lua redis() command arguments must be strings or integers'}
    end
  end
  return (special[words[1]] or ask)(words)
end

local function called(...)
  local answer = pcalled(...)
  if type(answer) == 'table' and answer.err then error(answer.err, 0) end
  return answer
end

redis = {
  call = called, pcall = pcalled,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}

io, os, debug, package, require, loadfile, dofile = nil, nil, nil, nil, nil, nil, nil
setmetatable(_G, {
  __newindex = function(_, name) error("Script attempted to create global variable '" .. name .. "'", 2) end,
  -- Not every release there has unpack, which scripts therefore look for.
  __index = function(_, name)
    if name ~= 'unpack' then error("Script attempted to access nonexistent global variable '" .. name .. "'", 2) end
  end,
})

local scripts = {}

local function run(call)
  local sha, text, n = call[2], call[3], tonumber(call[4])
  now = tonumber(call[1])
  if text ~= '' then
    local script, problem = load(text, '@user_script', 't')
    if not script then return {err = 'ERR Error compiling script: ' .. problem} end
    scripts[sha] = script
  end
  local keys = table.move(call, 5, 4 + n, 1, {})
  expire(keys)
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', table.move(call, 5 + n, #call, 1, {}))
  local ok, answer = pcall(scripts[sha])
  if ok then return answer end
  return {err = 'ERR Error running script: ' .. tostring(answer)}
end

while true do
  answers:write(reply(run(read(calls))))
  answers:flush()
end
