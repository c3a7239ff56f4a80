package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func update(t testing.TB, l *stint.Limiter, opts ...stint.Option) {
	t.Helper()
	if err := l.Update(opts...); err != nil {
		t.Fatal(err)
	}
}

// overStores runs a test on the memory store and on a real Redis. Its numbers
// must be such that the time it takes makes no difference.
func overStores(t *testing.T, f func(*testing.T, store.Store)) {
	t.Run("memory", func(t *testing.T) { f(t, memstore.New()) })
	t.Run("redis", func(t *testing.T) {
		f(t, redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t))))
	})
}

// Everything that New was given is replaced.
func TestUpdateReplacesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := &events{}, &events{}
		text := func(s string) stint.Option { return stint.WithDenyHandler(stint.PlainText(s)) }
		on := func(path string) func(*http.Request) bool {
			return func(r *http.Request) bool { return r.URL.Path == path }
		}
		l := limiter(t, stint.Rate(2, time.Minute), everybody, text("old"), before.option(),
			stint.WithSkip(on("/skip")), stint.WithBlock(on("/block")), stint.WithRoute("/route"))
		h := mount(l, nil)
		ask := func(path string, want int, body string, policy string) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get(path))
			if got := w.Header().Get("RateLimit-Policy") + w.Header().Get("X-RateLimit-Limit"); w.Code != want || w.Body.String() != body || got != policy {
				t.Errorf("%s: %d %q %q, want %d %q %q", path, w.Code, w.Body, got, want, body, policy)
			}
		}
		ask("/", 200, "", `"rate";q=2;w=60`)
		ask("/", 200, "", `"rate";q=2;w=60`)
		ask("/", 429, "old", `"rate";q=2;w=60`)
		ask("/skip", 200, "", "")
		ask("/route", 200, "", "")
		if w := through(l, get("/block"), nil); w.Code != 403 {
			t.Errorf("got %d, want 403", w.Code)
		}
		update(t, l, stint.Rate(1, time.Hour, stint.WithName("hour")), everybody, text("new"), after.option(),
			stint.WithHeaders(stint.LegacyHeaders), stint.WithRoute("/other", stint.Rate(7, time.Hour)))
		ask("/skip", 200, "", "1")
		ask("/route", 429, "new", "1")
		ask("/block", 429, "new", "1")
		ask("/other", 200, "", "7")
		want := "Admitted Admitted Denied Blocked"
		if got := before.kinds(); got != want {
			t.Errorf("the old observer was told %s, want %s", got, want)
		}
		want = "Updated Admitted Denied Denied Admitted"
		if got := after.kinds(); got != want {
			t.Errorf("the new observer was told %s, want %s", got, want)
		}
		if ev := after.all[0]; ev.Request != nil || ev.Err != nil || ev.Decision.Limits != nil {
			t.Errorf("the event of an update holds a decision: %+v", ev)
		}
	})
}

