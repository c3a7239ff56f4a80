package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/waiting"
)

// WithShare promises a class of WithPriority a share of a concurrency limit's
// slots, in percent. Others may use what of it is idle; when the class needs it,
// it gets it back as slots are released, before all others and whatever their
// class: nobody is interrupted.
//
// Exactly: of the slots that this process holds for a key, counting the one to
// be given, a class that would hold no more than its percentage with it is woken
// before any that would, and so is a class that holds none. Among those, as
// among all others, WithPriority's order counts. A class may hold more than its
// share, in that order.
//
// In a fleet each process keeps to the share of what it holds itself, so the
// whole does, give or take the part of a slot that each rounds: where a process
// holds but a few slots for a key, a small share is one of them.
//
// Slots that were taken before an Update that adds a share count, and those who
// wait then have it.
//
// The shares of a limit's classes are 100 at the most. A class without a share
// gets what those leave; where they add up to 100 and are all used, nothing.
func WithShare(class, percent int) SlotOption {
	return slotOption{change: func(r *rule) {
		bad := func(problem, write string) {
			r.errs.bad(fmt.Sprintf("WithShare(%d, %d)", class, percent), problem, write)
		}
		switch {
		case class < 0 || class >= waiting.Classes:
			bad("", "write a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("", "write a share of 1 to 100 percent")
			return
		}
		if r.shares == nil {
			r.shares = new(waiting.Shares)
		}
		sum := percent
		for _, p := range r.shares {
			sum += int(p)
		}
		switch {
		case r.shares[class] != 0:
			bad("the class has a share already", "leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "write 100 at the most in all")
		default:
			r.shares[class] = uint8(percent)
		}
	}}
}
