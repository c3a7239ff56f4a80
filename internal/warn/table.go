package warn

import (
	"slices"
	"sync"
	"sync/atomic"
)

// table holds hashes of keys until it is taken away. It leads to nothing else, so that the
// list of tables keeps no limiter alive.
type table struct{ cells atomic.Pointer[cells] }

type cells [8192]atomic.Uint64

func newTable() *table {
	t := new(table)
	t.cells.Store(new(cells))
	return t
}

// repeats records a hash, which isn't 0. It reports whether it has come before, or can't be
// recorded.
func (t *table) repeats(h uint64) bool {
	s := t.cells.Load()
	if s == nil {
		return true
	}
	for i := range uint64(len(s)) {
		switch at := &s[(h>>1+i)%uint64(len(s))]; {
		case at.CompareAndSwap(0, h):
			return false
		case at.Load() == h:
			return true
		}
	}
	return true
}

// mostTables bounds the memory for keys in a process.
const mostTables = 32

// tables are those in use, the oldest first.
var tables list

type list struct {
	mu  sync.Mutex
	all []*table
}

// add adds a table. If there are too many, the oldest is taken away: whoever has it may
// long have been replaced by an Update, or dropped, and nothing tells.
func (l *list) add(t *table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == mostTables {
		l.all[0].cells.Store(nil)
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, t)
}

func (l *list) remove(t *table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.all, t); i >= 0 {
		l.all = slices.Delete(l.all, i, i+1)
	}
}
