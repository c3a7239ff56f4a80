package stint

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// settleTimeout bounds giving something back after the request's own context
// has ended or been set aside.
const settleTimeout = 2 * time.Second

// Permit is a granted decision that is still open. All methods are safe for concurrent
// use. They may be called on a nil Permit, which stands for a request that nothing
// limited: it allows everything and holds nothing.
type Permit struct {
	ctx   context.Context // the request's, without the permit
	lim   *version
	outer *Permit     // of a limiter further out
	holds bool        // Done gives something back, or settles it
	carry bool        // Next puts it into the context
	told  bool        // observers know of it, and are to be told of its end
	class uint8       // of priority, where some limit has slots
	done  atomic.Bool // Done or Detach has been called
	plan  *plan       // nil outside HTTP
	story *story      // nil where nobody asks for it
	// response is nil unless a limit looks at it.
	response *response

	mu     sync.Mutex // guards what grants hold
	grants []grant

	// fields are the strings that the response's header holds, here to save
	// an allocation each.
	fields [2]string
}

// grant is what one limit has granted.
type grant struct {
	entry  *entry
	key    string
	cost   int64 // that was charged
	result store.Result
}

// charge is the charge to settle at a cost.
func (g *grant) charge(cost int64) store.Charge {
	return store.Charge{Key: g.key, Limit: g.entry.limit, Cost: cost, DryRun: g.entry.dryRun, Receipt: g.result.Receipt}
}

// reported says that the limit only reports, and would have refused: nothing was
// charged.
func (g *grant) reported() bool { return g.entry.dryRun && !g.result.OK }

// Permits come with room for what was granted: one allocation for the request's
// context value, the permit and its receipts.
type (
	permit1 struct {
		Permit
		grants [1]grant
	}
	permit2 struct {
		Permit
		grants [2]grant
	}
	permit4 struct {
		Permit
		grants [4]grant
	}
	storied struct { // of who is observed, and holds slots
		permit4
		story story
	}
)

// permit makes the permit of a granted call.
func (c *call) permit(ctx context.Context) *Permit {
	var p *Permit
	tells := c.needs&(local|slots) != 0 && c.Timed
	switch n := len(c.Charges); {
	case n == 0:
		p = new(Permit)
	case tells && n <= 4:
		s := new(storied)
		p, s.Permit.story = &s.Permit, &s.story
		p.grants = s.grants[:n:n]
	case n == 1:
		p1 := new(permit1)
		p = &p1.Permit
		p.grants = p1.grants[:]
	case n == 2:
		p2 := new(permit2)
		p = &p2.Permit
		p.grants = p2.grants[:]
	case n <= 4:
		p4 := new(permit4)
		p = &p4.Permit
		p.grants = p4.grants[:n:n]
	default:
		p = &Permit{grants: make([]grant, n)}
	}
	for i := range p.grants {
		g, ch := &p.grants[i], &c.Charges[i]
		g.entry, g.key, g.cost, g.result = c.entries[i], ch.Key, ch.Cost, c.Results[i]
	}
	p.ctx, p.lim, p.outer = ctx, c.lim, c.outer
	p.carry, p.class, p.plan = c.r != nil && !c.lim.withoutPermit, c.class, c.plan
	if c.framed != nil && p.carry {
		c.framed.Carry((*permitContext)(p))
		p.carry = false
	}
	if c.needs != 0 {
		p.holds, p.response = c.needs&releases != 0, c.responded()
	}
	if tells || c.needs&local != 0 || c.Waited > 0 || len(c.Seen) > 0 {
		if p.story == nil {
			p.story = new(story)
		}
		s := p.story
		s.waited, s.seen, s.since, s.learns = c.Waited, c.Seen, clock.Now(), c.needs&local != 0
	}
	p.told = c.Timed && c.Granted
	return p
}

// permitContext is a Permit seen as the context that carries it.
type permitContext Permit

type permitKey struct{}

