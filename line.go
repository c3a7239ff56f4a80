package stint

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// slots holds the waits whose end nobody knows: a concurrency limit is full.
// Who waits for slots of one limit and key stands in a line. Only the head
// asks, when it is woken: by becoming the head, by a permit that has released a
// slot, or by its poll, as slots may be released elsewhere too. What is asked
// (the store, or a limit of this process) is the call's affair; a line only
// says whose turn it is to ask.
//
// No wake-up is lost: whoever is woken without being the head hands it on, and
// whoever leaves wakes the head, used up its own wake-up or not.
type slots struct {
	waiting atomic.Int64 // in all lines: lets others pass without the lock
	mu      sync.Mutex
	lines   map[slotKey]*line
	held    held
}

type slotKey struct{ limit, key string }

// line is who waits for the slots of one limit and key: a queue a class, so
// that finding the head looks at one place of each.
type line struct {
	classes [classes]list.List // of *place, first come first
	n       int64
}

// place is one waiter's.
type place struct {
	rank
	key    slotKey
	cost   int64
	shares func() *shares // of its limit; nil for none
	woken  chan struct{}
	at     *list.Element
}

// poll bounds what asking without being woken costs: the heads of all lines
// together ask a hundred times a second, unless there are so many that each
// would have to wait for more than a second.
const (
	pollLeast = 100 * time.Millisecond
	pollMost  = time.Second
	pollShare = 10 * time.Millisecond // for each line
)

// join enters the line of key with p, unless most wait in it already. It also
// returns how many wait, with the one that has joined. The head is woken at
// once: a slot may have come free since it asked.
func (s *slots) join(key slotKey, p *place, most int64) (joined bool, waiting int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[key]
	switch {
	case l == nil && most <= 0:
		return false, 0
	case l == nil:
		if s.lines == nil {
			s.lines = map[slotKey]*line{}
		}
		l = new(line)
		s.lines[key] = l
	case l.n >= most:
		return false, l.n
	}
	s.waiting.Add(1)
	l.n++
	p.key, p.woken = key, make(chan struct{}, 1)
	l.insert(p)
	if s.head(l) == p {
		p.wake()
	}
	return true, l.n
}

// insert puts a place where it belongs in its class. Who comes over from
// another line has come before some that wait here.
func (l *line) insert(p *place) {
	q := &l.classes[p.class]
	e := q.Back()
	for e != nil && e.Value.(*place).came.After(p.came) {
		e = e.Prev()
	}
	if e == nil {
		p.at = q.PushFront(p)
	} else {
		p.at = q.InsertAfter(p, e)
	}
}

// head is the place that is to ask next: of those whose class is owed a share,
// or else of all, the first in the order of ranks.
func (s *slots) head(l *line) (head *place) {
	owed := false
	for i := range l.classes {
		e := l.classes[i].Front()
		if e == nil {
			continue
		}
		p := e.Value.(*place)
		owes := s.owes(p)
		if head == nil || owes && !owed || owes == owed && p.before(head.rank) {
			head, owed = p, owes
		}
	}
	return head
}

// leave takes a place out of its line and wakes the head: there may be another
// slot, and who leaves may have used up the head's wake-up.
func (s *slots) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(-1)
	l := s.lines[p.key]
	l.classes[p.class].Remove(p.at)
	if l.n--; l.n == 0 {
		delete(s.lines, p.key)
		return
	}
	s.head(l).wake()
}

// first reports whether p is the head of its line. If it isn't, the wake-up
// that p has had is the head's.
func (s *slots) first(p *place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.head(s.lines[p.key])
	if head == p {
		return true
	}
	head.wake()
	return false
}

// wake tells the head of key's line that a slot has been released.
func (s *slots) wake(key slotKey) {
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		s.head(l).wake()
	}
}

// wakeAll tells the head of every line that there may be more slots.
func (s *slots) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		s.head(l).wake()
	}
}

func (p *place) wake() {
	select {
	case p.woken <- struct{}{}:
	default: // it has not looked since the last one
	}
}

// queued is how many wait in key's line.
func (s *slots) queued(key slotKey) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[key]; l != nil {
		return l.n
	}
	return 0
}

// poll is after how long a head asks without being woken, give or take a
// tenth: processes that began to wait together must not ask together.
func (s *slots) poll() time.Duration {
	s.mu.Lock()
	n := len(s.lines)
	s.mu.Unlock()
	d := min(max(time.Duration(n)*pollShare, pollLeast), pollMost)
	return d - d/10 + rand.N(d/5)
}