// A wrong update reports everything that is wrong and changes nothing.
func TestUpdateThatIsWrong(t *testing.T) {
	mem := memstore.New()
	base := []stint.Option{stint.Rate(5, time.Hour, stint.WithName("rate")), theKey, stint.WithStore(mem)}
	tests := []struct {
		name string
		opts []stint.Option
		want []string
	}{
		{"nothing", nil, []string{"no limits"}},
		{"no key", []stint.Option{stint.Rate(1, time.Second)}, []string{"stint.WithKey"}},
		{"several", []stint.Option{stint.Rate(0, time.Second), nil, stint.Quota(1, stint.Daily, stint.WithName("a b")), theKey},
			[]string{"0 units", "option 2 is nil", `name "a b"`}},
		{"a bad route", []stint.Option{stint.WithRoute("POST", stint.Rate(1, time.Second)), theKey}, []string{`WithRoute("POST")`}},
		{"a predicate made wrongly", []stint.Option{stint.Rate(9, time.Second), theKey, stint.WithSkip(stint.FromCIDR())}, []string{"WithSkip"}},
		{"another store", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(memstore.New())}, []string{"not the limiter's store"}},
		{"a store that can't be compared", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(layers{mem})}, []string{"not the limiter's store"}},
		{"a derived limiter's name", []stint.Option{stint.Rate(1, time.Second, stint.WithName("derived")), theKey}, []string{`limit "derived": another limit has that name`}},
		{"an option that is for nobody", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(nil)}, []string{"WithStore(nil)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := &events{}
			l := limiter(t, append(base, seen.option())...)
			if _, err := l.With(stint.Rate(3, time.Hour, stint.WithName("derived"))); err != nil {
				t.Fatal(err)
			}
			err := l.Update(append(tt.opts, seen.option())...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q doesn't say %q", err, want)
				}
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "stint: ") {
					t.Errorf("%q has no prefix", line)
				}
			}
			if w := through(l, get("/"), nil); w.Code != 200 || w.Header().Get("RateLimit-Policy") != `"rate";q=5;w=3600` {
				t.Errorf("after it: %d %v", w.Code, w.Header())
			}
			if got := seen.kinds(); got != "Admitted" {
				t.Errorf("observed %s, want Admitted alone", got)
			}
			// Nor are names left behind that a later one would find taken.
			update(t, l, stint.Rate(6, time.Hour, stint.WithName("rate")), stint.Quota(9, stint.Daily, stint.WithName("daily")), theKey, stint.WithStore(mem))
			if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Name != "rate" || d.Limits[1].Name != "daily" {
				t.Errorf("a later update: %+v", d.Limits)
			}
			if err := mem.Reset(t.Context(), "k", limitOf(t, "rate", 5)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// layers is a store whose values can't be compared.
type layers []store.Store

func (l layers) Take(ctx context.Context, c []store.Charge, r []store.Result) error {
	return l[0].Take(ctx, c, r)
}
func (l layers) Settle(ctx context.Context, c []store.Charge, r []store.Result) error {
	return l[0].Settle(ctx, c, r)
}

func limitOf(t *testing.T, name string, n int64) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(store.Spec{Name: name, Units: n, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What has been consumed under a name and algorithm stays consumed.
func TestUpdateKeepsState(t *testing.T) {
	const year = 365 * 24 * time.Hour
	rate := func(n int64, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, year, append([]stint.RateOption{stint.WithName("rate")}, opts...)...)
	}
	quota := func(n int64) stint.Limit { return stint.Quota(n, stint.Every(2*year), stint.WithName("quota")) }
	slots := func(n int64) stint.Limit { return stint.Concurrency(n, stint.WithName("slots")) }
	window := stint.WithAlgorithm(stint.FixedWindow)
	log := stint.WithAlgorithm(stint.SlidingLog)
	interval, sliding := stint.WithAlgorithm(stint.IntervalBucket), stint.WithAlgorithm(stint.SlidingWindow)
	tests := []struct {
		name     string
		from, to stint.Limit
		use      int64 // of from
		want     int64 // left of to
	}{
		{"bucket, larger", rate(10), rate(15), 10, 5},
		{"bucket, smaller", rate(10), rate(6), 2, 4},
		{"bucket, clamped", rate(10), rate(6), 9, 0},
		{"bucket, another burst", rate(10), rate(10, stint.WithBurst(4)), 3, 1},
		{"bucket, faster", rate(10), rate(20, stint.WithBurst(10)), 10, 0},
		{"interval bucket, larger", rate(10, interval), rate(15, interval), 10, 5},
		{"sliding window, larger", rate(10, sliding), rate(15, sliding), 10, 5},
		{"bucket, unused", rate(10), rate(20), 0, 20},
		{"window, larger", rate(10, window), rate(15, window), 10, 5},
		{"window, smaller", rate(10, window), rate(6, window), 9, 0},
		{"quota, larger", quota(10), quota(12), 4, 8},
		{"log, larger", rate(10, log), rate(15, log), 10, 5},
		{"log, smaller", rate(10, log), rate(6, log), 5, 1},
		{"slots, larger", slots(4), slots(6), 4, 2},
		{"slots, smaller", slots(4), slots(2), 3, 0},
		{"another name", rate(10), rate(10, stint.WithName("new")), 10, 10},
		{"another algorithm", rate(10), rate(10, log), 10, 10},
	}
	overStores(t, func(t *testing.T, s store.Store) {
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				key := fmt.Sprint("k", i)
				l := limiter(t, tt.from, theKey, stint.WithStore(s))
				if tt.use > 0 {
					if _, err := l.Take(t.Context(), key, tt.use); err != nil {
						t.Fatal(err)
					}
				}
				for _, round := range []string{"updated", "and back and forth"} {
					update(t, l, tt.to, theKey)
					d, err := l.Peek(t.Context(), key)
					if err != nil || d.Remaining != tt.want {
						t.Errorf("%s: %d left, %v; want %d", round, d.Remaining, err, tt.want)
					}
					if round == "updated" {
						update(t, l, tt.from, theKey)
						if d, _ := l.Peek(t.Context(), key); d.Remaining > d.Limits[0].Quota-tt.use {
							t.Errorf("back: %d left of %d, %d of which were used", d.Remaining, d.Limits[0].Quota, tt.use)
						}
					}
				}
			})
		}
	})
}

