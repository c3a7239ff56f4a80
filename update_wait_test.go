package stint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// What Guava promises when a rate is changed: those who were told to wait wait that
// long, debts are paid at the old price, and everybody after that pays the new price.
func TestUpdateOfRatesThatOwe(t *testing.T) {
	type do struct {
		after time.Duration
		rate  stint.Limit // the new one, or none
		cost  int64
		wait  time.Duration
	}
	const ms, us = time.Millisecond, time.Microsecond
	bursty := func(n int64, per time.Duration, burst int64) stint.Limit {
		return stint.Rate(n, per, stint.WithDebt(), stint.WithBurst(burst))
	}
	warm := func(n int64, d time.Duration) stint.Limit { return stint.Rate(n, time.Second, stint.WithWarmUp(d)) }
	none := stint.Limit{}
	tests := []struct {
		name  string
		first stint.Limit
		steps []do
	}{
		{"a debt is paid at the rate it was made", bursty(1, time.Second, 0), []do{
			{cost: 1}, {cost: 1, wait: time.Second},
			{rate: bursty(2, time.Second, 0), cost: 1, wait: time.Second}, // owed at one a second
			{cost: 2, wait: 500 * ms}, {cost: 4, wait: time.Second}, {cost: 1, wait: 2 * time.Second},
		}},
		{"slower", bursty(10, time.Second, 0), []do{
			{cost: 5}, {rate: bursty(1, time.Second, 0), cost: 3, wait: 500 * ms},
			{cost: 1, wait: 3 * time.Second}, {cost: 1, wait: time.Second},
		}},
		{"a debt half paid", bursty(1, time.Second, 0), []do{
			{cost: 4}, {after: time.Second, rate: bursty(100, time.Second, 0), cost: 100, wait: 3 * time.Second},
			{cost: 1, wait: time.Second},
		}},
		{"updated twice in between", bursty(1, time.Second, 0), []do{
			{cost: 4}, {rate: bursty(100, time.Second, 0)}, {rate: bursty(2, time.Second, 0), cost: 1, wait: 4 * time.Second},
			{cost: 1, wait: 500 * ms},
		}},
		{"back to the rate before", bursty(1, time.Second, 0), []do{
			{cost: 2}, {rate: bursty(2, time.Second, 0), cost: 2, wait: 2 * time.Second},
			{rate: bursty(1, time.Second, 0), cost: 1, wait: time.Second}, {cost: 1, wait: time.Second},
		}},
		{"what has been saved up counts as consumed or not, not as a share", bursty(1, time.Second, 10), []do{
			{cost: 4}, {rate: bursty(1, time.Second, 20), cost: 17}, // 16 saved, and one on credit
			{cost: 1, wait: time.Second},
		}},
		{"what has been saved up is cut to what can be", bursty(1, time.Second, 10), []do{
			{cost: 2}, {rate: bursty(2, time.Second, 3), cost: 2}, // 1 saved, and one on credit
			{cost: 1, wait: 500 * ms},
		}},
		{"all saved up", bursty(1, time.Second, 10), []do{
			{rate: bursty(1, time.Second, 3), cost: 4}, {cost: 1, wait: time.Second},
		}},
		{"warm up, twice the rate while it warms", warm(2, 4*time.Second), []do{
			{cost: 1}, {cost: 1, wait: 1375 * ms}, {cost: 1, wait: 1125 * ms}, {cost: 1, wait: 875 * ms},
			{cost: 1, wait: 625 * ms}, {cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms},
			{after: 4500 * ms, cost: 1}, {cost: 1, wait: 1375 * ms}, {cost: 1, wait: 1125 * ms},
			{rate: warm(4, 4*time.Second), cost: 1, wait: 875 * ms}, // owed at the old rate
			{cost: 1, wait: 343750 * us}, {cost: 1, wait: 281250 * us}, {cost: 1, wait: 250 * ms}, {cost: 1, wait: 250 * ms},
			{after: 4250 * ms, cost: 1}, {cost: 1, wait: 718750 * us}, {cost: 1, wait: 656250 * us},
		}},
		{"warm up, slower while it is warm", warm(4, 4*time.Second), []do{
			{cost: 16}, {rate: warm(2, 4*time.Second), cost: 1, wait: 6 * time.Second},
			{cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms},
		}},
		{"warm up, still cold", warm(2, 4*time.Second), []do{
			{rate: warm(4, 4*time.Second), cost: 1}, {cost: 1, wait: 718750 * us},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.first, theKey)
				for i, s := range tt.steps {
					time.Sleep(s.after)
					if s.rate != none {
						update(t, l, s.rate, theKey)
					}
					if s.cost == 0 {
						continue
					}
					start := time.Now()
					if _, err := l.Wait(t.Context(), "k", s.cost); err != nil {
						t.Fatalf("step %d: %v", i+1, err)
					}
					if got := time.Since(start); got != s.wait {
						t.Errorf("step %d: waited %v, want %v", i+1, got, s.wait)
					}
				}
			})
		})
	}
}

