package waiting

import (
	"context"
	"errors"
	"time"
)

// Want is the slots that a caller waits for in a line.
type Want struct {
	Key  Key
	Cost int64 // in slots
	Rank Rank
	// Shares returns the shares of the limit as it now is, or nil. It is called under
	// the lock of the lines, and returns at once.
	Shares func() *Shares
	Room   int64     // how many may wait in the line
	Until  time.Time // when the caller's patience for this line ends
}

// Asker is a caller that waits for slots. A line says whose turn it is to ask. What is
// asked (a store, or anything else that has slots), what else is asked in the same
// call, and what an answer means is up to the Asker. Both methods are called by the
// waiting goroutine with no lock held, and may panic.
type Asker interface {
	// Came reports how many wait in a line that the waiter has come to: including
	// itself if it joined the line; otherwise there was no room.
	Came(waiting int64, joined bool)
	// Ask asks. It returns nil if the wait is over, granted or not; otherwise it
	// returns the slots that the answer was short of. If their key differs from what
	// was wanted so far, the waiter changes lines.
	Ask(ctx context.Context) *Want
}

// How a wait ends if neither an answer nor the context ends it.
var (
	ErrFull = errors.New("waiting: there is no room in the line")
	ErrLate = errors.New("waiting: patience is over")
)

// Wait stands in line for what is wanted. Whenever the waiter is the head of its line
// and may hope for an answer, it calls a.Ask, until an answer ends the wait. The error
// is then nil; otherwise it is ErrFull, ErrLate or ctx's. A waiter that is the head
// when its patience ends asks once more.
func (s *Slots) Wait(ctx context.Context, w *Want, a Asker) error {
	p := new(place)
	defer s.leave(p) // also if the asker panics
	if !s.come(p, w, a) {
		return ErrFull
	}
	timer := time.NewTimer(time.Until(p.Until))
	defer timer.Stop()
	for {
		select {
		case <-p.woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil { // a waiter that has left doesn't ask, even if just woken
			return err
		}
		stands, first := s.first(p)
		if !stands {
			return ErrFull
		}
		if first { // its last poll was a while ago: it asks, even if its time is up
			next := a.Ask(ctx)
			if next == nil {
				return nil
			}
			if next.Key != p.Key { // a slot is free here but not there: the next waiter here may go
				s.leave(p)
				if !s.come(p, next, a) {
					return ErrFull
				}
			}
		}
		left := time.Until(p.Until)
		if left <= 0 {
			return ErrLate
		}
		if first {
			left = min(left, s.poll())
		}
		timer.Reset(left)
	}
}

// come joins the line of what is wanted, if there is room, and tells the asker.
func (s *Slots) come(p *place, w *Want, a Asker) bool {
	p.Want = w
	joined, n := s.join(p)
	a.Came(n, joined)
	return joined
}
