// Package failover combines two stores into one: a primary, and a secondary that decides while
// the primary fails.
//
//	failover.New(shared, memstore.New())
//
// While the breaker is closed, calls go to the primary. If a call fails on the primary, the
// secondary decides it. After several failures in a row (5 by default) the breaker opens: calls
// then go straight to the secondary, and no call waits for the primary. The primary is probed
// in the background. When a probe succeeds, the breaker closes.
//
// Without a secondary, a failed call returns the primary's error, and while the breaker
// is open calls fail at once with [ErrOpen].
//
// # What counts as a failure
//
// Every error of the primary counts as a failure, for example a wrong password. Errors caused
// by the caller don't count. They are returned unchanged, without a call to the secondary:
//
//   - The caller's context has ended.
//   - The call is malformed (store.ErrCost and the like).
//
// So the breaker never opens if the primary hangs until the callers' deadlines. Give the
// primary a timeout that is shorter than the callers' deadlines, so that the secondary still
// has time to decide.
//
// A panic of the primary counts as a failure, and propagates to the caller.
//
// # How the primary is probed
//
// A probe repeats the last call that failed before the breaker opened, for at most 8 pairs of
// key and algorithm. It charges 1 to limits named ProbeLimit instead of the call's limits, and
// releases the slots that it takes. It charges instead of reading, because a primary that can
// be read may still refuse writes: a replica, a server out of memory, or a server whose user
// may run only some commands. A probe doesn't change your limits, and its keys expire at once.
//
// A probe succeeds if all of these charges are made. It uses the keys of the failed call,
// because the primary may spread its keys over several servers, of which only some have failed.
//
// # A primary that is partly down
//
// There is one breaker for all keys, and it counts failures in a row. If only some servers of
// the primary are down, calls for keys on the other servers succeed in between and reset the
// count. Until enough failures are consecutive, every call for a failed server waits for the
// primary's timeout before the secondary decides it. If a third of the calls fail, five
// failures in a row take 360 calls on average.
//
// Then the breaker opens for all keys, including keys whose servers are up, and stays open
// until the failed servers answer the probe. To keep the healthy keys on the primary, set a
// higher WithThreshold: if a third of the calls fail, 20 failures in a row take billions of
// calls. In return, every call for a failed server waits for the timeout.
//
// # What is charged where
//
// The two stores count separately, so during an outage a key may use its limit once in each
// store. With a secondary in the memory of each process, it may use its limit once in each
// process, unless [WithProcesses] divides it. A call that failed on the primary by a timeout or a lost connection may
// have been charged there as well as on the secondary. It isn't repeated on the primary.
//
// A charge is settled in the store that made it. If the primary made the charge and can't be
// reached, Settle returns an error and the charge isn't changed. A refund that fails with
// ErrOpen is lost unless the caller retries.
//
// Releases of concurrency slots are kept, because a primary may renew a lease until the slot is
// released. If a release fails with ErrOpen, it is repeated in the background once the breaker
// has closed. If the release then fails on the primary, it is retried at the interval of
// WithProbe, for a minute from the first try. Until then, the slot stays taken on the primary,
// unless its lease expires there. Callers may retry, but need not. If a release fails on the
// primary while the breaker is closed, it isn't kept, because the primary stops renewing the
// lease.
//
// In package stint, Permit.Settle returns such an error in a stint.StoreError. Permit.Done
// returns no error: observers get the error in an EventSettleFailed. Done doesn't retry.
package failover

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store"
)

// ErrOpen is returned by calls that need the primary while the breaker is open. Without a
// secondary, all calls need the primary. With a secondary, Reset needs it, and Settle of a
// charge that the primary made. ErrOpen is joined with the primary's last failure.
var ErrOpen = store.NotMade(errors.New("failover: the breaker is open: the primary has failed and isn't asked"))

// Option changes a default of New.
type Option interface{ apply(*Store) }

type option func(*Store)

func (set option) apply(s *Store) { set(s) }

// WithThreshold sets the number of failures in a row after which the breaker opens. n is at
// least 1; for other values, stint.New returns an error. The default is 5.
func WithThreshold(n int) Option {
	return option(func(s *Store) {
		s.require(n >= 1, fmt.Sprintf("WithThreshold(%d)", n), "use 1 or more, or leave it out for the default of 5")
		s.threshold = n
	})
}

