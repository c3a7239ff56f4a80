package stinthttp

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// maxGates bounds the gates of one Transport: a program may call whatever host
// its users name, and each may answer 429.
const maxGates = 1024

// maxName bounds the name of a destination that is given a gate: with it the
// gates of a Transport take 4 MiB at the very most.
const maxName = 4 << 10

// gateKey is a destination as it is limited: its host, and what the
// Transport's key function makes of the request. The host is always part of
// it: what one server asks for says nothing about another.
type gateKey struct{ host, key string }

// gate is a destination that has asked not to be called until opens.
//
// Those waiting for it do not go on together. The first goes when it opens,
// the next a step later, and the n-th log2(n) steps later: twice as many in
// each step as in the one before, so that a server which can't take them says
// so while most are still waiting, and one which can has them all back within
// some steps.
type gate struct {
	opens time.Time
	step  time.Duration
	queue int // places given since it closed
}

// A step is a tenth of the pause, within these bounds.
const (
	minStep = 50 * time.Millisecond
	maxStep = time.Second
	// steps is how many steps after opening a gate is forgotten: by then it
	// would let 2^20 requests go.
	steps = 20
)

func (g *gate) over(now time.Time) bool { return now.Sub(g.opens) > steps*g.step }

// gates are the closed gates of one Transport, by destination. A destination
// that has asked for nothing has none.
type gates struct {
	mu     sync.Mutex
	closed map[gateKey]*gate
}

// close keeps the gate of key closed for d from now. A shorter pause than the
// one already asked for changes nothing: it is the word of another policy, or
// of an answer that was longer under way.
func (gs *gates) close(key gateKey, now time.Time, d time.Duration) {
	if len(key.host)+len(key.key) > maxName {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	opens := now.Add(d)
	if g := gs.closed[key]; g != nil {
		if opens.After(g.opens) {
			*g = newGate(opens, d)
		}
		return
	}
	if gs.closed == nil {
		gs.closed = make(map[gateKey]*gate)
	}
	if len(gs.closed) >= maxGates {
		gs.makeRoom(now)
	}
	g := newGate(opens, d)
	gs.closed[key] = &g
}

func newGate(opens time.Time, pause time.Duration) gate {
	return gate{opens: opens, step: min(max(pause/10, minStep), maxStep)}
}

// makeRoom forgets the gates that are over, and, if none is, the one that
// opens last: nobody waits that long, so it matters least.
func (gs *gates) makeRoom(now time.Time) {
	var last gateKey
	var opens time.Time
	for key, g := range gs.closed {
		if g.over(now) {
			delete(gs.closed, key)
		} else if g.opens.After(opens) {
			last, opens = key, g.opens
		}
	}
	if len(gs.closed) >= maxGates {
		delete(gs.closed, last)
	}
}

// place takes the next place at the gate of key. opens is when the gate opens
// and turn, never earlier, is when this caller may go; both are zero where
// there is no gate.
//
// The turn carries jitter of up to a step, for the sake of other processes
// that were told the same. It is only ever added: nobody comes early.
func (gs *gates) place(key gateKey, now time.Time) (opens, turn time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.closed[key]
	if g == nil {
		return opens, turn
	}
	if g.over(now) {
		delete(gs.closed, key)
		return opens, turn
	}
	g.queue++
	after := time.Duration(math.Log2(float64(g.queue)) * float64(g.step))
	return g.opens, g.opens.Add(after + rand.N(g.step))
}

// opening returns when the gate of key opens, or the zero time.
func (gs *gates) opening(key gateKey) time.Time {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.closed[key]; g != nil {
		return g.opens
	}
	return time.Time{}
}
