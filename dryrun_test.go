package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// guest is a request of a test: when it comes, its class, how long its handler
// works, and when it leaves.
type guest struct {
	at     time.Duration
	class  int
	works  time.Duration
	leaves time.Duration // after it has come; 0 for never
}

// guests come faster than most limits of these tests let it.
func guests() (all []guest) {
	const ms = time.Millisecond
	for i := range 18 {
		g := guest{at: time.Duration(i)*37*ms + time.Duration(i/9)*500*ms, class: i * 7 % 10, works: time.Duration(i%5) * 31 * ms}
		if i%6 == 5 {
			g.leaves = 53 * ms
		}
		all = append(all, g)
	}
	return all
}

// scene is a set of limits that are enforced, and which events are about them.
type scene struct {
	name   string
	stored bool // some are decided in the store
	paces  bool // one is a Bandwidth
	limits func() []stint.Option
}

// diary is everything that the limits of a scene have made of its guests.
type diary struct {
	scene
	mu      sync.Mutex
	start   time.Time
	lines   []string
	running map[string]bool
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%12v ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

func (d *diary) decision(dec stint.Decision) string {
	dec.Limits = slices.DeleteFunc(slices.Clone(dec.Limits), func(s stint.LimitStatus) bool { return s.DryRun })
	return fmt.Sprintf("%+v", dec)
}

// others reports whether an event is about limits other than the scene's.
func (d *diary) others(e stint.Event, id string) bool {
	switch e.Kind {
	case stint.EventDryRunDenied, stint.EventBanned, stint.EventSettled, stint.EventSettleFailed:
		return true
	case stint.EventPaced:
		return e.Pacing.DryRun
	case stint.EventLimitChanged:
		return strings.HasPrefix(e.Change.Limit, "dry")
	case stint.EventStoreFailed:
		if d.running[id] {
			return !d.paces
		}
		return !d.stored
	}
	return false
}

func (d *diary) observe(e stint.Event) {
	id := ""
	if e.Request != nil {
		id = e.Request.Header.Get("X-Id")
	}
	d.mu.Lock()
	others := d.others(e, id)
	d.mu.Unlock()
	if !others {
		d.note("%s: %v %v waited %v ends %v %+v %+v, %s", id, e.Kind, e.Err, e.Waited, e.EndsWait, e.Change, e.Pacing, d.decision(e.Decision))
	}
}

// receive runs guests through a limiter and returns what has come of it, in
// order. The store fails from down on, for half a second; 0 for never.
func receive(t *testing.T, sc scene, down time.Duration, opts ...stint.Option) []string {
	d, s := &diary{scene: sc, running: map[string]bool{}}, newSpy()
	opts = append(opts, stint.WithStore(s), stint.WithObserver(d.observe), stint.WithHeaders(stint.DraftHeaders, stint.LegacyHeaders),
		stint.WithPriority(func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("X-Class")); return n }), theKey)
	l := limiter(t, opts...)
	d.start = time.Now().Truncate(time.Minute).Add(time.Minute) // windows are of the clock
	time.Sleep(time.Until(d.start))
	if down > 0 {
		time.AfterFunc(down, func() { s.failWith(errDown) })
		time.AfterFunc(down+500*time.Millisecond, func() { s.failWith(nil) })
	}
	var all sync.WaitGroup
	for i, g := range guests() {
		all.Go(func() {
			time.Sleep(g.at)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if g.leaves > 0 {
				time.AfterFunc(g.leaves, stop)
			}
			r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 100))).WithContext(ctx)
			r.Header.Set("X-Id", fmt.Sprintf("%02d", i))
			r.Header.Set("X-Class", strconv.Itoa(g.class))
			far := newFarEnd()
			mount(l, func(w http.ResponseWriter, r *http.Request) {
				d.note("%02d: runs, %s", i, d.decision(stint.FromContext(r.Context()).Decision()))
				d.mu.Lock()
				d.running[r.Header.Get("X-Id")] = true
				d.mu.Unlock()
				time.Sleep(g.works)
				_, err := w.Write(make([]byte, 3000))
				d.note("%02d: wrote, %v", i, err)
			}).ServeHTTP(far, r)
			d.note("%02d: %d %v, arrived %v", i, far.Code, far.Header(), far.log)
		})
	}
	all.Wait()
	if sc.stored {
		dec, err := l.Peek(t.Context(), "k")
		d.note("peek: %s, %v", d.decision(dec), err)
	}
	time.Sleep(time.Hour)
	slices.Sort(d.lines) // what happens at one instant has no order
	return d.lines
}

