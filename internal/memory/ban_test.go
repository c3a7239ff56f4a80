package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

// A flood of new keys is denied by what they share, but no key is banned for the
// denials of others, and a ban that runs goes on.
func TestBansAtTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 64})
		rate := newLimit(t, store.Spec{Name: "rate", Units: 1, Period: time.Hour})
		ban := newLimit(t, store.Spec{Name: "ban", Algorithm: store.Ban, Units: 2, Period: time.Hour, Ban: time.Hour})
		ask := func(key string) (store.Result, bool) {
			charges := []store.Charge{{Key: key, Limit: rate, Cost: 1}, {Key: key, Limit: ban, Cost: 1, Final: true}}
			results := make([]store.Result, 2)
			if err := s.Take(context.Background(), charges, results); err != nil {
				t.Fatal(err)
			}
			return results[1], results[0].OK && results[1].OK
		}
		for range 3 {
			ask("banned")
		}
		denied := 0
		for i := range 1000 {
			r, granted := ask(fmt.Sprint("flood", i))
			if !r.OK || r.Remaining < 1 {
				t.Fatalf("key %d is banned, or nearly, for what others did: %+v", i, r)
			}
			if !granted {
				denied++
			}
		}
		if denied < 500 {
			t.Errorf("%d of a flood denied", denied)
		}
		for i := range 10 {
			c, r := []store.Charge{{Key: fmt.Sprint("new", i), Limit: ban, Cost: 1}}, make([]store.Result, 1)
			if err := s.Settle(context.Background(), c, r); err != nil || !r[0].OK || r[0].Remaining < 1 {
				t.Fatalf("a denial of a new key, counted by Settle: %+v, %v", r[0], err)
			}
		}
		if r, _ := ask("banned"); r.OK {
			t.Error("the flood has lifted a ban")
		}
		if r, err := s.Ban(context.Background(), "banned", 2*time.Hour, ban); err != nil || !r[0].Begun {
			t.Errorf("a ban by hand of a key that the store has: %+v, %v", r, err)
		}
		before := s.Stats()
		if r, err := s.Ban(context.Background(), "newcomer", time.Hour, ban); err == nil || r != nil || !strings.Contains(err.Error(), "WithMaxKeys") {
			t.Errorf("a ban by hand of a key that the store has no room for: %+v, %v", r, err)
		}
		if r, _ := ask("other"); !r.OK || s.Stats().Keys != before.Keys {
			t.Errorf("it has banned others, or takes room: %+v", s.Stats())
		}
		time.Sleep(time.Hour)
		if r, err := s.Ban(context.Background(), "newcomer", time.Hour, ban); err != nil || !r[0].Begun {
			t.Errorf("once there is room: %+v, %v", r, err)
		}
	})
}
