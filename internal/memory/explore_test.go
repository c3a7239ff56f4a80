package memory_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/store"
)

// explored is the store that is explored, made of the shipped files by package steps.
type explored interface {
	store.Store
	store.Resetter
	// Recounted says how many keys there are, and how many the store says.
	Recounted() (keys, counted int, err error)
	// Forget has the process know no numbers of limits.
	Forget()
}

// variants makes the stores that are explored, by the name of their variant. The file
// that fills it is one of the overlay's.
var variants = map[string]func(maxKeys int) explored{}

// Every order of the atomic steps of a few calls on a few keys comes to what the calls
// come to one after the other: nothing is charged twice or lost, or decided on what is
// over, and the keys are counted. STINT_LONG=1 has all kinds of limits,
// and three callers in every situation.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		exploreElsewhere(t)
		return
	}
	scenes := slices.Concat(pairs("", "w."), threes(aKey), released(), twins(), denied())
	if os.Getenv("STINT_LONG") != "" {
		scenes = slices.Concat(pairs("", "q.", "w.", "c.", "s."), threes(situations...), released(), twins(), denied())
		scenes = append(scenes, frozen(scenes)...)
	}
	steps.Explore(t, mutants, scenes, func(variant string, sc scene) func(*steps.Run) {
		return sc.scenario(variants[variant])
	})
}

// exploreElsewhere runs this test again with the stores.
func exploreElsewhere(t *testing.T) {
	recount, err := os.ReadFile("recount_test.go")
	if err != nil {
		t.Fatal(err)
	}
	(&steps.Elsewhere{
		Path: "github.com/stint-go/stint/internal/memory",
		Added: map[string]string{
			"recount.go": string(recount),
			"explored.go": `package memory

func (s *Store) Recounted() (keys, counted int, err error) {
	keys, err = s.recount()
	return keys, int(s.Stats().Keys), err
}

func (s *Store) Forget() { rates = rateList{} }
`},
		Edits:   slices.Concat([]steps.Edit{once}, noTimer),
		Mutants: mutants,
		Entry:   "func(n int) explored { return V.New(V.Config{MaxKeys: int64(n)}) }",
	}).Run(t)
}

func (sc scene) scenario(newStore func(int) explored) func(*steps.Run) {
	return func(r *steps.Run) {
		w := &world{Run: r, keys: map[string]bool{}, scene: sc}
		if sc.frozen {
			r.Freeze()
		}
		w.base = w.Call("New", func() { w.store = newStore(sc.maxKeys) }).Clock[0]
		w.store.Forget()
		last := w.does(sc.before, nil)
		for i, does := range sc.callers {
			r.Go(string(rune('A'+i)), func() { w.does(does, last) })
		}
		r.End(w.check)
	}
}

// world is one run of a scene.
type world struct {
	*steps.Run
	scene
	store explored
	base  int64 // what the clock said to New
	calls []*done
	keys  map[string]bool // that have been named
}

// does does one thing after the other. Settle is of the last Take, which it returns.
func (w *world) does(things string, last *done) *done {
	for _, thing := range strings.Split(things, "; ") {
		verb, of, _ := strings.Cut(thing, " ")
		d := &done{}
		switch verb {
		case "":
			continue
		case "pass":
			by, err := time.ParseDuration(of)
			if err != nil {
				panic(err)
			}
			w.Advance(by)
			continue
		case "take":
			d.charges, last = w.charges(of), d
		case "settle":
			if last == nil || last.results[0].Receipt.Cost == 0 {
				continue // denied
			}
			d.verb, d.charges = settled, []store.Charge{last.charges[0]}
			d.charges[0].Cost = number(of)
			d.charges[0].Receipt = last.results[0].Receipt
		case "reset":
			d.verb, d.charges = forgot, w.charges(of)
		default:
			panic(thing)
		}
		w.call(thing, d)
	}
	return last
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (w *world) call(what string, d *done) {
	d.results = make([]store.Result, len(d.charges))
	w.calls = append(w.calls, d)
	ctx := context.Background()
	var err error
	d.Span = w.Call(what, func() {
		switch d.verb {
		case took:
			err = w.store.Take(ctx, d.charges, d.results)
		case settled:
			err = w.store.Settle(ctx, d.charges, d.results)
		case forgot:
			_, err = w.store.Reset(ctx, d.charges[0].Key, d.charges[0].Limit)
		}
	})
	if err != nil {
		w.Broken("%s: %v", what, err)
	}
	for i := range d.Clock {
		d.Clock[i] -= w.base
	}
	steps.Note("%s", d)
}

// charges reads pairs of a key and a cost, which is 1 if it is left out.
func (w *world) charges(text string) (charges []store.Charge) {
	for _, word := range strings.Fields(text) {
		name, cost, _ := strings.Cut(word, ":")
		w.keys[name] = true
		c := store.Charge{Limit: limitOf(name), Key: keyOf(name), Cost: 1}
		if cost != "" {
			c.Cost = number(cost)
		}
		charges = append(charges, c)
	}
	return charges
}

// check looks at each key when all is over, and holds the store to what it has said.
func (w *world) check() {
	for _, name := range slices.Sorted(maps.Keys(w.keys)) {
		w.call("look at "+name, &done{charges: w.charges(name + ":0")})
	}
	if !serial(w.calls, w.full()) {
		w.Broken("no order of the calls, one after the other, is answered so")
	}
	w.recount()
	for _, name := range slices.Sorted(maps.Keys(w.keys)) {
		c := w.charges(name)[0]
		if _, err := w.store.Reset(context.Background(), c.Key, c.Limit); err != nil {
			w.Broken("%v", err)
		}
	}
	if keys := w.recount(); keys != 0 {
		w.Broken("%d keys are left when all are reset", keys)
	}
}

func (w *world) recount() int {
	keys, counted, err := w.store.Recounted()
	if err != nil || keys != counted {
		w.Broken("%d keys, %d are counted: %v", keys, counted, err)
	}
	return keys
}
