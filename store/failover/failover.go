// Package failover makes one store out of two: a primary that may fail, and a
// secondary that decides while it does.
//
//	failover.New(shared, memstore.New())
//
// A call goes to the primary while the breaker is closed. If the primary fails
// it, the secondary decides it, and after a few failures in a row the breaker
// opens: from then on calls go to the secondary at once and nobody waits for a
// primary that is down. In the background the primary is probed until it
// answers; then the breaker closes. Without a secondary a failed call returns
// the primary's error, and while the breaker is open calls fail at once with
// [ErrOpen].
//
// # What counts as a failure
//
// Every error of the primary, with these exceptions, which are returned as they
// are and not taken to the secondary:
//
//   - The call is not well formed (store.ErrCost and its like): never counts.
//   - [WithFailure] says that it is no failure: never counts.
//   - The caller's context was cancelled: never counts, since callers leave
//     for reasons of their own.
//   - The caller's deadline has passed: counts if the primary had been asked
//     for as long as [WithPatience] says, else not.
//
// The last one opens the breaker for a primary that hangs until its callers'
// deadlines. It can't help callers that have none: give the primary a deadline
// of its own, shorter than theirs, and the secondary still has time to decide.
//
// # How the primary is probed
//
// A probe charges 1 to the token bucket [ProbeLimit], for each key (the first 8)
// of the last call that failed before the breaker opened. It is a charge and
// not a look, because a primary that can be read may still take no writes: a
// replica, or a server out of memory. It touches no limit of yours and leaves a
// key that expires at once. Until every one of these charges is made the
// primary is down, whatever else it answers. And the probe goes where the
// failed call went: a primary that spreads its keys over several servers is not
// well because another one of them is.
//
// # A primary that is down in part
//
// There is one breaker for all keys, and it counts failures in a row. With a
// part of the keys' servers down, calls for the others succeed in between, and
// until a run of failures comes about by chance, every call for the part that
// is down waits for the primary's timeout before the secondary decides it. If a
// third of the calls fail, five in a row take 360 calls on average; the busier
// the primary, the sooner. Then the breaker opens for all keys, also for those
// whose servers are well, and stays open until the part that failed answers the
// probe: one change there, one back, whatever the others answer. Whoever would
// rather have those calls wait than the others counted apart sets a higher
// [WithThreshold]: 20 in a row of a third take billions.
//
// # What is charged where
//
// The two sides count apart: while the secondary decides, nobody sees what the
// primary has counted, and the other way round. Over an outage a key may use
// up its limit on each side once. A call that the primary failed without a
// word (a timeout, a lost connection) may have been charged there as well; it
// is never repeated there.
//
// A charge is settled on the side that made it. If that is the primary and it
// can't be reached, Settle returns an error and what was charged stands: it is
// not settled on the other side, where it would free what was never taken.
// A refund refused with [ErrOpen] is lost, or the caller's to try again.
//
// The slots of a concurrency limit are different: a primary may go on renewing
// a lease until it hears that the slot is free. A release refused with ErrOpen
// is therefore kept, and made in the background once the breaker has closed.
// Until then the slot is taken on the primary, unless the lease expires there.
// There is no need to try again, and no harm in it. A release that the primary
// was asked for and failed is not kept: the primary has heard of it.
//
// In package stint, Permit.Settle returns such an error in a stint.StoreError,
// and Permit.Done, which returns nothing, hands it to the observer as a
// SettleFailed event. Done doesn't try again, and needn't.
package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// ErrOpen is the error of a call that needs the primary while the breaker is
// open: every call if there is no secondary, else the Settle of a charge that
// the primary made, and Reset. It comes wrapped together with the error that
// the primary failed with last.
var ErrOpen = errors.New("failover: the primary is failing and is not asked for now")

// Option changes a default of New.
type Option func(*Store)

// WithThreshold opens the breaker after n failures in a row, with no success
// between them. Below 1 it is the default, 5.
func WithThreshold(n int) Option {
	return func(s *Store) {
		if n >= 1 {
			s.threshold = uint32(min(n, 1<<30))
		}
	}
}

// ProbeLimit is the name of the limit that probes are charged to, a token
// bucket: see the package comment. Don't give it to a limit of your own.
const ProbeLimit = "failover-probe"

// WithPatience sets how long a call must have been with the primary for the
// caller's deadline, when it ends the call, to count as the primary's failure.
// Set it well above what the primary takes when it is well, and below the
// deadlines that callers have; a caller with a shorter one never counts. It
// holds nobody up. A value not above 0 keeps the default, 100 ms.
func WithPatience(d time.Duration) Option {
	return func(s *Store) {
		if d > 0 {
			s.patience = d
		}
	}
}

// WithProbe sets how long to wait before and between probes of a primary that
// is failing, and how long a probe may take: its context then ends, and a
// primary that doesn't heed it delays the next. A value not above 0 keeps its
// default, 250 ms for either.
func WithProbe(every, timeout time.Duration) Option {
	return func(s *Store) {
		if every > 0 {
			s.every = every
		}
		if timeout > 0 {
			s.timeout = timeout
		}
	}
}

// WithFailure asks isFailure which of the primary's errors are failures. What
// is none is returned to the caller and neither opens the breaker nor sends the
// call to the secondary: an error of configuration, say, that should not go
// unseen. By default every error is a failure, with the exceptions listed in
// the package comment.
func WithFailure(isFailure func(error) bool) Option {
	return func(s *Store) { s.isFailure = isFailure }
}

// WithObserver calls observe whenever the breaker opens or closes. The calls
// come one at a time and in order, from the goroutine that probes: a slow
// observer delays the next probe and never a caller of the store.
func WithObserver(observe func(Event)) Option {
	return func(s *Store) { s.observe = observe }
}

