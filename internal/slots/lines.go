// Package slots has the lines in which calls of one process wait for slots of concurrency limits. A
// line doesn't know how many slots there are. It says which call asks for them next.
//
// A wait goes like this:
//
//  1. A call that was denied for lack of a slot, or that finds others waiting for it, enters the line
//     of the limit and key with [Lines.Join]. If the line is full, the call replaces the last
//     waiter of the lowest rank, if that is below its own. A class below its share ranks above all
//     others; otherwise a higher class ranks above a lower one.
//  2. [Lines.Wait] returns when the call should ask the store: it is the head, the first of the
//     highest rank, and has been woken, or hasn't asked for a while, since other processes release
//     slots, too. A head is woken when it becomes the head and when this process releases a slot.
//  3. The call asks the store. If it is denied again, it goes on with Wait. If it lacks a slot of another
//     limit instead, it changes lines.
//  4. The wait ends with an answer of the store, with the context, when the call's time is up, or when
//     the call is replaced. The call then leaves with [Lines.Leave], which wakes the head.
//
// No wake-up is lost: a waiter that is woken without being the head wakes the head, even if it was
// woken because it has been replaced, and a waiter that leaves wakes the head, whether or not it has
// used up its own wake-up. A call that is replaced while it asks gets its answer. If that grants the
// call, the call goes on.
package slots

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Lines holds the lines of one store. The zero value is ready to use. It is safe for concurrent use.
type Lines struct {
	waiting atomic.Int64 // in all lines: lets others pass without the lock
	mu      sync.Mutex
	all     map[Key]*line
	held    held
}

// A head asks without being woken after a while. The heads of all lines together ask a hundred times
// a second, but each at least once a second.
const (
	pollLeast   = 100 * time.Millisecond
	pollMost    = time.Second
	pollPerLine = 10 * time.Millisecond
)

// Waiting reports whether a call waits for a slot. It is one atomic load.
func (ls *Lines) Waiting() bool { return ls.waiting.Load() > 0 }

// Queued returns how many wait in key's line.
func (ls *Lines) Queued(key Key) int64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.all[key]; l != nil {
		return l.n
	}
	return 0
}

// AddHeld counts n slots of key as held by a class, or as released if n is negative.
func (ls *Lines) AddHeld(key Key, class uint8, n int64) { ls.held.add(key, class, n) }

// Wake tells the head of key's line that a slot has been released.
func (ls *Lines) Wake(key Key) {
	if !ls.Waiting() {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.all[key]; l != nil {
		l.head(&ls.held).wake()
	}
}

// WakeAll tells the head of every line that there may be more slots.
func (ls *Lines) WakeAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.head(&ls.held).wake()
	}
}

// Join enters the line of w's key, if there is room or a waiter of a lower rank is replaced. It
// returns how many wait there then. Leave must follow.
func (ls *Lines) Join(w *Waiter) (joined bool, queued int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[w.Key]
	if l == nil {
		l = new(line)
	}
	if l.n >= w.Room {
		last := l.last(&ls.held)
		if last == nil || ls.held.rank(last) >= ls.held.rank(w) {
			return false, l.n
		}
		ls.remove(l, last)
		last.wake()
	}
	if ls.all == nil {
		ls.all = map[Key]*line{}
	}
	ls.all[w.Key] = l
	ls.waiting.Add(1)
	w.woken = make(chan struct{}, 1)
	l.insert(w)
	if l.head(&ls.held) == w {
		w.wake() // a slot may have come free since it asked
	}
	return true, l.n
}

// Wait waits until the waiter should ask for its slots. The error is ErrFull if it has been replaced,
// ErrLate if its time is up, or ctx's. A waiter that is the head when its time is up asks once more.
func (ls *Lines) Wait(ctx context.Context, w *Waiter) error {
	for {
		left := time.Until(w.Until)
		if w.looked && left <= 0 {
			return ErrLate
		}
		if w.head {
			left = min(left, ls.poll())
		}
		if w.timer == nil {
			w.timer = time.NewTimer(left)
		} else {
			w.timer.Reset(left)
		}
		select {
		case <-w.woken:
		case <-w.timer.C:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil { // even if just woken
			return err
		}
		if !ls.look(w) {
			return ErrFull
		}
		if w.head {
			return nil
		}
	}
}

// look reports whether w is still in its line, and sets w.head. If another waiter is the head, look
// passes w's wake-up on to it.
func (ls *Lines) look(w *Waiter) (inLine bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.looked, w.head = true, false
	if l := ls.all[w.Key]; l != nil {
		head := l.head(&ls.held)
		if w.head = head == w; !w.head {
			head.wake()
		}
	}
	return w.inLine
}

// poll returns after how long a head asks without being woken, give or take a tenth:
// processes that began to wait together must not ask together.
func (ls *Lines) poll() time.Duration {
	ls.mu.Lock()
	n := len(ls.all)
	ls.mu.Unlock()
	d := min(max(time.Duration(n)*pollPerLine, pollLeast), pollMost)
	return d - d/10 + rand.N(d/5)
}

// Leave takes a waiter out of its line, if it is in one. It wakes the head: there may be another
// slot, and the waiter may have used up the head's wake-up.
func (ls *Lines) Leave(w *Waiter) {
	if w.timer != nil {
		w.timer.Stop()
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !w.inLine {
		return
	}
	l := ls.all[w.Key]
	if ls.remove(l, w); l.n > 0 {
		l.head(&ls.held).wake()
	} else {
		delete(ls.all, w.Key)
	}
}

// remove takes a waiter out of a line.
func (ls *Lines) remove(l *line, w *Waiter) {
	l.remove(w)
	ls.waiting.Add(-1)
}

// Counts returns how many calls wait, in how many lines, and of how many keys slots are held.
func (ls *Lines) Counts() (waiting, lines, held int) {
	ls.mu.Lock()
	waiting, lines = int(ls.waiting.Load()), len(ls.all)
	ls.mu.Unlock()
	return waiting, lines, ls.held.len()
}
