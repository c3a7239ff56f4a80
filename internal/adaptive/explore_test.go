package adaptive_test

import (
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
)

// explored is the store that is explored, with a limit of its own.
type explored interface {
	store.Store
	store.Resetter
	// Limit makes the limit anew, of so many slots. A key goes by it from then on.
	Limit(slots int64) *store.Limit
	// Retire has the limit be gone.
	Retire()
	// End ends a call's charges.
	End(charges []store.Charge, results []store.Result)
	// Counts are slots, leases and keys, and how many of those are idle.
	Counts() (slots int64, leases, keys, idle int)
}

type anyStore = store.Store

var variants = map[string]func(below anyStore, freed func()) explored{}

const exploredFile = `package adaptive

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

type Explored struct {
	store.Store
	keys *Keys
}

func Explore(below store.Store, freed func()) *Explored {
	k := NewKeys(func(string, string) { freed() })
	return &Explored{k.Over(below), k}
}

func (x *Explored) Reset(ctx context.Context, key string, limits ...*store.Limit) (bool, error) {
	return x.Store.(store.Resetter).Reset(ctx, key, limits...)
}

func (x *Explored) Limit(slots int64) *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "own", Algorithm: store.Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	return x.keys.Limit(l, Config{Algorithm: Gradient2, Min: slots, Max: slots, Start: slots, Tolerance: 2, Window: time.Second})
}

func (x *Explored) Retire() { x.keys.Retire(map[string]bool{"own": true}) }

func (x *Explored) End(charges []store.Charge, results []store.Result) {
	x.keys.End(charges, results, &Sample{RTT: time.Millisecond})
}

func (x *Explored) Counts() (slots int64, leases, keys, idle int) {
	for _, e := range x.keys.keys {
		slots += e.inFlight
	}
	return slots, len(x.keys.leases), len(x.keys.keys), x.keys.idle.Len()
}
`

var mutants = []steps.Variant{
	{Name: "a denial below keeps the slot", Edits: []steps.Edit{{File: "store.go", Was: "if !granted { // also", Is: "if !granted && len(r.charges) == 0 { // also"}}},
	{Name: "what is given back is told to nobody", Edits: []steps.Edit{{File: "store.go", Was: "			k.freed(c.Limit.Name(), c.Key)\n		}\n	}\n}\n\n// Settle", Is: "		}\n	}\n}\n\n// Settle"}}},
	{Name: "it is told before it is", Edits: []steps.Edit{{File: "sample.go", Was: "		if c, changed := k.end(", Is: "		k.freed(charges[i].Limit.Name(), charges[i].Key)\n		if c, changed := k.end("},
		{File: "sample.go", Was: "		k.freed(charges[i].Limit.Name(), charges[i].Key)\n	}\n", Is: "	}\n"}}},
	{Name: "a slot is taken in two steps", Edits: []steps.Edit{{File: "keys.go", Was: "res.Receipt = store.Receipt{Cost: c.Cost, Lease: k.grant(e, c.Cost)}", Is: "k.mu.Unlock()\n		k.mu.Lock()\n		res.Receipt = store.Receipt{Cost: c.Cost, Lease: k.grant(e, c.Cost)}"}}},
	{Name: "a lease is released twice", Edits: []steps.Edit{{File: "keys.go", Was: "	delete(k.leases, id)\n", Is: ""}}},
}

// caller is a sequence of actions with a permit of its own.
type caller struct {
	*world
	charges []store.Charge
	results []store.Result
	inside  bool // with a slot of own
}

// world is one run.
type world struct {
	*steps.Run
	store      explored
	own, other *store.Limit
	slots      int64 // of own
	inUse      int64 // by callers
	anew       bool  // whether own may be in use beyond its slots: it has been reset, or made anew
	freed      int64
}

// Freed is told: who waits asks again.
func (w *world) tell() {
	steps.At(steps.Store, unsafe.Pointer(&w.freed))
	w.freed++
}

func (w *world) told() int64 {
	steps.At(steps.Load, unsafe.Pointer(&w.freed))
	return w.freed
}

