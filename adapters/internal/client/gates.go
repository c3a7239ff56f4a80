package client

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// maxGates bounds the gates of one Transport: a program may call whatever hosts its
// users name, and each may answer 429.
const maxGates = 1024

// maxName bounds the name of a destination that gets a gate, in bytes. With it the
// gates of a Transport take at most 4 MiB.
const maxName = 4 << 10

// gateKey identifies a destination: its host, and what the Transport's key function
// returns for the request. The host is always part of it: what one server asks for says
// nothing about another.
type gateKey struct{ host, key string }

// gate is a destination that has asked not to be called until opens.
//
// Requests that wait for it don't all go at once. The first goes when it opens, the
// next a step later, and the n-th log2(n) steps later: each step lets twice as many go
// as the one before. A server that can't take them says so while most are still
// waiting; one that can has them all back within a few steps.
type gate struct {
	opens time.Time
	step  time.Duration
	queue int // places given out since it closed
}

// A step is a tenth of the pause, within these bounds.
const (
	minStep = 50 * time.Millisecond
	maxStep = time.Second
	// steps is how many steps after opening a gate is dropped: by then it would let
	// 2^20 requests go.
	steps = 20
)

func (g *gate) over(now time.Time) bool { return now.Sub(g.opens) > steps*g.step }

// gates are the closed gates of one Transport, by destination. A destination that
// hasn't asked for a pause has none.
type gates struct {
	mu     sync.Mutex
	closed map[gateKey]*gate
}

// close keeps the gate of key closed for d from now. A pause shorter than the one in
// force changes nothing: it comes from another policy, or from an answer that took
// longer to arrive.
func (gs *gates) close(key gateKey, now time.Time, d time.Duration) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.extend(key, now, d)
}

// adopt closes the gate of key for a pause of another process, which lasted for left at some instant from asked to
// now. If the gate may already be closed until its end, nothing changes: otherwise each answer would start the queue
// anew, as the instants of two answers differ by the time that they take, and by rounding.
func (gs *gates) adopt(key gateKey, asked, now time.Time, left time.Duration) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.closed[key]; g == nil || asked.Add(left-time.Millisecond).After(g.opens) {
		gs.extend(key, now, left)
	}
}

// extend is close with gs.mu held.
func (gs *gates) extend(key gateKey, now time.Time, d time.Duration) {
	if len(key.host)+len(key.key) > maxName {
		return
	}
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

// makeRoom drops the gates that are over. If there are none, it drops the one that
// opens last: no request waits that long, so it matters least.
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

// place takes the next place at the gate of key. opens is when the gate opens; turn,
// never earlier, is when this caller may go. Both are zero if there is no gate.
//
// The turn includes jitter of up to a step, because other processes may have been told
// the same pause. Jitter is only added: no request goes early.
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
