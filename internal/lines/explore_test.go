package lines_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// wish describes a Waiter that is explored, of cost 1.
type wish = struct {
	Key            string
	Class          uint8
	Tenant         string // of a fair queue; or ""
	Arrived, Until time.Time
	Room           int64
	Share          uint8         // of class 0
	AtOnce         bool          // the store answers at once
	Every          time.Duration // of a rate; 0 for slots
	// First: the call asks before it joins a line, unless there is one.
	First bool
}

// reply is what a call is told by the store.
type reply = struct {
	Passed, Granted, Failed bool
	In                      time.Duration // if granted: until the turn comes
	Elsewhere               string        // if denied by another limit: its key
}

// explored is Lines that are explored.
type explored interface {
	// Stand has a call wait in line, and in the lines of the keys that replies say. It returns nil if the call
	// passes, is granted slots, or if the store fails.
	Stand(ctx context.Context, w wish, joins func(key string, n int64, joined bool), ask func(mayWait bool) reply) error
	Full(error) bool
	Hold(key string, class uint8, tenant string, n int64)
	Release(key string)
	Give() bool
	Counts() (waiting, lines, held int)
}

var variants = map[string]explored{}

const exploredFile = `package lines

import (
	"context"
	"time"
)

type Explored struct{ *Lines }

func (x Explored) New() any { return Explored{new(Lines)} }

type wish = struct {
	Key            string
	Class          uint8
	Tenant         string
	Arrived, Until time.Time
	Room           int64
	Share          uint8
	AtOnce         bool
	Every          time.Duration
	First          bool
}

type reply = struct {
	Passed, Granted, Failed bool
	In                      time.Duration
	Elsewhere               string
}

func keyOf(key string) Key { return Key{Limit: key, Key: "k"} }

func tenantOf(tenant string) Tenant {
	if tenant == "" {
		return 0
	}
	return Tenant(tenant[0])
}

func (x Explored) Stand(ctx context.Context, w wish, joins func(string, int64, bool), ask func(bool) reply) error {
	var turn *Turn
	if w.First && !x.found(w.Key) {
		mayWait := x.BeginFirst(keyOf(w.Key))
		if !mayWait || !x.found(w.Key) {
			a := ask(mayWait)
			if a.Granted && a.In == 0 {
				return nil
			}
			if a.Granted {
				turn = &Turn{At: time.Now().Add(a.In), Cost: 1}
			}
		}
		if mayWait {
			join := joins
			ended := false
			end := func() {
				if !ended {
					ended = true
					x.EndFirst(keyOf(w.Key))
				}
			}
			defer end()
			joins = func(key string, n int64, joined bool) {
				join(key, n, joined)
				end()
			}
		}
	}
	for {
		a, err := x.inLine(ctx, w, turn, joins, ask)
		if err != nil || a.Elsewhere == "" {
			return err
		}
		w.Key, turn = a.Elsewhere, nil
	}
}

func (x Explored) found(key string) bool {
	_, found := x.Queued(keyOf(key))
	return found
}

func (x Explored) inLine(
	ctx context.Context, w wish, turn *Turn, joins func(string, int64, bool), ask func(bool) reply,
) (a reply, err error) {
	waiter := &Waiter{
		Key: keyOf(w.Key), Cost: 1, Class: w.Class, Tenant: tenantOf(w.Tenant),
		Arrived: w.Arrived, Until: w.Until, Room: w.Room,
		Holds: w.Every > 0, AtOnce: w.AtOnce, Supply: Supply{Every: w.Every}, Shares: func() *Shares { return &Shares{0: w.Share} },
	}
	defer x.Leave(waiter)
	n, _, err := x.Join(waiter, turn, time.Time{})
	joins(w.Key, n, err == nil)
	for err == nil {
		var t *Turn
		if t, err = x.Wait(ctx, waiter); t != nil || err != nil {
			break
		}
		if a = x.ask(waiter, ask); a.Passed || a.Failed || a.Elsewhere != "" {
			break
		}
	}
	return a, err
}

func (x Explored) ask(w *Waiter, ask func(bool) reply) (a reply) {
	answer := Answer{Failed: true, Supply: w.Supply}
	defer func() { x.Answer(w, answer) }()
	a = ask(true)
	answer.Failed, answer.Passed, answer.Elsewhere = a.Failed, a.Passed, a.Elsewhere != ""
	if a.Granted {
		answer.Turn = &Turn{At: time.Now().Add(a.In), Cost: 1}
	}
	return a
}

func (x Explored) Full(err error) bool { return err == ErrFull }

func (x Explored) Hold(key string, class uint8, tenant string, n int64) {
	x.AddHeld(keyOf(key), class, tenantOf(tenant), n)
}

func (x Explored) Release(key string) { x.Wake(keyOf(key)) }

func (x Explored) Give() bool { return x.GiveTurn(keyOf("r"), &Turn{Cost: 1}) }
`