func (c *caller) take(limits ...*store.Limit) {
	c.charges, c.results = nil, make([]store.Result, len(limits))
	for _, l := range limits {
		c.charges = append(c.charges, store.Charge{Key: "k", Limit: l, Cost: 1})
	}
	told := c.told()
	if err := c.store.Take(context.Background(), c.charges, c.results); err != nil {
		c.Broken("%v", err)
	}
	granted := inside.Granted(c.charges, c.results)
	steps.Note("is granted: %t", granted)
	switch {
	case limits[0] == c.other:
	case granted:
		c.inside = true
		if c.inUse++; c.inUse > c.slots && !c.anew {
			c.Broken("%d are in use, of %d slots", c.inUse, c.slots)
		}
	case !c.results[0].OK:
		c.Run.End(func() {
			if c.freed == told {
				c.Broken("nobody has told who was denied that a slot is free")
			}
		})
	}
	if !granted {
		c.charges = nil
	}
	for i := range c.charges {
		c.charges[i].Receipt, c.charges[i].Cost = c.results[i].Receipt, 0
	}
}

// leave comes before slots are given back.
func (c *caller) leave() {
	if c.inside {
		c.inUse--
		c.inside = false
	}
}

func (c *caller) settle(charges []store.Charge) {
	if err := c.store.Settle(context.Background(), charges, make([]store.Result, len(charges))); err != nil {
		c.Broken("%v", err)
	}
}

// end ends what the process holds itself, and settles the rest.
func (c *caller) end() {
	for i := range c.charges {
		if c.charges[i].Limit == c.other {
			c.settle(c.charges[i : i+1])
		} else {
			c.store.End(c.charges[i:i+1], c.results[i:i+1])
		}
	}
}

func (c *caller) do(what string) {
	ctx := context.Background()
	switch what {
	case "take":
		c.take(c.own)
	case "take both":
		c.take(c.own, c.other)
	case "other":
		c.take(c.other)
	case "end":
		c.leave()
		c.end()
	case "settle":
		c.leave()
		c.settle(c.charges)
	case "reset":
		c.anew = true
		if _, err := c.store.Reset(ctx, "k", c.own); err != nil {
			c.Broken("%v", err)
		}
	case "retire":
		c.anew = true
		c.store.Retire()
	case "limit":
		c.anew = true
		c.own = c.store.Limit(2)
	default:
		panic(what)
	}
}

// Whatever callers do at once: no more slots are in use than there are, each comes free
// again, everybody denied for lack of a slot learns when one does, and at the end
// nothing is in use.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/adaptive",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry:   "func(below anyStore, freed func()) explored { return V.Explore(below, freed) }",
		}).Run(t)
		return
	}
	doings := []string{"take; end", "take both; end", "take; settle", "take both; settle; settle", "take; end; take; end", "reset", "retire", "limit"}
	scenario := func(newStore func(store.Store, func()) explored, callers ...string) func(*steps.Run) {
		return func(r *steps.Run) {
			w := &world{Run: r, slots: 1}
			b := storefake.New()
			step := func(c *storefake.Call) error {
				steps.At(steps.Store, unsafe.Pointer(b))
				return c.Pass()
			}
			b.OnTake, b.OnSettle = step, step
			w.store = newStore(b, w.tell)
			w.own = w.store.Limit(w.slots)
			w.other = otherLimit
			for i, does := range callers {
				r.Go(string(rune('A'+i)), func() {
					c := &caller{world: w}
					for what := range strings.SplitSeq(does, "; ") {
						c.do(what)
					}
				})
			}
			r.End(func() {
				if slots, leases, keys, idle := w.store.Counts(); slots != 0 || leases != 0 || keys != idle {
					r.Broken("%d slots and %d leases are left, %d keys, %d of them idle", slots, leases, keys, idle)
				}
				var left [1]store.Result
				if err := b.Take(context.Background(), []store.Charge{{Key: "k", Limit: w.other}}, left[:]); err != nil || left[0].Remaining != 1 {
					r.Broken("%d left below, %v", left[0].Remaining, err)
				}
			})
		}
	}
	scenes := [][]string{
		{"take; end", "take; end", "take; end"},
		{"other; end", "take both; end", "take; end"},
		{"take both; end", "take; end", "reset"},
		{"take both; end", "take; end", "limit"},
	}
	for i, one := range doings {
		for _, other := range doings[i:] {
			scenes = append(scenes, []string{one, other})
		}
	}
	steps.Explore(t, mutants, scenes, func(variant string, callers []string) func(*steps.Run) {
		return scenario(variants[variant], callers...)
	})
}

var otherLimit = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "other", Algorithm: store.Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	return l
}()
