package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// header names the columns. latency_ms is the average of the requests served in the
// previous half second, as the client saw it.
const header = "algorithm,seconds,workers,limit,in_flight,served_per_second,denied_per_second,latency_ms"

const every = 500 * time.Millisecond

// tally counts answers between two rows.
type tally struct {
	mu             sync.Mutex
	served, denied int
	took           time.Duration
}

func (t *tally) count(status int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch status {
	case http.StatusOK:
		t.served++
		t.took += took
	case http.StatusServiceUnavailable:
		t.denied++
	}
}

// simulate sends requests at random, half more than the present workers can serve,
// without waiting for the answers to earlier ones. It writes a row every half second.
func simulate(out io.Writer, name string, l *stint.Limiter, b *backend, phase time.Duration, ask func() int) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	var t tally
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	next, row := start, start.Add(every)
	workers := 0
	for i, n := range []int{40, 20, 60} {
		b.hire(workers, n)
		workers = n
		perSecond := 1.5 * float64(n) / workTime.Seconds()
		for end := start.Add(time.Duration(i+1) * phase); next.Before(end); {
			time.Sleep(time.Until(next))
			asking.Go(func() {
				asked := time.Now()
				t.count(ask(), time.Since(asked))
			})
			next = next.Add(time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)))
			for ; !next.Before(row); row = row.Add(every) {
				time.Sleep(time.Until(row))
				if err := t.write(out, name, row.Sub(start), workers, l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (t *tally) write(out io.Writer, name string, at time.Duration, workers int, l *stint.Limiter) error {
	d, err := l.Peek(context.Background(), "everybody")
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := d.Limits[0]
	ms := t.took.Seconds() * 1000 / float64(max(t.served, 1))
	_, err = fmt.Fprintf(out, "%s,%.1f,%d,%d,%d,%.0f,%.0f,%.1f\n", name, at.Seconds(), workers, limit.Capacity,
		limit.InFlight,
		float64(t.served)/every.Seconds(), float64(t.denied)/every.Seconds(), ms)
	t.served, t.denied, t.took = 0, 0, 0
	return err
}
