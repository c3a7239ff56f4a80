package failover

import (
	"context"
	"fmt"
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
	if !s.probing {
		s.probing = true
		go s.probe()
	}
}

// probe reports the events and asks the primary now and then, until it answers
// and there is nothing more to report. One such goroutine runs at a time, and
// only while the breaker is open.
func (s *Store) probe() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		if s.report() {
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

// report hands the events to the observer. It returns true if the breaker is
// closed: the goroutine has then ended, and the next change starts another.
func (s *Store) report() (done bool) {
	for {
		s.mu.Lock()
		if len(s.events) == 0 {
			open := s.open.Load()
			s.probing = open
			s.mu.Unlock()
			return !open
		}
		e := s.events[0]
		s.events = s.events[1:]
		s.mu.Unlock()
		if s.observe != nil {
			s.observe(e)
		}
		if s.life.Err() != nil {
			return true
		}
	}
}

// try is one probe: a charge of cost 0, which changes nothing.
func (s *Store) try() {
	ctx, cancel := context.WithTimeout(s.life, s.timeout)
	defer cancel()
	s.probes.Add(1)
	s.mu.Lock()
	seen := s.seen
	s.mu.Unlock()
	_, err := s.breaker.Execute(func() (_ struct{}, err error) {
		// A panic that a caller's own recover would have stopped must not end
		// the program from here.
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return struct{}{}, s.primary.Take(ctx, seen, make([]store.Result, len(seen)))
	})
	if err != nil && s.life.Err() == nil {
		s.remember(err, nil)
	}
}

// Close ends the probing, now and for good: a breaker that is open stays open,
// and one that opens later does too. The observer is not called any more,
// unless it is being called right now. The two stores are not closed. Close may
// be called more than once, from anywhere.
func (s *Store) Close() error {
	s.end()
	return nil
}
