package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// everywhere is a limiter with limits of its own and of routes, of every kind that can
// be asked.
func everywhere(t *testing.T, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	shared := stint.Rate(9, time.Hour, stint.WithName("shared"))
	return limiter(t, append([]stint.Option{
		stint.WithKey(byTenant),
		stint.Rate(5, time.Hour, stint.WithName("rate")), shared,
		stint.WithRoute("/login", shared, stint.Rate(1, time.Hour, stint.WithName("login")), stint.Ban(1, time.Hour, 2*time.Hour)),
		stint.WithRoute("/slots", stint.Concurrency(3, stint.WithName("slots"), stint.WithQueue(1)),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("adaptive"), stint.WithInitialLimit(4), stint.WithKey(stint.Global()))),
		stint.WithRoute("/turns", stint.Rate(2, time.Minute, stint.WithName("turns"), stint.WithMaxWait(time.Hour))),
		stint.WithRoute("/bytes", stint.Bandwidth(4096, stint.WithName("bytes")), stint.Rate(7, time.Hour, stint.WithName("downloads"))),
	}, opts...)...)
}

func standing(t *testing.T, l *stint.Limiter, key string) string {
	t.Helper()
	d, err := l.PeekAll(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range d.Limits {
		all = append(all, fmt.Sprintf("%s %d", s.Name, s.Remaining))
		if !s.Allowed {
			all[len(all)-1] += " refuses"
		}
	}
	return strings.Join(all, ", ")
}

// PeekAll has each limit that a key has, once, and changes nothing.
func TestPeekAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := everywhere(t)
		const fresh = "rate 5, shared 9, login 1, ban 1, slots 3, turns 2, downloads 7, adaptive 4"
		for range 2 {
			if got := standing(t, l, "a"); got != fresh {
				t.Errorf("never seen: %s", got)
			}
		}
		as := func(tenant, path string, next func(http.ResponseWriter, *http.Request)) {
			r := get(path)
			r.Header.Set("X-Tenant", tenant)
			through(l, r, next)
		}
		as("a", "/", nil)
		for range 3 {
			as("a", "/login", nil)
		}
		as("a", "/slots", func(http.ResponseWriter, *http.Request) {
			if got, want := standing(t, l, "a"), "rate 4, shared 7, login 0 refuses, ban 0 refuses, slots 2, turns 2, downloads 7, adaptive 3"; got != want {
				t.Errorf("in a request it is %s, want %s", got, want)
			}
			if got, want := standing(t, l, "b"), "rate 5, shared 9, login 1, ban 1, slots 3, turns 2, downloads 7, adaptive 3"; got != want {
				t.Errorf("of somebody else it is %s, want %s", got, want)
			}
		})
		if _, err := l.PeekAll(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		routes := limiter(t, stint.WithKey(byTenant), stint.WithRoute("/", stint.Rate(1, time.Hour, stint.WithName("only"))))
		if got := standing(t, routes, "a"); got != "only 1" {
			t.Errorf("of a limiter with routes only: %s", got)
		}
	})
}

func TestPeekAllFails(t *testing.T) {
	sp := newSpy()
	sp.failWith(errDown)
	broken := limiter(t, stint.WithKey(byTenant), stint.WithStore(sp), stint.Rate(1, time.Hour, stint.WithName("r")))
	if _, err := broken.PeekAll(t.Context(), "k"); !errors.As(err, new(*stint.StoreError)) {
		t.Error(err)
	}
	bytes := limiter(t, stint.WithKey(byTenant), stint.Bandwidth(4096))
	if _, err := bytes.PeekAll(t.Context(), "k"); err == nil {
		t.Error("a Bandwidth was looked at")
	}
}

// With names, Reset leaves the other limits alone.
func TestResetSomeLimits(t *testing.T) {
	l := everywhere(t)
	r := get("/login")
	r.Header.Set("X-Tenant", "a")
	for range 3 {
		through(l, r, nil)
	}
	for _, step := range []struct {
		limits    []string
		err, want string
	}{
		{[]string{"elsewhere"}, `the limiter has no limit "elsewhere"`, "shared 8, login 0 refuses, ban 0 refuses"},
		{[]string{"ban", "adaptive"}, `the key of "adaptive" is constant: write ResetLimit`, "shared 8, login 0 refuses, ban 0 refuses"},
		{[]string{"ban"}, "", "shared 8, login 0 refuses, ban 1"},
		{[]string{"login", "shared"}, "", "shared 9, login 1, ban 1"},
	} {
		err := l.Reset(t.Context(), "a", step.limits...)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%q: %v", step.limits, err)
		}
		if got := standing(t, l, "a"); !strings.Contains(got, step.want) {
			t.Errorf("after a reset of %q: %s, want %s", step.limits, got, step.want)
		}
	}
}

// A Peek may wait until turns that were left have gone back. That isn't the wait of the
// requests after it, which reuse its memory.
func TestPeekLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Second, stint.WithName("x"), stint.WithMaxWait(time.Minute)),
			stint.WithStore(&slow{Store: memstore.New(), settle: 50 * time.Millisecond}))
		take(t, l, 1)
		ctx, leave := context.WithCancel(t.Context())
		go l.Take(ctx, "k", 1)
		synctest.Wait()
		leave()
		synctest.Wait()
		start := time.Now()
		if _, err := l.Peek(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) == 0 {
			t.Error("there was nothing to wait for")
		}
		depth := 0
		var plain *stint.Limiter
		plain = limiter(t, theKey, stint.Rate(100, time.Second), stint.WithObserver(func(e stint.Event) {
			if e.Kind != stint.EventAdmitted {
				return
			}
			if e.Waited != 0 {
				t.Errorf("a request that waited for nothing has waited for %v", e.Waited)
			}
			if depth++; depth < 8 { // each needs a call of its own
				take(t, plain, 1)
			}
		}))
		take(t, plain, 1)
		time.Sleep(time.Minute)
	})
}
