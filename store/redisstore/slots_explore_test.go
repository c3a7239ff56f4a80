package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/store"
)

// slotted is a store that is explored with the calls of the scripts in which decisions on slots,
// and releases, come together.
type slotted interface {
	store.Store
	Left() string
}

// thereScripts is the server of a slotted store: it answers the arguments of a script, and those
// of a ZREM.
type thereScripts interface {
	Answer(args []any) (reply any)
	Remove(leases []any) (reply any)
}

var slottedVariants = map[string]func(thereScripts, queues) slotted{}

const slottedEntry = "func(there thereScripts, q queues) slotted { return V.ExploreSlots(there, q.direct, q.inFlight, q.inFlightShort, q.size) }"

const slottedFile = `package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

const removed = 7

type Scripts interface {
	Answer(args []any) (reply any)
	Remove(leases []any) (reply any)
}

type Slotted struct{ *Store }

var there Scripts

func ExploreSlots(w Scripts, direct bool, inFlight, inFlightShort, size int) Slotted {
	there = w
	s := New(nil)
	s.wrong = nil
	s.takes.Direct, s.takes.MaxInFlight, s.takes.MaxInFlightShort, s.takes.MaxSize = direct, inFlight, inFlightShort, size
	s.settles.Direct, s.settles.MaxInFlight, s.settles.MaxInFlightShort, s.settles.MaxSize = direct, inFlight, inFlightShort, size
	return Slotted{s}
}

func (s *server) execThere(ctx context.Context, commands []command) {
	for i := range commands {
		c := &commands[i]
		c.cmd = redis.NewCmd(ctx)
		if c.script == nil {
			c.cmd.SetVal(there.Remove(c.args[2:]))
			continue
		}
		c.cmd.SetVal(there.Answer(c.args[3+c.args[2].(int):]))
	}
}

func (x Slotted) Left() string { return x.takes.Left() + x.settles.Left() }
`

// scriptsThere has the scripts run in the test, and leases not be renewed. What a process keeps
// for all stores is made anew: each run has to be like the others.
var scriptsThere = []orders.Edit{
	{File: "internal/wire/limitargs.go", Was: "	if known, ok := limits.Load(l); ok {\n		return known.(*limitArgs)\n	}\n", Is: "	if l != nil {\n		return newLimitArgs(l)\n	}\n"},
	{File: "internal/wire/takecall.go", Was: "placeMaps.Get().(map[string]place)", Is: "make(map[string]place)"},
	{File: "internal/wire/takecall.go", Was: "		placeMaps.Put(seen)\n", Is: ""},
	{File: "internal/wire/take.go", Was: "	room := fewStates.Get().(*[8]store.State)\n	defer fewStates.Put(room)\n", Is: "	room := new([8]store.State)\n"},
	{File: "takerequest.go", Was: "	s.exec(ctx, commands)\n	for i, group", Is: "	s.execThere(ctx, commands)\n	for i, group"},
	{File: "takerequest.go", Was: "		s.exec(ctx, commands)\n		again", Is: "		s.execThere(ctx, commands)\n		again"},
	{File: "settlerequest.go", Was: "	s.exec(ctx, commands)\n", Is: "	s.execThere(ctx, commands)\n"},
	{File: "take.go", Was: "		if call.Body.Granted {\n			s.startRenewals(call)\n", Is: "		if call.Body.Granted {\n			_ = call\n"},
	{File: "settle.go", Was: "return held && !l.several", Is: "return (held || !l.several) && c.Receipt.Path == removed"},
}

// removed marks the receipts of leases that are released by a ZREM.
const removed = 7

// slotKeeper is the server: what the scripts do, as their heads say, for one key.
type slotKeeper struct {
	*orders.Run
	units int
	slots map[store.LeaseID]bool
	held  map[store.LeaseID]int64 // after each was given, or released
	freed map[store.LeaseID]int64
}

// scriptArgs are the arguments of a script, from the next on.
type scriptArgs []any

func (a *scriptArgs) text() string {
	v := (*a)[0]
	*a = (*a)[1:]
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v.(string)
}

func (a *scriptArgs) number() int {
	n, err := strconv.Atoi(a.text())
	if err != nil {
		panic(err)
	}
	return n
}

func (w *slotKeeper) Answer(args []any) any {
	orders.At(orders.Store, unsafe.Pointer(w))
	a := scriptArgs(args)
	a.text() // the clock
	reply := []any{int64(1)}
	for range a.number() {
		kind := a.text()
		if strings.HasPrefix(kind, "+") {
			reply = append(reply, w.take(&a)...)
		} else {
			reply = append(reply, w.settle(&a))
		}
	}
	return reply
}

