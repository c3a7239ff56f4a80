package slots_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
)

// wish describes a Waiter that is explored.
type wish = struct {
	Key            string
	Class          uint8
	Arrived, Until time.Time
	Room           int64
	Share          uint8 // of class 0
}

// explored is Lines that are explored.
type explored interface {
	// Stand has a call wait in the lines of its wishes, until ask reports that the wait is over.
	Stand(ctx context.Context, w wish, joins func(n int64, joined bool), ask func() (next wish, over bool)) error
	Full(error) bool
	Hold(key string, class uint8, n int64)
	Release(key string)
	Counts() (waiting, lines, held int)
}

var variants = map[string]explored{}

const exploredFile = `package slots

import (
	"context"
	"time"
)

type Explored struct{ *Lines }

func (x Explored) New() any { return Explored{new(Lines)} }

type wish = struct {
	Key            string
	Class          uint8
	Arrived, Until time.Time
	Room           int64
	Share          uint8
}

func keyOfWish(key string) Key { return Key{Limit: key, Key: "k"} }

func (x Explored) Stand(ctx context.Context, w wish, joins func(int64, bool), ask func() (wish, bool)) error {
	for {
		next, over, err := x.inLine(ctx, w, joins, ask)
		if over || err != nil {
			return err
		}
		w = next
	}
}

func (x Explored) inLine(ctx context.Context, w wish, joins func(int64, bool), ask func() (wish, bool)) (next wish, over bool, err error) {
	waiter := &Waiter{
		Key: keyOfWish(w.Key), Cost: 1, Class: w.Class, Arrived: w.Arrived, Until: w.Until, Room: w.Room,
		Shares: func() *Shares { return &Shares{0: w.Share} },
	}
	defer x.Leave(waiter)
	joined, n := x.Join(waiter)
	joins(n, joined)
	if !joined {
		return wish{}, false, ErrFull
	}
	for {
		if err := x.Wait(ctx, waiter); err != nil {
			return wish{}, false, err
		}
		if next, over = ask(); over || next.Key != w.Key {
			return next, over, nil
		}
	}
}

func (x Explored) Full(err error) bool { return err == ErrFull }

func (x Explored) Hold(key string, class uint8, n int64) { x.AddHeld(keyOfWish(key), class, n) }

func (x Explored) Release(key string) { x.Wake(keyOfWish(key)) }
`

// crowd is callers that want slots, of which there is one of each key: "name:keys". They
// rank by their names. Visitors come while it is explored.
type crowd struct {
	holders, visitors []string
	leaves            string // whose client leaves at some moment
	room              int64  // in a line
	ranked            bool   // those that come later have a higher class
	share             uint8  // of class 0; callers of class 1 have names in upper case
	counts            bool   // who holds what is counted
	// inTurn: the second comes when the first has been denied, and what is held is given back
	// when both stand in one line.
	inTurn bool
}

func (c crowd) String() string {
	return fmt.Sprintf("%q hold, %q come, %q leave, room for %d, ranked %t, share %d, in turn %t", c.holders, c.visitors, c.leaves, c.room, c.ranked, c.share, c.inTurn)
}

// hall is one run: slots that a store counts, which decides each call in a step, and their
// lines.
type hall struct {
	*steps.Run
	crowd
	lines    explored
	taken    map[string]string // by whom
	visitors []*visitor
	turns    int // that visitors have had
	// If all come in turn, these are closed: when the first has been denied, and when both
	// stand in one line.
	denied, come chan struct{}
}

// next lets those go on who await c.
func (h *hall) next(c *chan struct{}) {
	if h.inTurn && *c != nil {
		lang.Close(*c)
		*c = nil
	}
}

// await waits for c, if all come in turn.
func (h *hall) await(c chan struct{}) {
	if h.inTurn {
		lang.Receive(c)
	}
}

// visitor waits for the slots of all of its keys at once.
type visitor struct {
	*hall
	name, keys string
	class      uint8
	came       time.Time
	granted    bool
	left       bool   // or is about to
	wanted     string // the key whose slots it waits for
	stands     string // in whose line it is, or ""
	since      int    // its turn when it came to where it stands
	last       int    // its last turn
}

func (v *visitor) turn() int {
	v.hall.turns++
	v.last = v.hall.turns
	return v.last
}

func (v *visitor) wants(key string) wish {
	v.wanted = key
	return wish{Key: key, Class: v.class, Arrived: v.came, Until: v.came.Add(time.Minute), Room: v.room, Share: v.share}
}

// before reports whether v ranks before o.
func (v *visitor) before(o *visitor) bool {
	if v.share > 0 && v.class != o.class { // it holds nothing, so it is owed its share
		return v.class < o.class
	}
	return v.class > o.class || v.class == o.class && v.came.Before(o.came)
}