// scene is what is explored.
type scene interface {
	scenario(explored) func(*steps.Run)
}

// crowd is callers that want slots, of which there is one of each key: "name:keys", or "name:key:tenant" in a fair
// queue. They rank by their names. Visitors come while it is explored.
type crowd struct {
	holders, visitors []string
	leaves            string // whose client leaves at some moment
	room              int64  // in a line
	ranked            bool   // those that come later have a higher class
	share             uint8  // of class 0; callers of class 1 have names in upper case
	counts            bool   // who holds what is counted
	fair              bool   // so it is, and callers with tenants rank by that
	holds             int64  // slots that tenant B holds all the time, beside the only one that others want
	// slow: the store doesn't answer at once, so several calls ask at the same time, in whatever order.
	slow bool
	// inTurn: the second comes when the first has been denied, and what is held is given back
	// when both stand in one line.
	inTurn bool
}

func (c crowd) String() string {
	return fmt.Sprintf("slots: %q hold, %q come, %q leave, room for %d, ranked %t, share %d, fair %t, B holds %d, slow %t, in turn %t",
		c.holders, c.visitors, c.leaves, c.room, c.ranked, c.share, c.fair, c.holds, c.slow, c.inTurn)
}

// slotHall is one run: slots that a store counts, which decides each call in a step, and their lines.
type slotHall struct {
	*steps.Run
	crowd
	lines    explored
	taken    map[string]string // by whom
	held     map[string]int64  // by each tenant
	visitors []*visitor
	turns    int // that visitors have had
	// If all come in turn, these are closed: when the first has been denied, and when both
	// stand in one line.
	denied, come chan struct{}
}

// next lets those go on who await c.
func (h *slotHall) next(c *chan struct{}) {
	if h.inTurn && *c != nil {
		lang.Close(*c)
		*c = nil
	}
}

// await waits for c, if all come in turn.
func (h *slotHall) await(c chan struct{}) {
	if h.inTurn {
		lang.Receive(c)
	}
}

// visitor waits for the slots of all of its keys at once.
type visitor struct {
	*slotHall
	name, keys string
	tenant     string
	class      uint8
	came       time.Time
	granted    bool
	left       bool   // or is about to
	stands     string // in whose line it is, or ""
	since      int    // its turn when it came to where it stands
	last       int    // its last turn
}

func (v *visitor) turn() int {
	v.slotHall.turns++
	v.last = v.slotHall.turns
	return v.last
}

// before reports whether v ranks before o.
func (v *visitor) before(o *visitor) bool {
	if v.fair && v.held[v.tenant] != v.held[o.tenant] {
		return v.held[v.tenant] < v.held[o.tenant]
	}
	if v.share > 0 && v.class != o.class { // it holds nothing, so it is owed its share
		return v.class < o.class
	}
	return v.class > o.class || v.class == o.class && v.came.Before(o.came)
}

