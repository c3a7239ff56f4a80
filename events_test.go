package stint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// credential is a key that no event may show.
const credential = "hunter2-hunter2"

// What events say about a request from beginning to end, and whose key it is.
func TestEventsTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := limiter(t,
			stint.Concurrency(4, stint.WithName("slots")),
			stint.WithRoute("POST /login", stint.Rate(9, time.Hour, stint.WithName("login"), stint.WithCost(func(*http.Request) int64 { return 5 }),
				stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })),
				stint.Concurrency(1, stint.WithName("one"), stint.WithKey(stint.Global()))),
			stint.WithKey(stint.Header("X-Api-Key")), stint.WithLimiterName("front"))
		stop := l.Observe(func(e stint.Event) {
			line := fmt.Sprint(e.Kind, " ", e.Limiter, " ", e.Route, " ", e.Decision.Limit, " status ", e.Status, " held ", e.Held)
			for i, s := range e.Decision.Limits {
				line += fmt.Sprintf(", %s of %s cost %d left %d", s.Name, e.Key(i), s.Cost, s.Remaining)
			}
			got = append(got, line)
		})
		ask := func(method, path string) {
			r := get(path)
			r.Method = method
			r.Header.Set("X-Api-Key", "k")
			through(l, r, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		}
		ask("GET", "/")
		ask("POST", "/login")
		stop()
		ask("GET", "/")
		want := []string{
			"Admitted front  slots status 0 held 0s, slots of k cost 1 left 3",
			"Ended front  slots status 0 held 1s, slots of k cost 1 left 3",
			"Admitted front POST /login one status 0 held 0s, slots of k cost 1 left 3, login of k cost 5 left 4, one of %00global cost 1 left 0",
			"Settled front POST /login one status 0 held 0s, slots of k cost 1 left 3, login of k cost 2 left 7, one of %00global cost 1 left 0",
			"Ended front POST /login one status 200 held 1s, slots of k cost 1 left 3, login of k cost 2 left 7, one of %00global cost 1 left 0",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Observers stay whatever Update does. Those of a limiter also get the events of
// limiters derived from it, but not the other way round.
func TestWhoObserves(t *testing.T) {
	var told []string
	as := func(name string) func(stint.Event) {
		return func(e stint.Event) {
			if e.Kind == stint.EventAdmitted {
				told = append(told, name)
			}
		}
	}
	rate := stint.Rate(99, time.Hour)
	l := limiter(t, theKey, rate, stint.WithObserver(as("option")))
	stop := l.Observe(as("observer"))
	d := stint.Must(l.With(stint.Rate(99, time.Hour, stint.WithName("derived")), stint.WithObserver(as("derived option"))))
	d.Observe(as("derived observer"))
	steps := []struct {
		what string
		do   func() error
		want string // of l, and of d
	}{
		{"from the start", func() error { return nil }, "option observer; option observer derived option derived observer"},
		{"after an Update", func() error { return l.Update(theKey, rate) }, "option observer; option observer derived option derived observer"},
		{"after an Update that has one", func() error { return l.Update(theKey, rate, stint.WithObserver(as("new"))) },
			"new observer; new observer derived option derived observer"},
		{"after stop", func() error { stop(); stop(); return nil }, "new; new derived option derived observer"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		told = nil
		through(l, get("/"), nil)
		got := strings.Join(told, " ")
		told = nil
		through(d, get("/"), nil)
		if got += "; " + strings.Join(told, " "); got != step.want {
			t.Errorf("%s: told %q, want %q", step.what, got, step.want)
		}
	}
}

// An event that is kept keeps its key and its limits, whatever is decided after it.
func TestKeptEventsStayAsTheyAre(t *testing.T) {
	const requests = 2000
	kept := make(chan stint.Event, requests)
	l := limiter(t, stint.Rate(10_000_000, time.Second), stint.WithKey(stint.Header("X-Api-Key")),
		stint.WithCost(func(r *http.Request) int64 { return int64(len(r.Header.Get("X-Api-Key"))) }))
	l.Observe(func(e stint.Event) {
		if e.Kind == stint.EventAdmitted {
			select {
			case kept <- e:
			default:
			}
		}
	})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for e := range kept {
				of := e.Request.Header.Get("X-Api-Key")
				if e.Key(0) != of || len(e.Decision.Limits) != 1 || e.Decision.Limits[0].Cost != int64(len(of)) {
					t.Errorf("the event of %s has key %s and limits %+v", of, e.Key(0), e.Decision.Limits)
				}
			}
		})
	}
	var callers sync.WaitGroup
	for c := range 2 {
		callers.Go(func() {
			for i := range requests {
				r := get("/")
				r.Header.Set("X-Api-Key", fmt.Sprint(c, ".", i))
				through(l, r, func(http.ResponseWriter, *http.Request) {})
			}
		})
	}
	callers.Wait()
	close(kept)
	all.Wait()
}