// A caller that was told its turn keeps it; a caller that leaves gives it back to the
// limit it was taken from.
func TestUpdateWhileTheyWait(t *testing.T) {
	rate := func(n int64) []stint.Option {
		return []stint.Option{theKey, stint.Rate(n, time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Minute))}
	}
	tests := []struct {
		name  string
		to    []stint.Option
		leave int // who leaves after 500 ms; 0 for none
		want  string
	}{
		{"faster", rate(2), 0, "0:0s 1:1s 2:2s 3:3s 4:3.5s 5:4s"},
		{"the same", rate(1), 0, "0:0s 1:1s 2:2s 3:3s 4:4s 5:5s"},
		{"slower", []stint.Option{theKey, stint.Rate(1, 2*time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Minute))}, 0,
			"0:0s 1:1s 2:2s 3:3s 4:5s 5:7s"},
		// One line, as the limit is the same: all behind move up.
		{"the same, and one leaves", rate(1), 2, "0:0s 1:1s 3:2s 4:3s 5:4s"},
		{"gone", []stint.Option{theKey, stint.Quota(100, stint.Daily)}, 0, "0:0s 4:0s 5:0s 1:1s 2:2s 3:3s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, rate(1)...)
				start := time.Now()
				var mu sync.Mutex
				var log []string
				var wg sync.WaitGroup
				enter := func(i int) {
					ctx, cancel := context.WithCancel(t.Context())
					if i > 0 && i == tt.leave {
						time.AfterFunc(500*time.Millisecond, cancel)
					}
					wg.Go(func() {
						defer cancel()
						through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) {
							mu.Lock()
							defer mu.Unlock()
							log = append(log, fmt.Sprintf("%d:%v", i, time.Since(start)))
						})
					})
					synctest.Wait()
				}
				for i := range 4 {
					enter(i)
				}
				update(t, l, tt.to...)
				enter(4)
				enter(5)
				wg.Wait()
				if got := strings.Join(log, " "); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// More slots admit the line at once and in order; fewer admit nobody until enough are
// free, whoever came before the update.
func TestUpdateOfSlots(t *testing.T) {
	slots := func(n int64, more ...stint.Option) []stint.Option {
		return append(more, theKey, stint.Concurrency(n, stint.WithQueue(10), stint.WithMaxWait(time.Minute)), stint.Rate(1000, time.Second))
	}
	tests := []struct {
		name     string
		from     int64
		to       []stint.Option
		want     string // who goes in when; each takes 10 s, six come, the update is after 1 s
		policy   string // of who waited
		straight bool   // one more comes with the update and needn't wait
	}{
		{"larger by two", 2, slots(4), "0:0s 1:0s 2:1s 3:1s 4:10s 5:10s 6:11s", `"concurrency";q=4`, false},
		{"larger than the line", 2, slots(9), "0:0s 1:0s 2:1s 3:1s 4:1s 5:1s 6:1s", `"concurrency";q=9`, true},
		{"smaller", 3, slots(1), "0:0s 1:0s 2:0s 3:10s 4:20s 5:30s 6:40s", `"concurrency";q=1`, false},
		{"the same", 2, slots(2), "0:0s 1:0s 2:10s 3:10s 4:20s 5:20s 6:30s", `"concurrency";q=2`, false},
		{"gone", 2, []stint.Option{theKey, stint.Rate(1000, time.Second)}, "0:0s 1:0s 6:1s 2:10s 3:10s 4:20s 5:20s", `"concurrency";q=2`, true},
		{"with less of the other", 2, []stint.Option{theKey, stint.Concurrency(4, stint.WithQueue(10), stint.WithMaxWait(time.Minute)), stint.Rate(7, 1000*time.Hour)},
			"0:0s 1:0s 2:1s 3:1s 4:10s 5:10s 6:11s", `"concurrency";q=4`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, slots(tt.from)...)
				start := time.Now()
				var mu sync.Mutex
				var log []string
				var wg sync.WaitGroup
				enter := func(i int) {
					wg.Go(func() {
						w := through(l, get("/"), func(http.ResponseWriter, *http.Request) {
							mu.Lock()
							log = append(log, fmt.Sprintf("%d:%v", i, time.Since(start)))
							mu.Unlock()
							time.Sleep(10 * time.Second)
						})
						if got := w.Header().Get("RateLimit-Policy"); i == 5 && !strings.HasPrefix(got, tt.policy) {
							t.Errorf("who waited is told %s, want %s", got, tt.policy)
						}
					})
					synctest.Wait()
				}
				for i := range 6 {
					enter(i)
				}
				time.Sleep(time.Second)
				update(t, l, tt.to...)
				if tt.straight {
					synctest.Wait()
				}
				enter(6)
				wg.Wait()
				// Of those who go in at one instant, any handler may be first
				// to say so.
				slices.SortStableFunc(log, func(a, b string) int {
					i, at, _ := strings.Cut(a, ":")
					j, bt, _ := strings.Cut(b, ":")
					ad, _ := time.ParseDuration(at)
					bd, _ := time.ParseDuration(bt)
					return cmp.Or(cmp.Compare(ad, bd), cmp.Compare(i, j))
				})
				if got := strings.Join(log, " "); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if d, _ := l.Peek(t.Context(), "k"); len(d.Limits) == 2 && d.Limits[0].Remaining != d.Limits[0].Quota {
					t.Errorf("%d of %d slots free at the end", d.Limits[0].Remaining, d.Limits[0].Quota)
				}
			})
		})
	}
}

