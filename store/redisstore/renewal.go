package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// A renewal enters a lease again that the server has lost: by an outage longer than the lease,
// a FLUSHALL, or a failover. More slots may be in use then than the limit has. It must not enter one
// that its holder has released meanwhile, although the server may execute the renewal after
// the release, and although the renewal's answer may be lost. So the server enters leases only
// up to an instant, and leases that were released while a renewal might enter them are
// released once more when it has answered, or else after that instant.

// renewals renews the leases of a store in the background, and releases them when it is closed.
type renewals struct {
	server     *server
	leases     *leases
	unreleased *unreleasedSlots
	closed     <-chan struct{}
}

// renewal is a call that renews leases of one site.
type renewal struct {
	wire.Renewal
	site site
}

// mostRenewed is the most leases in one call. That many take the server half a
// millisecond, during which all other callers wait.
const mostRenewed = 500

// run renews leases until none is held, or stop is closed. It runs every third of a lease's time and
// skips leases younger than a sixth: a short request's lease is never renewed, and any
// other must fail twice to be lost.
func (r *renewals) run(stop chan struct{}) {
	ttl := r.server.leaseTTL
	timer := time.NewTimer(ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		next, answered := ttl/3, false
		background.Do("renewing leases", func() { answered = r.renew(ttl / 6) }) // WithClock's function may panic
		if !answered {
			next = ttl / 12
		}
		if r.leases.endIfEmpty(stop) {
			return
		}
		timer.Reset(next)
	}
}

// timeout is how long a renewal may take. It is longer than a call's timeout: no caller
// waits, and there may be thousands of leases.
func (r *renewals) timeout() time.Duration { return max(r.server.timeout, r.server.leaseTTL/6) }

// renew renews at once every lease last renewed longer than age ago, and reports
// whether the server answered all calls.
func (r *renewals) renew(age time.Duration) bool {
	sent := time.Now()
	times := r.server.times(nil)
	calls := r.due(sent, age)
	if len(calls) == 0 {
		return true
	}
	defer r.leases.underWay.Done()
	commands := make([]command, len(calls))
	for i, c := range calls {
		commands[i] = r.command(times, c)
	}
	ctx, end := context.WithTimeout(context.Background(), r.timeout())
	defer end()
	r.server.exec(ctx, commands)
	calls, commands = r.separate(ctx, times, calls, commands)
	o := renewalOutcome{answered: true}
	for i, c := range calls {
		r.record(c, &commands[i], sent, &o)
	}
	r.releaseAgain(o.entered)
	if o.pending {
		select {
		case <-ctx.Done():
		case <-r.closed:
		}
	}
	r.releaseAgain(o.uncertain)
	return o.answered
}

// renewalOutcome is the outcome of calls that renew leases.
type renewalOutcome struct {
	answered           bool             // all calls
	entered, uncertain []wire.HeldLease // leases that the server has entered, and that it may have entered
	pending            bool             // it may enter some yet
}

// record records the answer to a call that was sent at an instant, and reports lost leases.
func (r *renewals) record(c *renewal, answered *command, sent time.Time, o *renewalOutcome) {
	now, lost, err := c.answer(answered)
	if err != nil {
		o.answered = false
		if errors.Is(classify(err), ErrIndeterminate) {
			reply := redis.Error(nil)
			o.pending = o.pending || !errors.As(err, &reply)
			o.uncertain = append(o.uncertain, slices.Concat(c.Leases...)...)
		}
		return
	}
	r.server.recordClock(now)
	r.leases.extend(&c.Renewal, sent, now)
	for _, l := range lost {
		switch l.Done {
		case "entered":
			o.entered = append(o.entered, l.HeldLease)
			r.report(l, true)
		case "reset":
			r.report(l, false)
		} // a late one is entered by the next renewal
	}
}

// due returns the leases to renew, as calls of one site each. If there are any, the caller calls
// leases.underWay.Done when they are answered.
func (r *renewals) due(now time.Time, age time.Duration) (calls []*renewal) {
	last := make(map[site]*renewal) // call of a site
	r.leases.due(now, age, func(key string, leases []wire.HeldLease) {
		at := r.server.layout.siteOf(key)
		for len(leases) > 0 {
			c := last[at]
			if c == nil || c.Size == mostRenewed {
				c = &renewal{site: at}
				last[at] = c
				calls = append(calls, c)
			}
			n := min(len(leases), mostRenewed-c.Size)
			c.Add(key, leases[:n:n])
			leases = leases[n:]
		}
	})
	return calls
}