// What an observer writes through an event's pointers, no other observer reads.
func TestObserversHaveEventsOfTheirOwn(t *testing.T) {
	told := map[stint.EventKind]string{}
	limiter(t, stint.Bandwidth(4096), theKey, stint.WithPriority(func(*http.Request) int { return 0 }),
		stint.WithObserver(func(e stint.Event) {
			if e.Pacing != nil {
				*e.Pacing = stint.Pacing{}
			}
			if e.Warning != nil {
				*e.Warning = stint.Warning{}
			}
		}),
		stint.WithObserver(func(e stint.Event) {
			if e.Pacing != nil {
				told[e.Kind] = e.Pacing.Limit
			}
			if e.Warning != nil {
				told[e.Kind] = e.Warning.Kind
			}
		}),
	).Serve(httptest.NewRecorder(), get("/"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	if want := map[stint.EventKind]string{stint.EventPaced: "bandwidth", stint.EventWarning: "nothing-waits"}; !maps.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// What an observer may write to, it has to itself: all that an event points to, but the request, the
// error and the limits of the decision.
func TestOwnEvents(t *testing.T) {
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() && f.Name != "Request" {
					fill(v.Field(i))
				}
			}
		}
	}
	found, mayNot := 0, []string{".Decision.Limits"}
	var apart func(at string, a, b reflect.Value)
	apart = func(at string, a, b reflect.Value) {
		switch a.Kind() {
		case reflect.Pointer, reflect.Slice:
			if a.IsNil() || slices.Contains(mayNot, at) {
				return
			}
			if found++; a.Pointer() == b.Pointer() {
				t.Errorf("observers share Event%s", at)
			}
			if a.Kind() == reflect.Slice {
				apart(at+"[0]", a.Index(0), b.Index(0))
			} else {
				apart(at, a.Elem(), b.Elem())
			}
		case reflect.Struct:
			for i := range a.NumField() {
				if f := a.Type().Field(i); f.IsExported() && f.Name != "Request" {
					apart(at+"."+f.Name, a.Field(i), b.Field(i))
				}
			}
		}
	}
	var e stint.Event
	fill(reflect.ValueOf(&e).Elem())
	apart("", reflect.ValueOf(e), reflect.ValueOf(e.Own()))
	if found < 4 {
		t.Errorf("an event has %d pointers and slices", found)
	}
}

