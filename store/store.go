// Package store defines the contract between a limiter and the place where its counts
// are kept, and implements the algorithms that every store runs.
//
// A [Store] has two methods. Take decides several charges at one instant: it makes all
// of them or none. Settle replaces the cost of an earlier charge. Everything else a
// limiter does (allow, peek, reserve, wait, cancel, refund, go into debt, lease and
// release) is one of the two.
//
// # Writing a store
//
// A store keeps a [State] for each limit and key, and decides nothing itself. Take finds the
// states of its charges, calls [Decide] while it holds them exclusively, and keeps each for its
// [Limit.Lifetime]. Settle does the same with [Amend]. A store in a database does both in a
// transaction, and keeps states as bytes: State.AppendBinary and State.UnmarshalBinary.
//
// https://github.com/stint-go/stint/tree/main/examples/bolt is a whole store, and
// https://github.com/stint-go/stint/blob/main/docs/stores.md explains it. Package storetest
// tests a store.
//
// Optional capabilities are interfaces that callers find by type assertion: Resetter,
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

// Store decides charges and remembers them. Implementations must be safe for concurrent
// use. They must not keep the slices they are given: callers reuse them after the call.
type Store interface {
	// Take decides all charges at one instant: it makes every charge or none. It writes the
	// answer to charges[i] into results[i]. The decision is granted if every result that isn't
	// a dry run is OK. In a denied decision nothing is charged; a result that is OK then only
	// means that its limit alone would have allowed the charge.
	//
	// A charge of cost 0 peeks: it is answered and changes nothing. A call may contain
	// each pair of limit and key only once.
	//
	// Take returns an error if the store fails or the call is malformed, never for a denial.
	// After an error the results are meaningless, and the charges may or may not have been
	// made.
	Take(ctx context.Context, charges []Charge, results []Result) error

	// Settle replaces the cost of each earlier charge with charges[i].Cost, and writes the
	// limit's state afterwards into results[i]. Each charge carries the Receipt of its Result.
	//
	//   - A lower cost refunds the difference, except for units that have been refilled since.
	//   - A higher cost adds debt: for a rate, up to the units that it gives in a year; for a
	//     window, up to MaxCost units.
	//   - Cost 0 cancels the charge. For a Concurrency, it releases the lease; Held and
	//     Remaining of the Result may then be 0.
	//
	// The Result has a new Receipt. Use it to settle the same charge again. Settling late,
	// settling a charge that wasn't made, and releasing a lease twice have no effect.
	//
	// Unlike in Take, a call may settle several charges of one key and limit. They are settled
	// one after the other. While charges of a key wait for their turns in a bucket, only the
	// last of them is refunded, and only if it is canceled. So callers cancel the latest turn
	// first.
	//
	// After an error that wraps ErrNotMade nothing has been settled, and the call may be made
	// again. After any other error the charges may have been settled, and another call with the
	// same Receipts might refund or charge the difference twice. Leases may be released again
	// in any case.
	Settle(ctx context.Context, charges []Charge, results []Result) error
}

// Resetter is implemented by stores that can reset a key.
type Resetter interface {
	// Reset makes the limits forget key, as if it had never been seen. Leases of a
	// concurrency limit are forgotten too: releasing them later frees nothing.
	//
	// Charges from before a Reset may still be settled after it. Such a refund returns at most
	// what has been charged since.
	Reset(ctx context.Context, key string, limits ...*Limit) error
}

// Verifier is implemented by stores on a server, which may lack permissions or features. A
// store made of other stores implements it by asking the preferred one.
type Verifier interface {
	// Verify checks that the server can decide the limits, and charges nothing. The error says
	// what is missing.
	Verify(ctx context.Context, limits ...*Limit) error
}

// Immediate is implemented by stores whose calls never wait for anything outside the process. A
// store made of other stores implements it by asking them.
type Immediate interface {
	// AnswersAtOnce reports whether Take and Settle never block. If so, callers need not set a
	// deadline.
	AnswersAtOnce() bool
}

// Bounded is implemented by stores whose calls have a timeout of their own.
type Bounded interface {
	// Timeout returns the longest time that a Take or a Settle takes, whatever its context, or
	// 0 if it isn't known. Callers that allow as much time need not set a deadline.
	Timeout() time.Duration
}

// Checked is implemented by stores whose constructors return no error for wrong arguments, such
// as a nil client. stint.New returns an error for a misconfigured store.
type Checked interface {
	// Misconfigured returns the problems of the store's arguments, or nil. It makes no calls to
	// a server.
	Misconfigured() []*SpecError
}

// Charge is one limit applied to one key at a cost.
type Charge struct {
	// Key identifies who is charged. It isn't a storage key: the store adds the limit's
	// name itself.
	Key string
	// Limit is the rule. It travels with the call, so a store needs no registration and
	// a limit may change between two calls.
	Limit *Limit
	// Cost is the number of units, from 0 to MaxCost; 0 peeks. In Settle it is the new
	// cost of the earlier charge.
	Cost int64
	// MaxWait, if positive, lets the charge reserve a turn in the future: if a denial
	// would be lifted within MaxWait, the charge is made now and Result.Delay says how
	// long to wait. On a limit that queues by itself (LeakyBucket, or one with a Queue)
	// it also bounds the wait in that queue. The default, 0, reserves nothing.
	//
	// Values above a year count as a year, or less for a limit with so many units that a year
	// of its windows couldn't be counted. If the last charge on a bucket had other numbers
	// (rate or burst), a charge with a MaxWait of a year or more isn't reserved: it is denied,
	// and the caller asks again after RetryAfter. Concurrency ignores MaxWait, since the time
	// until a slot comes free is unknown; a Ban beside it reads it.
	MaxWait time.Duration
	// DryRun makes the limit report only. The charge is decided, and is made if it fits
	// and the decision is granted, but it never causes a denial.
	DryRun bool
	// Receipt is the Receipt of the Result being settled. Take ignores it.
	Receipt Receipt
	// Observer, if not nil, gets a LeaseLost notice if the lease that this charge takes is lost
	// while it is held. Settle ignores it.
	Observer *Observer
}