// If a limit changes or goes away while a permit is open, the permit settles and
// releases what it was charged.
func TestUpdateUnderOpenPermits(t *testing.T) {
	both := func(n int64, opts ...stint.Option) []stint.Option {
		return append(opts, theKey, stint.Rate(n, 1000*time.Hour, stint.WithName("rate")), stint.Concurrency(n, stint.WithName("concurrency")))
	}
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, both(10, stint.WithStore(s))...)
		p := take(t, l, 6)
		update(t, l, both(7)...)
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 1 || d.Limits[1].Remaining != 1 {
			t.Errorf("left %+v, want 1 and 1", d.Limits)
		}
		if got := p.Decision().Limits[0].Quota; got != 10 {
			t.Errorf("the open permit's limit says %d, want the 10 that it was charged under", got)
		}
		if err := p.Settle(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		p.Done()
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 5 || d.Limits[1].Remaining != 7 {
			t.Errorf("settled to 2 and released, left %+v, want 5 and 7", d.Limits)
		}
		p = take(t, l, 3)
		update(t, l, stint.Quota(1, stint.Daily, stint.WithName("daily")), theKey)
		if err := p.Settle(t.Context(), 1, "rate"); err != nil {
			t.Fatal(err)
		}
		p.Done()
		update(t, l, both(7)...)
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 4 || d.Limits[1].Remaining != 7 {
			t.Errorf("settled and released while there was no such limit, left %+v, want 4 and 7", d.Limits)
		}
	})
}

// A request keeps the configuration it began with, up to its answer.
func TestUpdateDuringARequest(t *testing.T) {
	var l *stint.Limiter
	texts := func(s string) stint.Option { return stint.WithDenyHandler(stint.PlainText(s)) }
	l = limiter(t, stint.Rate(1, time.Hour), texts("old"), stint.WithKey(func(*http.Request) (string, error) {
		if l != nil { // not when New tries it
			update(t, l, stint.Rate(5, time.Hour), texts("new"), theKey, stint.WithHeaders(stint.NoHeaders))
		}
		return "k", nil
	}))
	w := through(l, get("/"), nil)
	if got := w.Header().Get("RateLimit-Policy"); w.Code != 200 || got != `"rate";q=1;w=3600` {
		t.Errorf("updated within a request: %d %s", w.Code, got)
	}
	if w := through(l, get("/"), nil); w.Code != 200 || len(w.Header()) != 0 {
		t.Errorf("the next: %d %v", w.Code, w.Header())
	}

	l = limiter(t, stint.Rate(1, time.Hour), theKey, texts("old"))
	take(t, l, 1)
	w = httptest.NewRecorder()
	_, err := l.Admit(w, get("/"))
	update(t, l, stint.Rate(5, time.Hour), theKey, texts("new"))
	if l.Deny(w, get("/"), fmt.Errorf("wrapped: %w", err)); w.Body.String() != "old" {
		t.Errorf("refused by the old, answered %q", w.Body)
	}
	w = httptest.NewRecorder()
	if l.Deny(w, get("/"), errors.Join(denied(t, err), nil)); w.Body.String() != "old" {
		t.Errorf("refused by the old, answered %q", w.Body)
	}
	w = httptest.NewRecorder()
	other := limiter(t, stint.Rate(1, time.Hour), theKey, texts("another"))
	if other.Deny(w, get("/"), err); w.Body.String() != "another" {
		t.Errorf("handed to another limiter, answered %q", w.Body)
	}
}
