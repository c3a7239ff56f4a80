package waiting

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/clock"
)

// Want is what somebody waits for in a line of slots.
type Want struct {
	Key  Key
	Cost int64 // in slots
	Rank Rank
	// Shares returns those of the limit as it now is, or nil. It is called under
	// the lock of the lines, and returns at once.
	Shares func() *Shares
	Room   int64     // how many may wait in the line
	Until  time.Time // when the patience for this line ends
}

// Asker is who waits for slots. What it asks (a store, or anything else that has
// slots), what else it asks for in one, and what an answer means is its own affair;
// a line says whose turn it is. Both methods are called with no lock held, by the
// goroutine that waits, and may panic.
type Asker interface {
	// Came tells how many wait in a line that the waiter has come to: with itself
	// where it has joined the line, or else there was no room.
	Came(waiting int64, joined bool)
	// Ask asks. It returns nil if that is the end of waiting, granted or not, or
	// which slots the answer was short of. Where these are of another key than
	// what was wanted so far, the waiter changes lines.
	Ask(ctx context.Context) *Want
}

// How a wait ends that no answer has ended, beside the error of its context.
var (
	ErrFull = errors.New("waiting: there is no room in the line")
	ErrLate = errors.New("waiting: patience is over")
)

// Wait stands in line for what is wanted, and has a ask whenever it is the head of
// its line and may hope for an answer, until an answer is the end. The error is
// nil then, and otherwise ErrFull, ErrLate or ctx's. Whoever is the head when its
// patience ends asks once more.
func (s *Slots) Wait(ctx context.Context, w *Want, a Asker) error {
	p := new(place)
	defer s.leave(p) // also if the asker panics
	if !s.come(p, w, a) {
		return ErrFull
	}
	timer := clock.NewTimer(clock.Until(p.Until))
	defer timer.Stop()
	for {
		select {
		case <-p.woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil { // who has left doesn't ask, also if just woken
			return err
		}
		first := s.first(p)
		if first { // its poll was a while ago: it asks, also when its time is up
			next := a.Ask(ctx)
			if next == nil {
				return nil
			}
			if next.Key != p.Key { // free here, full there: the next here may go
				s.leave(p)
				if !s.come(p, next, a) {
					return ErrFull
				}
			}
		}
		left := clock.Until(p.Until)
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