func (w *slotKeeper) take(a *scriptArgs) []any {
	entries := a.number()
	a.text() // keys: there is one
	a.text() // runs: decisions are made one after the other
	times, leases := a.text(), a.text()
	for range 4 { // of the limit
		a.text()
	}
	total, found := int64(0), []any{}
	for i := range entries {
		n := 1
		if times != "" {
			n = int(binary.BigEndian.Uint16([]byte(times[2*i:])))
		}
		found = append(found, strconv.Itoa(len(w.slots)))
		for range n {
			id := store.LeaseID([]byte(leases[:16]))
			leases = leases[16:]
			if len(w.slots) < w.units {
				w.slots[id] = true
				w.held[id] = int64(len(w.slots))
				total++
			}
		}
	}
	if leases != "" {
		w.Broken("%d leases too many", len(leases)/16)
	}
	orders.Note("the server: %d decisions in %d, %d granted", len(found), entries, total)
	return append([]any{total}, found...)
}

func (w *slotKeeper) settle(a *scriptArgs) any {
	a.number() // the key
	if cost := a.number(); cost != 0 {
		w.Broken("a release has a cost of %d", cost)
	}
	for range 3 { // of the receipt
		a.text()
	}
	leases := a.text()
	for range 5 { // no reset, and of the limit
		a.text()
	}
	answer := strconv.Itoa(len(w.slots))
	for ; leases != ""; leases = leases[16:] {
		id := store.LeaseID([]byte(leases[:16]))
		delete(w.slots, id)
		w.freed[id] = int64(len(w.slots))
		answer += "|" + strconv.Itoa(len(w.slots))
	}
	orders.Note("the server: releases, %s", answer)
	return answer
}

func (w *slotKeeper) Remove(leases []any) any {
	orders.At(orders.Store, unsafe.Pointer(w))
	for _, id := range leases {
		delete(w.slots, store.LeaseID(id.([]byte)))
	}
	orders.Note("the server: removes %d leases", len(leases))
	return int64(len(leases))
}

// sharing is a set of callers that take slots of one key.
type sharing struct {
	queues
	units  int
	actors []string // what each does
}

func (x sharing) String() string {
	return fmt.Sprintf("%+v, %d slots: %s", x.queues, x.units, strings.Join(x.actors, " | "))
}

func (x sharing) scenario(newStore func(thereScripts, queues) slotted) func(*orders.Run) {
	l, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: int64(x.units)})
	if err != nil {
		panic(err)
	}
	return func(r *orders.Run) {
		r.Freeze()
		w := &slotKeeper{Run: r, units: x.units, slots: map[store.LeaseID]bool{}, held: map[store.LeaseID]int64{}, freed: map[store.LeaseID]int64{}}
		s := newStore(w, x.queues)
		owned := map[store.LeaseID]bool{} // by a caller that has been told so
		for i, does := range x.actors {
			does, leaves := strings.CutSuffix(does, " and leave")
			name, ctx := string(rune('A'+i)), context.Background()
			if leaves {
				some, end := ending.WithCancel(ctx)
				ctx = some
				r.Go("end "+name, end)
			}
			u := &slotUser{slotKeeper: w, store: s, limit: l, ctx: ctx, owned: owned}
			if rest, holds := strings.CutPrefix(does, "hold; "); holds {
				does = rest
				u.lease = store.Lease(uint64(i + 1))
				w.slots[u.lease], owned[u.lease] = true, true
			}
			r.Go(name, func() {
				for what := range strings.SplitSeq(does, "; ") {
					u.do(what)
				}
			})
		}
		r.End(func() {
			if left := s.Left(); left != "" {
				w.Broken("in the end: %s", left)
			}
			if len(w.slots) != len(owned) {
				w.Broken("%d slots are taken in the end, and callers have %d", len(w.slots), len(owned))
			}
		})
	}
}

// slotUser does one thing after the other. Who holds has a slot from the beginning.
type slotUser struct {
	*slotKeeper
	store slotted
	limit *store.Limit
	ctx   context.Context
	owned map[store.LeaseID]bool
	lease store.LeaseID // of the last slot that it has taken
}

func (u *slotUser) do(what string) {
	charges, results := []store.Charge{{Key: "k", Limit: u.limit, Cost: 1}}, make([]store.Result, 1)
	switch what {
	case "take":
		err := u.store.Take(u.ctx, charges, results)
		r, id := results[0], results[0].Receipt.Lease
		switch {
		case err != nil:
			if u.ctx == context.Background() {
				u.Broken("a Take fails: %v", err)
			}
		case !r.OK:
			if r.Held != int64(u.units) {
				u.Broken("a slot is denied while %d are held", r.Held)
			}
		case u.owned[id] || !u.slots[id]:
			u.Broken("a lease is given to two callers, or not in the server")
		case r.Held != u.held[id]:
			u.Broken("%d slots are held, and the caller is told %d", u.held[id], r.Held)
		default:
			u.owned[id], u.lease = true, id
		}
	case "release", "remove":
		if u.lease == (store.LeaseID{}) {
			return
		}
		delete(u.owned, u.lease)
		charges[0].Cost, charges[0].Receipt = 0, store.Receipt{Cost: 1, Lease: u.lease}
		if what == "remove" {
			charges[0].Receipt.Path = removed
		}
		if err := u.store.Settle(u.ctx, charges, results); err != nil {
			u.Broken("a release fails: %v", err)
		}
		if u.slots[u.lease] {
			u.Broken("a caller has its answer, and its slot isn't free")
		}
		if what == "release" && results[0].Held != u.freed[u.lease] {
			u.Broken("%d slots are held after a release, and the caller is told %d", u.freed[u.lease], results[0].Held)
		}
	default:
		panic(what)
	}
}