// joins records that the visitor has come to a line of n: it has joined it, or found it full.
func (v *visitor) joins(key string, n int64, joined bool) {
	if joined {
		v.stands = key
	}
	if v.since = v.turn(); joined && n > v.room {
		v.Broken("%s is one of %d in a line, want %d at the most", v.name, n, v.room)
	}
	if n == 2 {
		v.next(&v.come)
	}
}

// asks asks for the slots of all keys.
func (v *visitor) asks(bool) reply {
	for _, o := range v.visitors {
		if !v.slow && o.stands == v.stands && !o.left && o.since < v.last && o.before(v) {
			v.Broken("%s asks before %s", v.name, o.name)
		}
	}
	steps.At(steps.Store, unsafe.Pointer(v.slotHall))
	for key := range strings.SplitSeq(v.keys, "") {
		by := v.taken[key]
		if by == "" {
			continue
		}
		steps.Note("%s is denied %s, which %s has", v.name, key, by)
		v.turn()
		if v == v.visitors[len(v.holders)] {
			v.next(&v.denied)
		}
		if v.stands == key {
			return reply{}
		}
		v.stands = "" // it leaves for another line
		return reply{Elsewhere: key}
	}
	v.take()
	return reply{Passed: true}
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
	if v.counts || v.fair {
		v.held[v.tenant] += n
		v.lines.Hold(v.keys, v.class, v.tenant, n)
	}
}

func (v *visitor) giveBack() {
	v.count(-1)
	for key := range strings.SplitSeq(v.keys, "") {
		steps.At(steps.Store, unsafe.Pointer(v.slotHall))
		steps.Note("%s gives back %s", v.name, key)
		delete(v.taken, key)
		v.lines.Release(key)
	}
}

func (v *visitor) visit(ctx context.Context) {
	wanted := wish{
		Key: v.keys[:1], Class: v.class, Tenant: v.tenant, Arrived: v.came, Until: v.came.Add(time.Minute), Room: v.room,
		Share: v.share, AtOnce: !v.slow,
	}
	err := v.lines.Stand(ctx, wanted, v.joins, v.asks)
	stood := v.stands != ""
	v.stands = ""
	full, last := v.lines.Full(err), v == v.visitors[len(v.visitors)-1]
	switch {
	case v.granted && err == nil:
		v.giveBack()
	case v.granted, !full && !errors.Is(err, context.Canceled), errors.Is(err, context.Canceled) && !v.left:
		v.Broken("%s: %v, granted: %v", v.name, err, v.granted)
	case full && (int(v.room) >= len(v.visitors)-len(v.holders) || (v.ranked || v.share > 0) && last):
		v.Broken("%s finds the line full, or is replaced", v.name)
	case full && v.fair && last && v.holds > 0:
		v.Broken("%s finds the line full or is replaced, although tenant B has more", v.name)
	case full && v.fair && stood && v.holds == 0:
		v.Broken("%s is replaced, although its tenant has one", v.name)
	}
}

func (c crowd) scenario(lines explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		start := twin.Now()
		h := &slotHall{
			Run: r, crowd: c, taken: map[string]string{}, held: map[string]int64{},
			lines:  lines.(interface{ New() any }).New().(explored),
			denied: make(chan struct{}), come: make(chan struct{}),
		}
		person := func(who string) *visitor {
			name, keys, _ := strings.Cut(who, ":")
			keys, tenant, _ := strings.Cut(keys, ":")
			n := len(h.visitors)
			came := start.Add(time.Duration(strings.ToLower(name)[0]) * time.Microsecond)
			v := &visitor{slotHall: h, name: name, keys: keys, tenant: tenant, came: came}
			switch {
			case c.ranked:
				v.class = uint8(n)
			case name == strings.ToUpper(name):
				v.class = 1
			}
			h.visitors = append(h.visitors, v)
			return v
		}
		if c.holds > 0 {
			h.held["B"] += c.holds
			h.lines.Hold("x", 0, "B", c.holds)
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
			if c.holds > 0 {
				h.lines.Hold("x", 0, "B", -c.holds)
			}
			if waiting, lines, held := h.lines.Counts(); waiting+lines+held > 0 {
				r.Broken("%d wait in %d lines, slots of %d keys are held", waiting, lines, held)
			}
			if d := twin.Since(start); d > 0 {
				r.Broken("a caller has waited for a poll: over after %v", d)
			}
		})
	}
}

