package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/store"
)

// explored is a store that is explored, up to where it asks its server.
type explored interface {
	store.Store
	store.Resetter
	// GiveBack settles back what is held too long, or all.
	GiveBack(all bool)
}

// thereServer is the server, as an explored store asks it.
type thereServer interface {
	Take(charges []store.Charge, results []store.Result) (granted bool)
	Settle(c *store.Charge, r *store.Result, unlessReset bool)
	Reset(key string, limits []*store.Limit)
}

var variants = map[string]func(there thereServer, leased int64, denied int) explored{}

const exploredFile = `package redisstore

import (
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

type Server interface {
	Take(charges []store.Charge, results []store.Result) (granted bool)
	Settle(c *store.Charge, r *store.Result, unlessReset bool)
	Reset(key string, limits []*store.Limit)
}

type Explored struct{ *Store }

var (
	there    Server
	explored *Store
)

func Explore(server Server, leased int64, denied int) Explored {
	there = server
	s := New(nil, WithPrefetch(leased, time.Second), WithDenyCache(int64(denied)))
	s.wrong = nil
	explored = s
	return Explored{s}
}

func (x Explored) GiveBack(all bool) { x.prefetching.refundTokens(all) }

func (s *Store) decided(t *batch.Call[takeRequest]) (reusable bool, err error) {
	d := &t.Body.Decision
	d.Granted = there.Take(d.Charges, d.Results)
	return true, nil
}

func (s *Store) settled(t *batch.Call[settleRequest]) error {
	for i := range t.Body.charges {
		there.Settle(&t.Body.charges[i], &t.Body.results[i], t.Body.unlessReset)
		s.denies.forget(t.Body.charges[i].Key)
	}
	return nil
}

func (f *refunds) start(t *batch.Call[settleRequest]) (tried <-chan error) {
	explored.settled(t)
	one := make(chan error, 1)
	one <- nil
	return one
}
`

// unwired has what asks the server ask the one of the test, and not tell it the time. A
// reset doesn't time out, and nothing is given back by a timer: a caller does it.
var unwired = []orders.Edit{
	{File: "take.go", Was: "s.takes.Do(ctx, call)", Is: "s.decided(call)"},
	{File: "settle.go", Was: "reusable, err := s.settles.Do(ctx, call)", Is: "reusable, err := true, s.settled(call)"},
	{File: "refunds.go", Was: "func (f *refunds) start(", Is: "func (f *refunds) startThere("},
	{File: "reset.go", Was: "	go func() {\n		found, err := s.execAll(due, commands)\n		done <- answer{found, err}\n	}()\n", Is: "	there.Reset(key, limits)\n	done <- answer{}\n	_ = commands\n"},
	{File: "reset.go", Was: "context.WithTimeout(ctx, s.timeout)", Is: "ctx, func() {}"},
	{File: "server.go", Was: "	now := time.Now\n", Is: "	return 0\n	now := time.Now\n"},
	{File: "prefetch.go", Was: "time.AfterFunc(s.maxAge, s.sweep)", Is: "new(time.Timer)"},
}

var mutants = []orders.Variant{
	{Name: "an answer from before there was room is remembered", Edits: []orders.Edit{{File: "denycache.go",
		Was: "!forgot.IsZero() && !d.since.After(forgot)", Is: "forgot.IsZero() && forgot.After(d.since)"}}},
	{Name: "a call is timed when it is answered", Edits: []orders.Edit{
		{File: "take.go", Was: "	since := s.denies.instant()\n", Is: ""},
		{File: "take.go", Was: "s.denies.remember(charges, results, since)", Is: "s.denies.remember(charges, results, s.denies.instant())"}}},
	{Name: "denials are forgotten before the reset", Edits: []orders.Edit{{File: "reset.go",
		Was: "	defer s.denies.forget(key)\n", Is: "	s.denies.forget(key)\n"}}},
	{Name: "tokens are dropped before the reset", Edits: []orders.Edit{{File: "reset.go",
		Was: "	defer s.prefetching.forget(key, limits)\n", Is: "	s.prefetching.forget(key, limits)\n"}}},
	{Name: "tokens go back after a reset", Edits: []orders.Edit{{File: "refunds.go",
		Was: "	refund.Body.unlessReset = true\n", Is: ""}}},
	{Name: "two callers fetch at a time", Edits: []orders.Edit{{File: "prefetch.go",
		Was: "case k.fetching || k.left > 0", Is: "case k.left > 0"}}},
	{Name: "what is being fetched is removed", Edits: []orders.Edit{{File: "prefetch.go",
		Was: "k.fetching || now.Before(k.until)", Is: "now.Before(k.until)"}}},
	{Name: "tokens that come after the end are kept", Edits: []orders.Edit{{File: "prefetch.go",
		Was: "		return true, k.left\n", Is: "		return true, 0\n"}}},
}