var ofSlots = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Below:   append(below[:len(below):len(below)], "internal/wire"),
	Added:   map[string]string{"slotted.go": slottedFile, leftIn: leftFile},
	Edits:   scriptsThere,
	Mutants: slotsMutants,
	Into:    "slottedVariants",
	Entry:   slottedEntry,
}

// Whatever decisions on slots of one key, and releases, come together: each caller is told what
// was decided for it, its lease is its own, and its slot is free when its release is answered.
func TestEveryOrderOfSlots(t *testing.T) {
	if len(slottedVariants) == 0 {
		explorations.Run(t)
		return
	}
	var sharings []sharing
	for _, q := range []queues{{direct: true, inFlight: 1, size: 4}, {inFlight: 1, size: 4}} {
		sharings = append(sharings,
			sharing{q, 1, []string{"take", "take", "take"}},
			sharing{q, 2, []string{"take", "take", "take"}},
			sharing{q, 3, []string{"take", "take", "take"}},
			sharing{q, 3, []string{"hold; release", "hold; release", "hold; release"}},
			sharing{q, 2, []string{"hold; release; release", "hold; release"}},
			sharing{q, 1, []string{"hold; release; take", "take"}},
			sharing{q, 3, []string{"hold; remove", "hold; remove", "hold; remove"}},
			sharing{q, 3, []string{"hold; remove", "hold; release", "hold; remove"}},
			sharing{q, 1, []string{"hold; remove; take", "take"}},
			sharing{q, 1, []string{"take and leave", "take"}},
		)
	}
	orders.Explore(t, slotsMutants, sharings, func(variant string, x sharing) func(*orders.Run) {
		return x.scenario(slottedVariants[variant])
	})
}

var slotsMutants = []orders.Variant{
	{Name: "the leases of a group are in another order", Edits: []orders.Edit{{File: "internal/wire/take.go",
		Was: "		for _, d := range e.decisions {\n			for j := range d.Charges {", Is: "		for k := range e.decisions {\n			d := e.decisions[len(e.decisions)-1-k]\n			for j := range d.Charges {"}}},
	{Name: "a group has the lease of its first decision", Edits: []orders.Edit{{File: "internal/wire/take.go",
		Was: "ids = append(ids, d.Leases[j][:]...)", Is: "ids = append(ids, e.decisions[0].Leases[j][:]...)"}}},
	{Name: "all of a group are told what the first is", Edits: []orders.Edit{{File: "internal/wire/take.go",
		Was: "			if d.decide(now, states); d.Granted {\n", Is: "			as := append([]store.State(nil), states...)\n			if d.decide(now, as); d.Granted {\n"}}},
	{Name: "of releases only the first is made", Edits: []orders.Edit{{File: "internal/wire/settle.go",
		Was: "		for _, s := range group[1:] {\n", Is: "		for _, s := range group[:0] {\n"}}},
	{Name: "of leases that are removed only the first is", Edits: []orders.Edit{{File: "settlerequest.go",
		Was: "			r.args = append(r.args, c.Body.charges[i].Receipt.Lease[:])\n", Is: "			if r.args = append(r.args, c.Body.charges[i].Receipt.Lease[:]); known {\n				r.args = r.args[:3]\n			}\n"}}},
	{Name: "beside a script, no leases are removed", Edits: []orders.Edit{{File: "settlerequest.go",
		Was: "		commands = append(commands, command{args: removals[i].args})\n", Is: "		if args := removals[i].args; len(rounds) == 0 {\n			commands = append(commands, command{args: args})\n		} else {\n			commands = append(commands, command{args: args[:2]})\n		}\n"}}},
	{Name: "releases are told what the last of them is", Edits: []orders.Edit{{File: "internal/wire/settle.go",
		Was: "		after, left, _ = strings.Cut(left, \"|\")\n", Is: "		after = left[strings.LastIndex(left, \"|\")+1:]\n"}}},
	{Name: "a release is answered before it is made", Edits: []orders.Edit{{File: "settle.go",
		Was: "reusable, err := s.settles.Do(ctx, call)", Is: "go func() { s.settles.Do(ctx, call) }()\n		reusable, err := false, error(nil)"}}},
}
