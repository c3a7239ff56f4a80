package redisstore

import (
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// algorithm is how the limits, charges and states of an algorithm are encoded for its
// script and decoded. Its file in package lua documents the arguments.
type algorithm struct {
	set    scripts.Set
	letter byte // by which the script knows it
	// arguments returns the arguments of a charge of 1 that isn't a dry run and doesn't
	// wait.
	arguments func(*record) []any
	// vary changes them to those of c or, if c is nil, to what the instant requires.
	vary func(r *record, args []any, c *store.Charge, t *timeArgs)
	// state decodes what the script has found, and reports whether a store has written it.
	// A value in another format counts as never seen, there and here.
	state func(found string, s *engine.State) bool
	// alone: each charge is asked by itself, because the server returns what one needs
	// to know, of a list of entries.
	alone bool
	// The same for charges that may wait, which look into the calendar.
	aloneWaiting bool
	listed       bool // what is kept at a key isn't a string
	leases       bool // what is charged are leases
	stocked      bool // WithPrefetch may take some ahead
	counts       bool // what is told is which charges' denials count
}

var algorithms = [...]algorithm{
	store.TokenBucket:    {set: scripts.TokenBucket, letter: 'b', arguments: bucket, vary: varyBucket, state: bucketState, stocked: true},
	store.LeakyBucket:    {set: scripts.TokenBucket, letter: 'b', arguments: bucket, vary: varyBucket, state: bucketState},
	store.IntervalBucket: {set: scripts.IntervalBucket, letter: 'i', arguments: interval, vary: varyWindow, state: intervalState, aloneWaiting: true},
	store.FixedWindow:    {set: scripts.FixedWindow, letter: 'f', arguments: fixed, vary: varyFixed, state: fixedState, aloneWaiting: true},
	store.SlidingWindow:  {set: scripts.SlidingWindow, letter: 's', arguments: slidingWindow, vary: varySliding, state: slidingWindowState, aloneWaiting: true},
	store.SlidingCounter: {set: scripts.SlidingCounter, letter: 'k', arguments: counter, vary: varyCounter, state: counterState, aloneWaiting: true},
	store.SlidingLog:     {set: scripts.SlidingLog, letter: 'g', arguments: slidingLog, vary: varySliding, state: slidingLogState, alone: true, listed: true},
	store.WarmUp:         {set: scripts.WarmUp, letter: 'w', arguments: warmUp, vary: varyWarmUp, state: warmUpState, alone: true},
	store.Concurrency:    {set: scripts.Concurrency, letter: 'c', arguments: concurrency, vary: varyConcurrency, state: held, listed: true, leases: true},
	store.Ban:            {set: scripts.Ban, letter: 'n', arguments: ban, vary: varyBan, state: banState, alone: true, counts: true},
}