// ProbeLimit is the name of the limits that probes charge: see the package comment. Don't use
// this name for other limits.
const ProbeLimit = "failover-probe"

// WithProbe sets the interval of probes while the breaker is open, and the timeout of a probe.
// The first probe starts one interval after the breaker has opened. The probe's context ends at
// the timeout. If the primary ignores the context, the next probe is delayed. Both are 1 ms or
// more; for other values, stint.New returns an error. The default is 250 ms for each.
func WithProbe(every, timeout time.Duration) Option {
	return option(func(s *Store) {
		for _, d := range [...]time.Duration{every, timeout} {
			valid, write := optionerror.CheckDuration(d, time.Millisecond, 0,
				"use 1ms or more for both, or leave it out for the default of 250ms each")
			if s.require(valid, fmt.Sprintf("WithProbe(%v, %v)", every, timeout), write); !valid {
				break
			}
		}
		s.every, s.timeout = every, timeout
	})
}

// Store combines two stores. Make one with New. It is safe for concurrent use.
type Store struct {
	primary, secondary store.Store
	bad                []*store.SpecError // what is wrong with New's arguments
	wrong              error              // the same, for each call

	threshold      int
	every, timeout time.Duration
	observers      store.Observers

	circuit circuit
	parts   parts // of limits, for the secondary

	failures, fallbacks, denials, opened, probes atomic.Uint64

	mu           sync.Mutex
	last         error                           // the primary's last failure
	cause        error                           // ErrOpen with last, made when first needed
	probeCharges []store.Charge                  // what the primary is probed with
	events       []event                         // not yet reported
	probing      bool                            // the probing goroutine runs
	pending      map[releasedSlot]pendingRelease // releases to make when the breaker has closed

	life context.Context // until Close
	end  context.CancelFunc
}

// New combines two stores. The secondary may be nil: calls then fail while the primary fails,
// and fail at once while the breaker is open. Both stores may themselves be made by New; up to
// eight stores may be nested.
//
// If primary is nil, an option is wrong, or one of the stores is misconfigured, stint.New and
// each call of the store return an error that describes the correction. The secondary doesn't
// replace a misconfigured primary. No goroutine runs while the primary is up.
func New(primary, secondary store.Store, opts ...Option) *Store {
	s := &Store{
		primary:      primary,
		secondary:    secondary,
		threshold:    5,
		every:        250 * time.Millisecond,
		timeout:      250 * time.Millisecond,
		probeCharges: probesFor([]store.Charge{{Key: ProbeLimit}}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	for i, opt := range opts {
		if s.require(opt != nil, fmt.Sprintf("failover.New: option %d is nil", i+1), "leave it out"); opt != nil {
			opt.apply(s)
		}
	}
	s.require(primary != nil, "failover.New: the primary is nil", "pass a store, such as redisstore.New(client)")
	for i, side := range [...]store.Store{primary, secondary} {
		if v := reflect.ValueOf(side); v.Kind() == reflect.Pointer && v.IsNil() {
			s.require(false, fmt.Sprintf("failover.New: the %s is a nil %T", [...]string{"primary", "secondary"}[i], side),
				"pass a store that memstore.New, redisstore.New or the like has returned")
			continue
		}
		if c, ok := side.(store.Checked); ok {
			s.bad = append(s.bad, c.Misconfigured()...)
		}
	}
	if s.bad != nil {
		s.wrong = s.unusable()
	}
	return s
}

// require remembers that an argument of New is wrong, unless it is valid.
func (s *Store) require(valid bool, problem, write string) {
	if !valid {
		s.bad = append(s.bad, inside.NewSpecError("", problem, write))
	}
}

// unusable returns the error of all calls of a store that can't be used.
func (s *Store) unusable() error {
	if s.wrong != nil {
		return s.wrong
	}
	var all []error
	for _, e := range s.Misconfigured() {
		all = append(all, e)
	}
	return store.NotMade(fmt.Errorf("failover: %w", errors.Join(all...)))
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Banner    = (*Store)(nil)
	_ store.Verifier  = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
	_ store.Bounded   = (*Store)(nil)

	_ store.Checked    = (*Store)(nil)
	_ store.Observable = (*Store)(nil)
	_ store.Degradable = (*Store)(nil)
)

// Take decides the charges on the primary. If the breaker is open or the primary fails, it
// decides them on the secondary.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if s.wrong != nil || s.life == nil {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return err
	}
	err := s.ask(ctx, charges, func() error { return s.primary.Take(ctx, charges, results) })
	if err == nil {
		return markSide(primarySide, results)
	}
	if _, callers := err.(callerError); callers || s.secondary == nil {
		return s.errorOf(err)
	}
	s.fallbacks.Add(1)
	divided := s.parts.divide(charges, true)
	if err := s.secondary.Take(ctx, divided, results); err != nil {
		return err
	}
	s.parts.show(charges, divided, results)
	return markSide(secondarySide, results)
}

