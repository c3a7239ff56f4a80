// Package store is the contract between a limiter and the place where its
// counts live, and the algorithms that both sides of the contract share.
//
// A [Store] has two verbs. Take decides several charges at one instant: all
// are made, or none is. Settle makes an earlier charge cost something else
// after all. Everything a limiter does (allow, peek, reserve, wait, cancel,
// refund, go into debt, lease and release) is one of the two.
//
// The algorithms are pure steps over a [State]; [Decide] runs them in two
// phases, so a store only has to find the states, call Decide while nobody
// else can touch them, and write back what changed. Package memstore does that
// in memory. A store that runs the steps elsewhere must give the same answers
// to the integer; package storetest holds it to that.
package store

import (
	"context"
	"errors"
	"math"
	"time"
)

// Never is the RetryAfter of a cost that can not pass however long one waits.
const Never = time.Duration(math.MaxInt64)

// MaxCost is the largest cost of one charge. Whatever a limit can hold is far
// below it; the bound keeps every sum exact in a double as well.
const MaxCost = 1 << 40

// Store decides charges and remembers them. Implementations are safe for
// concurrent use. They touch the slices they are given only until they return:
// callers use them again.
type Store interface {
	// Take decides all charges at one instant: every one is made, or none is.
	// It writes the answer to charges[i] into results[i]; the decision is
	// granted when every result that is not a dry run is OK. In a refused
	// decision the results that are OK say what their limit would have
	// allowed; nothing was charged for them.
	//
	// A charge of cost 0 peeks: it is answered and changes nothing. A pair of
	// limit and key may be named once only in a call.
	//
	// The error is about the store (or about a call that is not well formed),
	// never about a refusal. After an error nothing in results may be used,
	// and whether the charges were made is unknown.
	Take(ctx context.Context, charges []Charge, results []Result) error

	// Settle makes each earlier charge cost charges[i].Cost after all, and
	// reports where its limit then stands. The charge carries the Receipt of
	// its Result. Below what was charged it refunds, but only what time has
	// not given back already; above, it adds debt, as far as the limit counts
	// (a year's worth of a rate, MaxCost units of a window); 0 cancels, and
	// releases a concurrency lease. The Receipt in the Result replaces the one settled,
	// which is spent: settling again needs the new one. Settling late, or with
	// the receipt of a charge that was not made, frees nothing; releasing a
	// lease twice doesn't either. Unlike in Take, several charges of one key and
	// limit may be settled in a call; they are settled one after the other. Turns
	// are given up latest first (Limit.Behind): for one behind which others are
	// reserved little or nothing comes back, and what is left of it stays good
	// (Limit.Standing).
	Settle(ctx context.Context, charges []Charge, results []Result) error
}

// Resetter is implemented by stores that can forget what a key has consumed.
type Resetter interface {
	// Reset makes the limits forget key, as if it had never been seen.
	// Leases of a concurrency limit are forgotten too; their later release
	// frees nothing.
	Reset(ctx context.Context, key string, limits ...*Limit) error
}

// Immediate is implemented by stores whose calls may never wait for anything
// outside the process. A store made of stores implements it by asking them.
type Immediate interface {
	// AnswersAtOnce reports whether Take and Settle never wait. Callers then
	// need no deadline for them.
	AnswersAtOnce() bool
}

// AnswersAtOnce reports whether s is an Immediate that answers at once.
func AnswersAtOnce(s Store) bool {
	i, ok := s.(Immediate)
	return ok && i.AnswersAtOnce()
}

// Checked is implemented by stores that may be made of what can't work, such as no
// client. New of package stint refuses such a store.
type Checked interface {
	// Misconfigured returns what the store was made of that can't work. It asks nobody.
	Misconfigured() []*SpecError
}

// Charge is one limit applied to one key at a cost.
type Charge struct {
	// Key says who is charged. It is an identity, not a storage key: the
	// store adds the limit's name itself.
	Key string
	// Limit is the rule. It travels with the call, so that a store needs no
	// registration and a limit can change between two calls.
	Limit *Limit
	// Cost is the number of units asked for, in [0, MaxCost]; 0 peeks. In
	// Settle it is what the earlier charge shall have cost.
	Cost int64
	// MaxWait, when positive, lets the charge reserve a turn in the future:
	// where a refusal would be lifted within MaxWait the charge is made now
	// and Result.Delay says how long to wait. On a limit that queues by
	// itself (LeakyBucket, or one with a Queue) it bounds the wait as well.
	// More than a year counts as a year, and less than that where a year of
	// windows of so many units could not be counted. A
	// Concurrency can't tell when a slot comes free and refuses at once; see
	// CountsFor.
	MaxWait time.Duration
	// DryRun decides the charge, and makes it if it fits and the others are
	// granted, but never lets it refuse them.
	DryRun bool
	// Receipt is, in Settle, the Receipt of the Result being settled. Take
	// ignores it.
	Receipt Receipt
}

// Result is a limit's own answer to a charge. Durations are multiples of a
// microsecond (of the limit's resolution), rounded up.
type Result struct {
	// OK says that this limit lets the charge pass, after Delay.
	OK bool
	// Begun says of a Ban that it has begun with this decision.
	Begun bool
	// Held is how many slots of a Concurrency are held with this charge, also
	// those above the limit's number since it was lowered.
	Held int64
	// Remaining is the number of whole units left, never below 0.
	Remaining int64
	// Delay is how long the charge has to wait for the turn it has reserved.
	Delay time.Duration
	// RetryAfter is 0 when OK; else the time after which the same charge
	// passes if nobody else comes, or Never.
	RetryAfter time.Duration
	// ResetAfter is the time until the limit is as if never used; for windows,
	// until the window ends.
	ResetAfter time.Duration
	// Receipt identifies the charge for Settle. Its zero value belongs to a
	// charge that was not made.
	Receipt Receipt
}

// LeaseID names one lease of a concurrency limit. The zero LeaseID names none.
type LeaseID [16]byte

// Receipt lets a later Settle find what a charge did. Callers keep it and hand
// it back; only the store that issued it can read it.
type Receipt struct {
	// Instant and Mark belong to the algorithm: where in its own time the
	// charge landed, and where the state stood just after it.
	Instant, Mark int64
	// Cost is what has been charged. 0: nothing was.
	Cost int64
	// Lease is held by a charge on a concurrency limit.
	Lease LeaseID
	// Path is for stores made of stores: which of them issued the receipt.
	Path uint8
	// Low is part of a Mark that takes more than a word: see Scale.Join.
	Low uint32
}

// Errors of calls that are not well formed. A store wraps them.
var (
	ErrCost      = errors.New("cost is negative or above store.MaxCost")
	ErrLimit     = errors.New("charge without a limit: make one with store.NewLimit")
	ErrResults   = errors.New("charges and results differ in length")
	ErrDuplicate = errors.New("one limit is charged twice for one key in one call: add the costs up")
)
