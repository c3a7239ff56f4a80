package steps

import (
	"strings"
	"unsafe"
)

// vectorClock has, for each actor, the number of the run's steps up to the actor's last step that
// happened before an event: those with a lower number did.
type vectorClock [maxActors]int32

func (b *vectorClock) join(c *vectorClock) {
	for i := range b {
		b[i] = max(b[i], c[i])
	}
}

// event is a step that has been taken.
type event struct {
	op
	actor int
	clock vectorClock // of the events that happened before it, and itself
}

// node is a state of a run, with the sets of actors whose steps are explored from there.
type node struct {
	enabled   set
	backtrack set // to be explored, or explored
	done      set // explored
	sleep     set // the sleep set: their results have been explored already
	taken     int
	choice    int // of those of the step taken
	choices   int
}

// next returns the path to explore next, deepest first, or nil.
func next(path []node) []node {
	for len(path) > 0 {
		n := &path[len(path)-1]
		if n.choice++; n.choice < n.choices {
			return path
		}
		n.choice = 0
		n.done |= setOf(n.taken)
		if left := n.backtrack &^ n.done &^ n.sleep; left != 0 {
			n.taken = left.first()
			return path
		}
		path = path[:len(path)-1]
	}
	return nil
}

// run follows the path, and continues from its end.
func (r *Run) run(scenario func(*Run)) {
	if clear(r.objects); r.objects == nil {
		r.objects = map[unsafe.Pointer]int{}
	}
	running = r
	defer func() { running = nil }()
	scenario(r)
	r.startActors(0, vectorClock{})
	for depth := 0; ; depth++ {
		if depth == maxSteps {
			r.Broken("%d steps, and no end", maxSteps)
			r.path = r.path[:depth]
			r.prune()
			return
		}
		enabled, waiting := r.enabledAndWaiting()
		if enabled == 0 && waiting != 0 && r.advanceToTimer() {
			enabled, waiting = r.enabledAndWaiting()
		}
		if enabled == 0 && waiting == 0 {
			break
		}
		if depth == len(r.path) && !r.enter(enabled, depth) {
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
		r.execute(n.taken, depth)
	}
	r.current, r.ending = nil, true
	for _, f := range r.ends {
		f()
	}
	r.prune()
}

// maxSteps is a number of steps that only a livelock reaches.
const maxSteps = 1000

// enabledAndWaiting returns the actors that can take a step, and those that have to wait.
func (r *Run) enabledAndWaiting() (enabled, waiting set) {
	for i, a := range r.actors {
		switch {
		case a.ended:
		case a.op.enabledChoices() > 0:
			enabled |= setOf(i)
		case !a.timer:
			waiting |= setOf(i)
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

// enter enters a new state, and reports whether there is anything to explore from there.
func (r *Run) enter(enabled set, depth int) bool {
	n := node{enabled: enabled}
	if depth > 0 {
		from, e := &r.path[depth-1], &r.events[depth-1]
		for i := range ((from.sleep | from.done) &^ setOf(from.taken)).all() {
			if !r.actors[i].op.dependent(&e.op) {
				n.sleep |= setOf(i)
			}
		}
		n.taken = from.taken // the same actor continues
	}
	left := enabled &^ n.sleep
	if left == 0 {
		return false
	}
	if !left.has(n.taken) {
		n.taken = left.first()
	}
	if n.backtrack = setOf(n.taken); r.exhaustive {
		n.backtrack, n.sleep = enabled, 0
	}
	r.path = append(r.path, n)
	return true
}

// findRaces finds the races of the last step: the steps that it depends on and that don't happen before
// it for another reason. It has each race explored in reverse order. The steps that a waiting step has
// waited for aren't known, so it has a race with all that it depends on.
func (r *Run) findRaces(last, obj int) {
	e := &r.events[last]
	on := r.byObject[obj]
	for k := len(on) - 1; k >= 0; k-- {
		f := &r.events[on[k]]
		if on[k] < e.clock[f.actor] || !e.dependent(&f.op) || e.follows(&f.op) {
			continue
		}
		if r.addBacktrack(int(on[k]), last); !e.waits {
			e.clock.join(&f.clock)
		}
	}
}

// addBacktrack has the steps between two racing steps, and the second, explored before the first: it adds
// an actor that can begin them to the backtrack set of the first.
func (r *Run) addBacktrack(first, second int) {
	n, e := &r.path[first], &r.events[first]
	var initials, seen set // actors that can begin, and those that have taken a step
	var lastEvent [maxActors]int32
	for j := first + 1; j <= second; j++ {
		f := &r.events[j]
		if j < second && f.clock[e.actor] > int32(first) || seen.has(f.actor) {
			continue
		}
		initial := true
		for q := range seen.all() {
			initial = initial && f.clock[q] <= lastEvent[q]
		}
		seen |= setOf(f.actor)
		if lastEvent[f.actor] = int32(j); initial {
			initials |= setOf(f.actor)
		}
	}
	if candidates := initials & n.enabled; initials&(n.backtrack|n.sleep) == 0 && candidates != 0 {
		n.backtrack |= setOf(candidates.first())
	}
}

// execute lets an actor take its step.
func (r *Run) execute(i, depth int) {
	a, n := r.actors[i], &r.path[depth]
	r.choice, n.choices = n.choice, a.op.enabledChoices()
	r.events = append(r.events, event{op: a.op, actor: i})
	actors := len(r.actors)
	r.resume(i)
	e := &r.events[depth]
	e.clock = a.clock
	e.eachAccess(func(t access) { r.findRaces(depth, t.obj) })
	e.eachAccess(func(t access) {
		for _, k := range r.byObject[t.obj] {
			if f := &r.events[k]; e.dependent(&f.op) {
				e.clock.join(&f.clock)
			}
		}
	})
	e.clock[i] = int32(depth) + 1
	a.clock = e.clock
	e.eachAccess(func(t access) { r.byObject[t.obj] = append(r.byObject[t.obj], int32(depth)) })
	r.startActors(actors, e.clock)
	for j, b := range r.actors[:actors] {
		// A timer that has been stopped takes no step that could be reversed.
		if b.timer && n.enabled.has(j) && b.op.enabledChoices() == 0 {
			n.backtrack |= setOf(j) &^ n.sleep
		}
	}
}

// startActors runs the actors from a number on to their first steps.
func (r *Run) startActors(from int, clock vectorClock) {
	for i := from; i < len(r.actors); i++ {
		r.actors[i].clock = clock
		r.resume(i)
	}
}

// resume runs an actor to its next step.
func (r *Run) resume(i int) {
	a := r.actors[i]
	r.current = a
	o, more := a.next()
	a.op, a.ended = o, !more
	r.current = nil
}

// prune ends a run, possibly before its end.
func (r *Run) prune() {
	r.pruned = true
	for _, a := range r.actors {
		a.stop()
	}
}
