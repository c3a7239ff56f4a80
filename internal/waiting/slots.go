package waiting

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Slots holds the waits without a known end: a concurrency limit is full. Waiters for
// slots of one limit and key stand in a line. Only its head asks, when it is
// woken: by becoming the head, by a request that has released a slot, or by its poll,
// since slots may be released elsewhere too. See [Slots.Wait].
//
// No wake-up is lost: a waiter that is woken without being the head passes it on, also if
// it is woken because it has been replaced, and a waiter that leaves wakes the head,
// whether or not it has used up its own wake-up.
//
// A waiter that has been replaced while it asks gets its answer: if that grants the call,
// the call goes on.
//
// The zero value is ready to use. It is safe for concurrent use.
type Slots struct {
	waiting atomic.Int64 // in all lines: lets others pass without the lock
	mu      sync.Mutex
	lines   map[Key]*slotLine
	held    held
}

// Key identifies slots: the limit, and whose they are. A limit that something other than
// a store decides (store.Limit.Decider) is another limit than one of its name in a store.
type Key struct {
	Limit, Key string
	Decided    bool
}

// slotLine is the waiters for the slots of one key: a queue for each class, so that
// finding the head looks at one place of each.
type slotLine struct {
	classes [Classes][]*place // in the order in which they came
	n       int64
}

// place is where a waiter stands.
type place struct {
	*Want
	woken  chan struct{}
	stands bool // in a line
}

// poll bounds the cost of asking without being woken: the heads of all lines together
// ask a hundred times a second, but each asks at least once a second.
const (
	pollLeast = 100 * time.Millisecond
	pollMost  = time.Second
	pollShare = 10 * time.Millisecond // for each line
)

// Waiting reports whether a call waits for a slot. It is one atomic load.
func (s *Slots) Waiting() bool { return s.waiting.Load() > 0 }

// Queued returns how many wait in key's line.
func (s *Slots) Queued(key Key) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		return l.n
	}
	return 0
}

// Wake tells the head of key's line that a slot has been released.
func (s *Slots) Wake(key Key) {
	if !s.Waiting() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		s.head(l).wake()
	}
}

// WakeAll tells the head of every line that there may be more slots.
func (s *Slots) WakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		s.head(l).wake()
	}
}

// join enters the line of what is wanted, if there is room or a waiter of a lower rank
// gives up its place. It also returns how many wait, including the one that has joined.
// A new head is woken at once: a slot may have come free since it asked.
func (s *Slots) join(p *place) (joined bool, waiting int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[p.Key]
	if l == nil {
		l = new(slotLine)
	}
	if l.n >= p.Room {
		last := s.last(l)
		if last == nil || s.rank(last.Want) >= s.rank(p.Want) {
			return false, l.n
		}
		s.remove(l, last)
		last.wake()
	}
	if s.lines == nil {
		s.lines = map[Key]*slotLine{}
	}
	s.lines[p.Key] = l
	s.waiting.Add(1)
	l.n++
	p.woken = make(chan struct{}, 1)
	l.insert(p)
	if s.head(l) == p {
		p.wake()
	}
	return true, l.n
}

// insert puts a place where it belongs in its class. A waiter from another line may
// have come before some that wait here.
func (l *slotLine) insert(p *place) {
	q := &l.classes[p.Rank.Class]
	i := len(*q)
	for i > 0 && (*q)[i-1].Rank.Came.After(p.Rank.Came) {
		i--
	}
	*q = slices.Insert(*q, i, p)
	p.stands = true
}

// rank returns where a waiter stands among others now: a class below its share is above
// all that aren't, and otherwise a higher class is above a lower one. Waiters of one rank
// go in the order in which they came.
func (s *Slots) rank(w *Want) int {
	rank := int(w.Rank.Class)
	if s.owes(w) {
		rank += Classes
	}
	return rank
}

// head returns the place that asks next: the first of the highest rank.
func (s *Slots) head(l *slotLine) (head *place) {
	for _, q := range l.classes {
		if len(q) > 0 && (head == nil || s.rank(q[0].Want) > s.rank(head.Want)) {
			head = q[0]
		}
	}
	return head
}

// last returns the place that is given up first: the last of the lowest rank, of those
// that the line is full for.
func (s *Slots) last(l *slotLine) (last *place) {
	for _, q := range l.classes {
		for _, p := range slices.Backward(q) {
			if p.Room > l.n {
				continue
			}
			if last == nil || s.rank(p.Want) < s.rank(last.Want) {
				last = p
			}
			break
		}
	}
	return last
}

// leave removes a place from its line, if it is in one, and wakes the head: there may
// be another slot, and the leaving waiter may have used up the head's wake-up.
func (s *Slots) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.stands {
		return
	}
	l := s.lines[p.Key]
	if s.remove(l, p); l.n > 0 {
		s.head(l).wake()
	} else {
		delete(s.lines, p.Key)
	}
}

// remove takes a place out of a line.
func (s *Slots) remove(l *slotLine, p *place) {
	q := &l.classes[p.Rank.Class]
	i := slices.Index(*q, p)
	*q, p.stands = slices.Delete(*q, i, i+1), false
	l.n--
	s.waiting.Add(-1)
}

// first reports whether p still stands in its line, and whether it is the head. If it
// isn't, it passes p's wake-up on to the head.
func (s *Slots) first(p *place) (stands, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[p.Key]
	if l == nil {
		return false, false
	}
	head := s.head(l)
	if head != p {
		head.wake()
	}
	return p.stands, head == p
}

func (p *place) wake() {
	select {
	case p.woken <- struct{}{}:
	default: // it hasn't looked since the last wake-up
	}
}

// poll returns after how long a head asks without being woken, give or take a tenth:
// processes that began to wait together must not ask together.
func (s *Slots) poll() time.Duration {
	s.mu.Lock()
	n := len(s.lines)
	s.mu.Unlock()
	d := min(max(time.Duration(n)*pollShare, pollLeast), pollMost)
	return d - d/10 + rand.N(d/5)
}