// Whatever a dry run says and costs, and whether or not its store works, enforced
// limits beside it answer as if it weren't there.
func TestDryRunsTakeNoPart(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	name, dry := stint.WithName, stint.WithDryRun()
	closed := stint.WithFailurePolicy(stint.FailClosed)
	own := stint.WithKey(func(r *http.Request) (string, error) { return r.Header.Get("X-Id"), nil })
	some := stint.WithCost(func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("X-Id"), 10, 64); return 1 + n%3 })

	one := func(l func() stint.Limit) func() []stint.Option {
		return func() []stint.Option { return []stint.Option{l()} }
	}
	scenes := []scene{
		{"a queue", true, false, one(func() stint.Limit {
			return stint.Rate(10, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(6), name("a"))
		})},
		{"turns", true, false, one(func() stint.Limit {
			return stint.Rate(10, second, stint.WithBurst(1), stint.WithMaxWait(700*ms), name("a"))
		})},
		{"a rate", true, false, one(func() stint.Limit { return stint.Rate(5, second, name("a")) })},
		{"a quota", true, false, one(func() stint.Limit {
			return stint.Quota(9, stint.Every(second), stint.WithMaxWait(250*ms), name("a"))
		})},
		{"slots", true, false, one(func() stint.Limit { // for less than a poll, which comes by chance
			return stint.Concurrency(1, stint.WithQueue(4), stint.WithMaxWait(80*ms), stint.WithShare(7, 50), name("a"))
		})},
		{"an adaptive limit", false, false, one(func() stint.Limit {
			return stint.AdaptiveConcurrency(1, 2, stint.WithQueue(4), stint.WithMaxWait(80*ms), name("a"))
		})},
		{"a bandwidth", false, true, one(func() stint.Limit { return stint.Bandwidth(20_000, stint.WithBurst(4096), name("a")) })},
		{"a ban", true, false, func() []stint.Option {
			return []stint.Option{stint.Rate(3, second, name("a")), stint.Ban(3, second, 250*ms, name("b"))}
		}},
		{"several", true, true, func() []stint.Option {
			return []stint.Option{
				stint.Rate(20, second, stint.WithMaxWait(second), stint.WithBurst(2), name("a")), stint.Concurrency(2, stint.WithMaxWait(80*ms), name("b")),
				stint.AdaptiveConcurrency(2, 4, name("c")), stint.Quota(30, stint.Every(time.Minute), name("d")), stint.Bandwidth(100_000, stint.WithBurst(4096), name("e")),
			}
		}},
	}
	dries := []struct {
		name   string
		limits func() []stint.Option
	}{
		{"a rate", one(func() stint.Limit { return stint.Rate(1, second, dry, closed, name("dry")) })},
		{"a rate of its own key", one(func() stint.Limit { return stint.Rate(1, second, dry, closed, own, name("dry")) })},
		{"a rate of its own cost", one(func() stint.Limit { return stint.Rate(100, second, dry, closed, some, name("dry")) })},
		{"a cost below 0", one(func() stint.Limit {
			return stint.Rate(100, second, dry, closed, cost(-1), name("dry"))
		})},
		{"turns", one(func() stint.Limit {
			return stint.Rate(1, second, dry, closed, some, stint.WithMaxWait(9*second), name("dry"))
		})},
		{"a queue", one(func() stint.Limit {
			return stint.Rate(2, second, dry, closed, own, stint.WithAlgorithm(stint.LeakyBucket), name("dry"))
		})},
		{"debt", one(func() stint.Limit {
			return stint.Rate(1, second, dry, closed, stint.WithDebt(), some, name("dry"))
		})},
		{"a warm-up", one(func() stint.Limit {
			return stint.Rate(9, second, dry, closed, stint.WithWarmUp(second), name("dry"))
		})},
		{"a log", one(func() stint.Limit {
			return stint.Rate(3, second, dry, closed, stint.WithAlgorithm(stint.SlidingLog), some, name("dry"))
		})},
		{"a quota", one(func() stint.Limit {
			return stint.Quota(3, stint.Every(second), dry, closed, own, name("dry"))
		})},
		{"settled", one(func() stint.Limit {
			return stint.Rate(9, second, dry, closed, settleTo(4), name("dry"))
		})},
		{"slots", one(func() stint.Limit { return stint.Concurrency(1, dry, closed, name("dry")) })},
		{"slots with a line and shares", one(func() stint.Limit {
			return stint.Concurrency(1, dry, closed, some, stint.WithQueue(1), stint.WithMaxWait(9*second), stint.WithShare(3, 50), name("dry"))
		})},
		{"an adaptive limit", one(func() stint.Limit {
			return stint.AdaptiveConcurrency(1, 1, dry, closed, stint.WithMaxWait(9*second), name("dry"))
		})},
		{"a bandwidth", one(func() stint.Limit {
			return stint.Bandwidth(1024, dry, closed, stint.WithRequestBytes(), stint.WithBurst(4096), name("dry"))
		})},
		{"a ban", func() []stint.Option {
			return []stint.Option{stint.Ban(1, second, time.Hour, dry, closed, name("dry")), stint.Rate(1, second, dry, closed, name("dry2"))}
		}},
		{"of a function", func() []stint.Option {
			l := stint.Rate(1, second, dry, closed, own, name("dry"))
			return []stint.Option{stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
				if strings.ContainsAny(r.Header.Get("X-Id"), "2468") {
					return nil, nil
				}
				return []stint.Limit{l}, nil
			})}
		}},
		{"six", func() (all []stint.Option) {
			for i := range 6 {
				all = append(all, stint.Rate(int64(i+1), second, dry, closed, some, stint.WithMaxWait(second), name(fmt.Sprint("dry", i))))
			}
			return all
		}},
	}
	for _, sc := range scenes {
		for _, down := range []time.Duration{0, 333*ms + 1} {
			for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
				if down == 0 && policy == stint.FailClosed {
					continue
				}
				t.Run(fmt.Sprintf("%s, down at %v, policy %d", sc.name, down, policy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						with := stint.WithFailurePolicy(policy)
						want := receive(t, sc, down, append(sc.limits(), with)...)
						for i, dr := range dries {
							opts, where := append(append(dr.limits(), sc.limits()...), with), "before"
							if (i+len(sc.name)+int(policy))%2 == 0 {
								opts, where = append(append(sc.limits(), with), dr.limits()...), "behind"
							}
							compare(t, dr.name+" "+where+" it", receive(t, sc, down, opts...), want)
						}
					})
				})
			}
		}
	}
}

// compare shows where two diaries begin to differ.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("with %s:\n got %s\nwant %s", what, g, w)
			return
		}
	}
}