// The same on real stores: slots that are held count against the new number.
func TestUpdateOfSlotsInStores(t *testing.T) {
	slots := func(n int64, wait ...stint.ConcurrencyOption) stint.Option {
		return stint.Concurrency(n, append(wait, stint.WithName("concurrency"))...)
	}
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, slots(2), theKey, stint.WithStore(s))
		held := []*stint.Permit{take(t, l, 1), take(t, l, 1)}
		full := func(when string) {
			t.Helper()
			if p, err := l.Take(t.Context(), "k", 1); err == nil {
				p.Done()
				t.Errorf("%s: admitted", when)
			}
		}
		full("2 of 2")
		update(t, l, slots(1), theKey)
		full("2 of 1")
		held[0].Done()
		full("1 of 1")
		held[1].Done()
		held = []*stint.Permit{take(t, l, 1)}

		// Three wait for the one slot; with four, all get in while it is held.
		update(t, l, slots(1, stint.WithQueue(3), stint.WithMaxWait(time.Minute)), theKey)
		in := make(chan *stint.Permit, 3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := l.Take(t.Context(), "k", 1)
				if err != nil {
					t.Error(err)
				}
				in <- p
			})
		}
		update(t, l, slots(4, stint.WithMaxWait(time.Minute)), theKey)
		wg.Wait()
		for range 3 {
			held = append(held, <-in)
		}
		update(t, l, slots(4), theKey)
		full("4 of 4")
		for _, p := range held {
			p.Done()
		}
		check(t, l, "all released", "concurrency 4/4")
	})
}

// Equivalent updates under load: never more passes than allowed, and nobody is lost.
func TestUpdateUnderLoad(t *testing.T) {
	const burst, slots = 50, 4
	rate := stint.WithBurst(burst)
	ways := [][]stint.Option{ // one in ten hours, and 4 at a time, in three spellings
		{theKey, stint.Rate(1, 10*time.Hour, rate), stint.Concurrency(slots)},
		{theKey, stint.Concurrency(slots), stint.Rate(2, 20*time.Hour, rate)},
		{theKey, stint.Rate(3, 30*time.Hour, rate), stint.Concurrency(slots, stint.WithMaxWait(time.Millisecond)), stint.WithHeaders(stint.LegacyHeaders)},
	}
	l := limiter(t, ways[0]...)
	inner := derive(t, l, stint.Rate(1<<20, time.Hour, stint.WithName("inner")))
	var admitted, refused, inside atomic.Int64
	stop := make(chan struct{})
	var updates sync.WaitGroup
	updates.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				update(t, l, ways[i%len(ways)]...)
			}
		}
	})
	updates.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				update(t, inner, stint.Rate(1<<20+int64(i%2), time.Hour, stint.WithName("inner")))
			}
		}
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				switch (g + i) % 4 {
				case 0:
					p, err := l.Take(t.Context(), "k", 1)
					if err == nil {
						if n := inside.Add(1); n > slots {
							t.Errorf("%d inside, want %d at the most", n, slots)
						}
						admitted.Add(1)
						inside.Add(-1)
						p.Done()
					} else if !errors.As(err, new(*stint.DeniedError)) {
						t.Error(err)
					}
				default:
					w := through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
						if n := inside.Add(1); n > slots {
							t.Errorf("%d inside, want %d at the most", n, slots)
						}
						admitted.Add(1)
						mount(inner, nil).ServeHTTP(w, r) // charges nothing twice
						inside.Add(-1)
					})
					draft, legacy := w.Header().Get("RateLimit-Policy"), w.Header().Get("X-RateLimit-Limit")
					if (draft == "") == (legacy == "") {
						t.Errorf("fields of two configurations: %v", w.Header())
					}
					if w.Code == 429 {
						refused.Add(1)
					} else if w.Code != 200 {
						t.Errorf("got %d", w.Code)
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	updates.Wait()
	if got := admitted.Load(); got != burst {
		t.Errorf("%d admitted, want %d", got, burst)
	}
	if refused.Load() == 0 {
		t.Error("nothing was refused: no load")
	}
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Limits {
		if s.Name == "rate" && s.Remaining != 0 || s.Name == "concurrency" && s.Remaining != slots {
			t.Errorf("at the end: %+v", s)
		}
	}
}