// joins records that the visitor has come to a line of n: it has joined it, or found it full.
func (v *visitor) joins(n int64, joined bool) {
	if joined {
		v.stands = v.wanted
	}
	if v.since = v.turn(); joined && n > v.room {
		v.Broken("%s is one of %d in a line, want %d at the most", v.name, n, v.room)
	}
	if n == 2 {
		v.next(&v.come)
	}
}

// asks asks for the slots of all keys. If one is missing, it returns what to wait for.
func (v *visitor) asks() (next wish, over bool) {
	for _, o := range v.visitors {
		if o.stands == v.stands && !o.left && o.since < v.last && o.before(v) {
			v.Broken("%s asks before %s", v.name, o.name)
		}
	}
	steps.At(steps.Store, unsafe.Pointer(v.hall))
	for key := range strings.SplitSeq(v.keys, "") {
		if by := v.taken[key]; by != "" {
			steps.Note("%s is denied %s, which %s has", v.name, key, by)
			if v.turn(); v.stands != key {
				v.stands = "" // it leaves for another line
			}
			if v == v.visitors[len(v.holders)] {
				v.next(&v.denied)
			}
			return v.wants(key), false
		}
	}
	v.take()
	return wish{}, true
}

func (v *visitor) take() {
	steps.Note("%s is granted %s", v.name, v.keys)
	v.granted, v.stands = true, ""
	for key := range strings.SplitSeq(v.keys, "") {
		v.taken[key] = v.name
	}
	v.count(1)
}

// count counts what the visitor holds, where that matters.
func (v *visitor) count(n int64) {
	if v.counts {
		v.lines.Hold(v.keys, v.class, n)
	}
}

func (v *visitor) giveBack() {
	v.count(-1)
	for key := range strings.SplitSeq(v.keys, "") {
		steps.At(steps.Store, unsafe.Pointer(v.hall))
		steps.Note("%s gives back %s", v.name, key)
		delete(v.taken, key)
		v.lines.Release(key)
	}
}

func (v *visitor) visit(ctx context.Context) {
	err := v.lines.Stand(ctx, v.wants(v.keys[:1]), v.joins, v.asks)
	v.stands = ""
	full := v.lines.Full(err)
	switch {
	case v.granted && err == nil:
		v.giveBack()
	case v.granted, !full && !errors.Is(err, context.Canceled), errors.Is(err, context.Canceled) && !v.left:
		v.Broken("%s: %v, granted: %v", v.name, err, v.granted)
	case full && (int(v.room) >= len(v.visitors)-len(v.holders) || (v.ranked || v.share > 0) && v == v.visitors[len(v.visitors)-1]):
		v.Broken("%s finds the line full, or is replaced", v.name)
	}
}

func (c crowd) scenario(lines explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		start := twin.Now()
		h := &hall{Run: r, crowd: c, taken: map[string]string{}, denied: make(chan struct{}), come: make(chan struct{}), lines: lines.(interface{ New() any }).New().(explored)}
		person := func(who string) *visitor {
			name, keys, _ := strings.Cut(who, ":")
			n := len(h.visitors)
			v := &visitor{hall: h, name: name, keys: keys, came: start.Add(time.Duration(strings.ToLower(name)[0]) * time.Microsecond)}
			switch {
			case c.ranked:
				v.class = uint8(n)
			case name == strings.ToUpper(name):
				v.class = 1
			}
			h.visitors = append(h.visitors, v)
			return v
		}
		for _, who := range c.holders {
			v := person(who)
			v.take()
			come := h.come
			r.Go(v.name, func() {
				h.await(come)
				v.giveBack()
			})
		}
		for _, who := range c.visitors {
			v := person(who)
			denied := h.denied
			ctx, leave := ending.WithCancel(context.Background())
			r.Go(v.name, func() {
				if v != h.visitors[len(c.holders)] {
					h.await(denied)
				}
				v.visit(ctx)
			})
			if strings.Contains(c.leaves, v.name) {
				r.Go(v.name+"'s client", func() {
					leave()
					v.left = true // in one step with that
				})
			}
		}
		r.End(func() {
			if waiting, lines, held := h.lines.Counts(); waiting+lines+held > 0 {
				r.Broken("%d wait in %d lines, slots of %d keys are held", waiting, lines, held)
			}
			if d := twin.Since(start); d > 0 {
				r.Broken("a caller has waited for a poll: over after %v", d)
			}
		})
	}
}