// queue is callers that want turns of a rate, of whom some leave. All come and leave at one instant, in any order; or,
// late, they leave when a turn comes.
type queue struct {
	come, leave string
	late        bool
	every       time.Duration // from turn to turn
	most        int           // turns that are held at once
	first       bool          // calls ask before they stand in line
	fails       bool          // the store does, the first time that it is asked
	gives       bool          // a turn that another call hasn't used is given to the line
	ranked      bool          // names later in the alphabet have a higher class
}

// rate is a run: a store of one key's turns, which decides each call in a step, and the lines.
type rate struct {
	*steps.Run
	queue
	limit   *store.Limit
	state   store.State
	granted []int64 // the instants of turns, in microseconds
	failed  bool
	given   bool
	passed  []int64
	callers []*caller
	events  int
}

type caller struct {
	*rate
	name          string
	class         uint8
	joined, left  bool
	passed, fails bool
	mayWait       bool // although it stood in no line
	since, last   int  // the events when it joined, and when it last joined or asked
}

// decide is the store.
func (s *rate) decide(c store.Charge) store.Result {
	now := steps.AtTime(unsafe.Pointer(s))
	states, results := []store.State{s.state}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: now}, []store.Charge{c}, states, results)
	s.state = states[0]
	steps.Note("the store charges %d: %t, in %v", c.Cost, results[0].OK, results[0].Delay)
	if !results[0].OK {
		return results[0]
	}
	s.granted = append(s.granted, now+results[0].Delay.Microseconds())
	ahead := 0
	for _, at := range s.granted {
		if at > now {
			ahead++
		}
	}
	if ahead > s.most {
		s.Broken("%d turns are held, want %d at the most", ahead, s.most)
	}
	return results[0]
}

func (c *caller) asks(mayWait bool) reply {
	// One that is served now, and hasn't noticed, no longer stands before it.
	if o := c.behind(); o != nil && c.joined && o.since < c.last && c.most == 1 && !c.gives && !c.comesNow() {
		c.Broken("%s asks before %s", c.name, o.name)
	}
	c.events++
	c.last = c.events
	if c.rate.fails && !c.failed {
		steps.At(steps.Store, unsafe.Pointer(c.rate))
		steps.Note("the store fails")
		c.failed, c.fails = true, true
		return reply{Failed: true}
	}
	charge := store.Charge{Key: "k", Limit: c.limit, Cost: 1}
	if mayWait {
		charge.MaxWait = store.Never
		c.mayWait = !c.joined
	}
	for _, o := range c.callers {
		if o != c && c.mayWait && !c.joined && o.mayWait && !o.left && !o.passed {
			c.Broken("%s and %s may both be granted a turn without a line", o.name, c.name)
		}
	}
	r := c.decide(charge)
	return reply{Granted: r.OK, In: r.Delay}
}

// comesNow reports whether a turn comes now.
func (s *rate) comesNow() bool {
	return slices.Contains(s.granted, steps.AtTime(unsafe.Pointer(s)))
}

func (c *caller) joins(_ string, _ int64, joined bool) {
	c.events++
	c.joined, c.since, c.last = joined, c.events, c.events
}

// behind returns a caller that stands before c, or nil.
func (c *caller) behind() *caller {
	for _, o := range c.callers {
		before := o.class > c.class || o.class == c.class && o.since < c.since
		if before && o.joined && !o.left && !o.passed && !o.fails {
			return o
		}
	}
	return nil
}

func (c *caller) pass(now int64) {
	c.passed = true
	c.rate.passed = append(c.rate.passed, now)
	if c.first {
		return
	}
	if o := c.behind(); o != nil {
		c.Broken("%s passes before %s", c.name, o.name)
	}
}