// However an event is printed, and whenever, it shows no key.
func TestEventsShowNoKey(t *testing.T) {
	var kept []stint.Event
	var shown bytes.Buffer
	show := func(e stint.Event) {
		text := slog.New(slog.NewTextHandler(&shown, nil))
		text.Info("event", "event", e)
		slog.New(slog.NewJSONHandler(&shown, nil)).Info("event", "event", e)
		fmt.Fprintf(&shown, "%v %+v %#v %s %q %d %x\n", e, e, e, e, e, e, e)
		fmt.Fprintf(&shown, "%+v\n", []any{&e, struct{ E stint.Event }{e}, map[string]stint.Event{"e": e}})
		b, err := json.Marshal(map[string]any{"e": e, "p": &e})
		if err != nil || !json.Valid(b) {
			t.Errorf("%s: %v", b, err)
		}
		shown.Write(b)
	}
	seen := 0
	l := limiter(t, stint.Rate(1, time.Hour), stint.Rate(1, time.Hour, stint.WithDryRun(true)), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)),
		stint.WithKey(stint.Header("X-Api-Key")), stint.WithObserver(func(e stint.Event) {
			if e.Key(0) == credential {
				seen++
			}
			if e.Key(-1) != "" || e.Key(len(e.Decision.Limits)) != "" {
				t.Error("a key of no limit")
			}
			kept = append(kept, e)
			show(e)
		}))
	for range 3 {
		r := get("/")
		r.Header.Set("X-Api-Key", credential)
		through(l, r, nil)
	}
	if len(kept) < 6 || seen < 6 {
		t.Fatalf("%d events, %d with the key", len(kept), seen)
	}
	for _, e := range kept {
		show(e)
	}
	if strings.Contains(shown.String(), credential) || strings.Contains(shown.String(), fmt.Sprintf("%x", credential)) {
		t.Errorf("a key is shown: %s", shown.String())
	}
	if !strings.Contains(shown.String(), `event="Denied"`) {
		t.Errorf("nothing is shown: %.500s", shown.String())
	}
}

// An observer that gets all events costs what an event holds of its own: its limits, its
// keys and, of an EventPaced, its Pacing; and, for how long slots are held, an allocation.
func TestEventsAllocateWhatTheyHold(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and pools lose things on purpose")
	}
	name := stint.WithName("x")
	down := func() stint.Option { return stint.WithStore(failing(errDown)) }
	none := func(http.ResponseWriter, *http.Request) {}
	tests := []struct {
		kind stint.EventKind
		opts func() []stint.Option
		do   http.HandlerFunc // nil: what the adapter does for none
	}{
		{stint.EventAdmitted, func() []stint.Option {
			return []stint.Option{ample(), stint.Quota(1<<30, stint.Daily, stint.WithName("daily"))}
		}, nil},
		{stint.EventDenied, func() []stint.Option { return []stint.Option{stint.Rate(1, time.Hour, name)} }, nil},
		{stint.EventDryRunDenied, func() []stint.Option { return []stint.Option{stint.Rate(1, time.Hour, name, stint.WithDryRun(true))} }, nil},
		{stint.EventBlocked, func() []stint.Option {
			return []stint.Option{ample(), stint.WithBlock(func(*http.Request) bool { return true })}
		}, nil},
		{stint.EventEmptyKey, func() []stint.Option {
			return []stint.Option{stint.Rate(9, time.Hour, name, stint.WithKey(stint.Header("X-None")))}
		}, nil},
		{stint.EventStoreFailed, func() []stint.Option { return []stint.Option{stint.Rate(9, time.Hour, name), down()} }, nil},
		{stint.EventSettleFailed, func() []stint.Option {
			return []stint.Option{stint.Concurrency(1<<30, name), stint.WithStore(unsettled())}
		}, nil},
		{stint.EventEnded, func() []stint.Option { return []stint.Option{stint.Concurrency(9, name)} }, nil},
		{stint.EventEnded, func() []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 30), stint.Concurrency(9, name), ample()}
		}, none},
		{stint.EventSettled, func() []stint.Option {
			return []stint.Option{stint.Rate(10_000_000, time.Second, name, stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 }))}
		}, none},
		{stint.EventSettled, func() []stint.Option { return []stint.Option{ample()} }, func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 2)
		}},
		{stint.EventPaced, func() []stint.Option { return []stint.Option{stint.Bandwidth(1<<34, name)} }, none},
	}
	for _, tt := range tests {
		t.Run(tt.kind.String(), func(t *testing.T) {
			count := func(opts ...stint.Option) float64 {
				l := limiter(t, append(append(opts, theKey), tt.opts()...)...)
				w, r := &discard{h: http.Header{}}, get("/")
				for range 100 {
					w.handle(l, r, tt.do)
				}
				return testing.AllocsPerRun(1000, func() { w.handle(l, r, tt.do) })
			}
			of, all, story := 0, 0, 0.0
			if tt.kind == stint.EventEnded {
				story = 1
			}
			plain, told := count(), count(stint.WithObserver(func(e stint.Event) {
				all += 2
				if e.Kind == tt.kind {
					of++
				}
				if e.Pacing != nil {
					all++
				}
			}))
			if most := plain + story + math.Ceil(float64(all)/1101); told > most || of == 0 {
				t.Errorf("%v allocations with an observer, %v without, want %v at most; it counted %d", told, plain, most, of)
			}
		})
	}
}

