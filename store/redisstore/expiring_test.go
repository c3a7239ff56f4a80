package redisstore

// Expiring, before a script, has its keys expire by the clock that it is told, or by
// the one at ServerClockOf its last key where that is another: the server's own goes on while a
// test's stands still or jumps. Lifetimes are noted in
// another key, ExpiryOf, at which whoever lets keys expire has to look. It changes
// nothing else of a script.
const Expiring = `
local call_, pcall_ = redis.call, redis.pcall
local told_ = (call_('GET', KEYS[#KEYS] .. '!server') or string.match(ARGV[1], '(-?%d+),')) + 0
local function note(key) return key .. '!expiry' end
local redis = {pcall = pcall_, call = function(...)
  local a = {...}
  local function set(ms) call_('SET', note(a[2]), string.format('%.0f', told_ + ms * 1000)) end
  if a[1] == 'PEXPIRE' then
    if call_('EXISTS', a[2]) == 0 then return 0 end
    set(a[3])
    return 1
  elseif a[1] == 'PTTL' then
    if call_('EXISTS', a[2]) == 0 then return -2 end
    local at = call_('GET', note(a[2]))
    return at and math.floor((at - told_) / 1000) or -1
  elseif a[1] == 'SET' and a[4] == 'KEEPTTL' then
    a[4] = nil
  elseif a[1] == 'SET' then
    call_('DEL', note(a[2]))
    if a[4] == 'PX' then
      set(a[5])
      a[4], a[5] = nil, nil
    end
  elseif a[1] == 'DEL' then
    call_('DEL', note(a[2]))
  end
  return call_((unpack or table.unpack)(a))
end}
`

// ServerClockOf is the key that says what the server's clock shows to scripts with this
// last key, in microseconds since store.Epoch.
func ServerClockOf(key string) string { return key + "!server" }

// ExpiryOf is the key that says when key expires.
func ExpiryOf(key string) string { return key + "!expiry" }