func (q queue) scenario(lines explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		l, err := store.NewLimit(store.Spec{
			Name: "r", Units: int64(time.Second / q.every), Period: time.Second, Burst: 1,
		})
		if err != nil {
			panic(err)
		}
		s := &rate{Run: r, queue: q, limit: l}
		x := lines.(interface{ New() any }).New().(explored)
		s.decide(store.Charge{Key: "k", Limit: l, Cost: 1}) // passes at once
		start := twin.Now()
		for name := range strings.SplitSeq(q.come, "") {
			ctx, leave := ending.WithCancel(context.Background())
			c := &caller{rate: s, name: name}
			if q.ranked {
				c.class = name[0] - 'a'
			}
			s.callers = append(s.callers, c)
			r.Go(name, func() {
				err := x.Stand(ctx, wish{
					Key: "r", Class: c.class, Arrived: start, Until: start.Add(time.Minute), Room: 9,
					Every: q.every, First: q.first,
				}, c.joins, c.asks)
				switch {
				case err == nil && c.fails:
				case err == nil:
					c.pass(twin.Since(start).Microseconds())
				case !errors.Is(err, context.Canceled) || !c.left:
					r.Broken("%s: %v", name, err)
				}
			})
			if strings.Contains(q.leave, name) {
				r.Go(name+"'s client", func() {
					if q.late {
						twin.Sleep(q.every)
					}
					leave()
					c.left = true // in one step with that
				})
			}
		}
		if q.gives {
			r.Go("giver", func() { s.given = x.Give() })
		}
		r.Go("clock", func() { twin.Sleep(time.Second) }) // all turns pass
		r.End(func() { s.check(x) })
	}
}

func (s *rate) check(x explored) {
	slices.Sort(s.passed)
	first := int64(1)
	if s.given {
		first = 0
	}
	for i, at := range s.passed {
		if want := (int64(i) + first) * s.every.Microseconds(); at != want {
			s.Broken("passed at %d µs, want every %v", s.passed, s.every)
			break
		}
	}
	least := len(s.come) - len(s.leave)
	if s.fails {
		least--
	}
	if len(s.passed) < least {
		s.Broken("%d have passed, want %d", len(s.passed), least)
	}
	if waiting, lines, _ := x.Counts(); waiting+lines > 0 {
		s.Broken("%d wait in %d lines when the turns have passed", waiting, lines)
	}
}

// Calls get slots when these come free, and turns when they come, in whatever order callers ask, leave, change lines
// and release: none has to wait for the next poll, no turn is lost while calls wait for it, none asks or passes before
// one that ranks higher, none is left behind in a line, and a line holds no more turns than it may.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:  "github.com/stint-go/stint/internal/lines",
			Added: map[string]string{"explored.go": exploredFile},
			Edits: []steps.Edit{{File: "lines.go", // each run polls at the same times
				Was: "rand.N(d/5)", Is: "rand.N(d/d)"}},
			Mutants: mutants,
			Entry:   "V.Explored{}",
		}).Run(t)
		return
	}
	x, b, bc := []string{"a:x"}, []string{"b:x"}, []string{"b:x", "c:x"}
	fair := []string{"b:x:B", "c:x:C"}
	const slow, fast = 100 * time.Millisecond, 5 * time.Millisecond
	steps.Explore(t, mutants, []scene{
		crowd{holders: x, visitors: b, room: 9, counts: true},
		crowd{holders: x, visitors: b, leaves: "b", room: 9},
		crowd{holders: []string{"a:x", "b:y"}, visitors: []string{"c:xy"}, room: 9},
		queue{come: "ab", every: slow, most: 1},
		queue{come: "ab", leave: "a", every: slow, most: 1},
		queue{come: "ab", leave: "ab", every: slow, most: 1},
		queue{come: "ab", leave: "a", late: true, every: slow, most: 1},
		queue{come: "ab", gives: true, every: slow, most: 1},
		queue{come: "ab", ranked: true, every: slow, most: 1},
		queue{come: "ab", fails: true, every: slow, most: 1},
		queue{come: "ab", first: true, every: slow, most: 1},
		queue{come: "ab", every: fast, most: 2},
		crowd{holders: x, visitors: bc, room: 1},
		crowd{holders: x, visitors: bc, room: 1, ranked: true},
		crowd{holders: x, visitors: bc, leaves: "b", room: 1, ranked: true},
		crowd{holders: x, visitors: []string{"B:x", "c:x"}, room: 1, share: 50},
		crowd{holders: x, visitors: bc, room: 9, ranked: true},
		crowd{holders: x, visitors: bc, room: 9, slow: true},
		crowd{holders: x, visitors: bc, leaves: "b", room: 9, slow: true},
		crowd{holders: x, visitors: []string{"d:xy", "c:yx"}, room: 9, inTurn: true},
		crowd{holders: []string{"a:x:B"}, visitors: fair, room: 9, fair: true},
		crowd{holders: []string{"a:x:C"}, visitors: fair, room: 9, fair: true, holds: 1},
		crowd{holders: []string{"a:x:A"}, visitors: fair, room: 1, fair: true},
		crowd{holders: []string{"a:x:A"}, visitors: fair, room: 1, fair: true, holds: 1},
	}, func(variant string, s scene) func(*steps.Run) { return s.scenario(variants[variant]) })
}

