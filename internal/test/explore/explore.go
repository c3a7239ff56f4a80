// Package explore runs concurrent code in every order that its steps can take, and
// shows the first order that breaks a promise. It is for tests.
//
// A scenario starts actors with [Scheduler.Go]. They run the code under test, as it is
// shipped, and call [Scheduler.Step] wherever another actor may come in between: in a
// store or a handler that the test passes to that code. One actor at a time runs from
// its step to its next. Run repeats the scenario until every choice of who runs next
// has been made. A scenario must do the same each time it is given the same choices.
//
// Each run is a bubble of [testing/synctest]: its time is fake. Time passes when all
// actors are blocked, or in [Scheduler.Pass].
package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Run explores the scenario and fails t with the trace of the first run that breaks a
// promise.
func Run(t *testing.T, scenario func(*Scheduler)) {
	t.Helper()
	runs, trace := Find(t, scenario)
	if trace != "" {
		t.Fatalf("run %d breaks a promise:\n%s", runs, trace)
	}
	t.Logf("%d runs", runs)
}

// Find explores the scenario until a run breaks a promise. It returns the number of
// runs and the trace of the last, or "" if none broke one.
func Find(t *testing.T, scenario func(*Scheduler)) (runs int, trace string) {
	t.Helper()
	x := &search{seen: map[string]bool{}}
	for {
		runs++
		var s *Scheduler
		synctest.Test(t, func(t *testing.T) {
			s = newScheduler(x)
			scenario(s)
			s.run()
		})
		if len(s.broken) > 0 {
			return runs, s.String()
		}
		if !x.next() {
			return runs, ""
		}
	}
}

// search is a depth-first search over the choices of a scenario, by replay.
type search struct {
	path []choice
	seen map[string]bool // states already continued from
}

type choice struct {
	taken, most int
	steps       []string // to choose from
}

// choose returns which of the steps to take at a depth: as before along the path, then
// the first. In a known state there is no choice.
func (x *search) choose(depth int, steps []string, state string) int {
	if depth < len(x.path) {
		c := &x.path[depth]
		if !slices.Equal(c.steps, steps) {
			panic(fmt.Sprintf("explore: the scenario isn't deterministic: at step %d it has %q, had %q", depth, steps, c.steps))
		}
		return c.taken
	}
	most := len(steps) - 1
	if state != "" {
		if x.seen[state] {
			most = 0
		}
		x.seen[state] = true
	}
	x.path = append(x.path, choice{most: most, steps: slices.Clone(steps)})
	return 0
}

// next moves on to the next path, if there is one.
func (x *search) next() bool {
	for n := len(x.path); n > 0; n-- {
		if c := &x.path[n-1]; c.taken < c.most {
			c.taken++
			x.path = x.path[:n]
			return true
		}
	}
	return false
}

// Scheduler runs the actors of one run. Any actor may call its methods.
type Scheduler struct {
	search *search
	start  time.Time

	mu       sync.Mutex
	paused   []*pausedActor
	observed map[string]string // what each actor has seen and where it is
	trace    []string
	broken   []string
	state    func() string
	ends     []func()
	arrived  chan struct{} // has an element when an actor has reached a step
	actors   sync.WaitGroup
}

// pausedActor is an actor at a step.
type pausedActor struct {
	actor, label string
	sleep        time.Duration // the time to let pass before it continues
	resume       chan struct{}
}

func newScheduler(x *search) *Scheduler {
	return &Scheduler{search: x, start: time.Now(), observed: map[string]string{}, arrived: make(chan struct{}, 1)}
}

type actorKey struct{}

// Go starts an actor. Step recognizes it by the context.
func (s *Scheduler) Go(actor string, f func(context.Context)) {
	ctx := context.WithValue(context.Background(), actorKey{}, actor)
	s.actors.Go(func() { f(ctx) })
}

// Step stops the actor of ctx until it is chosen to continue. A goroutine that isn't an
// actor's, such as a timer's, acts as an actor named "timer".
func (s *Scheduler) Step(ctx context.Context, label string) { s.pause(ctx, label, 0) }

// Pass is a step that lets time pass while all other actors stand still or are woken by
// it.
func (s *Scheduler) Pass(ctx context.Context, d time.Duration) {
	s.pause(ctx, d.String()+" pass", d)
}

func (s *Scheduler) pause(ctx context.Context, label string, sleep time.Duration) {
	p := &pausedActor{actorOf(ctx), label, sleep, make(chan struct{})}
	s.mu.Lock()
	s.paused = append(s.paused, p)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	<-p.resume
}

func actorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok {
		return actor
	}
	return "timer"
}

// Note adds to the trace what an actor has observed, such as the answer of a store. It
// distinguishes states: see State.
func (s *Scheduler) Note(ctx context.Context, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(actorOf(ctx), fmt.Sprintf(format, args...))
}

func (s *Scheduler) note(actor, what string) {
	s.observed[actor] += what + "\n"
	s.trace = append(s.trace, fmt.Sprintf("%8v  %-10s %s", time.Since(s.start), actor, what))
}

// State sets a function that returns the part of the state that actors share. With it,
// a state reached in different ways is explored once: two states are equal if the
// shared part, the time, and what each actor has stepped over and noted are equal.
// Without it every order is run to its end.
func (s *Scheduler) State(f func() string) { s.state = f }

// Broken reports that a promise is broken. The run continues to its end.
func (s *Scheduler) Broken(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

// End makes f run when all actors have returned.
func (s *Scheduler) End(f func()) { s.ends = append(s.ends, f) }

// run lets one actor at a time take a step until all have returned.
func (s *Scheduler) run() {
	done := make(chan struct{})
	go func() {
		s.actors.Wait()
		close(done)
	}()
	for depth := 0; ; {
		synctest.Wait()
		p := s.chooseActor(&depth)
		if p == nil {
			select {
			case <-done:
				for _, f := range s.ends {
					f()
				}
				return
			case <-s.arrived: // time passes up to what an actor waits for
			}
			continue
		}
		if p.sleep > 0 {
			time.Sleep(p.sleep)
			synctest.Wait()
		}
		close(p.resume)
	}
}

// chooseActor chooses one of the actors that are at a step.
func (s *Scheduler) chooseActor(depth *int) *pausedActor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paused) == 0 {
		return nil
	}
	slices.SortFunc(s.paused, func(a, b *pausedActor) int { return strings.Compare(a.actor+a.label, b.actor+b.label) })
	steps := make([]string, len(s.paused))
	for i, p := range s.paused {
		steps[i] = p.actor + ": " + p.label
	}
	i := s.search.choose(*depth, steps, s.fingerprint(steps))
	*depth++
	p := s.paused[i]
	s.paused = slices.Delete(s.paused, i, i+1)
	s.note(p.actor, p.label)
	return p
}

func (s *Scheduler) fingerprint(steps []string) string {
	if s.state == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintln(&b, time.Since(s.start), steps, s.state(), s.broken)
	actors := make([]string, 0, len(s.observed))
	for actor, observed := range s.observed {
		actors = append(actors, actor+": "+observed)
	}
	slices.Sort(actors)
	fmt.Fprintln(&b, actors)
	return b.String()
}

// String returns the run's trace and the promises it has broken.
func (s *Scheduler) String() string {
	return strings.Join(s.trace, "\n") + "\n=> " + strings.Join(s.broken, "\n=> ")
}
