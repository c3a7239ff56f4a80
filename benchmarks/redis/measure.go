package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// load is how a subject is called.
type load struct{ callers, keys int }

func (l load) String() string {
	return fmt.Sprintf("%s, %s", figures.Many(l.callers, "caller"), figures.Many(l.keys, "key"))
}

// group is a load and what is measured under it.
type group struct {
	load
	// stretch is how long calls are made without a pause, for rest and for a look
	// at the server; 0: as long as a sample takes.
	stretch  time.Duration
	subjects []subject
	samples  map[string][]sample // by the subject's name, a sample a round
}

type groups []*group

// measure goes through everything once a round. Each round begins with another
// subject, so that none always follows the same.
func (gs groups) measure(s *server, c config) error {
	h := newHarness(s)
	for round := range c.rounds {
		for _, g := range gs {
			for i := range g.subjects {
				what := &g.subjects[(i+round)%len(g.subjects)]
				one, err := h.measure(what, g, c.each)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", what.name, g.load, err)
				}
				g.samples[what.name] = append(g.samples[what.name], one)
			}
		}
	}
	return nil
}

// sample is a subject's result in one round.
type sample struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the server's main thread, a call
	// script is how long scripts ran, a call. The server counts it by the clock on
	// the wall, also while the machine does something else, so this is the median
	// of the stretches.
	script time.Duration
	allocs float64 // a call
}

// harness calls subjects. It keeps what it measures with: on a machine that the
// server shares, what the harness does is taken from what is measured.
type harness struct {
	server *server
	keys   []string
	took   [][]time.Duration // by caller
	all    []time.Duration
}

func newHarness(s *server) *harness {
	h := &harness{server: s, took: make([][]time.Duration, 128)}
	for c := range h.took {
		h.took[c] = make([]time.Duration, 0, 1<<14)
	}
	return h
}

// measure calls what for d, after a warm-up that doesn't count: in it connections
// are made, the server learns scripts, and every key comes to be.
func (h *harness) measure(what *subject, g *group, d time.Duration) (sample, error) {
	if len(h.keys) < g.keys {
		h.keys = names(g.keys)
	}
	ctx := context.Background()
	if err := h.server.admin.FlushAll(ctx).Err(); err != nil {
		return sample{}, err
	}
	if err := h.touch(ctx, what, g.load); err != nil {
		return sample{}, err
	}
	if _, err := h.stretch(ctx, what, g.load, d/5); err != nil {
		return sample{}, err
	}
	h.all = h.all[:0]
	// What the others left behind is not for this one to sweep up.
	runtime.GC()

	var elapsed, cpu time.Duration
	var mallocs uint64
	var scripts []float64
	// However short a round is, a call has ended in it, even on a busy machine.
	for elapsed < d || len(h.all) == 0 {
		length := d - elapsed
		if length <= 0 {
			length = d
		}
		if g.stretch > 0 {
			length = min(length, g.stretch)
		}
		one, err := h.stretch(ctx, what, g.load, length)
		if err != nil {
			return sample{}, err
		}
		elapsed += one.elapsed
		cpu += one.cpu
		mallocs += one.mallocs
		if one.calls > 0 {
			scripts = append(scripts, float64(one.script)/float64(one.calls))
		}
	}
	n := len(h.all)
	slices.Sort(h.all)
	return sample{
		perSecond: float64(n) / elapsed.Seconds(),
		p50:       h.all[n/2],
		p99:       h.all[n*99/100],
		cpu:       cpu / time.Duration(n),
		script:    time.Duration(figures.Of(scripts).Median),
		allocs:    float64(mallocs) / float64(n),
	}, nil
}

// touch calls for each key once.
func (h *harness) touch(ctx context.Context, what *subject, l load) error {
	errs := make([]error, l.callers)
	var callers sync.WaitGroup
	for c := range l.callers {
		callers.Go(func() {
			for i := c; i < l.keys && errs[c] == nil; i += l.callers {
				errs[c] = what.call(ctx, h.keys[i])
			}
		})
	}
	callers.Wait()
	if err := errors.Join(errs...); err != nil || what.rest == nil {
		return err
	}
	return what.rest(ctx)
}

// stretch is a time in which nothing but calls is done.
type stretch struct {
	elapsed, cpu, script time.Duration
	calls                int
	mallocs              uint64
}

// stretch calls what for d and appends what each call took to h.all. A caller
// calls again as soon as it is answered, so the end of a call is the beginning of
// the next and the clock is read once for both.
func (h *harness) stretch(ctx context.Context, what *subject, l load, d time.Duration) (stretch, error) {
	errs := make([]error, l.callers)
	before, err := h.server.info()
	if err != nil {
		return stretch{}, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	mallocs := memory.Mallocs
	var callers sync.WaitGroup
	began := time.Now()
	for c := range l.callers {
		callers.Go(func() {
			took := h.took[c][:0]
			at := time.Since(began)
			for i := c * 7919 % l.keys; at < d; {
				if err := what.call(ctx, h.keys[i]); err != nil {
					errs[c] = err
					break
				}
				now := time.Since(began)
				took = append(took, now-at)
				at = now
				i = (i + 104729) % l.keys
			}
			h.took[c] = took
		})
	}
	callers.Wait()
	elapsed := time.Since(began)
	runtime.ReadMemStats(&memory)
	after, err := h.server.info()
	if err := errors.Join(append(errs, err)...); err != nil {
		return stretch{}, err
	}
	one := stretch{elapsed: elapsed, cpu: after.cpu - before.cpu, script: after.scripts - before.scripts, mallocs: memory.Mallocs - mallocs}
	for c := range l.callers {
		h.all = append(h.all, h.took[c]...)
		one.calls += len(h.took[c])
	}
	if what.rest != nil {
		err = what.rest(ctx)
	}
	return one, err
}

// names are keys of one length.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%05d", i)
	}
	return keys
}
