package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// byHeader takes the class from a field.
var byHeader = stint.WithPriority(func(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get("Class"))
	return n
})

// arrival is a request that comes at some time with a class and leaves, if
// ever, unserved after some time.
type arrival struct {
	name     string
	at       time.Duration
	class    int
	deadline time.Duration
	leave    time.Duration
}

// visits lets the arrivals come, each to work for as long as it is let in, and
// returns who went in when, in order.
func visits(t *testing.T, l *stint.Limiter, work time.Duration, all []arrival) string {
	t.Helper()
	start := time.Now()
	type entry struct {
		at   time.Duration
		text string
	}
	var mu sync.Mutex
	var log []entry
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, entry{time.Since(start), fmt.Sprintf(format, args...)})
	}
	var wg sync.WaitGroup
	for _, a := range all {
		time.Sleep(a.at - time.Since(start))
		r := get("/")
		r.Header.Set("Class", strconv.Itoa(a.class))
		ctx, cancel := context.WithCancel(t.Context())
		if a.deadline > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), a.deadline)
		}
		if a.leave > 0 {
			time.AfterFunc(a.leave, cancel)
		}
		wg.Go(func() {
			defer cancel()
			w := through(l, r.WithContext(ctx), func(http.ResponseWriter, *http.Request) {
				note("%s %v", a.name, time.Since(start))
				time.Sleep(work)
			})
			if w.Code != 200 {
				note("%s refused %v", a.name, time.Since(start))
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	noLines(t, l)
	slices.SortStableFunc(log, func(a, b entry) int { return int(a.at - b.at) })
	var text []string
	for _, e := range log {
		text = append(text, e.text)
	}
	return strings.Join(text, ", ")
}

func TestPriority(t *testing.T) {
	ms := time.Millisecond
	slot := stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))
	turn := stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute))
	queue := stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(9))
	three := []arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"mid", 200 * ms, 2, 0, 0}, {"mid2", 300 * ms, 2, 0, 0}, {"high", 400 * ms, 5, 0, 0}}
	aged := []arrival{{"a", 0, 0, 0, 0}, {"low", 10 * ms, 0, 0, 0}, {"h1", 500 * ms, 1, 0, 0}, {"h2", 1500 * ms, 1, 0, 0}, {"h3", 2500 * ms, 1, 0, 0}}
	tests := []struct {
		name  string
		opts  []stint.Option
		comes []arrival
		want  string
	}{
		{"slots", []stint.Option{slot, byHeader}, three, "a 0s, high 1s, mid 2s, mid2 3s, low 4s"},
		{"turns", []stint.Option{turn, byHeader}, three, "a 0s, high 1s, mid 2s, mid2 3s, low 4s"},
		{"queued turns", []stint.Option{queue, byHeader}, three, "a 0s, high 1s, mid 2s, mid2 3s, low 4s"},
		{"slots, all equal", []stint.Option{slot}, three, "a 0s, low 1s, mid 2s, mid2 3s, high 4s"},
		{"turns, all equal", []stint.Option{turn}, three, "a 0s, low 1s, mid 2s, mid2 3s, high 4s"},
		// low has risen by a class when h2 comes: it goes before it.
		{"slots, aged", []stint.Option{slot, byHeader}, aged, "a 0s, h1 1s, low 2s, h2 3s, h3 4s"},
		{"turns, aged", []stint.Option{turn, byHeader}, aged, "a 0s, h1 1s, low 2s, h2 3s, h3 4s"},
		{"slots, aged slowly", []stint.Option{slot, byHeader, stint.WithAging(time.Minute)}, aged, "a 0s, h1 1s, h2 2s, h3 3s, low 4s"},
		{"turns, aged slowly", []stint.Option{turn, byHeader, stint.WithAging(time.Minute)}, aged, "a 0s, h1 1s, h2 2s, h3 3s, low 4s"},
		{"slots, aged fast", []stint.Option{slot, byHeader, stint.WithAging(ms)}, aged, "a 0s, low 1s, h1 2s, h2 3s, h3 4s"},
		{"classes beyond the last are the last", []stint.Option{slot, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"nine", 100 * ms, 9, 0, 0}, {"more", 200 * ms, 99, 0, 0}, {"none", 300 * ms, -99, 0, 0}, {"zero", 400 * ms, 0, 0, 0}},
			"a 0s, nine 1s, more 2s, none 3s, zero 4s"},
		{"who leaves holds up nobody", []stint.Option{slot, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"high", 200 * ms, 5, 0, 500 * ms}, {"low2", 300 * ms, 0, 0, 0}}, "a 0s, high refused 700ms, low 1s, low2 2s"},
		{"whose turn is given up moves all up", []stint.Option{turn, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"high", 200 * ms, 5, 0, 500 * ms}, {"low2", 300 * ms, 0, 0, 0}}, "a 0s, high refused 700ms, low 1s, low2 2s"},
		// Nobody is told to wait for longer than it may.
		{"a turn that can't be later", []stint.Option{turn, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"due", 200 * ms, 0, 2500 * ms, 0}, {"high", 300 * ms, 5, 0, 0}}, "a 0s, low 1s, due 2s, high 3s"},
		{"a turn that can be later by one", []stint.Option{turn, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"due", 200 * ms, 0, 3 * time.Second, 0}, {"high", 300 * ms, 5, 0, 0}, {"top", 400 * ms, 9, 0, 0}},
			"a 0s, high 1s, low 2s, due 3s, top 4s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := visits(t, limiter(t, append(tt.opts, theKey)...), time.Second, tt.comes); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// Outside HTTP, and in it without WithPriority, the class comes from the context.
