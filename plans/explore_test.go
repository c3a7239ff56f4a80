package plans_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	orders "github.com/stint-go/stint/internal/explore/steps"
	ending "github.com/stint-go/stint/internal/explore/steps/context"
	"github.com/stint-go/stint/internal/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/explore/steps/time"
)

// explored is a Cache that is explored.
type explored interface {
	Get(ctx context.Context, key string) ([]stint.Limit, error)
	Forget(key string)
	// Left is how many plans there are, whether they are found, and how many loads there are.
	Left() (plans int, found bool, loads int)
}

// loading loads a plan: the number of its limits is the number of the load.
type loading = func(ctx context.Context, key string) ([]stint.Limit, error)

var variants = map[string]func(load loading) explored{}

const exploredFile = `package plans

import (
	"context"
	"time"

	"github.com/stint-go/stint"
)

type Explored struct{ *Cache }

func Explore(load func(ctx context.Context, key string) ([]stint.Limit, error)) Explored {
	return Explored{Must(New(load, WithTTL(time.Minute), WithSize(1), WithLoadTimeout(5*time.Second)))}
}

func (x Explored) Left() (plans int, found bool, loads int) {
	found = x.recent.Len() == len(x.plans)
	for e := x.recent.Front(); e != nil; e = e.Next() {
		found = found && x.plans[e.Value.(*kept).key] == e
	}
	return len(x.plans), found, len(x.loads)
}
`

var errSource = errors.New("the source is down")

// origin is where plans come from.
type origin struct {
	*orders.Run
	loads []string // the outcome of each; the last is that of all others
	came  int
	under map[string][]time.Time // way, by key: when they began
	free  chan struct{}          // closed when a load that hangs comes back
	// forgets: a key is forgotten, so a load may begin beside one from before.
	forgets bool
}

func (s *origin) load(ctx context.Context, key string) ([]stint.Limit, error) {
	orders.At(orders.Store, unsafe.Pointer(s))
	does := s.loads[min(s.came, len(s.loads)-1)]
	s.came++
	number := s.came
	orders.Note("load %d of %s: %s", number, key, does)
	for _, other := range s.under[key] {
		if twin.Since(other) < 5*time.Second && !s.forgets {
			s.Broken("%s is loaded twice at a time", key)
		}
	}
	began := twin.Now()
	s.under[key] = append(s.under[key], began)
	var plan []stint.Limit
	for i := range number {
		plan = append(plan, stint.Rate(1, time.Second, stint.WithName(fmt.Sprint("plan", i))))
	}
	var err error
	switch does {
	case "heeds": // its context
		lang.Receive(ctx.Done())
		plan, err = nil, ctx.Err()
	case "hangs":
		lang.Receive(s.free)
	case "hangs and fails":
		lang.Receive(s.free)
		plan, err = nil, errSource
	case "fails":
		plan, err = nil, errSource
	}
	orders.At(orders.Store, unsafe.Pointer(s))
	own := slices.Index(s.under[key], began)
	s.under[key] = slices.Delete(s.under[key], own, own+1)
	if ctx.Err() == context.Canceled {
		s.Broken("a load is cancelled")
	}
	if does == "panics" {
		panic("origin")
	}
	orders.Note("load %d of %s ends", number, key)
	return plan, err
}

// crowd is a set of concurrent calls.
type crowd struct {
	loads  []string
	actors []string
}

func (x crowd) String() string {
	return fmt.Sprintf("%s: %s", strings.Join(x.loads, ", "), strings.Join(x.actors, " | "))
}

func (x crowd) scenario(newCache func(loading) explored) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		s := &origin{Run: r, loads: x.loads, under: map[string][]time.Time{}, free: make(chan struct{})}
		s.forgets = strings.Contains(x.String(), "forget")
		cache := newCache(s.load)
		for i, does := range x.actors {
			name, ctx := string(rune('A'+i)), context.Background()
			does, leaves := strings.CutSuffix(does, " and leave")
			if leaves {
				c, end := ending.WithCancel(ctx)
				ctx = c
				r.Go("end "+name, end)
			}
			a := &asker{origin: s, cache: cache, ctx: ctx, last: map[string]int{}}
			r.Go(name, func() {
				for what := range strings.SplitSeq(does, "; ") {
					a.do(what)
				}
			})
		}
		r.End(func() {
			if kept, found, loads := cache.Left(); kept > 1 || !found || loads > 0 {
				r.Broken("%d plans are kept, found: %t, and %d loads are left", kept, found, loads)
			}
		})
	}
}

// asker does one thing after the other.
type asker struct {
	*origin
	cache explored
	ctx   context.Context
	last  map[string]int // load of which it has got the plan, by key
}

