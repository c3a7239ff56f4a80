// Package store defines the contract between a limiter and the place where its counts
// are kept, and implements the algorithms that every store runs.
//
// A [Store] has two methods. Take decides several charges at one instant: it makes all of them
// or none. Settle replaces the cost of an earlier charge. All operations of a limiter (allow,
// peek, reserve, wait, cancel, refund, lease, release) are calls of one of these methods.
//
// # Writing a store
//
// A store keeps a [State] for each limit and key. Take finds the states of its charges, locks
// them, calls [Decide], and keeps each state for its [Limit.Lifetime]. Settle does the same
// with [Amend]. A store in a database uses transactions instead of locks, and keeps states as
// bytes, with [State.AppendBinary] and [State.UnmarshalBinary].
//
// https://github.com/stint-go/stint/tree/main/examples/bolt is a complete store, and
// https://github.com/stint-go/stint/blob/main/docs/stores.md explains it. Package storetest
// tests a store.
//
// Optional capabilities are interfaces that callers find by type assertion: Resetter, Banner,
// Immediate, Bounded, Checked, Observable, Degradable and Verifier.
package store

import (
	"context"
	"errors"
	"math"
	"time"
)

// Never is the RetryAfter of a charge whose cost can never pass.
const Never = time.Duration(math.MaxInt64)

// Store decides charges and keeps the counts. Implementations must be safe for concurrent use.
// They must not keep the slices that are passed to them, because callers reuse the slices after
// the call.
type Store interface {
	// Take decides all charges at one instant: it makes every charge or none. The result of
	// charges[i] is written to results[i]. The decision is granted if every result that isn't a
	// dry run is OK. In a denied decision nothing is charged; OK then only reports that the
	// limit by itself would have allowed the charge.
	//
	// A charge of cost 0 has a result but changes nothing. A call may contain each pair of
	// limit and key only once.
	//
	// Take returns an error if the store fails or the call is malformed, never for a denial.
	// After an error the results are meaningless, and the charges may or may not have been
	// made.
	Take(ctx context.Context, charges []Charge, results []Result) error

	// Settle replaces the cost of each earlier charge with charges[i].Cost, and writes the new
	// status of the limit to results[i]. charges[i].Receipt is the Receipt from the Result of
	// the earlier charge.
	//
	//   - A lower cost refunds the difference, except for units that have been refilled since. If
	//     the store's clock is set back and comes to the time of the charge again, the refund may
	//     be of units that others have charged since.
	//   - A higher cost adds debt: for a rate, up to the units that it gives in a year; for a
	//     window, up to MaxCost units.
	//   - Cost 0 cancels the charge. For a Concurrency, it releases the lease; Held and
	//     Remaining of the Result may then be 0.
	//   - For a Ban, which charges nothing, a higher cost counts one denial unless the key is
	//     banned, and a lower cost has no effect. OK reports whether the key isn't banned now.
	//
	// The Result has a new Receipt. Use it to settle the same charge again. Settling late,
	// settling a charge that wasn't made, and releasing a lease twice have no effect.
	//
	// Unlike in Take, a call may settle several charges of one key and limit. These charges are
	// settled one after the other. While charges of a key wait for their turns in a bucket,
	// only the latest charge can be refunded, and only by canceling it. So callers cancel the
	// latest turn first.
	//
	// After an error that wraps ErrNotMade, nothing has been settled, and the call may be
	// repeated. After any other error, the charges may have been settled, and a repeated call
	// with the same Receipts might refund or charge the difference twice. Releasing a lease may
	// always be repeated.
	Settle(ctx context.Context, charges []Charge, results []Result) error
}

// Resetter is implemented by stores that can reset a key.
type Resetter interface {
	// Reset removes the states of key for the limits, as for a new key. Leases of a concurrency
	// limit are removed too: releasing them later has no effect.
	//
	// Charges that were made before a Reset may be settled after it. A refund of such a charge
	// returns at most the units that have been charged since the Reset.
	//
	// found reports whether there was anything to reset: a state of key that a new key doesn't
	// have. A store that removes states later than it could may also report states that equal
	// those of a new key.
	Reset(ctx context.Context, key string, limits ...*Limit) (found bool, err error)
}

// Banner is implemented by stores that can ban a key by hand.
type Banner interface {
	// Ban denies key for at least d by each of the limits, which are Bans. A ban that ends later
	// stays. The denials that a Ban has counted stay, too. Reset ends the ban, if the store is a
	// Resetter. results[i] is the state of key in limits[i] after the call; its Begun reports
	// whether the ban in force is this one. results is nil after an error.
	//
	// The error wraps ErrLimit if a limit is no Ban, and ErrBan if d is below a millisecond or
	// above 365 days; nothing has changed then. After any other error, such as that the store has
	// no room for the ban, some of the limits may ban the key.
	Ban(ctx context.Context, key string, d time.Duration, limits ...*Limit) (results []Result, err error)
}