func TestPriorityOfContext(t *testing.T) {
	for _, limit := range []stint.Limit{
		stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute)), stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute)),
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, limit)
			var mu sync.Mutex
			var order []string
			var wg sync.WaitGroup
			enter := func(name string, do func() *stint.Permit) {
				wg.Go(func() {
					p := do()
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					time.Sleep(time.Second)
					p.Done()
				})
				synctest.Wait()
			}
			in := func(class int) context.Context { return stint.ContextWithPriority(t.Context(), class) }
			must := func(p *stint.Permit, err error) *stint.Permit {
				if err != nil {
					t.Error(err)
				}
				return p
			}
			enter("first", func() *stint.Permit { return must(l.Take(t.Context(), "k", 1)) })
			enter("take 0", func() *stint.Permit { return must(l.Take(t.Context(), "k", 1)) })
			enter("take 1", func() *stint.Permit { return must(l.Take(in(1), "k", 1)) })
			enter("wait 3", func() *stint.Permit { return must(l.Wait(in(3), "k", 1)) })
			enter("admit 2", func() *stint.Permit { return must(l.Admit(discardResponse(), get("/").WithContext(in(2)))) })
			wg.Wait()
			if got, want := strings.Join(order, ", "), "first, wait 3, admit 2, take 1, take 0"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			noLines(t, l)
		})
	}
}

func discardResponse() http.ResponseWriter { return &discard{h: http.Header{}} }

// The class of a request that needs no slot and doesn't wait isn't asked for; that of
// all others once.
func TestPriorityIsAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := limiter(t, theKey, stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute)),
			stint.WithRoute("/slots", stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))),
			stint.WithPriority(func(*http.Request) int { asked++; return 1 }))
		for i, tt := range []struct {
			path string
			want int
		}{{"/", 0}, {"/", 0}, {"/", 1}, {"/slots", 1}, {"/slots", 1}} {
			if asked = 0; i == 4 {
				p, err := l.Admit(discardResponse(), get("/slots"))
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Second, p.Done)
				asked = 0
			}
			if through(l, get(tt.path), nil); asked != tt.want {
				t.Errorf("%d: asked %d times, want %d", i, asked, tt.want)
			}
		}
	})
	// A function that panics takes nothing with it.
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(2, stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithShare(1, 50)),
			stint.WithPriority(func(*http.Request) int { panic("no class") }))
		func() {
			defer func() { _ = recover() }()
			through(l, get("/"), nil)
			t.Error("no panic")
		}()
		if got := remaining(t, l); got != 2 {
			t.Errorf("%d slots free, want 2", got)
		}
		noLines(t, l)
	})
}

// Priorities are inherited like other options, and replaced by an Update.
func TestPriorityIsInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comes := []arrival{{"a", 0, 0, 0, 0}, {"low", 1, 0, 0, 0}, {"high", 2, 5, 0, 0}}
		root := limiter(t, theKey, byHeader, stint.Rate(1000, time.Second))
		slot := stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))
		l, err := root.With(slot)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := visits(t, l, time.Second, comes), "a 0s, high 1s, low 2s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		backwards := stint.WithPriority(func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("Class")); return 9 - n })
		if err := l.Update(slot, backwards); err != nil {
			t.Fatal(err)
		}
		if got, want := visits(t, l, time.Second, comes), "a 0s, low 1s, high 2s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Whoever waits and leaves, and when: nobody is overtaken by a lower rank, no place is