// handle has l decide a request, and do answer it as an adapter has a handler do.
func (d *discard) handle(l *stint.Limiter, r *http.Request, do http.HandlerFunc) {
	if do == nil {
		d.request(l, r)
		return
	}
	d.reset()
	l.Serve(d, r, do)
}

// Observers learn how long the store took.
func TestEventsTellWhatTheStoreTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithStore(slow(30*time.Millisecond, 0)),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind != stint.EventEnded {
					took = append(took, e.StoreTook)
				}
			}))
		through(l, get("/"), nil)
		through(l, get("/"), nil)
		down := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithStore(hangs()),
			stint.WithObserver(func(e stint.Event) { took = append(took, e.StoreTook) }))
		through(down, get("/"), nil)
		if fmt.Sprint(took) != "[30ms 30ms 20ms]" {
			t.Errorf("took %v", took)
		}
	})
}

// hangs is a store that fails after a while.
func hangs() *spy {
	s := newSpy()
	s.OnTake = func(*asks) error {
		time.Sleep(20 * time.Millisecond)
		return errors.New("gone")
	}
	return s
}

// Each admitted request ends, so that figures of those in flight come down.
func TestEventsTellTheEnd(t *testing.T) {
	for name, opts := range map[string][]stint.Option{
		"with a permit":             {stint.Rate(9, time.Hour)},
		"without":                   {stint.Rate(9, time.Hour), stint.WithoutPermit()},
		"without, but with a slot":  {stint.Concurrency(9), stint.WithoutPermit()},
		"without, and with a watch": {stint.Rate(9, time.Hour, stint.WithSettle(stint.FailedOnly)), stint.WithoutPermit()},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []stint.EventKind
			l := limiter(t, append(opts, theKey, stint.WithObserver(func(e stint.Event) { kinds = append(kinds, e.Kind) }))...)
			through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
				if stint.FromContext(r.Context()) != nil != (len(opts) == 1) {
					t.Error("WithoutPermit makes no difference to the handler")
				}
			})
			if n := len(kinds); n < 2 || kinds[0] != stint.EventAdmitted || kinds[n-1] != stint.EventEnded {
				t.Errorf("events %v", kinds)
			}
		})
	}
}

// The event names the ban that has begun, even if another limit denies for longer.
func TestEventsTellWhichBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var banned []string
		l := limiter(t, theKey, stint.Rate(1, 100*time.Hour),
			stint.Ban(1, time.Hour, stint.WithBanFor(time.Minute), stint.WithName("short")), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("trial"), stint.WithDryRun(true)),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					banned = append(banned, fmt.Sprint(e.Decision.Limit, " ", e.Decision.RetryAfter))
				}
			}))
		through(l, get("/"), nil)
		through(l, get("/"), nil)
		if want := "[short 1m0s trial 1h0m0s]"; fmt.Sprint(banned) != want {
			t.Errorf("banned %v, want %v", banned, want)
		}
	})
}

