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
// No wake-up is lost: a waiter that is woken without being the head passes it on, and a
// waiter that leaves wakes the head, whether or not it has used up its own wake-up.
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

// join enters the line of what is wanted, if there is room. It also returns how many
// wait, including the one that has joined. It wakes the head at once: a slot may have
// come free since it asked.
func (s *Slots) join(p *place) (joined bool, waiting int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[p.Key]
	switch {
	case l == nil && p.Room <= 0:
		return false, 0
	case l == nil:
		if s.lines == nil {
			s.lines = map[Key]*slotLine{}
		}
		l = new(slotLine)
		s.lines[p.Key] = l
	case l.n >= p.Room:
		return false, l.n
	}
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

// head returns the place that asks next: the first by rank among those whose class is
// owed a share or, if there are none, among all.
func (s *Slots) head(l *slotLine) (head *place) {
	owed := false
	for i := range l.classes {
		if len(l.classes[i]) == 0 {
			continue
		}
		first := l.classes[i][0]
		owes := s.owes(first.Want)
		if head == nil || owes && !owed || owes == owed && first.Rank.Before(head.Rank) {
			head, owed = first, owes
		}
	}
	return head
}

// leave removes a place from its line, if it is in one, and wakes the head: there may
// be another slot, and the leaving waiter may have used up the head's wake-up.
func (s *Slots) leave(p *place) {
	if !p.stands {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(-1)
	l := s.lines[p.Key]
	q := &l.classes[p.Rank.Class]
	i := slices.Index(*q, p)
	*q, p.stands = slices.Delete(*q, i, i+1), false
	if l.n--; l.n == 0 {
		delete(s.lines, p.Key)
		return
	}
	s.head(l).wake()
}

// first reports whether p is the head of its line. If it isn't, it passes p's wake-up
// on to the head.
func (s *Slots) first(p *place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.head(s.lines[p.Key])
	if head == p {
		return true
	}
	head.wake()
	return false
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
