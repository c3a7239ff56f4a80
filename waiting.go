package stint

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
)

// WithMaxWait makes a request wait for its turn rather than be denied, if its turn
// comes within d. The request's own deadline bounds the wait further. By default a
// request waits only for limits that queue by themselves: a LeakyBucket, a Rate with
// WithQueue, and for 5 seconds a Concurrency with WithQueue. d is 1 ms or more; New
// rejects any other.
//
// On a limit that queues by itself, d bounds the wait in the queue. On a Concurrency or
// AdaptiveConcurrency, as many requests wait for each key as there are slots, unless
// WithQueue says otherwise. docs/waiting.md says who is next.
//
// An HTTP/1.1 server doesn't notice that a client has left while the request's body is
// unread: keep d to a few seconds.
func WithMaxWait(d time.Duration) ChargeOption {
	valid, write := engine.CheckDuration(d, d > 0, "write a positive duration, or leave it out if nobody waits")
	return checkedSetting(valid, fmt.Sprintf("WithMaxWait(%v)", d), write,
		func(s *compile.Settings) { s.MaxWait = d })
}

// WithQueue sets how many may wait. Whoever finds the queue full is denied at once. n
// is 0 or more; 0 means that no request waits.
//
// On a Rate it counts the units that wait for their turn, up to 2^40. The default is
// the rate's n for LeakyBucket and 0 for TokenBucket; New rejects it on other
// algorithms. The last in a full queue waits until the rate has given all of it: a
// WithMaxWait beside it bounds that. The queue bounds Limiter.Wait, too.
//
// On a Concurrency or AdaptiveConcurrency it counts the requests that wait for a slot,
// for each key in this process. Each waits at most 5 seconds, or WithMaxWait. Without
// WithQueue none waits, or, with a WithMaxWait, as many requests and Takes as the
// limit has slots. Limiter.Wait always waits, however many do, unless WithQueue sets a
// bound. A request that finds the queue full may replace another (see WithPriority).
func WithQueue(n int64) LimitOption {
	return changeOption{change: on("WithQueue", func(r *compile.Rule) {
		queue := orNone(r, n, "WithQueue")
		if r.Kind.Traits().Way == waiting.ForSlot {
			r.Line.Room = &n
			return
		}
		r.Spec.Queue = queue
	}, "Rate", "Concurrency", "AdaptiveConcurrency")}
}

// WithPriority sets which requests go first when some wait for a slot: class returns a
// class from 0 to 9, and a higher class goes before a lower one, and takes its place if
// the queue is full. Values outside 0–9 are clamped. By default, and outside HTTP, a
// request has the class of its context (ContextWithPriority), or 0. Within a class, first
// come is first served. class is called concurrently, once for a request that takes a
// slot, and for no other.
//
// When the queue is full, a request replaces the last waiter of the lowest class, if that
// is below its own. The replaced request is denied like one that finds the queue full.
// A low class can wait until its WithMaxWait ends: WithShare promises it slots.
//
// Priorities apply among waiters for the slots of one concurrency limit, for one key, in this
// process. Turns of a rate come first come, first served. New rejects a nil class, and
// WithPriority where requests wait for turns alone: put a Concurrency in front of the rate.
func WithPriority(class func(*http.Request) int) Option {
	return checkedOption(class != nil, "WithPriority(nil)", "write a function, or leave it out if all requests are equal",
		func(c *config) { c.priority = class })
}

// WithShare promises a class of requests (WithPriority, ContextWithPriority) a percentage of a
// concurrency limit's slots.
// While the class has less than that, its requests rank above all others: they get the
// next slots, and places in a full queue. Unused share is lent to other classes, and comes
// back as slots are released; requests are never interrupted. By default no class has a
// share. class is from 0 to 9 and percent from 1 to 100; give the option once for each
// class. New rejects other values, a second share for a class, shares that add up to more
// than 100, and shares where no request waits for a slot: beside WithQueue(0), and on a
// route without WithQueue and WithMaxWait.
//
// The percentage is of the slots that this process holds for the key, the next one
// included, and at least one slot. So a fleet keeps the shares too, except for rounding:
// where a process holds only a few slots for a key, a small share is one of them.
//
// Beyond its share, a class ranks by its number. A class without a share gets what the
// shares leave: nothing, if they add up to 100 and are all used. An Update that adds a
// share applies to slots already taken and to those who already wait.
func WithShare(class, percent int) SlotOption {
	return changeOption{change: func(r *compile.Rule) {
		bad := func(problem, write string) {
			r.Errs.Bad(fmt.Sprintf("WithShare(%d, %d)", class, percent), problem, write)
		}
		switch {
		case class < 0 || class >= waiting.Classes:
			bad("", "write a class from 0 to 9")
			return
		case percent < 1 || percent > 100:
			bad("", "write a share of 1 to 100 percent")
			return
		}
		shares := r.Line.Shares
		if shares == nil {
			shares = new(waiting.Shares)
			r.Line.Shares = shares
		}
		sum := percent
		for _, p := range shares {
			sum += int(p)
		}
		switch {
		case shares[class] != 0:
			bad("the class has a share already", "leave one out")
		case sum > 100:
			bad(fmt.Sprintf("the shares add up to %d percent", sum), "write at most 100 in total")
		default:
			shares[class] = uint8(percent)
		}
	}}
}

// ContextWithPriority returns a context whose requests, Takes and Waits have a class
// from 0 to 9; other values are clamped. A WithPriority of the limiter takes precedence
// for requests.
func ContextWithPriority(ctx context.Context, class int) context.Context {
	return read.WithPriority(ctx, class)
}
