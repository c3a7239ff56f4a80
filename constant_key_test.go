package stint_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
)

var (
	secret    = []byte("0123456789abcdef")
	byTenant  = stint.Header("X-Tenant")
	constants = map[string]stint.KeyFunc{
		"global":      stint.Global(),
		"joined":      stint.Join(stint.Global(), stint.Global()),
		"hashed":      stint.Hash(secret, stint.Global()),
		"hashed join": stint.Hash(secret, stint.Join(stint.Global(), stint.Hash(secret, stint.Global()))),
	}
)

// The key given is for limits without a constant key. If there are none, any will do.
func TestConstantKeysNeedNone(t *testing.T) {
	calls := map[string]func(l *stint.Limiter, key string) error{
		"Allow":   func(l *stint.Limiter, key string) error { return l.Allow(t.Context(), key, 1) },
		"Take":    func(l *stint.Limiter, key string) error { _, err := l.Take(t.Context(), key, 1); return err },
		"Wait":    func(l *stint.Limiter, key string) error { _, err := l.Wait(t.Context(), key, 1); return err },
		"Peek":    func(l *stint.Limiter, key string) error { _, err := l.Peek(t.Context(), key); return err },
		"PeekAll": func(l *stint.Limiter, key string) error { _, err := l.PeekAll(t.Context(), key); return err },
	}
	unfit := map[string]error{"": stint.ErrEmptyKey, strings.Repeat("k", 5000): stint.ErrKeyTooLong}
	for name, key := range constants {
		alone := stint.Rate(9, time.Hour, stint.WithKey(key))
		paced := stint.Bandwidth(1<<20, stint.WithKey(byTenant)) // no call charges it
		other := stint.Rate(9, time.Hour, stint.WithKey(byTenant))
		for call, do := range calls {
			for given, want := range unfit {
				for _, l := range []*stint.Limiter{limiter(t, alone), limiter(t, alone, paced), limiter(t, alone, stint.Rate(9, time.Minute, stint.WithKey(key)))} {
					if err := do(l, given); err != nil {
						t.Errorf("%s: %s with a key of %d bytes: %v", name, call, len(given), err)
					}
				}
				if err := do(limiter(t, alone, other), given); !errors.Is(err, want) {
					t.Errorf("%s: %s with a key of %d bytes, beside a limit that needs it: %v, want %v", name, call, len(given), err, want)
				}
			}
		}
	}
}

// A limit with a constant key has one bucket for everybody: jobs of any key and
// requests share it, and it is charged together with limits of other keys or not at
// all.
func TestConstantKeys(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		names := 0
		for name, key := range constants {
			names++
			slots, tenant := fmt.Sprint("slots", names), fmt.Sprint("tenant", names)
			t.Run(name, func(t *testing.T) {
				l := limiter(t, stint.WithStore(s), stint.WithKey(byTenant),
					stint.Concurrency(1, stint.WithName(slots), stint.WithKey(key)),
					stint.Rate(3, 1000*time.Hour, stint.WithName(tenant)))
				left := func(key string) string {
					d, err := l.Peek(t.Context(), key)
					if err != nil {
						t.Fatal(err)
					}
					return fmt.Sprint(d.Limits[0].Remaining, " ", d.Limits[1].Remaining)
				}
				a, err := l.Take(t.Context(), "a", 1)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.Take(t.Context(), "b", 1); denied(t, err).Decision.Limit != slots {
					t.Errorf("b, while a holds the one slot: %v", err)
				}
				if got := left("a") + ", " + left("b"); got != "0 2, 0 3" {
					t.Errorf("while a runs a has %s left, want 0 2, and 0 3", got)
				}
				request := get("/")
				request.Header.Set("X-Tenant", "a")
				if w := through(l, request, nil); w.Code < 400 {
					t.Errorf("a request while a job holds the slot: %d", w.Code)
				}
				a.Done()
				w := through(l, request, func(http.ResponseWriter, *http.Request) {
					if _, err := l.Take(t.Context(), "c", 1); denied(t, err).Decision.Limit != slots {
						t.Errorf("a job while a request holds the slot: %v", err)
					}
				})
				if w.Code != 200 || left("a") != "1 1" {
					t.Errorf("the request: %d, and a has %s left, want 1 1: jobs and requests of a tenant share its limit", w.Code, left("a"))
				}

				if p, err := l.Take(t.Context(), "d", 1); err != nil {
					t.Error(err)
				} else if err := l.Reset(t.Context(), "d"); err != nil {
					t.Error(err)
				} else if got := left("d"); got != "0 3" {
					t.Errorf("Reset leaves d %s, want 0 3: the slot is everybody's", got)
				} else if err := l.ResetLimit(t.Context(), slots); err != nil || left("d") != "1 3" {
					t.Errorf("ResetLimit: %v, leaves %s, want 1 3", err, left("d"))
				} else {
					p.Done()
				}
				if got := left("a"); got != "1 1" {
					t.Errorf("after Resets of another key and limit a has %s left, want 1 1", got)
				}
			})
		}
	})
}

func TestWaitForAConstantKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, everybody, stint.Rate(1, time.Minute), stint.AdaptiveConcurrency(1, 9, stint.WithInitialLimit(1)))
		p, err := l.Wait(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Minute, p.Done)
		start := time.Now()
		p, err = l.Wait(t.Context(), "b", 1)
		if err != nil || time.Since(start) != 2*time.Minute {
			t.Errorf("b waited %v for a's turn and slot, want 2m: %v", time.Since(start), err)
		}
		p.Done()
	})
}

func TestResetLimit(t *testing.T) {
	l := limiter(t, stint.WithKey(byTenant), stint.Rate(5, time.Hour), stint.AdaptiveConcurrency(1, 9, stint.WithInitialLimit(5), stint.WithKey(stint.Global())),
		stint.WithRoute("/login", stint.Rate(1, time.Hour, stint.WithName("login"), stint.WithKey(stint.Global()))))
	if got := codes(l, "GET", "/login", 2); got != "200 429" {
		t.Fatal(got)
	}
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if got := codes(l, "GET", "/login", 1); got != "429" {
		t.Errorf("after Reset of a key: %s", got)
	}
	if err := l.ResetLimit(t.Context(), "login"); err != nil {
		t.Error(err)
	}
	if got := codes(l, "GET", "/login", 2); got != "200 429" {
		t.Errorf("after ResetLimit: %s", got)
	}
	if _, err := l.Take(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	if err := l.ResetLimit(t.Context(), "adaptive"); err != nil {
		t.Error(err)
	}
	if d, _ := l.Peek(t.Context(), "k"); d.Limits[1].InFlight != 0 || d.Limits[0].Remaining != 4 {
		t.Errorf("after ResetLimit of adaptive: %+v", d.Limits)
	}
	for name, want := range map[string]string{"rate": "Reset with the key", "none": `no limit "none"`} {
		if err := l.ResetLimit(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	plain := limiter(t, everybody, stint.Rate(1, time.Hour, stint.WithName("calls")), stint.WithStore(newSpy()))
	if err := plain.ResetLimit(t.Context(), "calls"); err == nil || !strings.Contains(err.Error(), "store.Resetter") {
		t.Errorf("a store without Reset: %v", err)
	}
	if err := plain.Reset(t.Context(), "k"); err != nil {
		t.Errorf("nothing of k's to reset: %v", err)
	}
}

// A limit with GivenKey is for Take: requests have no such key, and adapters say so
// when they mount the limiter.
func TestGivenKey(t *testing.T) {
	given := stint.WithKey(stint.GivenKey())
	l := limiter(t, given, stint.Rate(1, time.Hour), stint.Concurrency(2, stint.WithKey(stint.Global())))
	for key, want := range map[string]bool{"a": true, "b": true} {
		p, err := l.Take(t.Context(), key, 1)
		if (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
		p.Done()
	}
	if _, err := l.Take(t.Context(), "a", 1); denied(t, err).Decision.Limit != "rate" {
		t.Error(err)
	}
	seen := &events{}
	update(t, l, given, stint.Rate(1, time.Hour), seen.option())
	if w := through(l, get("/"), nil); w.Code != 500 || seen.kinds() != "Updated KeyFailed" {
		t.Errorf("a request all the same: %d, %s", w.Code, seen.kinds())
	}

	byAddress := stint.WithKey(stint.RemoteIP())
	for name, l := range map[string]*stint.Limiter{
		"by default":      limiter(t, given, stint.Rate(1, time.Hour)),
		"of one":          limiter(t, byAddress, stint.Rate(1, time.Hour), stint.Quota(1, stint.Daily, given)),
		"on a route":      limiter(t, byAddress, stint.Rate(1, time.Hour), stint.WithRoute("/a", given, stint.Quota(1, stint.Daily))),
		"with a route":    derive(t, limiter(t, byAddress, stint.WithRoute("/a", stint.Rate(1, time.Hour))), stint.Quota(1, stint.Daily, given)),
		"inherited":       derive(t, limiter(t, given, stint.Rate(1, time.Hour)), stint.Quota(1, stint.Daily, byAddress)),
		"of a limit func": limiter(t, given, stint.Rate(1, time.Hour, byAddress), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })),
	} {
		for adapter, mount := range map[string]func(){
			"std":  func() { stinthttp.Middleware(l) },
			"gin":  func() { gin.New().Use(stintgin.Middleware(l)) },
			"echo": func() { echo.New().Use(stintecho.Middleware(l)) },
		} {
			err := panicOf(mount)
			if !strings.Contains(err.Error(), "GivenKey, which requests don't have") {
				t.Errorf("%s, mounted by %s: %v", name, adapter, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if slices.Sort(lines); len(slices.Compact(slices.Clone(lines))) < len(lines) {
				t.Errorf("%s, mounted by %s, a line comes twice: %v", name, adapter, err)
			}
		}
	}

	for _, k := range []stint.KeyFunc{stint.Join(stint.Global(), stint.GivenKey()), stint.Hash(secret, stint.GivenKey())} {
		if _, err := stint.New(stint.Rate(1, time.Hour), stint.WithKey(k)); err == nil || !strings.Contains(err.Error(), "GivenKey() can't be") {
			t.Errorf("part of a key: %v", err)
		}
	}
}

func panicOf(f func()) (err error) {
	defer func() {
		if e, ok := recover().(error); ok {
			err = e
		} else {
			err = errors.New("no panic with an error")
		}
	}()
	f()
	return nil
}