// New makes a store of two. The secondary may be nil: calls then fail while
// the primary does, at once while the breaker is open. Either may itself be a
// store made by New; a receipt has room for eight stores inside each other.
//
// Nothing runs in the background while the primary is well. It panics if
// primary is nil.
func New(primary, secondary store.Store, opts ...Option) *Store {
	if primary == nil {
		panic("failover: New without a primary store")
	}
	s := &Store{
		primary:   primary,
		secondary: secondary,
		threshold: 5,
		every:     250 * time.Millisecond,
		timeout:   250 * time.Millisecond,
		patience:  100 * time.Millisecond,
		born:      time.Now(),
		probed:    []store.Charge{{Key: ProbeLimit, Limit: probeLimit, Cost: 1}},
	}
	s.life, s.end = context.WithCancel(context.Background())
	for _, opt := range opts {
		opt(s)
	}
	s.newBreaker()
	return s
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)

	_ store.Checked    = (*Store)(nil)
	_ store.Observable = (*Store)(nil)
)

// Take decides the charges on one side: on the primary while the breaker is
// closed and it answers, else on the secondary.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	err := s.ask(ctx, charges, func() error { return s.primary.Take(ctx, charges, results) })
	if err == nil {
		return issuedBy(primarySide, results)
	}
	if _, own := err.(final); own || s.secondary == nil {
		return s.failure(err)
	}
	s.fallbacks.Add(1)
	if err := s.secondary.Take(ctx, charges, results); err != nil {
		return err
	}
	return issuedBy(secondarySide, results)
}

// Settle settles each charge on the side that made it. Charges that both sides
// made may be mixed; if one side fails, those of the other are settled all the
// same. While the breaker is open, charges of the primary are not settled: the
// error wraps [ErrOpen], and what was charged stands. Slots are released later.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	switch madeBy(charges) {
	case primaryOnly:
		return s.settle(ctx, primarySide, charges, results)
	case secondaryOnly:
		return s.settle(ctx, secondarySide, charges, results)
	case nobody: // there may be a debt to write down; who decides, does
		err := s.ask(ctx, charges, func() error { return s.primary.Settle(ctx, charges, results) })
		if err == nil {
			return issuedBy(primarySide, results)
		}
		if _, own := err.(final); own || s.secondary == nil {
			return s.failure(err)
		}
		return s.settle(ctx, secondarySide, charges, results)
	}
	var errs []error
	for side := range uint8(2) {
		var part []store.Charge
		var at []int
		for i := range charges {
			if charges[i].Receipt.Path&1 == side {
				part, at = append(part, charges[i]), append(at, i)
			}
		}
		answers := make([]store.Result, len(part))
		if err := s.settle(ctx, side, part, answers); err != nil {
			errs = append(errs, err)
			continue
		}
		for k, i := range at {
			results[i] = answers[k]
		}
	}
	return errors.Join(errs...)
}

// settle settles charges that one side made.
func (s *Store) settle(ctx context.Context, side uint8, charges []store.Charge, results []store.Result) error {
	charges = handBack(charges)
	if side == secondarySide {
		if s.secondary == nil {
			return errors.New("failover: a receipt of a secondary, and there is none")
		}
		if err := s.secondary.Settle(ctx, charges, results); err != nil {
			return err
		}
		return issuedBy(side, results)
	}
	err := s.ask(ctx, charges, func() error { return s.primary.Settle(ctx, charges, results) })
	if err == errNotAsked {
		s.keep(charges)
	}
	if err != nil {
		return s.failure(err)
	}
	return issuedBy(side, results)
}

// AnswersAtOnce implements store.Immediate: it reports whether both sides answer
// at once.
func (s *Store) AnswersAtOnce() bool {
	return store.AnswersAtOnce(s.primary) && (s.secondary == nil || store.AnswersAtOnce(s.secondary))
}

// Misconfigured implements store.Checked: it returns what is wrong with either side.
func (s *Store) Misconfigured() (all []*store.SpecError) {
	for _, side := range [...]store.Store{s.primary, s.secondary} {
		if c, ok := side.(store.Checked); ok {
			all = append(all, c.Misconfigured()...)
		}
	}
	return all
}

// Observe implements store.Observable: o is told of each failure of the primary and of
// each failed probe (store.Degraded; Err wraps [ErrOpen] from the time when the breaker
// opens), of the breaker's closing (store.Restored), and of what both sides tell. A
// failure is told on the goroutine of the call that failed, the rest on the one that
// probes.
func (s *Store) Observe(o *store.Observer) {
	s.observers.Observe(o)
	for _, side := range [...]store.Store{s.primary, s.secondary} {
		if inner, ok := side.(store.Observable); ok {
			inner.Observe(o)
		}
	}
}

// Reset makes both sides forget key. It does what it can: an error says that
// one of them has not, because it failed, because the breaker is open
// ([ErrOpen]), or because it is no store.Resetter (errors.ErrUnsupported).
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) error {
	var first, second error
	if r, ok := s.primary.(store.Resetter); ok {
		if first = s.ask(ctx, []store.Charge{{Key: key}}, func() error { return r.Reset(ctx, key, limits...) }); first != nil {
			first = s.failure(first)
		}
	} else {
		first = fmt.Errorf("failover: the primary, %T, can't forget a key: %w", s.primary, errors.ErrUnsupported)
	}
	if r, ok := s.secondary.(store.Resetter); ok {
		second = r.Reset(ctx, key, limits...)
	} else if s.secondary != nil {
		second = fmt.Errorf("failover: the secondary, %T, can't forget a key: %w", s.secondary, errors.ErrUnsupported)
	}
	return errors.Join(first, second)
}
