package redisstore

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// To give a charge back is to settle it to 0 without a request to settle it: the caller
// has left, another part of the call was denied, or prefetched tokens weren't used.

// longestPause bounds the pauses between tries, which take one to two minutes in all.
const longestPause = time.Minute

// giveBack settles t without waiting for it, and tries again while it is known not to
// have been executed, even if that turns out after the timeout. If the outcome isn't
// known, the charge may stand: executing it twice would free charges of others. tried
// receives the result of the first try.
func (s *Store) giveBack(t *batch.Call[settling]) (tried <-chan error) {
	first := make(chan error, 1)
	go func() {
		err := s.attempt(t, func(err error) { first <- err })
		for pause := min(s.timeout, longestPause); fault.NotMade(err) && pause <= longestPause; pause *= 2 {
			select {
			case <-s.closed: // the last chance
				pause = longestPause
			case <-time.After(pause):
			}
			again := batch.NewCall[settling]()
			again.Body = t.Body
			again.Body.site = s.siteOf(t.Body.keys[0])
			err = s.attempt(again, func(error) {})
		}
	}()
	return first
}

// attempt settles t. It calls report with the result, at the timeout at the latest, and
// returns the final one.
func (s *Store) attempt(t *batch.Call[settling], report func(error)) error {
	t.Ended = make(chan error, 1)
	reusable, err := s.settles.Do(context.Background(), t)
	report(err)
	if !reusable {
		err = <-t.Ended
	}
	return err
}

// giveBackAbandoned gives back the charges granted to a caller that has left. It doesn't wait.
func (s *Store) giveBackAbandoned(t *batch.Call[taking]) {
	if back := s.newGiveBack(&t.Body.Decision, t.Body.site); back != nil {
		s.giveBack(back)
	}
}

// newGiveBack returns the ticket that gives a decision's charges back, or nil if it has none.
func (s *Store) newGiveBack(d *wire.Decision, p site) *batch.Call[settling] {
	if !d.Granted {
		return nil
	}
	t := batch.NewCall[settling]()
	t.Body.site = p
	for i := range d.Charges {
		if r := &d.Results[i]; r.Receipt.Cost > 0 {
			c := d.Charges[i]
			c.Cost, c.Receipt = 0, r.Receipt
			t.Body.add(c, d.Keys[i], i)
		}
	}
	if len(t.Body.charges) == 0 {
		return nil
	}
	return t
}

// giveBackParts gives back the granted parts of a call that was denied or has failed, and
// sets their results to the state of their limits afterwards. If the outcome isn't known
// by until, it returns an error; the parts are given back all the same.
func (s *Store) giveBackParts(ctx context.Context, parts []*batch.Call[taking], until time.Time) error {
	due, end := context.WithDeadline(ctx, until)
	defer end()
	backs, tried := make([]*batch.Call[settling], len(parts)), make([]<-chan error, len(parts))
	for n, t := range parts {
		if backs[n] = s.newGiveBack(&t.Body.Decision, t.Body.site); backs[n] != nil {
			tried[n] = s.giveBack(backs[n])
		}
	}
	for n, t := range parts {
		if backs[n] == nil {
			continue
		}
		select {
		case err := <-tried[n]:
			if err != nil {
				return err
			}
		case <-due.Done():
			if ctx.Err() != nil {
				return fault.ContextEnded(ctx)
			}
			return fault.ErrTimeout
		}
		for j, i := range backs[n].Body.indexes {
			r := backs[n].Body.results[j]
			r.OK, r.RetryAfter, r.Receipt = true, 0, store.Receipt{}
			t.Body.Results[i] = r
		}
	}
	return nil
}