// server decides each call in a step, at its instant.
type server struct {
	*orders.Run
	state store.State
	epoch int // resets
	taken map[store.Receipt]int
}

func (s *server) now() store.Now {
	orders.At(orders.Store, unsafe.Pointer(s))
	return store.Now{Steady: orders.Clock()}
}

func (s *server) Take(charges []store.Charge, results []store.Result) bool {
	now := s.now()
	states := []store.State{s.state}
	granted := store.Decide(now, charges, states, results)
	s.state = states[0]
	s.taken[results[0].Receipt] = s.epoch
	orders.Note("the server: %d, granted: %t, %d left", charges[0].Cost, granted, results[0].Remaining)
	return granted
}

func (s *server) Settle(c *store.Charge, r *store.Result, unlessReset bool) {
	now := s.now()
	if unlessReset && s.taken[c.Receipt] < s.epoch {
		orders.Note("the server: has been reset")
		return
	}
	store.Amend(now, c, &s.state, r)
	orders.Note("the server: settled for %d, %d left", c.Cost, r.Remaining)
}

func (s *server) Reset(string, []*store.Limit) {
	s.now()
	s.state = store.State{}
	s.epoch++
	orders.Note("the server: reset")
}

// did is a call that is over.
type did struct {
	orders.Span
	what    string
	granted bool
	charge  store.Charge
}

// room is the limit of one run: used up but for some units.
type room struct {
	*orders.Run
	server *server
	store  explored
	limit  *store.Limit
	calls  []*did
}

func (w *room) do(what string, last **did) {
	d := &did{what: what, charge: store.Charge{Key: "k", Limit: w.limit, Cost: 1}}
	ctx, charges, results := context.Background(), []store.Charge{d.charge}, make([]store.Result, 1)
	var err error
	call := func(f func()) {
		w.calls = append(w.calls, d)
		d.Span = w.Call(what, f)
	}
	switch what {
	case "take":
		call(func() { err = w.store.Take(ctx, charges, results) })
		if d.granted = results[0].OK; d.granted {
			d.charge.Cost, d.charge.Receipt = 0, results[0].Receipt
			*last = d
		}
	case "refund":
		if *last == nil {
			return
		}
		charges[0] = (*last).charge
		*last = nil
		call(func() { err = w.store.Settle(ctx, charges, results) })
	case "reset":
		call(func() { _, err = w.store.Reset(ctx, "k", w.limit) })
	case "give back":
		w.store.GiveBack(false)
	case "close":
		w.store.GiveBack(true)
	case "pass":
		w.Advance(2 * time.Second)
	default:
		panic(what)
	}
	if err != nil {
		w.Broken("%v", err)
	}
}

const ofBurst = 20

// serial says whether the calls can have been made one after the other.
func serial(calls []*did, left int) bool {
	if len(calls) == 0 {
		return true
	}
	for i, d := range calls {
		if slices.ContainsFunc(calls, func(e *did) bool { return e.Ended < d.Began }) {
			continue
		}
		after := left
		switch {
		case d.what == "reset":
			after = ofBurst
		case d.what == "refund":
			after = min(left+1, ofBurst)
		case d.granted != (left > 0):
			continue
		case d.granted:
			after--
		}
		if serial(slices.Delete(slices.Clone(calls), i, i+1), after) {
			return true
		}
	}
	return false
}

// counted reports whether the server has left in the end as much as the calls have,
// with nothing held any more. Around a reset some may be lost, and none may come twice.
func (w *room) counted(left, end int64) bool {
	over, back, charged := 0, int64(0), int64(0) // when the last reset was; and since then
	for _, d := range w.calls {
		if d.what == "reset" {
			over = max(over, d.Ended)
		}
	}
	for _, d := range w.calls {
		switch {
		case d.what == "refund":
			back++
		case d.granted && d.Began > over:
			charged++
		}
	}
	if over == 0 {
		return end == left-charged+back
	}
	return end <= min(ofBurst-charged+back, ofBurst)
}