var mutants = []steps.Variant{
	{Name: "a call that leaves tells no other", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l = ls.register(l)\n		l.hold(t)\n	}\n	ls.advance(l, now)\n", Is: "		l = ls.register(l)\n		l.hold(t)\n	}\n"}}},
	{Name: "a call that leaves keeps the turn that it was served", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l = ls.register(l)\n		l.hold(t)\n", Is: ""}}},
	{Name: "a turn is served to two", Edits: []steps.Edit{{File: "line.go",
		Was: "		w.wake()\n	}\n}\n\n// ask tells",
		Is:  "		w.wake()\n		if x := l.first(h, t.suits); x != nil {\n			l.remove(x)\n			x.turn = t\n			x.wake()\n		}\n	}\n}\n\n// ask tells"}}},
	{Name: "a turn comes before its time", Edits: []steps.Edit{{File: "line.go",
		Was: "!l.turns[0].At.After(now) {", Is: "!l.turns[0].At.After(now.Add(time.Second)) {"}}},
	{Name: "an ask isn't cleared when its call leaves", Edits: []steps.Edit{{File: "lines.go",
		Was: "	if w.asking {\n		w.asking = false\n		l.asking--\n		if l", Is: "	if w.asking {\n		if l"}}},
	{Name: "the last of a line asks", Edits: []steps.Edit{{File: "line.go",
		Was: "			return w == nil\n", Is: "			return true\n"}}},
	{Name: "all ask at once", Edits: []steps.Edit{{File: "line.go",
		Was: "case w == nil, len(l.turns)+l.asking > 0 && !l.asksBeside(w, now, trip):", Is: "case w == nil:"}}},
	{Name: "a line holds as many turns as it can get within a second", Edits: []steps.Edit{{File: "line.go",
		Was: "now.Add(max(window, trip+slack))", Is: "now.Add(time.Second)"}}},
	{Name: "a line with a turn is dropped", Edits: []steps.Edit{{File: "line.go",
		Was: "l.n == 0 && len(l.turns) == 0 && l.asking == 0", Is: "l.n == 0"}}},
	{Name: "a call that hears a release while it asks doesn't ask again", Edits: []steps.Edit{{File: "lines.go",
		Was: "	l.released = l.asking > 0\n", Is: ""}}},
	{Name: "a turn that is given is lost", Edits: []steps.Edit{{File: "lines.go",
		Was: "	l.hold(t)\n	ls.advance(l, t.At)\n", Is: "	ls.advance(l, t.At)\n"}}},
	{Name: "all calls are first", Edits: []steps.Edit{{File: "lines.go",
		Was: "CompareAndSwap(false, true)", Is: "CompareAndSwap(false, false)"}}},
	{Name: "a line asks beside a first call", Edits: []steps.Edit{{File: "line.go",
		Was: "w.Holds && l.awaitsFirst()", Is: "w.Holds && l.awaitsFirst() && false"}}},
	{Name: "the end of a first call is told to no line", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.delayed, l.firstAsk = false, nil\n		ls.advance(l, now)\n", Is: "		l.delayed, l.firstAsk = false, nil\n		_ = now\n"}}},
	{Name: "the turn of the first call is forgotten", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.hold(turn)\n", Is: ""}}},
	{Name: "the line's timer isn't set again", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.timer.Reset(next.Sub(now))\n", Is: ""}}},
	{Name: "a replaced call isn't woken", Edits: []steps.Edit{{File: "lines.go",
		Was: "		last.wake()\n", Is: ""}}},
	{Name: "a replaced call goes on waiting", Edits: []steps.Edit{{File: "lines.go",
		Was: "		l.remove(last)\n		last.wake()\n", Is: ""}}},
	{Name: "no call is replaced", Edits: []steps.Edit{{File: "line.go",
		Was: "h.rank(last, nil) >= h.rank(call, nil)", Is: "true"}}},
	{Name: "one of the same rank is replaced", Edits: []steps.Edit{{File: "line.go",
		Was: "h.rank(last, nil) >= h.rank(call, nil)", Is: "h.rank(last, nil) > h.rank(call, nil)"}}},
	{Name: "a release tells no call", Edits: []steps.Edit{{File: "lines.go",
		Was: "		ls.hurry(l, drop, time.Now())\n", Is: "		_ = drop\n"}}},
	{Name: "a wake-up is for those who sleep", Edits: []steps.Edit{{File: "lines.go",
		Was: "make(chan struct{}, 1)", Is: "make(chan struct{})"}}},
	{Name: "a call that leaves stays in line", Edits: []steps.Edit{{File: "lines.go",
		Was: "	l.remove(w)\n	if w.asking {", Is: "	if w.asking {"}}},
	{Name: "there is room for one more", Edits: []steps.Edit{{File: "lines.go",
		Was: "if l.n >= w.Room", Is: "if l.n > w.Room"}}},
	{Name: "no class goes first", Edits: []steps.Edit{{File: "line.go",
		Was: "if rank > ranks[best]", Is: "if rank >= 0 && ranks[best] < 0"}}},
	{Name: "a share is owed nothing", Edits: []steps.Edit{{File: "held.go",
		Was: "return ofClass == 0 || ", Is: "return false && "}}},
	{Name: "the tenant that holds the most goes first", Edits: []steps.Edit{{File: "line.go",
		Was: "q.held < fairest.held", Is: "q.held > fairest.held"}}},
	{Name: "tenants go by arrival", Edits: []steps.Edit{{File: "line.go",
		Was: "q.held, q.ranked = h.byTenant(q.hash)+l.asked(q), true", Is: "q.held, q.ranked = 0, true"}}},
	{Name: "no tenant's call is replaced", Edits: []steps.Edit{{File: "line.go",
		Was: "last == nil || most-last.Cost < own", Is: "last != nil || true"}}},
	{Name: "a call is replaced by one of a tenant that then has more", Edits: []steps.Edit{{File: "line.go",
		Was: "most-last.Cost < own", Is: "most < own"}}},
	{Name: "slots that a tenant gives back stay counted", Edits: []steps.Edit{{File: "held.go",
		Was: "p.tenants[hash] += n;", Is: "p.tenants[hash] += max(n, 0);"}}},
	{Name: "no line is counted as waiting", Edits: []steps.Edit{{File: "lines.go",
		Was: "ls.n.Load() > 0", Is: "ls.n.Load() > 1"}}},
	{Name: "slots that are given back stay counted", Edits: []steps.Edit{{File: "held.go",
		Was: "	now.total += n\n", Is: "	now.total += max(n, 0)\n"}}},
}
