package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// changed is called on every change of the library's state, while the library holds its
// lock. A failed probe goes from half open back to open: nobody else has seen it, so
// for them nothing has changed.
func (s *Store) changed(_ string, _, to gobreaker.State) {
	open := to != gobreaker.StateClosed
	if s.open.Load() == open {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Store(open)
	e := Event{From: Open, To: Closed, At: time.Now(), Probes: s.probes.Load() - s.before}
	if open {
		s.opened.Add(1)
		s.before = s.probes.Load()
		e = Event{From: Closed, To: Open, At: time.Now(), Err: s.last}
	}
	if s.life.Err() != nil {
		return
	}
	s.events = append(s.events, e)
	s.work()
}

// work starts the probing goroutine unless it runs. The caller holds mu.
func (s *Store) work() {
	if !s.probing {
		s.probing = true
		go s.probe()
	}
}

// probe reports events and probes the primary until it answers and nothing is left to
// do. Only one such goroutine runs at a time, while the breaker is open or work was
// left when it closed.
func (s *Store) probe() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		if s.catchUp() {
			return
		}
		select {
		case <-s.life.Done():
			return
		case <-timer.C:
		}
		s.try()
		timer.Reset(s.every)
	}
}

// catchUp reports events to the observer, and makes the kept releases on a primary that
// is back. It returns true if the breaker is closed: the goroutine then ends, and the
// next change starts another.
func (s *Store) catchUp() (done bool) {
	for s.life.Err() == nil {
		s.mu.Lock()
		open := s.open.Load()
		switch {
		case len(s.events) > 0:
			e := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			if s.observe != nil {
				background.Do("telling that the breaker has changed", func() { s.observe(e) })
			}
			if e.To == Open {
				s.degraded(e.Err)
			} else {
				s.observers.Tell(store.Notice{Kind: store.Restored})
			}
		case !open && len(s.kept) > 0:
			kept := s.kept
			s.kept = nil
			s.mu.Unlock()
			s.release(kept)
		default:
			s.probing = open
			s.mu.Unlock()
			return !open
		}
	}
	return true
}

// probeLimit is what probes are charged to. It is full again a microsecond after a
// probe, so a whole fleet may probe one key. It holds a single unit, so a store that
// takes units ahead of their use has none left over to answer a probe by itself.
var probeLimit, _ = store.NewLimit(store.Spec{Name: ProbeLimit, Units: 1_000_000, Period: time.Second, Burst: 1})

// probeKeys is the most keys of a call that are probed.
const probeKeys = 8

// probesFor returns the probe for a call that failed: a charge for each of its keys,
// because any of them may be on the part of the primary that is down.
func probesFor(charges []store.Charge) []store.Charge {
	probes := make([]store.Charge, 0, min(len(charges), probeKeys))
	for i := range charges {
		same := func(p store.Charge) bool { return p.Key == charges[i].Key }
		if len(probes) < probeKeys && !slices.ContainsFunc(probes, same) {
			probes = append(probes, store.Charge{Key: charges[i].Key, Limit: probeLimit, Cost: 1})
		}
	}
	return probes
}

// errRefused is the outcome of a probe that was answered but not charged.
var errRefused = errors.New("failover: the probe was answered, but its charge was refused")

// try makes one probe.
func (s *Store) try() {
	ctx, cancel := context.WithTimeout(s.life, s.timeout)
	defer cancel()
	s.mu.Lock()
	probed := s.probed
	s.mu.Unlock()
	_, err := s.breaker.Execute(func() (struct{}, error) {
		s.probes.Add(1)
		results := make([]store.Result, len(probed))
		if err := caught(func() error { return s.primary.Take(ctx, probed, results) }); err != nil {
			return struct{}{}, err
		}
		for i := range results {
			if !results[i].OK { // nothing was written
				return struct{}{}, errRefused
			}
		}
		return struct{}{}, nil
	})
	switch {
	case err == nil, s.life.Err() != nil:
	case err == gobreaker.ErrOpenState, err == gobreaker.ErrTooManyRequests:
		// A caller that came as the breaker opened has used up this probe's turn. The
		// primary wasn't asked; the next probe will.
	default:
		s.remember(err, nil)
		s.degraded(err)
	}
}

// degraded reports that the breaker is open, or stays open, because of err.
func (s *Store) degraded(err error) {
	s.observers.Tell(store.Notice{Kind: store.Degraded, Err: fmt.Errorf("%w: %w", ErrOpen, err)})
}

// caught turns a panic into an error: a panic that a caller could have recovered must
// not end the program from the probing goroutine.
func caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// Close stops the probing for good: a breaker that is open, or opens later, stays open.
// Releases kept for when it closes aren't made, and the observer isn't called any more,
// except for a call under way. Close doesn't close the two stores. It may be called
// more than once and concurrently.
func (s *Store) Close() error {
	s.end()
	return nil
}
