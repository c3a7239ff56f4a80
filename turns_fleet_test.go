package stint_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// Two limiters on one store stand for two processes. What callers of one leave goes
// back unless the other's have reserved behind it; then the next caller of the same
// process gets it, or it passes unused.
func TestLeavingInAFleet(t *testing.T) {
	const turn = 100 * time.Millisecond
	leaky := stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(100))
	next := func(l *stint.Limiter) time.Duration {
		start := time.Now()
		take(t, l, 1)
		return time.Since(start)
	}
	stays := func(o *stint.Limiter) { go func() { _, _ = o.Take(context.Background(), "k", 1) }() }
	tests := []struct {
		name  string
		other func(*stint.Limiter) // with five waiting here
		after time.Duration
		here  time.Duration // what the next waits here, and then the next there
		there time.Duration
	}{
		{"nobody behind", func(*stint.Limiter) {}, 0, turn, turn},
		{"one behind", stays, 0, turn, 6 * turn},
		{"one behind, later", stays, 350 * time.Millisecond, turn / 2, 2*turn + turn},
		{"one behind that leaves too", func(o *stint.Limiter) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(turn/4, cancel)
			go func() { _, _ = o.Take(ctx, "k", 1) }()
		}, turn / 2, turn / 2, 5 * turn},
		{"when all turns have passed", stays, 7 * turn, 0, turn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				here, there := limiter(t, theKey, leaky, stint.WithStore(s)), limiter(t, theKey, leaky, stint.WithStore(s))
				take(t, here, 1)
				ctx, cancel := context.WithCancel(t.Context())
				for range 5 {
					go func() { _, _ = here.Take(ctx, "k", 1) }()
				}
				synctest.Wait()
				tt.other(there)
				synctest.Wait()
				cancel()
				synctest.Wait()
				time.Sleep(tt.after)
				if got := next(here); got != tt.here {
					t.Errorf("the next here waited %v, want %v", got, tt.here)
				}
				if got := next(there); got != tt.there {
					t.Errorf("the next there waited %v, want %v", got, tt.there)
				}
				time.Sleep(time.Second)
				noLines(t, here)
				noLines(t, there)
			})
		})
	}
}

// In two crowds of impatient callers, of two processes, the full rate passes.
func TestImpatientFleet(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			var passed [2]int64
			var wg sync.WaitGroup
			for i := range passed {
				wg.Go(func() {
					l := limiter(t, theKey, stint.WithStore(&slow{Store: s, take: 2 * time.Millisecond, settle: 2 * time.Millisecond}),
						stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50)))
					passed[i], _ = impatient(t, l, 5*time.Second, newRand(10*seed+uint64(i)))
					time.Sleep(time.Second)
					noLines(t, l)
				})
			}
			wg.Wait()
			if n := passed[0] + passed[1]; n < 495 || n > 501 {
				t.Errorf("%d passed in 5s, want 495 to 501", n)
			}
		})
	}
}

// On a real server nothing is owed for callers that have left together.
func TestAllLeaveOnRedis(t *testing.T) {
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	defer s.Close()
	waits := make(chan struct{}, 20)
	l := limiter(t, theKey, stint.WithStore(s), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWaiting {
			waits <- struct{}{}
		}
	}), stint.Rate(10, time.Hour, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(100)))
	take(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = l.Take(ctx, "k", 1) })
	}
	for range 20 {
		<-waits
	}
	cancel()
	wg.Wait()
	d, err := l.Peek(t.Context(), "k")
	if err != nil || d.ResetAfter > 6*time.Minute { // of one that has passed
		t.Errorf("%v is owed with nobody waiting, %v", d.ResetAfter, err)
	}
}

// On a real server, by its own clock: 99 % of the time for which the bucket was taken
// has been used.
func TestImpatientCrowdOnRedis(t *testing.T) {
	server := redistest.Shared(t)
	rdb := server.Client()
	s := redisstore.New(rdb, patient, redisstore.WithPrefix(redistest.Prefix(t)))
	defer s.Close()
	limit := stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50))
	l := limiter(t, theKey, stint.WithStore(s), limit)
	taken := func() time.Time { // until when the bucket is, by the server's clock
		now, err := rdb.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return now.Add(d.ResetAfter)
	}
	take(t, l, 1)
	// On a machine that is busy with something else callers go late, and a turn that
	// is left then passes before anybody has heard of it: no more of them than there are
	// in the time that the machine keeps from the process. What is lost in the line is
	// lost in every try, and on a quiet machine too.
	pulse := redistest.StartPulse(t)
	var tries []string
	for range 5 {
		start, began, beats := taken(), time.Now(), pulse.Elapsed()
		_, passed := impatient(t, l, 1500*time.Millisecond, newRand(1))
		kept := time.Since(began) - (pulse.Elapsed() - beats)
		turns := taken().Sub(start).Seconds() * 100
		if float64(passed) >= 0.99*turns-2 {
			return
		}
		tries = append(tries, fmt.Sprintf("%d passed in %.1f turns, with %v kept by the machine", passed, turns, kept))
		if float64(passed) < 0.99*turns-2-kept.Seconds()*100 {
			t.Fatal(tries)
		}
	}
	t.Log(tries)
}