// Verifier is implemented by stores on a server, whose permissions or features may be missing.
// A store that combines other stores verifies the preferred store.
type Verifier interface {
	// Verify checks that the server can decide the limits. It charges nothing. The error
	// describes the missing permission or feature.
	Verify(ctx context.Context, limits ...*Limit) error
}

// Immediate is implemented by stores whose calls never wait for anything outside the process. A
// store that combines other stores calls their AnswersAtOnce.
type Immediate interface {
	// AnswersAtOnce reports whether Take and Settle never block. Callers of such a store need
	// not set a deadline.
	AnswersAtOnce() bool
}

// Bounded is implemented by stores that limit the duration of their calls.
type Bounded interface {
	// Timeout returns the longest duration of a Take or a Settle, even without a deadline in
	// its context, or 0 if that duration is unknown. Callers that can wait that long need not
	// set a deadline.
	Timeout() time.Duration
}

// Checked is implemented by stores whose constructors return no error for wrong arguments, such
// as a nil client. stint.New returns an error for a misconfigured store.
type Checked interface {
	// Misconfigured returns the problems of the store's arguments, or nil. It doesn't call a
	// server.
	Misconfigured() []*SpecError
}

// Charge is one limit applied to one key at a cost.
type Charge struct {
	// Key identifies the caller who is charged. It isn't a storage key: the store adds the
	// limit's name.
	Key string
	// Limit is the rule. It is part of each call, so limits aren't registered with a store and
	// may change between two calls.
	Limit *Limit
	// Cost is the number of units, from 0 to MaxCost. With 0, the charge only reads the state.
	// In Settle, Cost is the new cost of the earlier charge.
	Cost int64
	// MaxWait, if positive, lets the charge reserve a turn in the future: if the charge would
	// pass within MaxWait, it is made now, and Result.Delay is the time to wait. On a limit
	// with a queue (LeakyBucket, or a limit with a Queue), MaxWait also bounds the wait in that
	// queue. With 0, the default, the charge reserves nothing.
	//
	// Values above a year are lowered to a year, or further for a limit whose units in a year
	// would be too large to count. If the last charge on a bucket used another rate, a
	// charge with a MaxWait of a year or more is denied instead of reserved; the caller retries
	// after RetryAfter. Concurrency ignores MaxWait, because the time until a slot is released
	// is unknown.
	MaxWait time.Duration
	// DryRun makes a charge that is counted but never causes a denial. The charge is decided,
	// and is made if the limit allows it and the decision is granted.
	DryRun bool
	// Final, on a charge on a Ban, says that the caller won't ask again if this decision is denied.
	// The Ban then counts the denial if a rate or quota with the same Key denies, unless that is a
	// dry run or a Ban denies too. Without Final, Take counts nothing. Other limits and Settle
	// ignore Final.
	//
	// A caller that asks repeatedly while it waits leaves Final out. If its wait ends in a denial,
	// it counts that denial with Settle at Cost 1, for a charge on the Ban with the zero Receipt.
	Final bool
	// Receipt is the Receipt of the charge to be settled. Take ignores it.
	Receipt Receipt
	// Observer, if not nil, gets a LeaseLost notice if the lease that this charge takes is lost
	// while it is held. Settle ignores it.
	Observer *Observer
}

// Result is the result of one charge. Durations are rounded up to the limit's Tick.
type Result struct {
	// OK reports whether this limit lets the charge pass, after Delay.
	OK bool
	// Begun reports whether this decision started a ban. Only a Ban sets Begun.
	Begun bool
	// Processes is n if the store has decided by an n-th of the limit, as a failover does with
	// WithProcesses(n). Otherwise it is 0.
	Processes uint32
	// Held is the number of slots held, including those of this charge. Held may exceed the
	// limit's Units after Units was lowered. Only a Concurrency sets Held.
	Held int64
	// Remaining is the number of whole units left, never negative. It includes the free units
	// of a queue: those whose turn comes within the charge's MaxWait or, if MaxWait is 0, all.
	Remaining int64
	// Delay is the time that the caller must wait for the turn that the charge has reserved.
	Delay time.Duration
	// RetryAfter is 0 if OK is true. Otherwise it is the time after which the same charge would
	// pass if no other caller came, or Never for a cost above what the limit ever lets pass.
	// For a Concurrency it is 0 or Never, because the time of the next release is unknown. If a
	// cost needs a longer wait in the queue than MaxWait, even on an unused key, RetryAfter is
	// the time until no unit is in use, plus the time by which MaxWait is too short.
	RetryAfter time.Duration
	// ResetAfter is the time until all units of the limit are available again. For windows, it
	// is the time until the window ends.
	ResetAfter time.Duration
	// MoreAfter is the time until more than Remaining units are left, if no other caller comes.
	// If all units are available, MoreAfter is the time in which a rate gives one unit, or 0
	// for a window. For a Concurrency it is 0, because the time of the next release is unknown.
	MoreAfter time.Duration
	// Receipt identifies the charge for Settle. It is the zero Receipt if no charge was made.
	Receipt Receipt
}

