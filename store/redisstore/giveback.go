package redisstore

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// giveBacks gives charges back: it settles them to 0, or to what was used, without a request to
// settle them. The caller has left, another part of the call was denied, or prefetched tokens
// weren't used.
type giveBacks struct {
	server  *server
	settles *batch.Queue[settling]
	closed  <-chan struct{}
}

// longestPause bounds the pauses between tries, which take one to two minutes in all.
const longestPause = time.Minute

// start settles c without waiting for it, and tries again while it is known not to
// have been executed, even if that turns out after the timeout. If the outcome isn't
// known, the charge may stand: executing it twice would free charges of others. tried
// receives the result of the first try.
func (g *giveBacks) start(c *batch.Call[settling]) (tried <-chan error) {
	first := make(chan error, 1)
	go func() {
		err := g.try(c, func(err error) { first <- err })
		for pause := min(g.server.timeout, longestPause); fault.NotMade(err) && pause <= longestPause; pause *= 2 {
			select {
			case <-g.closed: // the last chance
				pause = longestPause
			case <-time.After(pause):
			}
			again := batch.NewCall[settling]()
			again.Body = c.Body
			again.Body.site = g.server.layout.siteOf(c.Body.keys[0])
			err = g.try(again, func(error) {})
		}
	}()
	return first
}

// try settles c. It calls report with the result, at the timeout at the latest, and
// returns the final one.
func (g *giveBacks) try(c *batch.Call[settling], report func(error)) error {
	c.Ended = make(chan error, 1)
	reusable, err := g.settles.Do(context.Background(), c)
	report(err)
	if !reusable {
		err = <-c.Ended
	}
	return err
}

// abandoned gives back the charges granted to a caller that has left. It doesn't wait.
func (g *giveBacks) abandoned(c *batch.Call[taking]) {
	if back := newGiveBack(&c.Body.Decision, c.Body.site); back != nil {
		g.start(back)
	}
}

// newGiveBack returns the call that gives a decision's charges back, or nil if it has none.
func newGiveBack(d *wire.Decision, at site) *batch.Call[settling] {
	if !d.Granted {
		return nil
	}
	back := batch.NewCall[settling]()
	back.Body.site = at
	for i := range d.Charges {
		if r := &d.Results[i]; r.Receipt.Cost > 0 {
			c := d.Charges[i]
			c.Cost, c.Receipt = 0, r.Receipt
			back.Body.add(c, d.Keys[i], i)
		}
	}
	if len(back.Body.charges) == 0 {
		return nil
	}
	return back
}

// parts gives back the granted parts of a call that was denied or has failed, and
// sets their results to the state of their limits afterwards. If the outcome isn't known
// by until, it returns an error; the parts are given back all the same.
func (g *giveBacks) parts(ctx context.Context, parts []*batch.Call[taking], until time.Time) error {
	due, end := context.WithDeadline(ctx, until)
	defer end()
	backs, tried := make([]*batch.Call[settling], len(parts)), make([]<-chan error, len(parts))
	for n, part := range parts {
		if backs[n] = newGiveBack(&part.Body.Decision, part.Body.site); backs[n] != nil {
			tried[n] = g.start(backs[n])
		}
	}
	for n, part := range parts {
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
			part.Body.Results[i] = r
		}
	}
	return nil
}

// tokens gives back the tokens of c, unless its key has been reset since. It
// doesn't wait for the server.
func (g *giveBacks) tokens(c store.Charge) (tried <-chan error) {
	key := wire.StorageKey(g.server.prefix, c.Key, c.Limit)
	back := batch.NewCall[settling]()
	back.Body.site = g.server.layout.siteOf(key)
	back.Body.unlessReset = true
	back.Body.add(c, key, 0)
	return g.start(back)
}