// scene is a set of concurrent calls for one key.
type scene struct {
	leased  int64    // at a time, for a second
	denied  int      // denials that are kept
	left    int64    // of the limit
	before  string   // what has been done
	callers []string // what each does
}

func (sc scene) String() string {
	return fmt.Sprintf("%d left, %d leased, %d denied, %s: %s", sc.left, sc.leased, sc.denied, sc.before, strings.Join(sc.callers, " | "))
}

// things is how many things are done.
func (sc scene) things() int { return strings.Count(strings.Join(sc.callers, ";"), ";") }

func (sc scene) scenario(newStore func(thereServer, int64, int) explored) func(*orders.Run) {
	return func(r *orders.Run) {
		if sc.leased > 0 { // of the time it only matters whether it has passed
			r.Freeze()
		}
		w := &room{Run: r, server: &server{Run: r, taken: map[store.Receipt]int{}}, limit: slowLimit}
		w.store = newStore(w.server, sc.leased, sc.denied)
		w.server.Take([]store.Charge{{Limit: w.limit, Cost: ofBurst - sc.left}}, make([]store.Result, 1))
		var first *did
		for what := range strings.SplitSeq(sc.before, "; ") {
			w.do(what, &first)
		}
		for i, does := range sc.callers {
			r.Go(string(rune('A'+i)), func() {
				last := first
				for what := range strings.SplitSeq(does, "; ") {
					w.do(what, &last)
				}
			})
		}
		r.End(func() {
			w.store.GiveBack(true)
			var end [1]store.Result
			w.server.Take([]store.Charge{{Limit: w.limit}}, end[:])
			if !w.counted(sc.left, end[0].Remaining) {
				w.Broken("%d are left in the end", end[0].Remaining)
			}
			if sc.leased == 0 && !serial(w.calls, int(sc.left)) {
				w.Broken("no order of the calls, one after the other, is answered so")
			}
		})
	}
}

var slowLimit = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "slow", Units: 1, Period: 24 * time.Hour, Burst: ofBurst})
	if err != nil {
		panic(err)
	}
	return l
}()

// explorations are all that this package has: none goes by time.
var explorations = orders.NewTogether(ofStore, ofApart, ofLeases, ofBatches, ofSlots)

var ofStore = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Added:   map[string]string{"explored.go": exploredFile},
	Edits:   unwired,
	Mutants: mutants,
	Entry:   "func(there thereServer, leased int64, denied int) explored { return V.Explore(there, leased, denied) }",
}

// Whatever callers of a store do at once, what it keeps of the server's answers lets
// nothing more through, loses nothing, and denies no call that has come after there was room.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		explorations.Run(t)
		return
	}
	var scenes []scene
	pairs := func(sc scene, doings ...string) {
		for i, one := range doings {
			for _, other := range doings[i:] {
				sc.callers = []string{one, other}
				scenes = append(scenes, sc)
			}
		}
	}
	pairs(scene{denied: 8, left: 1, before: "take; take"}, "take", "take; take", "refund", "reset", "refund; take", "reset; take")
	pairs(scene{denied: 8, left: 1, before: "take"}, "take", "take; take", "refund", "reset", "refund; take", "reset; take")
	pairs(scene{leased: 2, left: 9, before: "take"}, "take", "take; take", "take; refund", "refund", "reset; take", "pass; give back", "close")
	pairs(scene{leased: 2, left: 9, before: "take; take"}, "take", "refund", "reset; take", "pass; give back", "close")
	pairs(scene{leased: 2, left: 2, before: "take", denied: 8}, "take", "take; refund", "reset; take", "pass; give back", "close")
	if os.Getenv("STINT_LONG") != "" {
		pairs(scene{leased: 2, left: 2, before: "take", denied: 8}, "take; take", "take; refund", "refund", "reset; take", "pass; give back; take", "close")
	}
	slices.SortStableFunc(scenes, func(a, b scene) int { return a.things() - b.things() }) // mutants are found sooner
	orders.Explore(t, mutants, scenes, func(variant string, sc scene) func(*orders.Run) {
		return sc.scenario(variants[variant])
	})
}
