package wire

import (
	"fmt"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// codec is how the limits, charges and states of an algorithm are encoded for its
// script and decoded. Its file in package lua documents the arguments.
type codec struct {
	Traits
	set    scripts.Set
	letter byte // that identifies it in scripts
	// arguments returns the arguments of a charge of 1 that isn't a dry run and doesn't
	// wait.
	arguments func(*limit) []any
	// vary changes them to those of c or, if c is nil, to what the instant requires.
	vary func(l *limit, args []any, c *store.Charge, t *Times)
	// state decodes what the script has found, and reports whether a store has written it.
	// A value in another format counts as never seen, there and here.
	state func(found string, s *algorithm.State) bool
	// alone: each charge is decided by itself, because the script answers with the entries of a list
	// that one charge needs.
	alone bool
	// aloneWaiting: the same for charges that may wait, which read the calendar.
	aloneWaiting bool
	listed       bool // what is kept at a key isn't a string
}

// Traits is in which ways limits differ, other than in their numbers.
type Traits struct {
	Leases       bool // what is charged are leases
	Prefetchable bool // WithPrefetch may take some ahead
	CountsDenied bool // it counts the denials of other limits
}

// TraitsOf returns the traits of a limit.
func TraitsOf(l *store.Limit) Traits { return codecs[l.Algorithm()].Traits }

var codecs = [...]codec{
	store.TokenBucket: {set: scripts.TokenBucket, letter: 'b', arguments: bucketArgs, vary: varyBucket,
		state: bucketState, Traits: Traits{Prefetchable: true}},
	store.LeakyBucket: {set: scripts.TokenBucket, letter: 'b', arguments: bucketArgs, vary: varyBucket,
		state: bucketState},
	store.IntervalBucket: {set: scripts.IntervalBucket, letter: 'i', arguments: intervalArgs, vary: varyWindow,
		state: intervalState, aloneWaiting: true},
	store.FixedWindow: {set: scripts.FixedWindow, letter: 'f', arguments: fixedArgs, vary: varyFixed,
		state: fixedState, aloneWaiting: true},
	store.SlidingWindow: {set: scripts.SlidingWindow, letter: 's', arguments: slidingWindowArgs, vary: varyCostAndWait,
		state: slidingWindowState, aloneWaiting: true},
	store.SlidingCounter: {set: scripts.SlidingCounter, letter: 'k', arguments: counterArgs, vary: varyCounter,
		state: counterState, aloneWaiting: true},
	store.SlidingLog: {set: scripts.SlidingLog, letter: 'g', arguments: slidingLogArgs, vary: varyCostAndWait,
		state: slidingLogState, alone: true, listed: true},
	store.WarmUp: {set: scripts.WarmUp, letter: 'w', arguments: warmUpArgs, vary: varyCostAndWait,
		state: warmUpState, alone: true},
	store.Concurrency: {set: scripts.Concurrency, letter: 'c', arguments: concurrencyArgs, vary: varyConcurrency,
		state: concurrencyState, listed: true, Traits: Traits{Leases: true}},
	store.Ban: {set: scripts.Ban, letter: 'n', arguments: banArgs, vary: varyBan,
		state: banState, alone: true, Traits: Traits{CountsDenied: true}},
}

// decode reads a state from a script's answer into s. The top of each algorithm's file in
// package lua documents what is kept for a key.
func decode(c *store.Charge, answer any, s *store.State) error {
	codec := &codecs[c.Limit.Algorithm()]
	found := inside.State(s)
	log := found.Log[:0]
	*s = store.State{}
	if codec.Leases {
		found.Log = log // the steps append to it: a state that is reused keeps its room
	}
	switch v := answer.(type) {
	case nil:
		return nil
	case int64: // of what is no string, how much of it there is
		found.Live, found.W[algorithm.Held] = v > 0, v
		return nil
	case string:
		if v == "" {
			return nil
		}
		if found.Live = true; !codec.state(v, found) {
			*s = store.State{}
		}
		return nil
	}
	return fmt.Errorf("redisstore: the script answered with a %T", answer)
}