// Settle settles each charge in the store that made it. A call may have charges of both stores;
// if one store fails, the charges of the other are still settled. While the breaker is open,
// charges of the primary aren't settled, and the error wraps ErrOpen. Slots are released once
// the breaker has closed.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if s.wrong != nil || s.life == nil {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return err
	}
	switch sidesOf(charges) {
	case primaryOnly:
		return s.settle(ctx, primarySide, charges, results)
	case secondaryOnly:
		return s.settle(ctx, secondarySide, charges, results)
	case noSide: // a charge that was never made may still add debt: the store that decides now records it
		err := s.ask(ctx, charges, func() error { return s.primary.Settle(ctx, charges, results) })
		if err == nil {
			return markSide(primarySide, results)
		}
		if _, callers := err.(callerError); callers || s.secondary == nil {
			return s.errorOf(err)
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
	if len(errs) == 0 {
		return nil
	}
	return partial{errors.Join(errs...)}
}

// partial is the error of a call on both sides: what one of them says of its part,
// store.ErrNotMade, doesn't hold for the whole.
type partial struct{ error }

func (p partial) Is(target error) bool {
	return target != store.ErrNotMade && errors.Is(p.error, target)
}
func (p partial) As(target any) bool { return errors.As(p.error, target) }

// settle settles the charges that one side made.
func (s *Store) settle(ctx context.Context, side uint8, charges []store.Charge, results []store.Result) error {
	charges = unmark(charges)
	if side == secondarySide {
		if s.secondary == nil {
			return errors.New("failover: the receipt was issued by a secondary, but this store has none")
		}
		divided := s.parts.divide(charges, false)
		if err := s.secondary.Settle(ctx, divided, results); err != nil {
			return err
		}
		s.parts.show(charges, divided, results)
		return markSide(side, results)
	}
	err := s.ask(ctx, charges, func() error { return s.primary.Settle(ctx, charges, results) })
	if err == errNotAsked {
		s.keepReleases(charges)
	}
	if err != nil {
		return s.errorOf(err)
	}
	return markSide(side, results)
}

// AnswersAtOnce implements store.Immediate. It reports whether both stores answer at once.
func (s *Store) AnswersAtOnce() bool {
	return s.wrong != nil || inside.AnswersAtOnce(s.primary) && (s.secondary == nil || inside.AnswersAtOnce(s.secondary))
}

// Timeout implements store.Bounded. It returns the sum of both stores' timeouts, because a call
// may need both stores, or 0 if one of the stores has no timeout.
func (s *Store) Timeout() (sum time.Duration) {
	for _, side := range [...]store.Store{s.primary, s.secondary} {
		if side == nil || inside.AnswersAtOnce(side) {
			continue
		}
		bounded, ok := side.(store.Bounded)
		if !ok || bounded.Timeout() <= 0 {
			return 0
		}
		sum += bounded.Timeout()
	}
	return sum
}

// Misconfigured implements store.Checked. It returns the problems of New's arguments and of
// both stores. It returns one problem for a Store that wasn't made by New.
func (s *Store) Misconfigured() []*store.SpecError {
	if s.life == nil {
		return []*store.SpecError{inside.NewSpecError("", "the zero failover.Store", "use failover.New(primary, secondary)")}
	}
	return s.bad
}

// String returns the names of the two stores, for log messages.
func (s *Store) String() string {
	if s.secondary == nil {
		return fmt.Sprintf("failover of %s", name(s.primary))
	}
	return fmt.Sprintf("failover of %s to %s", name(s.primary), name(s.secondary))
}

func name(s store.Store) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("%T", s)
}

