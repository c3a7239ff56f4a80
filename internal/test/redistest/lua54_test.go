package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestCompatLua54(t *testing.T) {
	Suite(t, "compat")
	now := time.Unix(1_800_000_000, 5000)
	rdb := StartLua54(t, func() time.Time { return now }).Client()
	ctx := context.Background()
	for _, row := range []struct{ script, want string }{
		{"return 7", "7"},
		{"return 7.0", `"7"`}, // a float is text, as a double is in protocol 2
		{"return 0.5", `"0.5"`},
		{"return {1, 'a', {}, {2.5, true}}", `[1 "a" [] ["2.5" 1]]`},
		{"return false", "nil"},
		{"return nil", "nil"},
		{"return redis.status_reply('FINE')", `"FINE"`},
		{"return redis.error_reply('MINE no')", "MINE no"},
		{"return {KEYS[1], ARGV[1], #KEYS, #ARGV}", `["k" "x" 1 2]`},
		{"return math.type(1) .. math.type(1 / 1) .. tostring(unpack)", `"integerfloatnil"`},
		{"return redis.call('TIME')", `["1800000000" "5"]`},
		{"return redis.call('GET', 'none')", "nil"},
		{"return redis.call('SET', KEYS[1], 12)", `"OK"`},
		{"return redis.call('GET', KEYS[1])", `"12"`},
		{"redis.call('SET', KEYS[1], 12 / 1) return redis.call('GET', KEYS[1])", `"12"`},
		{"redis.call('SET', KEYS[1], 1e17) return redis.call('GET', KEYS[1])", `"1e+17"`},
		{"return redis.call('ZADD', 'z', 3, 'm') + redis.call('ZSCORE', 'z', 'm')", "4"},
		{"return math.type(redis.call('ZSCORE', 'z', 'm'))", `"integer"`},
		{"return redis.call('ZRANGEBYSCORE', 'z', 0, 9, 'WITHSCORES')", `["m" "3"]`},
		{"return redis.call('LPUSH', KEYS[1], 1)", "ERR Error running script: WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"return redis.pcall('LPUSH', KEYS[1], 1).err", `"WRONGTYPE Operation against a key holding the wrong kind of value"`},
		{"return select(2, pcall(redis.call, 'NONE'))", `"ERR unknown command 'NONE', with args beginning with: "`},
		{"return redis.pcall('SET', KEYS[1], true).err", `"Lua redis() command arguments must be strings or integers"`},
		{"x = 1", "ERR Error running script: user_script:1: Script attempted to create global variable 'x'"},
		{"return x", "ERR Error running script: user_script:1: Script attempted to access nonexistent global variable 'x'"},
		{"return 1 < '2'", "ERR Error running script: user_script:1: attempt to compare number with string"},
		{"return", "nil"},
		{"return return", "ERR Error compiling script: user_script:1: unexpected symbol near 'return'"},
	} {
		answer, err := rdb.Eval(ctx, row.script, []string{"k"}, "x", "y").Result()
		if got := shown(answer, err); got != row.want {
			t.Errorf("%s: %s, want %s", row.script, got, row.want)
		}
	}
	if err := rdb.EvalSha(ctx, "0123456789012345678901234567890123456789", nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("a script that the server doesn't know: %v", err)
	}
}

// shown is an answer as a row has it.
func shown(answer any, err error) string {
	switch answer := answer.(type) {
	case nil:
		if err != nil && !errors.Is(err, redis.Nil) {
			return err.Error()
		}
		return "nil"
	case []any:
		all := []string{}
		for _, one := range answer {
			all = append(all, shown(one, nil))
		}
		return fmt.Sprint(all)
	case string:
		return fmt.Sprintf("%q", answer)
	}
	return fmt.Sprint(answer)
}

// Keys expire by the told time, before the script that they are keys of.
func TestCompatLua54Expiry(t *testing.T) {
	Suite(t, "compat")
	now := time.Unix(1_800_000_000, 0)
	rdb := StartLua54(t, func() time.Time { return now }).Client()
	const left = "return redis.call('PTTL', KEYS[1])"
	for _, row := range []struct {
		script string
		sleep  time.Duration
		want   string
	}{
		{left, 0, "-2"},
		{"return redis.call('SET', KEYS[1], 'v')", 0, `"OK"`},
		{left, 0, "-1"},
		{"return redis.call('PEXPIRE', KEYS[1], 1500)", 500 * time.Millisecond, "1"},
		{left, 999_999 * time.Microsecond, "1000"},
		{left, time.Microsecond, "0"},
		{left, 0, "-2"},
		{"return redis.call('PEXPIRE', KEYS[1], 1500)", 0, "0"},
		{"return redis.call('SET', KEYS[1], 'v', 'PX', 100)", 0, `"OK"`},
		{"return redis.call('SET', KEYS[1], 'w', 'KEEPTTL')", 50 * time.Millisecond, `"OK"`},
		{left, 0, "50"},
		{"return redis.call('SET', KEYS[1], 'v')", 50 * time.Millisecond, `"OK"`},
		{left, 0, "-1"},
		{"return redis.call('SET', KEYS[1], 'v', 'PX', 0.5)", 0, "ERR Error running script: ERR value is not an integer or out of range"},
		{"return redis.call('PEXPIRE', KEYS[1], -1)", 0, "1"},
		{left, 0, "-2"},
	} {
		answer, err := rdb.Eval(context.Background(), row.script, []string{"k"}).Result()
		if got := shown(answer, err); got != row.want {
			t.Errorf("%s: %s, want %s", row.script, got, row.want)
		}
		now = now.Add(row.sleep)
	}
}