// LeaseID identifies one lease of a concurrency limit. The zero LeaseID means no lease.
type LeaseID = [16]byte

// Receipt identifies a charge for a later Settle. Callers keep the Receipt and pass it back
// unchanged. Only the store that issued a Receipt can interpret it.
type Receipt = struct {
	// Instant is the time of the charge, in a unit that depends on the algorithm. Mark is the
	// state of the limit just after the charge.
	Instant, Mark int64
	// Cost is the number of units charged. It is 0 if nothing was charged.
	Cost int64
	// Lease is the lease held by a charge on a concurrency limit.
	Lease LeaseID
	// Path identifies the store that issued the receipt. Stores that combine other stores use
	// it.
	Path uint8
}

// An error wraps ErrNotMade if its call is known to have changed nothing. A store makes such
// errors with [NotMade]; test with errors.Is.
var ErrNotMade = errors.New("the call was not made")

// NotMade marks err as the error of a call that has changed nothing: the error returned has the
// text of err, and wraps err and ErrNotMade.
func NotMade(err error) error { return notMade{err} }

type notMade struct{ error }

func (e notMade) Unwrap() error      { return e.error }
func (notMade) Is(target error) bool { return target == ErrNotMade }

// ErrMisconfigured is wrapped by errors that an operator has to fix, such as a wrong password
// or a missing permission. Until the problem is fixed, retrying doesn't help.
var ErrMisconfigured = errors.New("misconfigured")

// Errors of malformed calls. Stores wrap these errors; test with errors.Is.
var (
	ErrCost      = errors.New("cost out of range") // below 0, or above MaxCost
	ErrLimit     = errors.New("charge without a limit: make one with store.NewLimit")
	ErrResults   = errors.New("charges and results differ in length")
	ErrBan       = errors.New("duration of a ban out of range") // below 1 ms, or above 365 days
	ErrDuplicate = errors.New("a limit is charged twice for the same key in one call: add up the costs")
)

// Observable is implemented by stores that send notices. A store that combines other stores
// passes on their notices.
type Observable interface {
	// Observe sends notices to o as long as the caller keeps a reference to o: the store keeps
	// only a weak reference. See [Observers].
	Observe(o *Observer)
}

// Degradable is implemented by stores with a breaker.
type Degradable interface {
	// Degraded returns the reason why calls currently don't go to the preferred store, or nil
	// if they do. instead is the store that decides meanwhile; it is nil if calls fail. Degraded
	// calls no store. It is safe for concurrent use.
	Degraded() (instead Store, err error)
}

// Observer receives notices. Tell is called concurrently, on goroutines of callers and of the
// store.
type Observer struct {
	Tell func(Notice)
}

// Notice is one event of a store.
type Notice struct {
	Kind NoticeKind
	// Store is the store that a CallFailed, Degraded or Restored is about. nil means the store
	// that sends the notice.
	Store Store
	// Instead is the store that decides after a CallFailed, and while a store is Degraded. nil
	// means that none does: calls fail.
	Instead Store
	// Err is the cause of a CallFailed or Degraded. For MayForget and Full, Err describes the
	// problem and the correction. If Err is a new pointer for each failure, the failure is
	// logged once even if several limiters get the notice.
	Err error
	// Key and Limit identify the slot of LeaseLost.
	Key   string
	Limit *Limit
}

// NoticeKind is the kind of a notice.
type NoticeKind uint8

const (
	// CallFailed: a call has failed on the preferred part of the store. Another part, if there
	// is one, has decided the call. The next call goes to the preferred part again.
	CallFailed NoticeKind = iota
	// Degraded: calls no longer go to the preferred part of the store, or another probe of that
	// part has failed.
	Degraded
	// Restored: calls go to the preferred part of the store again.
	Restored
	// LeaseLost: the store lost the lease of a slot that is still held, so another request may
	// have got the slot. The lease has been restored, unless another process has reset the
	// limit. The notice is sent once for each loss, and only to the Observer of the Charge that
	// took the lease.
	LeaseLost
	// MayForget: the store's server may evict counts before they expire, so the whole limit may
	// become available again to a key that has used it up. If Err is nil, the server no longer
	// evicts counts.
	MayForget
	// Full: the store has no room for new keys. Err describes how new keys are treated, and how
	// to make room.
	Full
)
