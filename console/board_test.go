package console

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func newPage(t *testing.T, l *stint.Limiter) *page {
	t.Helper()
	h, err := New(Limiters(l), WithToken("0123456789abcdef"), WithKeysInClear())
	if err != nil {
		t.Fatal(err)
	}
	return h.(*page)
}

// What is in flight is drawn for as long as it is, also where nothing else happens.
func TestInFlightIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, stint.Must(stint.New(stint.Rate(9, time.Second), stint.WithKey(stint.GivenKey()))))
		b := p.boards[0]
		permit, err := b.limiter.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if v := p.viewLimiter(b); v.InFlight != 1 {
			t.Errorf("%d in flight, want 1", v.InFlight)
		}
		permit.Done()
		time.Sleep(20*time.Second + time.Second/2)
		v := p.viewLimiter(b)
		if v.InFlight != 0 || b.second.Load() != 0 {
			t.Errorf("%d in flight, want 0; the second is read in vain: %v", v.InFlight, b.second.Load() != 0)
		}
		if got, want := v.Slots.Lines[0].Points, "0,60.0 269,60.0 270,0.0 279,0.0 280,60.0 299,60.0"; got != want {
			t.Errorf("drawn is %s, want %s", got, want)
		}
	})
}

// A page that is made while requests run counts those that begin afterwards.
func TestRequestsBeforeThePage(t *testing.T) {
	for _, limit := range []stint.Limit{stint.Rate(99, time.Second), stint.Concurrency(99)} {
		l := stint.Must(stint.New(limit, stint.WithKey(stint.GivenKey()), stint.WithObserver(func(stint.Event) {})))
		take := func() *stint.Permit {
			permit, err := l.Take(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			return permit
		}
		before := []*stint.Permit{take(), take(), take()}
		p := newPage(t, l)
		for range 2 {
			defer take().Done()
		}
		for _, permit := range before {
			permit.Done()
		}
		v := p.viewLimiter(p.boards[0])
		if held := v.Limits[0].Held; v.InFlight != 2 || v.Limits[0].Slots && held != 2 {
			t.Errorf("%s: %d in flight, %d held, want 2", v.Limits[0].Name, v.InFlight, held)
		}
	}
}

// Where one request at a time is in flight, no more are drawn, also if the timer that ends
// a second is late and pages are read meanwhile.
func TestPeakInFlight(t *testing.T) {
	for _, limit := range []stint.Limit{stint.Rate(1<<20, time.Second), stint.Concurrency(99)} {
		synctest.Test(t, func(t *testing.T) {
			p := newPage(t, stint.Must(stint.New(limit, stint.WithKey(stint.GivenKey()))))
			b := p.boards[0]
			for range 5 {
				time.Sleep(time.Second / 2)
				for i := range 400 {
					permit, err := b.limiter.Take(t.Context(), "k", 1)
					if err != nil {
						t.Fatal(err)
					}
					if i == 100 {
						b.began = b.began.Add(-600 * time.Millisecond) // the timer is late from here on
					}
					if i%50 == 0 {
						p.viewLimiter(b)
					}
					permit.Done()
				}
				time.Sleep(1100 * time.Millisecond)
				v := p.viewLimiter(b)
				if label := v.Slots.Label; v.InFlight != 0 || !strings.Contains(label, "in flight now 0, at most 0;") && !strings.Contains(label, "in flight now 0, at most 1;") {
					t.Errorf("%d in flight; the chart says %s", v.InFlight, label)
				}
			}
		})
	}
}

// The page shows for the key admitted last what its response said, whichever request ends later.
func TestSlotsOfTheKeyAdmittedLast(t *testing.T) {
	p := newPage(t, stint.Must(stint.New(stint.Concurrency(5), stint.WithKey(stint.GivenKey()))))
	b := p.boards[0]
	var first *stint.Permit
	for i, key := range []string{"a", "b", "b", "b"} {
		permit, err := b.limiter.Take(t.Context(), key, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = permit
		}
	}
	first.Done()
	if l := p.viewLimiter(b).Limits[0]; l.Held != 3 || l.Last != 3 || l.Of != 5 {
		t.Errorf("%d held here; key admitted last: %d of %d; want 3, and 3 of 5", l.Held, l.Last, l.Of)
	}
}

// However many decide at once, nothing is counted twice or not at all.
func TestFiguresAreExact(t *testing.T) {
	const callers, each, pass = 4, 1500, 100
	day := stint.Rate(pass, 24*time.Hour, stint.WithAlgorithm(stint.FixedWindow)) // from the first request, so that no midnight ends it
	p := newPage(t, stint.Must(stint.New(day, stint.WithKey(stint.GivenKey()))))
	b := p.boards[0]
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				if permit, err := b.limiter.Take(context.Background(), fmt.Sprint("k", c), 1); err == nil {
					permit.Done()
				}
				if c == 0 {
					b.eachLimit(func(*limit) bool { return true }) // as the page does meanwhile
				}
			}
		})
	}
	all.Wait()
	v := p.viewLimiter(b)
	if v.Allowed != callers*pass || v.Denied != callers*(each-pass) || v.InFlight != 0 {
		t.Errorf("%d allowed, %d denied, %d in flight", v.Allowed, v.Denied, v.InFlight)
	}
	l := v.Limits[0]
	if l.Allowed != callers*pass || l.Denied != callers*(each-pass) || l.Bound != l.Denied {
		t.Errorf("the limit: %d allowed, %d denied, %d bound", l.Allowed, l.Denied, l.Bound)
	}
	for _, keys := range []struct {
		what string
		got  []keyView
		want uint64
	}{{"admitted", l.Admitted, pass}, {"denied", l.Stopped, each - pass}} {
		if len(keys.got) != callers {
			t.Errorf("%s: %v", keys.what, keys.got)
		}
		for _, k := range keys.got {
			if k.AtLeast != keys.want || k.AtMost != keys.want {
				t.Errorf("%s: %v, want exactly %d", keys.what, k, keys.want)
			}
		}
	}
	// There is room for the denials of fewer keys.
	remembered := func(d denialView) bool { return d.Why != "" }
	if all := p.allDenials(v); len(all) != callers || all[0].AtLeast != each-pass || !slices.ContainsFunc(all, remembered) {
		t.Errorf("the denials are %v", all)
	}
}