// command returns the command of a renewal.
func (r *renewals) command(times wire.Times, c *renewal) command {
	return r.commandOn(times, c, c.KeysWithResets(), times.Wall+r.timeout().Microseconds())
}

// commandOn returns the command of a renewal that enters no lease after the instant until.
func (r *renewals) commandOn(times wire.Times, c *renewal, keys []string, until int64) command {
	script, args := c.Args(times, until, r.server.room(keys))
	return r.server.command(script, c.site, keys, args)
}

// answer reads the answer to a renewal.
func (c *renewal) answer(answered *command) (now int64, lost []wire.LostLease, err error) {
	reply, err := answered.cmd.Result()
	if err != nil {
		return 0, nil, err
	}
	if now, lost, err = c.Answer(reply); err != nil {
		err = malformed(err)
	}
	return now, lost, err
}

// separate repeats renewals that a slot migration has kept apart (separating), each key's by itself,
// and returns them with the others. The key that records a reset mostly doesn't exist, so a node that
// hands over the slot would refuse a command with both. So the key itself replaces it, and no lost lease is
// entered.
func (r *renewals) separate(
	ctx context.Context, times wire.Times, calls []*renewal, commands []command,
) ([]*renewal, []command) {
	var others, apart []*renewal
	var done, again []command
	for i, c := range calls {
		if !isTryAgain(commands[i].cmd.Err()) {
			others, done = append(others, c), append(done, commands[i])
			continue
		}
		for j, key := range c.Keys {
			one := &renewal{site: c.site}
			one.Add(key, c.Leases[j])
			apart, again = append(apart, one), append(again, r.commandOn(times, one, []string{key, key}, wire.Never))
		}
	}
	if len(again) > 0 {
		r.server.exec(ctx, again)
	}
	return append(others, apart...), append(done, again...)
}

// releaseAgain releases those of the leases that aren't held any more.
func (r *renewals) releaseAgain(all []wire.HeldLease) {
	keyOf := func(c *store.Charge) string { return wire.StorageKey(r.server.prefix, c.Key, c.Limit) }
	if releases := r.leases.notHeld(all, keyOf); len(releases) > 0 {
		r.unreleased.add(releases)
	}
}

// report tells the observer of a charge that its lease has been lost, and has been entered again
// or isn't renewed any more.
func (r *renewals) report(lost wire.LostLease, entered bool) {
	one, identity := r.leases.lost(lost.Key, lost.ID, entered)
	if one.observer == nil {
		return
	}
	background.Do("reporting a lost lease", func() { // the other leases are renewed whatever the observer does
		one.observer.Tell(store.Notice{Kind: store.LeaseLost, Key: identity, Limit: one.limit})
	})
}

// releaseAll releases leases that are no longer held, and those whose release is being retried.
// It returns once the server has answered, after the timeout of a call at the latest.
func (r *renewals) releaseAll(held []heldLease) {
	ctx, end := context.WithTimeout(context.Background(), r.server.timeout)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.leases.underWay.Wait() // a renewal must not come after the release
		others := r.unreleased.removeAll()
		ofOneSlot := make(map[string][]any) // ids of leases, by key
		for i := range held {
			h := &held[i]
			if h.several {
				others = append(others, h.release)
			} else {
				ofOneSlot[h.key] = append(ofOneSlot[h.key], h.release.Receipt.Lease[:])
			}
		}
		var commands []command
		for key, ids := range ofOneSlot {
			for some := range slices.Chunk(ids, mostRenewed) {
				commands = append(commands, command{args: append([]any{"zrem", key}, some...)})
			}
		}
		if len(commands) > 0 {
			r.server.exec(ctx, commands)
		}
		if len(others) > 0 {
			_ = r.unreleased.settle(ctx, others, make([]store.Result, len(others))) // what isn't released runs out
		}
	}()
	select {
	case <-done:
	case <-ctx.Done(): // the client may not notice
	}
}
