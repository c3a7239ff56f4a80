package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stint-go/stint/store"
)

// changed is told of every change of the library's state, while it holds its
// lock. A failed probe goes from half open back to open: nobody else has seen
// it, so for them nothing has changed.
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

// work sees to it that the goroutine runs. The caller holds mu.
func (s *Store) work() {
	if !s.probing {
		s.probing = true
		go s.probe()
	}
}

// probe reports the events and asks the primary now and then, until it answers
// and nothing more is to be done. One such goroutine runs at a time, and only
// as long as the breaker is open or something was left to do when it closed.
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

// catchUp hands the events to the observer, and what was kept to a primary that
// is back. It returns true if the breaker is closed: the goroutine has then
// ended, and the next change starts another.
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
				s.observe(e)
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

// probeLimit is what probes are charged to. It is full again a microsecond
// after a probe, so that a fleet may probe one key; and it holds one unit, so
// that a store which takes units ahead of their use can't have any left over
// and answer a probe by itself.
var probeLimit, _ = store.NewLimit(store.Spec{Name: ProbeLimit, Units: 1_000_000, Period: time.Second, Burst: 1})

// probeKeys is how many keys of a call are probed at the most.
const probeKeys = 8

// probesFor makes the probe of a call that failed: a charge for each of its
// keys, because any of them may be the one whose part of the primary is down.
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

// errRefused is the outcome of a probe that was answered and not charged.
var errRefused = errors.New("failover: the probe was answered, but its charge was refused")

// try is one probe.
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
		// A caller that came as the breaker opened stood in the probe's place
		// for a moment. The primary was not asked; the next probe asks it.
	default:
		s.remember(err, nil)
		s.degraded(err)
	}
}

// degraded tells that the breaker is open, and stays so, because of err.
func (s *Store) degraded(err error) {
	s.observers.Tell(store.Notice{Kind: store.Degraded, Err: fmt.Errorf("%w: %w", ErrOpen, err)})
}

// caught makes an error of a panic: one that a caller's own recover would have
// stopped must not end the program from the goroutine that probes.
func caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// Close ends the probing, now and for good: a breaker that is open stays open,
// and one that opens later does too. Slots kept to be
// released when it closes are not released. The observer is not called any
// more, unless it is being called right now. The two stores are not closed.
// Close may be called more than once, from anywhere.
func (s *Store) Close() error {
	s.end()
	return nil
}