// Observe implements store.Observable. It sends to o:
//
//   - store.CallFailed for each call that fails on the primary.
//   - store.Degraded when the breaker opens, and for each failed probe. Notice.Err wraps
//     ErrOpen.
//   - store.Restored when the breaker closes.
//   - all notices of the two stores.
//
// A CallFailed is sent on the goroutine of the failed call. The other notices are sent one at a
// time and in order on the goroutine that probes: a slow observer delays the next probe but
// never a caller of the store, and a panic of an observer is logged to slog.Default at level
// Error. A limiter with the store sends an EventStoreDegraded for each notice.
func (s *Store) Observe(o *store.Observer) {
	s.observers.Observe(o)
	for _, side := range [...]store.Store{s.primary, s.secondary} {
		if inner, ok := side.(store.Observable); ok {
			inner.Observe(o)
		}
	}
}

// Reset resets key in both stores. If one store can't reset it, the other one still does. found
// reports whether a store had anything to reset. The error names the store that failed, and wraps
// the store's own error, ErrOpen while the breaker is open, or errors.ErrUnsupported if the store
// doesn't implement store.Resetter.
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	if s.wrong != nil || s.life == nil {
		return false, s.unusable()
	}
	var first, second error
	if r, ok := s.primary.(store.Resetter); ok {
		first = s.ask(ctx, []store.Charge{{Key: key}}, func() error {
			var err error
			found, err = r.Reset(ctx, key, limits...)
			return err
		})
		if first != nil {
			first = s.errorOf(first)
		}
	} else {
		first = fmt.Errorf("failover: the primary (%T) is no store.Resetter: %w", s.primary, errors.ErrUnsupported)
	}
	if r, ok := s.secondary.(store.Resetter); ok {
		var here bool
		here, second = r.Reset(ctx, key, limits...)
		found = found || here
	} else if s.secondary != nil {
		second = fmt.Errorf("failover: the secondary (%T) is no store.Resetter: %w", s.secondary, errors.ErrUnsupported)
	}
	return found, errors.Join(first, second)
}

// Ban bans key in the store that decides: the primary, or the secondary if the breaker is open or the primary
// fails. A ban in the secondary ends for callers when the primary decides again. The error wraps
// errors.ErrUnsupported if the store that decides doesn't implement store.Banner.
func (s *Store) Ban(
	ctx context.Context, key string, d time.Duration, limits ...*store.Limit,
) (results []store.Result, err error) {
	if s.wrong != nil || s.life == nil {
		return nil, s.unusable()
	}
	if err := store.CheckBan(d, limits...); err != nil {
		return nil, store.NotMade(fmt.Errorf("failover: %w", err))
	}
	if _, can := s.primary.(store.Banner); !can && s.State() == Closed { // no failure that opens the breaker
		return ban(ctx, s.primary, key, d, limits)
	}
	err = s.ask(ctx, bansOf(key, limits), func() error {
		var err error
		results, err = ban(ctx, s.primary, key, d, limits)
		return err
	})
	if err == nil {
		return results, nil
	}
	if _, callers := err.(callerError); callers || s.secondary == nil {
		return nil, s.errorOf(err)
	}
	s.fallbacks.Add(1)
	return ban(ctx, s.secondary, key, d, limits)
}

// bansOf returns the charges by which a primary is probed that failed to ban a key.
func bansOf(key string, limits []*store.Limit) []store.Charge {
	charges := make([]store.Charge, len(limits))
	for i, l := range limits {
		charges[i] = store.Charge{Key: key, Limit: l}
	}
	return charges
}

// ban bans key in one of the stores.
func ban(
	ctx context.Context, in store.Store, key string, d time.Duration, limits []*store.Limit,
) ([]store.Result, error) {
	b, ok := in.(store.Banner)
	if !ok {
		return nil, store.NotMade(fmt.Errorf("failover: %T is no store.Banner: %w", in, errors.ErrUnsupported))
	}
	return b.Ban(ctx, key, d, limits...)
}

// Verify implements store.Verifier. It verifies the primary even while the breaker is open, and
// doesn't change the state of the breaker. If the primary doesn't implement store.Verifier,
// Verify returns nil for a store.Immediate that answers at once, and errors.ErrUnsupported
// otherwise.
func (s *Store) Verify(ctx context.Context, limits ...*store.Limit) error {
	if s.wrong != nil || s.life == nil {
		return s.unusable()
	}
	if v, ok := s.primary.(store.Verifier); ok {
		return v.Verify(ctx, limits...)
	}
	if inside.AnswersAtOnce(s.primary) {
		return nil
	}
	return fmt.Errorf("failover: the primary (%T) is no store.Verifier: %w", s.primary, errors.ErrUnsupported)
}
