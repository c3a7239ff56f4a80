package stint

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/waiting"
)

// defaultAging is how long a class is worth.
const defaultAging = time.Second

// WithPriority says which requests go first where some wait: class gives a
// class of 0 to 9, and higher ones are woken first. What is less counts as 0,
// what is more as 9. By default, and outside HTTP, a request has the class of
// its context (ContextWithPriority), and 0 where there is none. Within a class
// it is first come, first served.
//
// Nobody starves: a waiter rises by a class for each second it waits (see
// WithAging), so that it is never overtaken by one that comes more than nine
// seconds later, and class 2 goes before those of class 0 that came less than
// two seconds before it.
//
// Priorities are about waiting for the same: the slots of one concurrency limit
// for one key, and in this process, or the turns of a rate. Whoever waits for a
// turn, and is overtaken, gets the next one's, unless that is later than it may
// wait; then it is not overtaken. class is called once for a request that takes
// a slot or waits, and for no other.
func WithPriority(class func(*http.Request) int) Option {
	return limiterOption(func(c *config) {
		if class == nil {
			c.errs.bad("WithPriority(nil)", "", "write a function, or leave it out where all are equal")
			return
		}
		c.priority = class
	})
}

// WithAging says how long a waiter takes to rise by a class; by default a
// second. With a time longer than anybody waits, classes are strict.
func WithAging(d time.Duration) Option {
	return limiterOption(func(c *config) {
		if d <= 0 || d > waiting.Longest {
			c.errs.bad(fmt.Sprintf("WithAging(%v)", d), "", fmt.Sprintf("write a duration of up to %v", waiting.Longest))
			return
		}
		c.aging = d
	})
}

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
		l := r.kind.(slotted).line()
		if l.shares == nil {
			l.shares = new(waiting.Shares)
		}
		sum := percent
		for _, p := range l.shares {
			sum += int(p)
		}
		switch {
		case l.shares[class] != 0:
			bad("the class has a share already", "leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "write 100 at the most in all")
		default:
			l.shares[class] = uint8(percent)
		}
	}}
}

type priorityKey struct{}

// ContextWithPriority returns a context whose requests, Takes and Waits are of
// a class from 0 to 9. A request's own WithPriority counts before it.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, priorityKey{}, class)
}
