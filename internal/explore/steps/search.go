package steps

import (
	"strings"
	"unsafe"
)

// before tells of each actor how many of a run's steps there have been when it took the
// last that something depends on: an event happened before if its number is below.
type before [most]int32

func (b *before) join(c *before) {
	for i := range b {
		b[i] = max(b[i], c[i])
	}
}

// event is a step that has been taken.
type event struct {
	op
	actor int
	since before // what it depends on, and itself
}

// node is a state that a run has come to, with what is to be done from there.
type node struct {
	enabled set
	todo    set // to be tried, or tried
	done    set // tried
	sleep   set // what they come to has been seen already
	taken   int
	way     int // in which it was taken
	ways    int
}

// next turns to what is to be tried next, deepest first, or nil.
func next(path []node) []node {
	for len(path) > 0 {
		n := &path[len(path)-1]
		if n.way++; n.way < n.ways {
			return path
		}
		n.way = 0
		n.done |= one(n.taken)
		if left := n.todo &^ n.done &^ n.sleep; left != 0 {
			n.taken = left.first()
			return path
		}
		path = path[:len(path)-1]
	}
	return nil
}

// run goes down the path, and on from its end.
func (r *Run) run(scenario func(*Run)) {
	if clear(r.objects); r.objects == nil {
		r.objects = map[unsafe.Pointer]int{}
	}
	running = r
	defer func() { running = nil }()
	scenario(r)
	r.begin(0, before{})
	for depth := 0; ; depth++ {
		if depth == longest {
			r.Broken("%d steps, and no end", longest)
			r.path = r.path[:depth]
			r.prune()
			return
		}
		enabled, waiting := r.standing()
		if enabled == 0 && waiting != 0 && r.idle() {
			enabled, waiting = r.standing()
		}
		if enabled == 0 && waiting == 0 {
			break
		}
		if depth == len(r.path) && !r.choose(enabled, depth) {
			if enabled == 0 {
				r.Broken("deadlock: %s", r.names(waiting))
			}
			r.prune()
			return
		}
		n := &r.path[depth]
		if n.enabled != enabled || !enabled.has(n.taken) {
			panic("steps: the scenario isn't deterministic")
		}
		r.take(n.taken, depth)
	}
	r.current, r.ending = nil, true
	for _, f := range r.ends {
		f()
	}
	r.prune()
}

// longest is a number of steps that only those reach who wait for each other for ever.
const longest = 1000

// standing is who can go on, and who has to wait.
func (r *Run) standing() (enabled, waiting set) {
	for i, a := range r.actors {
		switch {
		case a.over:
		case a.op.open() > 0:
			enabled |= one(i)
		case !a.timer:
			waiting |= one(i)
		}
	}
	return enabled, waiting
}

func (r *Run) names(s set) string {
	var all []string
	for i := range s.all() {
		all = append(all, r.actors[i].name)
	}
	return strings.Join(all, ", ")
}

// choose enters a new state, and says whether there is anything to be seen from there.
func (r *Run) choose(enabled set, depth int) bool {
	n := node{enabled: enabled}
	if depth > 0 {
		from, e := &r.path[depth-1], &r.events[depth-1]
		for i := range ((from.sleep | from.done) &^ one(from.taken)).all() {
			if !r.actors[i].op.meets(&e.op) {
				n.sleep |= one(i)
			}
		}
		n.taken = from.taken // who goes on, goes on
	}
	left := enabled &^ n.sleep
	if left == 0 {
		return false
	}
	if !left.has(n.taken) {
		n.taken = left.first()
	}
	if n.todo = one(n.taken); r.every {
		n.todo, n.sleep = enabled, 0
	}
	r.path = append(r.path, n)
	return true
}

// races looks for the steps that the last one meets, and doesn't come after for another
// reason, and has each tried the other way round: by whoever can begin what else there was
// since then and need not have waited for it. What a step that waits has waited for is
// not a reason, and not known: all that it meets is tried.
func (r *Run) races(last, obj int) {
	e := &r.events[last]
	on := r.on[obj]
	for k := len(on) - 1; k >= 0; k-- {
		f := &r.events[on[k]]
		if on[k] < e.since[f.actor] || !e.meets(&f.op) || e.follows(&f.op) {
			continue
		}
		if r.turnRound(int(on[k]), last); !e.waits {
			e.since.join(&f.since)
		}
	}
}

// turnRound has what came between two steps, and the second, tried without the first.
func (r *Run) turnRound(first, second int) {
	n, e := &r.path[first], &r.events[first]
	var begin, come set // who can begin, and who has come
	var came [most]int32
	for j := first + 1; j <= second; j++ {
		f := &r.events[j]
		if j < second && f.since[e.actor] > int32(first) || come.has(f.actor) {
			continue
		}
		begins := true
		for q := range come.all() {
			begins = begins && f.since[q] <= came[q]
		}
		come |= one(f.actor)
		if came[f.actor] = int32(j); begins {
			begin |= one(f.actor)
		}
	}
	if can := begin & n.enabled; begin&(n.todo|n.sleep) == 0 && can != 0 {
		n.todo |= one(can.first())
	}
}

// take lets an actor take its step.
func (r *Run) take(i, depth int) {
	a, n := r.actors[i], &r.path[depth]
	r.way, n.ways = n.way, a.op.open()
	r.events = append(r.events, event{op: a.op, actor: i})
	actors := len(r.actors)
	r.resume(i)
	e := &r.events[depth]
	e.since = a.since
	e.touches(func(t touch) { r.races(depth, t.obj) })
	e.touches(func(t touch) {
		for _, k := range r.on[t.obj] {
			if f := &r.events[k]; e.meets(&f.op) {
				e.since.join(&f.since)
			}
		}
	})
	e.since[i] = int32(depth) + 1
	a.since = e.since
	e.touches(func(t touch) { r.on[t.obj] = append(r.on[t.obj], int32(depth)) })
	r.begin(actors, e.since)
	for j, b := range r.actors[:actors] {
		// A timer that has been stopped takes no step that could be turned round.
		if b.timer && n.enabled.has(j) && b.op.open() == 0 {
			n.todo |= one(j) &^ n.sleep
		}
	}
}

// begin runs the actors from a number on to their first steps.
func (r *Run) begin(from int, since before) {
	for i := from; i < len(r.actors); i++ {
		r.actors[i].since = since
		r.resume(i)
	}
}

// resume runs an actor to its next step.
func (r *Run) resume(i int) {
	a := r.actors[i]
	r.current = a
	o, more := a.next()
	a.op, a.over = o, !more
	r.current = nil
}

// prune ends a run, also one that comes to what has been seen, or to nothing.
func (r *Run) prune() {
	r.pruned = true
	for _, a := range r.actors {
		a.stop()
	}
}