func (c *permitContext) Deadline() (time.Time, bool) { return c.ctx.Deadline() }
func (c *permitContext) Done() <-chan struct{}       { return c.ctx.Done() }
func (c *permitContext) Err() error                  { return c.ctx.Err() }
func (c *permitContext) Value(key any) any {
	if key == (permitKey{}) {
		return (*Permit)(c)
	}
	return c.ctx.Value(key)
}

// FromContext returns the permit of the request, or nil. If the request has passed
// several limiters, it is the innermost one's, whose Decision and Settle also cover the
// limits of the outer ones.
func FromContext(ctx context.Context) *Permit {
	p, _ := ctx.Value(permitKey{}).(*Permit)
	return p
}

// Next returns the request for the next handler: a copy of r with the permit in its
// context, or r itself if there is nothing to carry. It is for adapters. Call it once,
// with the request that Admit has decided.
//
// wrap is nil unless a limit looks at the response or paces it. Otherwise it returns
// the writer for the next handler, around the one it is given. The new writer is an
// http.Flusher, http.Hijacker, http.Pusher or io.ReaderFrom exactly if the old one is,
// and Unwrap returns the old one, so that http.ResponseController finds everything
// else. Call wrap once, or the limits see an empty response.
//
// Two things don't get through: http.CloseNotifier, which is deprecated, and what
// net/http does privately. http.MaxBytesReader can't make the server close the
// connection, so mount http.MaxBytesHandler outside.
func (p *Permit) Next(r *http.Request) (next *http.Request, wrap func(http.ResponseWriter) http.ResponseWriter) {
	if p == nil {
		return r, nil
	}
	if p.carry {
		r = r.WithContext((*permitContext)(p))
	}
	if p.response == nil {
		return r, nil
	}
	return p.response.Next(r, p.carry), p.response.Writer
}

// Decision returns the decision of all limiters that the request has passed, updated by
// Settle. Limits has those of the outermost limiter first.
func (p *Permit) Decision() Decision {
	c := calls.Get().(*call)
	defer c.end(context.Background())
	var passed []*Permit // the outermost last
	for q := p; q != nil; q = q.outer {
		passed = append(passed, q)
	}
	for _, q := range slices.Backward(passed) {
		q.mu.Lock()
		c.recall(q.grants)
		q.mu.Unlock()
	}
	var d Decision
	d.decide(c.entries, c.Charges, c.Results, make([]LimitStatus, len(c.Results)))
	d.Delay = 0
	rest, waited := d.Limits, time.Duration(0)
	for q := p; q != nil; q = q.outer {
		own := rest[len(rest)-len(q.grants):]
		rest = rest[:len(rest)-len(q.grants)]
		if q.story != nil {
			waited += q.story.waited
			d.add(waited, q.story.seen, own)
		}
	}
	return d
}

// recall adds what was granted to a call as it was decided.
func (c *call) recall(grants []grant) {
	for i := range grants {
		g := &grants[i]
		c.entries, c.Charges, c.Results = append(c.entries, g.entry), append(c.Charges, g.charge(g.cost)), append(c.Results, g.result)
	}
}