// An event without a decision still says what it is about: the limiter, the route, and
// each limit with its key.
func TestEventsKnowWhatTheyAreAbout(t *testing.T) {
	name := stint.WithName("x")
	fails := func() store.Store { return failing(errDown) }
	settles := func() store.Store { return unsettled() }
	write := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }
	rate := stint.Rate(9, time.Hour, name)
	tests := []struct {
		kind  stint.EventKind
		limit stint.RouteOption
		more  []stint.Option
		store store.Store
		do    http.HandlerFunc
		n     int
		want  string
	}{
		{kind: stint.EventBlocked, limit: rate, more: []stint.Option{stint.WithBlock(func(*http.Request) bool { return true })}, want: ""},
		{kind: stint.EventEmptyKey, limit: stint.Rate(9, time.Hour, name, stint.WithKey(stint.Header("X-None"))), want: "x"},
		{kind: stint.EventKeyFailed, limit: stint.Rate(9, time.Hour, name, stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", errDown }))), want: "x"},
		{kind: stint.EventStoreFailed, limit: rate, store: fails(), want: "x, x of k cost 1"},
		{kind: stint.EventStoreFailed, limit: stint.Bandwidth(4096, name), store: fails(), do: write, want: "x, x of k cost 100"},
		{kind: stint.EventSettleFailed, limit: rate, store: settles(), do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "x, x of k cost 4"},
		{kind: stint.EventSettleFailed, limit: stint.Concurrency(9, name), store: settles(), want: "x, x of k cost 0"},
		{kind: stint.EventSettleFailed, limit: stint.Rate(9, time.Hour, name, stint.WithSettle(func(*http.Request, int, int64) int64 { return 7 })),
			store: settles(), want: "x, x of k cost 7"},
		{kind: stint.EventWaiting, limit: stint.Rate(1, time.Second, name, stint.WithMaxWait(time.Minute)), n: 2, want: "x, x of k cost 1"},
		{kind: stint.EventPaced, limit: stint.Bandwidth(4096, name), do: write, want: "x, x of k cost 0"},
		{kind: stint.EventLimitChanged, limit: stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name),
			do: func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond)
			}, n: 12, want: "x, x of k cost 1"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.kind, " ", tt.want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				opts := append(tt.more, stint.WithRoute("GET /users/{id}", tt.limit), theKey, stint.WithLimiterName("front"),
					stint.WithObserver(func(e stint.Event) {
						if e.Kind != tt.kind {
							return
						}
						about := []string{e.Decision.Limit}
						for i, l := range e.Decision.Limits {
							about = append(about, fmt.Sprintf("%s of %s cost %d", l.Name, e.Key(i), l.Cost))
						}
						told = append(told, e.Limiter+" "+e.Route+": "+strings.Join(about, ", "))
					}))
				if tt.store != nil {
					opts = append(opts, stint.WithStore(tt.store))
				}
				l := limiter(t, opts...)
				for range max(tt.n, 1) {
					through(l, get("/users/42"), func(w http.ResponseWriter, r *http.Request) {
						if tt.do != nil {
							tt.do(w, r)
						}
					})
				}
				if want := "front GET /users/{id}: " + tt.want; len(told) == 0 || slices.ContainsFunc(told, func(got string) bool { return got != want }) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		})
	}
}

