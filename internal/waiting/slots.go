package waiting

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Slots holds the waits whose end nobody knows: a concurrency limit is full. Who
// waits for slots of one limit and key stands in a line. Only its head asks, when
// it is woken: by becoming the head, by somebody who has given back a slot, or by
// its poll, as slots may be given back elsewhere too. See [Slots.Wait].
//
// No wake-up is lost: whoever is woken without being the head hands it on, and
// whoever leaves wakes the head, used up its own wake-up or not.
//
// The zero value is ready, and safe for concurrent use.
type Slots struct {
	waiting atomic.Int64 // in all lines: lets others pass without the lock
	mu      sync.Mutex
	lines   map[Key]*slotLine
	held    held
}

// Key says which slots: of a limit, and for whom.
type Key struct{ Limit, Key string }

// slotLine is who waits for the slots of one key: a queue a class, so that
// finding the head looks at one place of each.
type slotLine struct {
	classes [Classes]list[*place] // first come first
	n       int64
}

// place is where a waiter stands.
type place struct {
	*Want
	woken chan struct{}
	at    *node[*place] // nil: in no line
}

// poll bounds what asking without being woken costs: the heads of all lines
// together ask a hundred times a second, unless there are so many that each
// would have to wait for more than a second.
const (
	pollLeast = 100 * time.Millisecond
	pollMost  = time.Second
	pollShare = 10 * time.Millisecond // for each line
)

// Waiting reports whether anybody waits for a slot. It is one atomic load.
func (s *Slots) Waiting() bool { return s.waiting.Load() > 0 }

// Queued is how many wait in key's line.
func (s *Slots) Queued(key Key) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		return l.n
	}
	return 0
}

// Wake tells the head of key's line that a slot has been given back.
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

// join enters the line of what is wanted, unless there is no room. It also returns
// how many wait, with the one that has joined. The head is woken at once: a slot
// may have come free since it asked.
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

// insert puts a place where it belongs in its class. Who comes over from
// another line has come before some that wait here.
func (l *slotLine) insert(p *place) {
	q := &l.classes[p.Rank.Class]
	e := q.back
	for e != nil && e.value.Rank.Came.After(p.Rank.Came) {
		e = e.prev
	}
	p.at = q.insertAfter(e, p)
}

// head is the place that is to ask next: of those whose class is owed a share,
// or else of all, the first in the order of ranks.
func (s *Slots) head(l *slotLine) (head *place) {
	owed := false
	for i := range l.classes {
		e := l.classes[i].front
		if e == nil {
			continue
		}
		owes := s.owes(e.value.Want)
		if head == nil || owes && !owed || owes == owed && e.value.Rank.Before(head.Rank) {
			head, owed = e.value, owes
		}
	}
	return head
}

// leave takes a place out of its line, if it is in one, and wakes the head: there
// may be another slot, and who leaves may have used up the head's wake-up.
func (s *Slots) leave(p *place) {
	if p.at == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(-1)
	l := s.lines[p.Key]
	l.classes[p.Rank.Class].remove(p.at)
	p.at = nil
	if l.n--; l.n == 0 {
		delete(s.lines, p.Key)
		return
	}
	s.head(l).wake()
}

// first reports whether p is the head of its line. If it isn't, the wake-up
// that p has had is the head's.
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
	default: // it has not looked since the last one
	}
}

// poll is after how long a head asks without being woken, give or take a
// tenth: processes that began to wait together must not ask together.
func (s *Slots) poll() time.Duration {
	s.mu.Lock()
	n := len(s.lines)
	s.mu.Unlock()
	d := min(max(time.Duration(n)*pollShare, pollLeast), pollMost)
	return d - d/10 + rand.N(d/5)
}