// Limits without end have figures up to a bound, and the page says so.
func TestLimitsWithoutEnd(t *testing.T) {
	p := newPage(t, stint.Must(stint.New(stint.Rate(9, time.Second), stint.WithKey(stint.GivenKey()))))
	b := p.boards[0]
	for i := range 2 * mostLimits {
		e := stint.Event{Kind: stint.EventAdmitted, Decision: stint.Decision{Allowed: true, Limits: []stint.LimitStatus{{Name: fmt.Sprint("l", i), Allowed: true}}}}
		b.observe(&e)
	}
	v := p.viewLimiter(b)
	if len(v.Limits) > mostLimits+1 || !v.Unlisted || v.Allowed != 2*mostLimits {
		t.Errorf("%d limits, of %d requests; said: %v", len(v.Limits), v.Allowed, v.Unlisted)
	}
}

// An event costs the server's memory nothing.
func TestEventsAllocateNothing(t *testing.T) {
	l := stint.Must(stint.New(stint.Rate(10_000_000, time.Second), stint.WithKey(stint.GivenKey())))
	b := newPage(t, l).boards[0]
	e := stint.Event{Kind: stint.EventAdmitted, Decision: stint.Decision{Allowed: true, Limits: []stint.LimitStatus{{Name: "rate", Allowed: true}}}}
	for range 2 * batchSize {
		b.observe(&e)
	}
	if n := testing.AllocsPerRun(10*batchSize, func() { b.observe(&e) }); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

func TestBrief(t *testing.T) {
	var got []string
	for _, d := range []time.Duration{0, 7, 99, 1234, 10_485_759, 99_900_000, time.Minute + 4*time.Second} {
		got = append(got, brief(d))
	}
	if got, want := strings.Join(got, " "), "0s 7ns 99ns 1.2µs 10ms 100ms 1m4s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Keys whose hashes agree have their denials remembered beside each other's.
func TestDenialsOfKeysWithOneHash(t *testing.T) {
	l := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey())))
	b := newPage(t, l).boards[0]
	place := func(key string) uint64 { return maphash.String(seed, key) % rememberedKeys }
	keys := []string{"0"}
	for i := 1; len(keys) < placesOfKey; i++ {
		if key := fmt.Sprint(i); place(key) == place(keys[0]) {
			keys = append(keys, key)
		}
	}
	for range 2 {
		for _, key := range keys {
			_ = l.Allow(t.Context(), key, 1)
		}
	}
	for _, key := range keys {
		if all := b.denialsOf(key); len(all) != 1 {
			t.Errorf("%d denials of %s are remembered, want 1", len(all), key)
		}
	}
}