// The time of each store call is reported by exactly one event: the outcome of the
// decision, the settlement, or the end.
func TestEventsTellWhatSettlingTook(t *testing.T) {
	name := stint.WithName("x")
	two := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	tests := []struct {
		name  string
		limit stint.Option
		fails int64
		do    http.HandlerFunc
		want  string
	}{
		{name: "nothing settled", limit: stint.Rate(9, time.Hour, name), want: "Admitted 30ms, Ended 0s"},
		{name: "slots", limit: stint.Concurrency(9, name), want: "Admitted 30ms, Ended 7ms"},
		{name: "at the end", limit: stint.Rate(9, time.Hour, name, two), want: "Admitted 30ms, Settled 7ms, Ended 0s"},
		{name: "by hand", limit: stint.Rate(9, time.Hour, name), do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "Admitted 30ms, Settled 7ms, Ended 0s"},
		{name: "in vain", limit: stint.Concurrency(9, name), fails: 1, want: "Admitted 30ms, SettleFailed 7ms, Ended 0s"},
		{name: "by hand in vain", limit: stint.Rate(9, time.Hour, name), fails: 1, do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "Admitted 30ms, SettleFailed 7ms, Ended 0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				s := slow(30*time.Millisecond, 7*time.Millisecond)
				s.OnSettle = someLost(tt.fails, s.OnSettle)
				l := limiter(t, tt.limit, theKey, stint.WithStore(s), stint.WithObserver(func(e stint.Event) {
					told = append(told, fmt.Sprint(e.Kind, " ", e.StoreTook))
				}))
				through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
					if tt.do != nil {
						tt.do(w, r)
					}
				})
				if got := strings.Join(told, ", "); got != tt.want {
					t.Errorf("told %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// Which of its fields each kind of event of a request has, where there is all to say that may
// be. A field that no kind has fails the test, and so does a kind without a row.
func TestEachKindHasItsFields(t *testing.T) {
	const everyOne, decided = "Kind Limiter Route", " Request Decision StoreTook"
	name := stint.WithName("x")
	slowly := func() store.Store { return slow(2*time.Millisecond, 2*time.Millisecond) }
	fails := func() store.Store { return hangs() }
	waits := []stint.RouteOption{stint.Concurrency(1, name, stint.WithQueue(5), stint.WithMaxWait(time.Minute))}
	two := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	second := func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }
	write := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4096)) }
	impatient := []stint.RouteOption{stint.Concurrency(1, name, stint.WithQueue(5), stint.WithMaxWait(time.Millisecond))}
	tests := []struct {
		kind   stint.EventKind
		limits []stint.RouteOption
		more   []stint.Option
		store  store.Store
		do     http.HandlerFunc
		leaves bool // the clients leave after half a second
		inTurn bool // one comes after the other
		want   string
	}{
		{kind: stint.EventAdmitted, limits: waits, do: second, want: everyOne + decided + " Waited EndsWait"},
		{kind: stint.EventDenied, limits: impatient, do: second, want: everyOne + decided + " Waited EndsWait"},
		{kind: stint.EventCanceled, limits: waits, do: second, leaves: true, want: everyOne + decided + " Err Waited EndsWait"},
		{kind: stint.EventBlocked, limits: waits, more: []stint.Option{stint.WithBlock(func(*http.Request) bool { return true })}, want: everyOne + " Request Err"},
		{kind: stint.EventEmptyKey, limits: []stint.RouteOption{stint.Rate(9, time.Hour, name, stint.WithKey(stint.Header("X-None")))}, want: everyOne + " Request Decision Err"},
		{kind: stint.EventKeyFailed, limits: []stint.RouteOption{stint.Rate(9, time.Hour, name,
			stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", errDown })))}, want: everyOne + " Request Decision Err"},
		{kind: stint.EventLimitsFailed, more: []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, errDown })}, want: "Kind Limiter Request Err"},
		{kind: stint.EventSourceFailed, more: []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, &stint.SourceError{Err: errDown} })}, want: "Kind Limiter Request Err"},
		{kind: stint.EventStoreFailed, limits: waits, store: fails(), want: everyOne + decided + " Err"},
		{kind: stint.EventStoreFailed, limits: []stint.RouteOption{stint.Bandwidth(4096, name)}, store: fails(), do: write, want: everyOne + " Request Decision Err"},
		{kind: stint.EventSettleFailed, limits: []stint.RouteOption{stint.Concurrency(9, name)},
			store: &spy{Store: memstore.New(), OnSettle: someLost(1, late(2*time.Millisecond))}, want: everyOne + " Decision Err StoreTook"},
		{kind: stint.EventDryRunDenied, limits: []stint.RouteOption{stint.Rate(1, time.Hour, name, stint.WithDryRun(true))}, want: everyOne + decided},
		{kind: stint.EventLimitChanged, limits: []stint.RouteOption{stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name)},
			do: func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond)
			}, inTurn: true, want: everyOne + " Decision Change"},
		{kind: stint.EventWaiting, limits: waits, do: second, want: everyOne + " Request Decision"},
		{kind: stint.EventSettled, limits: []stint.RouteOption{stint.Rate(9, time.Hour, name, two)}, want: everyOne + " Decision StoreTook Request"},
		{kind: stint.EventPaced, limits: []stint.RouteOption{stint.Bandwidth(1024, name)}, do: write, want: everyOne + " Request Decision Pacing"},
		{kind: stint.EventBanned, limits: []stint.RouteOption{stint.Rate(1, time.Hour, name), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban"))}, want: everyOne + decided},
		{kind: stint.EventExtended, limits: []stint.RouteOption{stint.Rate(99, time.Hour, name)},
			do: func(_ http.ResponseWriter, r *http.Request) {
				_ = stint.FromContext(r.Context()).Extend(r.Context(), 2)
			}, want: everyOne + " Decision StoreTook"},
		{kind: stint.EventNearLimit, limits: []stint.RouteOption{stint.Rate(10, time.Hour, name, stint.WithNearLimit(80))}, want: everyOne + " Request Decision Percent"},
		{kind: stint.EventEnded, limits: waits, do: second, want: everyOne + " Decision Waited StoreTook Held"},
		{kind: stint.EventEnded, limits: []stint.RouteOption{stint.Rate(9, time.Hour, name, two)}, want: everyOne + " Decision Status"},
	}
	seen := map[string]bool{"Path": true, "Warning": true, "ByHand": true} // those of events that aren't a request's
	kinds := map[stint.EventKind]bool{                                     // these aren't
		stint.EventUpdated: true, stint.EventStoreDegraded: true,
		stint.EventPolicy: true, stint.EventLeaseLost: true, stint.EventWarning: true,
	}
	for _, tt := range tests {
		kinds[tt.kind] = true
		for field := range strings.FieldsSeq(tt.want) {
			seen[field] = true
		}
		t.Run(fmt.Sprint(tt.kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []string
				st := tt.store
				if st == nil {
					st = slowly()
				}
				if tt.limits != nil {
					tt.more = append(tt.more, stint.WithRoute("GET /users/{id}", tt.limits...))
				}
				l := limiter(t, append(tt.more, theKey, stint.WithLimiterName("front"), stint.WithStore(st),
					stint.WithObserver(func(e stint.Event) {
						mu.Lock()
						defer mu.Unlock()
						v := reflect.ValueOf(e)
						for i := range v.NumField() {
							if f := v.Type().Field(i); e.Kind == tt.kind && f.IsExported() && !v.Field(i).IsZero() && !slices.Contains(got, f.Name) {
								got = append(got, f.Name)
							}
						}
					}))...)
				var all sync.WaitGroup
				for range 12 {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					if tt.leaves {
						time.AfterFunc(time.Second/2, leave)
					}
					all.Go(func() {
						through(l, get("/users/42").WithContext(ctx), func(w http.ResponseWriter, r *http.Request) {
							if tt.do != nil {
								tt.do(w, r)
							}
						})
					})
					if time.Sleep(time.Microsecond); tt.inTurn {
						all.Wait()
					}
				}
				all.Wait()
				want := strings.Fields(tt.want)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("has %v,\nwant %v", got, want)
				}
			})
		})
	}
	for kind := stint.EventKind(1); !strings.HasPrefix(kind.String(), "EventKind("); kind++ {
		if !kinds[kind] {
			t.Errorf("no row has %v: say above which fields it has", kind)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[stint.Event]()) {
		if field.IsExported() && !seen[field.Name] {
			t.Errorf("no kind has the field %s: say above which do", field.Name)
		}
	}
}

// An event shows each of its fields but the request, and that it ends the wait before.
func TestEventsShowEachField(t *testing.T) {
	full := map[string]any{
		"Limiter": "front", "Route": "/", "Decision": stint.Decision{Limit: "x"}, "Err": errDown, "Waited": time.Second,
		"StoreTook": time.Second, "Status": 200, "Held": time.Second, "Change": &stint.LimitChange{Limit: "x", From: 1, To: 2},
		"Pacing": &stint.Pacing{Bytes: 7}, "Path": "limits.yaml", "Warning": &stint.Warning{Link: "https://a.test"},
		"ByHand": true, "Percent": 80,
	}
	base := stint.Event{Kind: stint.EventAdmitted}
	typ := reflect.TypeFor[stint.Event]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() || f.Name == "Kind" || f.Name == "Request" || f.Name == "EndsWait" {
			continue
		}
		value, ok := full[f.Name]
		if !ok {
			t.Errorf("field %s: say above what to show", f.Name)
			continue
		}
		e := base
		reflect.ValueOf(&e).Elem().Field(i).Set(reflect.ValueOf(value))
		if fmt.Sprint(e) == fmt.Sprint(base) {
			t.Errorf("field %s isn't shown: %v", f.Name, e)
		}
	}
}
