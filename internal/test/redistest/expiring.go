package redistest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Expiring, before a script, has its keys expire by the clock that it is told, or by
// the one at ServerClockOf its last key where that is another: the server's own goes on while a
// test's stands still or jumps. Lifetimes are noted in
// another key, ExpiryOf, at which whoever lets keys expire has to look. It changes
// nothing else of a script.
const Expiring = `
local call_, pcall_, unpack_ = redis.call, redis.pcall, unpack or table.unpack
local told_ = (call_('GET', KEYS[#KEYS] .. '!server') or string.match(ARGV[1], '(-?%d+),')) + 0
local function note(key) return key .. '!expiry' end
local function set(key, ms) call_('SET', note(key), string.format('%.0f', told_ + ms * 1000)) end
local noted = {PEXPIRE = true, PTTL = true, SET = true, DEL = true}
local function noting(run) return function(...)
  local command, key, a, b, c = ...
  if not noted[command] then
    return run(...)
  elseif command == 'PEXPIRE' then
    if call_('EXISTS', key) == 0 then return 0 end
    set(key, a)
    return 1
  elseif command == 'PTTL' then
    if call_('EXISTS', key) == 0 then return -2 end
    local at = call_('GET', note(key))
    return at and math.floor((at - told_) / 1000) or -1
  elseif command == 'SET' and b == 'KEEPTTL' then
    return run(command, key, a)
  elseif command == 'SET' and b == 'PX' then
    set(key, c)
    return run(command, key, a)
  end
  call_('DEL', note(key))
  return run(...)
end end
local redis = {call = noting(call_), pcall = noting(pcall_)}
`

// ServerClockOf is the key that says what the server's clock shows to scripts with this
// last key, in microseconds since store.Epoch.
func ServerClockOf(key string) string { return key + "!server" }

// ExpiryOf is the key that says when key expires.
func ExpiryOf(key string) string { return key + "!expiry" }

// ByToldClock returns a hook under which the server's keys expire by the suite's time.
// They expire by the server's own, in real milliseconds, while the suite's
// stands still or goes by in months; so what has expired by Expiring is deleted
// before a script begins.
func ByToldClock() redis.Hook { return &expiring{scripts: map[string]string{}} }

type expiring struct {
	mu      sync.Mutex
	scripts map[string]string // SHA-1 of a script to that of the one run instead
}

const shim = Expiring + `
local notes, kept = {}, {}
for i = 1, #KEYS do notes[i] = note(KEYS[i]) end
for i, at in ipairs(call_('MGET', unpack_(notes))) do
  if at and told_ >= at + 0 then
    call_('DEL', KEYS[i], notes[i])
  elseif at then
    kept[#kept + 1] = KEYS[i]
  end
end
if #kept > 0 and call_('EXISTS', unpack_(kept)) < #kept then
  for _, key in ipairs(kept) do
    if call_('EXISTS', key) == 0 then call_('DEL', note(key)) end
  end
end
`

func (h *expiring) change(cmd redis.Cmder) error {
	args := cmd.Args()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch args[0] {
	case "evalsha":
		instead, known := h.scripts[args[1].(string)]
		if !known {
			cmd.SetErr(redis.ErrNoScript)
			return redis.ErrNoScript
		}
		args[1] = instead
	case "eval":
		sum := sha1.Sum([]byte(args[1].(string)))
		args[1] = shim + args[1].(string)
		instead := sha1.Sum([]byte(args[1].(string)))
		h.scripts[hex.EncodeToString(sum[:])] = hex.EncodeToString(instead[:])
	}
	return nil
}

func (h *expiring) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *expiring) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.change(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *expiring) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var pass []redis.Cmder
		for _, cmd := range cmds {
			if h.change(cmd) == nil {
				pass = append(pass, cmd)
			}
		}
		if len(pass) == 0 {
			return redis.ErrNoScript
		}
		return next(ctx, pass)
	}
}