// Waiters for slots get them when they come free, in whatever order callers ask, leave,
// change lines and release: no caller has to wait for the next poll, none asks before one
// that ranks higher, and none is left behind in a line.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:  "github.com/stint-go/stint/internal/slots",
			Added: map[string]string{"explored.go": exploredFile},
			Edits: []steps.Edit{{File: "lines.go", // each run polls at the same times
				Was: "rand.N(d/5)", Is: "rand.N(d/d)"}},
			Mutants: mutants,
			Entry:   "V.Explored{}",
		}).Run(t)
		return
	}
	x, b, bc := []string{"a:x"}, []string{"b:x"}, []string{"b:x", "c:x"}
	steps.Explore(t, mutants, []crowd{
		{holders: x, visitors: b, room: 9, counts: true},
		{holders: x, visitors: b, leaves: "b", room: 9},
		{holders: []string{"a:x", "b:y"}, visitors: []string{"c:xy"}, room: 9},
		{holders: x, visitors: bc, room: 1},
		{holders: x, visitors: []string{"d:xy", "c:yx"}, room: 9, inTurn: true},
		{holders: x, visitors: bc, room: 9, ranked: true},
		{holders: x, visitors: bc, room: 1, ranked: true},
		{holders: x, visitors: bc, leaves: "b", room: 1, ranked: true},
		{holders: x, visitors: bc, leaves: "b", room: 9},
		{holders: x, visitors: []string{"B:x", "c:x"}, room: 9, share: 50},
		{holders: x, visitors: []string{"B:x", "c:x"}, room: 1, share: 50},
	}, func(variant string, c crowd) func(*steps.Run) { return c.scenario(variants[variant]) })
}

var mutants = []steps.Variant{
	{Name: "a waiter that joins as the head isn't woken", Edits: []steps.Edit{{File: "lines.go",
		Was: "	if l.head(&ls.held) == w {\n		w.wake() // a slot may have come free since it asked\n	}\n", Is: ""}}},
	{Name: "a replaced waiter isn't woken", Edits: []steps.Edit{{File: "lines.go",
		Was: "		last.wake()\n", Is: ""}}},
	{Name: "a replaced waiter goes on waiting", Edits: []steps.Edit{{File: "lines.go",
		Was: "		ls.remove(l, last)\n		last.wake()\n", Is: ""}}},
	{Name: "no waiter is replaced", Edits: []steps.Edit{{File: "lines.go",
		Was: "ls.held.rank(last) >= ls.held.rank(w)", Is: "true"}}},
	{Name: "one of the same rank is replaced", Edits: []steps.Edit{{File: "lines.go",
		Was: "ls.held.rank(last) >= ls.held.rank(w)", Is: "ls.held.rank(last) > ls.held.rank(w)"}}},
	{Name: "a release wakes no waiter", Edits: []steps.Edit{{File: "lines.go",
		Was: "	if l := ls.all[key]; l != nil {\n		l.head(&ls.held).wake()\n	}\n", Is: ""}}},
	{Name: "a waiter that leaves wakes no other", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.head(&ls.held).wake()\n	} else", Is: "	} else"}}},
	{Name: "a wake-up is for those who sleep", Edits: []steps.Edit{{File: "lines.go",
		Was: "make(chan struct{}, 1)", Is: "make(chan struct{})"}}},
	{Name: "a waiter that leaves stays in line", Edits: []steps.Edit{{File: "lines.go",
		Was: "	if ls.remove(l, w); l.n > 0 {", Is: "	if l.n > 0 {"}}},
	{Name: "room is looked for in a step of its own", Edits: []steps.Edit{{File: "lines.go",
		Was: "	ls.waiting.Add(1)\n", Is: "	ls.mu.Unlock()\n	ls.mu.Lock()\n	ls.waiting.Add(1)\n"}}},
	{Name: "there is room for one more", Edits: []steps.Edit{{File: "lines.go",
		Was: "if l.n >= w.Room", Is: "if l.n > w.Room"}}},
	{Name: "a waiter from another line stands behind", Edits: []steps.Edit{{File: "line.go",
		Was: "(*q)[i-1].Arrived.After(w.Arrived)", Is: "false"}}},
	{Name: "no class goes first", Edits: []steps.Edit{{File: "line.go",
		Was: "h.rank(q[0]) > h.rank(head)", Is: "q[0].Arrived.Before(head.Arrived)"}}},
	{Name: "a share is owed nothing", Edits: []steps.Edit{{File: "held.go",
		Was: "return ofClass == 0 || ", Is: "return false && "}}},
	{Name: "no line is counted as waiting", Edits: []steps.Edit{{File: "lines.go",
		Was: "ls.waiting.Load() > 0", Is: "ls.waiting.Load() > 1"}}},
	{Name: "slots that are given back stay counted", Edits: []steps.Edit{{File: "held.go",
		Was: "	now.total += n\n", Is: "	now.total += max(n, 0)\n"}}},
}
