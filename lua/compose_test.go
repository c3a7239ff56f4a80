package lua_test

import (
	"context"
	"testing"

	"github.com/stint-go/stint/lua"
)

// TestEveryScriptCompiles loads each script that can be composed.
func TestEveryScriptCompiles(t *testing.T) {
	ctx, rdb := context.Background(), client(t)
	load := func(s *lua.Script) {
		t.Helper()
		if sha, err := rdb.ScriptLoad(ctx, s.Source).Result(); err != nil || sha != s.SHA {
			t.Fatalf("%s %v, want %s:\n%s", sha, err, s.SHA, s.Source)
		}
	}
	wide := lua.WideBucket | lua.WideWarmUp
	for set := range lua.WideWarmUp << 1 {
		// What is wide goes with all others, or with none.
		if others := set &^ wide; set == others || others == 0 || others == lua.Ban<<1-1 {
			load(lua.Take(set))
			load(lua.Settle(set))
		}
	}
	load(lua.Renew())
}
