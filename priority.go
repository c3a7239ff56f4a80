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
		if d <= 0 || d > longWait {
			c.errs.bad(fmt.Sprintf("WithAging(%v)", d), "", fmt.Sprintf("write a duration of up to %v", longWait))
			return
		}
		c.aging = d
	})
}

type priorityKey struct{}

// ContextWithPriority returns a context whose requests, Takes and Waits are of
// a class from 0 to 9. A request's own WithPriority counts before it.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, priorityKey{}, class)
}

// class is the call's, asked for once and only when something depends on it.
func (c *call) class(ctx context.Context) uint8 {
	if !c.classed {
		n, _ := ctx.Value(priorityKey{}).(int)
		if c.lim.priority != nil && c.r != nil {
			n = c.lim.priority(c.r)
		}
		c.ofClass, c.classed = uint8(min(max(n, 0), waiting.Classes-1)), true
	}
	return c.ofClass
}

// rank is the call's, for as long as it waits, whatever for.
func (c *call) rank(ctx context.Context, now time.Time) waiting.Rank {
	if c.came.IsZero() {
		c.came = now
	}
	return waiting.RankOf(c.class(ctx), c.came, c.lim.aging)
}