// Result is one limit's answer to a charge. Durations are rounded up to the limit's
// Tick.
type Result struct {
	// OK reports whether this limit lets the charge pass, after Delay.
	OK bool
	// Begun reports whether this decision started a ban. Only a Ban sets it.
	Begun bool
	// Held is the number of slots held, including those of this charge. It may exceed the
	// limit's Units after Units was lowered. Only a Concurrency sets it.
	Held int64
	// Remaining is the number of whole units left, never negative.
	Remaining int64
	// Delay is how long the caller must wait for the turn it has reserved.
	Delay time.Duration
	// RetryAfter is 0 if OK. Otherwise it is the time after which the same charge
	// passes if no other caller comes, or Never.
	RetryAfter time.Duration
	// ResetAfter is the time until the limit is full again. For windows it is the time until
	// the window ends.
	ResetAfter time.Duration
	// MoreAfter is the time until more than Remaining units are left if no other caller comes.
	// If the limit is full, it is the time in which a rate gives one unit, and 0 for a window.
	// It is 0 for a Concurrency, since the time of the next release is unknown.
	MoreAfter time.Duration
	// Receipt identifies the charge for Settle. It is zero if no charge was made.
	Receipt Receipt
}

// LeaseID identifies one lease of a concurrency limit. The zero LeaseID identifies
// none.
type LeaseID [16]byte

// Receipt identifies a charge for a later Settle. Callers keep it and pass it back unchanged;
// only the store that issued it can interpret it.
type Receipt struct {
	// Instant and Mark belong to the algorithm: the instant at which the charge was made, in
	// the algorithm's own time, and the state just after it.
	Instant, Mark int64
	// Cost is the number of units charged; 0 means none.
	Cost int64
	// Lease is the lease held by a charge on a concurrency limit.
	Lease LeaseID
	// Path says which store issued the receipt. Stores made of other stores use it.
	Path uint8
}

// ErrNotMade is wrapped by errors of calls that are known to have changed nothing. A store
// makes such errors by NotMade; test with errors.Is.
var ErrNotMade = errors.New("the call was not made")

// NotMade marks err as the error of a call that has changed nothing: the error returned has the
// text of err, and wraps err and ErrNotMade.
func NotMade(err error) error { return notMade{err} }

type notMade struct{ error }

func (e notMade) Unwrap() error      { return e.error }
func (notMade) Is(target error) bool { return target == ErrNotMade }

// ErrMisconfigured is wrapped by errors that an operator has to fix, such as a wrong password
// or a missing permission. Retrying doesn't help until then.
var ErrMisconfigured = errors.New("misconfigured")

// Errors of malformed calls. Stores wrap them; test with errors.Is.
var (
	ErrCost      = errors.New("cost out of range") // below 0, or above MaxCost
	ErrLimit     = errors.New("charge without a limit: make one with store.NewLimit")
	ErrResults   = errors.New("charges and results differ in length")
	ErrDuplicate = errors.New("a limit is charged twice for the same key in one call: add up the costs")
)

// Observable is implemented by stores that send notices. A store made of other stores passes on
// their notices.
type Observable interface {
	// Observe sends notices to o from now on, for as long as the caller keeps a reference to o:
	// the store keeps only a weak one. See Observers.
	Observe(o *Observer)
}

// Degradable is implemented by stores that fall back to another store.
type Degradable interface {
	// Degraded returns the reason why calls currently don't go to the preferred store, or nil
	// if they do. It makes no call. It is safe for concurrent use.
	Degraded() error
}

// Observer receives notices. Its functions are called concurrently, from the goroutines of
// callers and from the store's own.
type Observer struct {
	Tell func(Notice)
}

// Notice is one event of a store.
type Notice struct {
	Kind NoticeKind
	// Store is the store that CallFailed, Degraded and Restored are about; nil means the store
	// that sends the notice.
	Store Store
	// Err is the cause of CallFailed and Degraded; for MayForget and Full, it says what to do.
	// If Err is a new pointer for each failure, the failure is logged once, however many
	// limiters get the notice.
	Err error
	// Key and Limit identify the slot of LeaseLost.
	Key   string
	Limit *Limit
}

// NoticeKind is the kind of an event.
type NoticeKind uint8

const (
	// CallFailed: the preferred part of the store has failed a call. Another part, if there is
	// one, has decided the call. The next call goes to the preferred part again.
	CallFailed NoticeKind = iota
	// Degraded: calls no longer go to the preferred part of the store, or it has failed another
	// probe.
	Degraded
	// Restored: calls go to the preferred part of the store again.
	Restored
	// LeaseLost: the store lost the lease of a slot that is still held, so another request may
	// have got the slot. The slot counts again now, unless another process has reset the limit.
	// The notice is sent only to the Observer of the Charge that took the lease, once for each
	// loss.
	LeaseLost
	// MayForget: the store's server may drop counts before they expire, so a key that has used up a
	// limit may get all of it again. If Err is nil, the server no longer does so.
	MayForget
	// Full: the store has no room for new keys. Err says what happens to them, and how to make
	// room.
	Full
)