func (a *asker) do(what string) {
	switch what {
	case "wait":
		lang.Receive(twin.After(5 * time.Second)) // as long as a load may take
	case "second":
		lang.Receive(twin.After(time.Second))
	case "outlast":
		lang.Receive(twin.After(time.Minute)) // a plan
	case "free":
		lang.Close(a.free)
	case "forget":
		orders.At(orders.Load, unsafe.Pointer(a.origin))
		before := a.came
		a.cache.Forget("k")
		a.last["k"] = before + 1
	default:
		a.get(what)
	}
}

func (a *asker) get(key string) {
	began := twin.Now()
	plan, err := a.cache.Get(a.ctx, key)
	orders.Note("plan of %s: load %d, %v", key, len(plan), err)
	fails := slices.ContainsFunc(a.loads, func(does string) bool { return does != "answers" })
	left := a.ctx != context.Background() && errors.Is(err, context.Canceled)
	switch {
	case twin.Since(began) > 5*time.Second:
		a.Broken("Get takes %v", twin.Since(began))
	case err != nil && !left && (!fails || a.last[key] > 0):
		a.Broken("Get fails: %v", err)
	case err == nil && len(plan) < max(a.last[key], 1):
		a.Broken("after the plan of load %d there is that of load %d", a.last[key], len(plan))
	}
	a.last[key] = max(a.last[key], len(plan))
}

// Whatever callers ask of a cache at once, and whatever its source does: a key has one load
// at a time, unless it is forgotten, and that goes on when who began it leaves; a caller
// gets no plan older than it had before, or than Forget, and no error once it had one; no caller
// waits longer than a load may take; and no load is left.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&orders.Elsewhere{
			Path:    "github.com/stint-go/stint/plans",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry:   "func(load loading) explored { return V.Explore(load) }",
		}).Run(t)
		return
	}
	var crowds []crowd
	ask := func(loads string, actors ...string) {
		crowds = append(crowds, crowd{strings.Split(loads, "; "), actors})
	}
	for _, first := range []string{"answers", "fails", "heeds", "panics"} {
		ask(first+"; answers", "k", "k")
		ask(first+"; answers", "k; k", "k")
		ask(first+"; answers", "k and leave", "k")
		ask("answers; "+first, "k; outlast; k; k", "outlast; k")
	}
	ask("answers", "k; j", "j")
	ask("answers", "k; forget; k", "k")
	ask("hangs; answers", "k", "forget; free; k")
	ask("hangs; answers", "k; k", "wait; k; free")
	ask("hangs; answers", "k; wait; k; wait; k", "wait; free")
	ask("hangs; answers", "k; k; free; k")
	ask("hangs and fails; heeds; answers", "k; k", "wait; second; free; k")
	orders.Explore(t, mutants, crowds, func(variant string, x crowd) func(*orders.Run) {
		return x.scenario(variants[variant])
	})
}

var mutants = []orders.Variant{
	{Name: "nobody joins a load", Edits: []orders.Edit{{File: "plans.go",
		Was: "		if now.Sub(l.began) < l.alone {\n", Is: "		if now.Sub(l.began) < 0 {\n"}}},
	{Name: "a load ends with the call that began it", Edits: []orders.Edit{{File: "plans.go",
		Was: "context.WithTimeout(context.WithoutCancel(ctx), p.timeout)", Is: "context.WithTimeout(ctx, p.timeout)"}}},
	{Name: "a load that ends takes a later one's place", Edits: []orders.Edit{{File: "plans.go",
		Was: "	if of.latest == l {\n", Is: "	if true {\n"}}},
	{Name: "a plan that comes late replaces a newer one", Edits: []orders.Edit{{File: "plans.go",
		Was: "	if l.number <= of.void {\n", Is: "	if false {\n"}}},
	{Name: "a failure drops the old plan", Edits: []orders.Edit{{File: "plans.go",
		Was: "		e.Value.(*kept).retryAt = now.Add(retry)\n", Is: "		p.drop(key)\n"}}},
	{Name: "who waits doesn't look at the time", Edits: []orders.Edit{{File: "plans.go",
		Was: "	case <-l.overdue:\n", Is: ""}}},
	{Name: "a load from before Forget counts", Edits: []orders.Edit{{File: "plans.go",
		Was: "		of.latest, of.void = nil, of.begun\n", Is: "		of.latest = nil\n"}}},
	{Name: "after Forget a load from before is joined", Edits: []orders.Edit{{File: "plans.go",
		Was: "		of.latest, of.void = nil, of.begun\n", Is: "		of.void = of.begun\n"}}},
}