// Settle replaces the request's provisional cost, refunding or charging the difference.
// A refund gives back what time hasn't already given back; an additional cost is owed
// by the next request. cost is from 0 to 2^40. Settling again replaces what was settled
// before. Settle may be called after the handler has returned.
//
// It applies to the limits named. With none named, it applies to those with a WithCost
// or, if there are none, to all rates and quotas; never to concurrency. If the request
// has passed several limiters, a name means the innermost limit of that name; without
// names, the innermost limiter with a WithCost counts, and if none has one, all rates
// and quotas of the innermost. Dry runs don't change that choice.
//
// The error is about a cost out of range, a name the permit doesn't have, a limit that
// can't be settled, or the store (a *StoreError): what it couldn't settle stays
// charged.
func (p *Permit) Settle(ctx context.Context, cost int64, limits ...string) error {
	if p == nil {
		return nil
	}
	if cost < 0 || cost > store.MaxCost {
		return fmt.Errorf("stint: Settle with cost %d: %w", cost, store.ErrCost)
	}
	if len(limits) == 0 {
		q, chosen := p.costed()
		return q.settle(ctx, chosen, cost)
	}
	named := map[*Permit][]int{}
	for _, name := range limits {
		q, i := p.named(name)
		switch {
		case q == nil:
			return fmt.Errorf("stint: Settle: the permit has no limit %q", name)
		case q.grants[i].entry.kind.unsettled() != "":
			return fmt.Errorf("stint: Settle: %q is %s", name, q.grants[i].entry.kind.unsettled())
		case !slices.Contains(named[q], i):
			named[q] = append(named[q], i)
		}
	}
	for q := p; q != nil; q = q.outer {
		if err := q.settle(ctx, named[q], cost); err != nil {
			return err
		}
	}
	return nil
}

// named finds the limit of a name, from p outwards.
func (p *Permit) named(name string) (*Permit, int) {
	for q := p; q != nil; q = q.outer {
		if i := slices.IndexFunc(q.grants, func(g grant) bool { return g.entry.limit.Name() == name }); i >= 0 {
			return q, i
		}
	}
	return nil, 0
}

// costed finds the limits that Settle applies to without a name. Which they are is
// for those that are enforced to say, where there are any.
func (p *Permit) costed() (*Permit, []int) {
	rates := func(e *entry) bool { return e.kind.unsettled() == "" }
	costs := func(e *entry) bool { return rates(e) && e.cost != nil }
	for _, dryRun := range [...]bool{false, true} {
		for _, which := range [...]func(*entry) bool{costs, rates} {
			for q := p; q != nil; q = q.outer {
				if slices.ContainsFunc(q.grants, func(g grant) bool { return which(g.entry) && g.entry.dryRun == dryRun }) {
					return q, q.where(which)
				}
			}
		}
	}
	return p, nil
}

