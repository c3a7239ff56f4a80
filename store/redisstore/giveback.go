package redisstore

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

// Charges that the server has made for nobody are settled back: the caller has gone,
// another part of the call was refused, or leased tokens weren't used. Nobody else
// would do it.

// longestPause bounds the pauses between tries, which take one to two minutes in all.
const longestPause = time.Minute

// handBack settles t without waiting for it, and tries again while it is known not to
// have been executed, even if that turns out after the timeout. If it isn't known, the
// charge may stand: executing it twice would free what others have been charged. ended
// receives the result of the first try.
func (s *Store) handBack(t *ticket[settling]) (ended <-chan error) {
	first := make(chan error, 1)
	go func() {
		err := s.attempt(t, func(err error) { first <- err })
		for pause := min(s.timeout, longestPause); notMade(err) && pause <= longestPause; pause *= 2 {
			select {
			case <-s.closed: // the last chance
				pause = longestPause
			case <-time.After(pause):
			}
			again := newTicket[settling]()
			again.what = t.what
			again.what.site = s.siteOf(t.what.keys[0])
			err = s.attempt(again, func(error) {})
		}
	}()
	return first
}

// attempt settles t, tells the result at the timeout at the latest, and returns what it is
// in the end.
func (s *Store) attempt(t *ticket[settling], tell func(error)) error {
	t.ended = make(chan error, 1)
	reusable, err := s.settles.do(context.Background(), t)
	tell(err)
	if !reusable {
		err = <-t.ended
	}
	return err
}

// undo settles back what was granted to a caller that has gone. Nobody waits for it.
func (s *Store) undo(t *ticket[taking]) {
	if back := s.back(&t.what.decision, t.what.site); back != nil {
		s.handBack(back)
	}
}

// back returns what settles a decision back, or nil if it has charged nothing.
func (s *Store) back(d *decision, p site) *ticket[settling] {
	if !d.granted {
		return nil
	}
	t := newTicket[settling]()
	t.what.site = p
	for i := range d.charges {
		if r := &d.results[i]; r.Receipt.Cost > 0 {
			c := d.charges[i]
			c.Cost, c.Receipt = 0, r.Receipt
			t.what.add(c, d.keys[i], i)
		}
	}
	if len(t.what.charges) == 0 {
		return nil
	}
	return t
}

// undoAll settles back the granted parts of a call that was refused or has failed, and
// makes their results say how their limits stand afterwards. If the outcome isn't known
// by until, that is an error; the parts are settled back all the same.
func (s *Store) undoAll(ctx context.Context, parts []*ticket[taking], until time.Time) error {
	due, end := context.WithDeadline(ctx, until)
	defer end()
	backs, ended := make([]*ticket[settling], len(parts)), make([]<-chan error, len(parts))
	for n, t := range parts {
		if backs[n] = s.back(&t.what.decision, t.what.site); backs[n] != nil {
			ended[n] = s.handBack(backs[n])
		}
	}
	for n, t := range parts {
		if backs[n] == nil {
			continue
		}
		select {
		case err := <-ended[n]:
			if err != nil {
				return err
			}
		case <-due.Done():
			if ctx.Err() != nil {
				return left(ctx)
			}
			return errLate
		}
		for j, i := range backs[n].what.indexes {
			r := backs[n].what.results[j]
			r.OK, r.RetryAfter, r.Receipt = true, 0, store.Receipt{}
			t.what.results[i] = r
		}
	}
	return nil
}
