package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// startProbing starts the probing goroutine unless it runs. The caller holds mu.
func (s *Store) startProbing() {
	if !s.probing {
		s.probing = true
		go s.runProbes()
	}
}

// runProbes reports events, probes the primary of an open breaker until it answers, and makes the
// pending releases once the breaker is closed. Only one such goroutine runs at a time, while there is
// something to do.
func (s *Store) runProbes() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for !s.catchUp() {
		select {
		case <-s.life.Done():
			return
		case <-timer.C:
		}
		if s.State() == Open {
			s.probeOnce()
		}
		timer.Reset(s.every)
	}
}

// catchUp reports events to the observers, and tries once to make the kept releases if
// the breaker is closed. It returns true if nothing is left to do: the goroutine then
// ends, and the next change or kept release starts another.
func (s *Store) catchUp() (done bool) {
	released := false
	for s.life.Err() == nil {
		s.mu.Lock()
		open := s.State() == Open
		switch {
		case len(s.events) > 0:
			e := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			if e.opens {
				s.reportDegraded(e.err)
			} else {
				s.report(store.Notice{Kind: store.Restored, Store: s.primary})
			}
		case !open && !released && len(s.pending) > 0:
			released = true
			releases := s.pending
			s.pending = nil
			s.mu.Unlock()
			s.makeReleases(releases)
		default:
			s.probing = open || len(s.pending) > 0
			done = !s.probing
			s.mu.Unlock()
			return done
		}
	}
	return true
}

// probeLimit returns the limit with which calls of l are probed, so that a probe runs what
// failed: another algorithm may need other commands of a server. It is as if never used
// a millisecond after a probe, so a whole fleet may probe one key. A bucket holds a single
// unit, so a store that takes units ahead of their use has none left over to answer a probe
// by itself.
func probeLimit(l *store.Limit) *store.Limit {
	bucket := store.Spec{Name: ProbeLimit, Units: 1000, Period: time.Millisecond, Burst: 1}
	probe := bucket
	if l != nil {
		spec := l.Spec()
		probe = spec // with the numbers that only its algorithm has
		probe.Name, probe.Units, probe.Window = ProbeLimit, bucket.Units, store.Window{}
		probe.Queue, probe.Debt, probe.Buckets = 0, false, 0 // a millisecond can't be cut into any number of buckets
		probe.WarmUp, probe.Ban = min(spec.WarmUp, time.Millisecond), min(spec.Ban, time.Millisecond)
		if spec.Burst != 0 {
			probe.Burst = bucket.Burst
		}
		if spec.Period != 0 || spec.Window != (store.Window{}) {
			probe.Period = bucket.Period
		}
	}
	made, err := store.NewLimit(probe)
	if err != nil { // those numbers don't go with the others: another algorithm is better than no probe
		made, _ = store.NewLimit(bucket)
	}
	return made
}

// mostProbed is the most charges of a probe.
const mostProbed = 8

// probesFor returns the probe for a call that failed: a charge for each of its keys and
// algorithms, because any of them may be on the part of the primary that is down.
func probesFor(charges []store.Charge) []store.Charge {
	probes := make([]store.Charge, 0, min(len(charges), mostProbed))
	for i := range charges {
		limit := probeLimit(charges[i].Limit)
		same := func(p store.Charge) bool {
			return p.Key == charges[i].Key && p.Limit.StateName() == limit.StateName()
		}
		if len(probes) < mostProbed && !slices.ContainsFunc(probes, same) {
			probes = append(probes, store.Charge{Key: charges[i].Key, Limit: limit, Cost: 1})
		}
	}
	return probes
}

// errDenied is the outcome of a probe that was answered but not charged.
var errDenied = errors.New("failover: the probe was answered, but its charge was denied")

// probeOnce makes one probe.
func (s *Store) probeOnce() {
	ctx, cancel := context.WithTimeout(s.life, s.timeout)
	defer cancel()
	s.mu.Lock()
	charges := s.probeCharges
	s.mu.Unlock()
	s.probes.Add(1)
	err := recoverPanic(func() error { return s.charge(ctx, charges) })
	switch {
	case err == nil:
		s.closeBreaker()
	case s.life.Err() == nil:
		s.mu.Lock()
		s.last, s.cause = err, nil
		s.mu.Unlock()
		s.reportDegraded(err)
	}
}

// charge makes the charges of a probe, and releases the slots among them.
func (s *Store) charge(ctx context.Context, charges []store.Charge) error {
	results := make([]store.Result, len(charges))
	if err := s.primary.Take(ctx, charges, results); err != nil {
		return err
	}
	var taken []store.Charge
	for i, r := range results {
		if !r.OK {
			return errDenied // nothing was written
		}
		if r.Receipt.Lease != (store.LeaseID{}) {
			taken = append(taken, store.Charge{Key: charges[i].Key, Limit: charges[i].Limit, Receipt: r.Receipt})
		}
	}
	if taken == nil {
		return nil
	}
	return s.primary.Settle(ctx, taken, results[:len(taken)])
}

// reportFailure reports that the primary has failed a call.
func (s *Store) reportFailure(err error) {
	s.observers.Tell(store.Notice{Kind: store.CallFailed, Store: s.primary, Instead: s.secondary,
		Err: fmt.Errorf("failover: the primary failed a call: %w", err)})
}

// reportDegraded reports that the breaker is open, or stays open, because of err.
func (s *Store) reportDegraded(err error) {
	s.report(store.Notice{Kind: store.Degraded, Store: s.primary, Instead: s.secondary,
		Err: fmt.Errorf("%w: %w", ErrOpen, err)})
}

// report tells the observers from the goroutine that probes, which goes on if one panics.
func (s *Store) report(n store.Notice) {
	background.Do("telling that the breaker has changed", func() { s.observers.Tell(n) })
}

// recoverPanic makes a call and turns its panic into an error: a panic that a caller could have recovered must
// not end the program from the probing goroutine.
func recoverPanic(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// Close stops probing: a breaker that is open, or opens later, stays open. Releases that are
// kept for later are dropped. Observers get no more notices, except for calls in flight. Close
// doesn't close the two stores. Close may be called more than once and concurrently.
func (s *Store) Close() error {
	s.end()
	return nil
}