// lost, and no more pass than may.
func TestPriorityUnderStress(t *testing.T) {
	aging := 500 * time.Millisecond
	limits := map[string]stint.Limit{
		"slots":    stint.Concurrency(3, stint.WithQueue(1000), stint.WithMaxWait(20*time.Second)),
		"adaptive": stint.AdaptiveConcurrency(3, 3, stint.WithQueue(1000), stint.WithMaxWait(20*time.Second)),
		"turns":    stint.Rate(20, time.Second, stint.WithBurst(1), stint.WithMaxWait(20*time.Second)),
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					rnd := newRand(seed)
					l := limiter(t, theKey, limit, stint.WithAging(aging))
					type waiter struct {
						class    int
						came     time.Time
						in, left time.Time
					}
					var mu sync.Mutex
					var all []*waiter
					inside, most := 0, 0
					var wg sync.WaitGroup
					for range 150 {
						w := &waiter{class: rnd.IntN(4), came: time.Now()}
						all = append(all, w)
						ctx, cancel := context.WithCancel(stint.ContextWithPriority(t.Context(), w.class))
						if rnd.IntN(3) == 0 {
							time.AfterFunc(time.Duration(rnd.IntN(3_000_000))*time.Microsecond, cancel)
						}
						work := time.Duration(1+rnd.IntN(150_000)) * time.Microsecond
						wg.Go(func() {
							defer cancel()
							p, err := l.Take(ctx, "k", 1)
							mu.Lock()
							defer mu.Unlock()
							if err != nil {
								if !errors.Is(err, context.Canceled) {
									t.Errorf("seed %d: %v", seed, err)
								}
								w.left = time.Now()
								return
							}
							w.in = time.Now()
							inside++
							most = max(most, inside)
							mu.Unlock()
							time.Sleep(work)
							mu.Lock()
							inside--
							p.Done()
						})
						synctest.Wait()
						time.Sleep(time.Duration(1+rnd.IntN(40_000)) * time.Microsecond)
					}
					wg.Wait()
					for _, a := range all {
						for _, b := range all {
							// a waited when b went in, and ranks before it.
							rank := a.came.Add(-time.Duration(a.class) * aging).Compare(b.came.Add(-time.Duration(b.class) * aging))
							waited := !b.in.IsZero() && a.came.Before(b.in) && b.came.Before(b.in) && (a.in.After(b.in) || a.in.IsZero() && a.left.After(b.in))
							if waited && rank < 0 {
								t.Fatalf("seed %d: class %d of %v went in at %v, before class %d of %v", seed,
									b.class, b.came.Sub(all[0].came), b.in.Sub(all[0].came), a.class, a.came.Sub(all[0].came))
							}
						}
					}
					if name != "turns" && most > 3 {
						t.Errorf("seed %d: %d at once, want 3 at the most", seed, most)
					}
					noLines(t, l)
					if got := remaining(t, l); name == "slots" && got != 3 {
						t.Errorf("seed %d: %d slots free at the end", seed, got)
					}
				})
			}
		})
	}
}

// A waiter that has been overtaken doesn't ask, even if it would be the first to notice
// a slot released elsewhere.
func TestOvertakenHeadDoesNotAsk(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy()
			there := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithName("concurrency")))
			l := limiter(t, theKey, stint.WithStore(s), byHeader, stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithName("concurrency")))
			time.AfterFunc(85*time.Millisecond, take(t, there, 1).Done)
			got := visits(t, l, time.Second, []arrival{{"low", 0, 0, 0, 0}, {"high", 50 * time.Millisecond, 5, 0, 0}})
			if !strings.HasPrefix(got, "high") {
				t.Fatal(got)
			}
		})
	}
}

// One turn goes to one waiter, even if it is taken away at the instant it comes.
func TestTurnTakenAtTheLastMoment(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, byHeader, stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute)))
			through(l, get("/"), nil)
			start := time.Now()
			var mu sync.Mutex
			var at []time.Duration
			var wg sync.WaitGroup
			for i := range 4 {
				r := get("/")
				if i > 1 {
					r.Header.Set("Class", "5")
				}
				wg.Go(func() {
					if i > 1 {
						time.Sleep(time.Second)
					}
					through(l, r, func(http.ResponseWriter, *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, time.Since(start))
					})
				})
			}
			wg.Wait()
			slices.Sort(at)
			if want := millis(1000, 2000, 3000, 4000); !slices.Equal(at, want) {
				t.Fatalf("passed at %v, want %v", at, want)
			}
			noLines(t, l)
		})
	}
}