func (p *Permit) where(is func(*entry) bool) (chosen []int) {
	for i := range p.grants {
		if is(p.grants[i].entry) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// settle makes the chosen charges cost cost.
func (p *Permit) settle(ctx context.Context, chosen []int, cost int64) error {
	charges, took, err := p.amend(ctx, chosen, cost)
	if err != nil {
		err = &StoreError{err}
		p.lim.unsettled(p.plan, charges, took, err)
	} else if len(charges) > 0 {
		p.resettled(took)
	}
	return err
}

func (p *Permit) amend(ctx context.Context, chosen []int, cost int64) (charges []store.Charge, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	chosen = slices.DeleteFunc(chosen, func(i int) bool { return p.grants[i].reported() })
	if len(chosen) == 0 {
		return nil, 0, nil
	}
	charges = make([]store.Charge, len(chosen))
	results := make([]store.Result, len(chosen))
	for k, i := range chosen {
		charges[k] = p.grants[i].charge(cost)
	}
	if took, err = p.lim.timed(ctx, p.lim.store, charges, results); err != nil {
		return charges, took, err
	}
	for k, i := range chosen {
		p.settled(i, results[k])
	}
	p.settledByHand(chosen)
	return charges, took, nil
}

// Done ends the permit: it releases the slots of concurrency limits, even if the
// request's context has ended. What rates and quotas were charged stays charged, unless
// a WithSettle says otherwise. Defer it, so that it runs when a handler panics. Calling
// it again does nothing.
func (p *Permit) Done() {
	if p == nil || !p.holds && !p.told {
		return
	}
	if p.done.Swap(true) {
		return
	}
	if !p.holds {
		p.ended(0)
		return
	}
	if p.learns() || p.response != nil {
		// Deferred, it sees a panic, which goes on from here.
		if v := recover(); v != nil {
			p.panicked(v)
			defer panic(v)
		}
	}
	p.release()
}

// Detach transfers the release of the permit's slots to the caller: Done then does
// nothing, and the returned function does what Done would have done. Use it in handlers
// that return while their connection lives on, as after a Hijack:
//
//	release := stint.FromContext(r.Context()).Detach()
//	go func() { defer release(); serve(conn) }()
//
// After Done, it returns a function that does nothing.
func (p *Permit) Detach() (release func()) {
	if p == nil || !p.holds && !p.told || p.done.Swap(true) {
		return func() {}
	}
	if p.learns() {
		p.story.end(ignored) // how long a connection lives says nothing
	}
	return sync.OnceFunc(p.release)
}

// panicked notes a handler's panic for what comes of it.
func (p *Permit) panicked(v any) {
	aborted := v == http.ErrAbortHandler
	if p.learns() {
		outcome := failed
		if aborted {
			outcome = ignored
		}
		p.story.end(outcome)
	}
	if p.response != nil {
		p.response.Panicked(aborted)
	}
}

// release gives the slots back, and settles what is settled at the end. What may
// panic stands before that or after it, never between: the functions that say
// what the request has cost and the client's connection before, and observers,
// who are told when everything is done and no lock is held, after.
func (p *Permit) release() {
	var amends []amend
	defer func() {
		changes, end := p.giveBack(amends)
		for i := range changes {
			p.changed(&changes[i])
		}
		released := time.Duration(0)
		switch {
		case end.err != nil:
			p.lim.unsettled(p.plan, end.charges, end.took, end.err)
		case end.settled:
			p.resettled(end.took)
		default:
			released = end.took
		}
		p.observePaced()
		p.ended(released)
	}()
	amends = p.amends()
	p.push(amends)
}

// ending is what has come of the store's call at a request's end.
type ending struct {
	charges []store.Charge
	settled bool // amends have been made
	took    time.Duration
	err     error // a *StoreError
}

// giveBack gives back what the permit holds and makes the amends. It returns what
// observers are to be told.
func (p *Permit) giveBack(amends []amend) (changes []adaptive.Change, end ending) {
	for i := range p.grants {
		g := &p.grants[i]
		p.lim.family.hold(g.entry, g.key, g.cost, p.class, -1)
	}
	if p.learns() {
		changes = p.endTiming()
	}
	return changes, p.finish(amends)
}

// cancel settles charges, even if ctx has ended, and wakes who waits for the
// slots among them. Observers are told if it failed.
func (v *version) cancel(ctx context.Context, s store.Store, p *plan, charges []store.Charge) {
	if _, took, err := v.settle(ctx, s, charges); err != nil {
		v.unsettled(p, charges, took, err)
	}
}

// timed has the store settle, and says how long that took where somebody observes.
func (v *version) timed(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result) (took time.Duration, err error) {
	if v.of.told.Load() == nil {
		return 0, s.Settle(ctx, charges, results)
	}
	start := time.Now()
	err = s.Settle(ctx, charges, results)
	return time.Since(start), err
}

// settle is cancel without a word to the observers, for callers with more to do
// before anything may panic. It returns the results, or a *StoreError.
func (v *version) settle(ctx context.Context, s store.Store, charges []store.Charge) (results []store.Result, took time.Duration, err error) {
	if len(charges) == 0 {
		return nil, 0, nil
	}
	ctx = context.WithoutCancel(ctx)
	if !store.AnswersAtOnce(s) { // else a timer would cost more than the call
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, settleTimeout)
		defer stop()
	}
	results = make([]store.Result, len(charges))
	took, err = v.timed(ctx, s, charges, results)
	for i := range charges {
		if charges[i].Receipt.Lease != (store.LeaseID{}) {
			v.family.process.wake(charges[i].Limit.Name(), charges[i].Key)
		}
	}
	if err != nil {
		return nil, took, &StoreError{err}
	}
	return results, took, nil
}
