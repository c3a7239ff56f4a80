package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// leased is a store whose leases are explored.
type leased interface {
	store.Store
	store.Resetter
	Close() error
	// Held is how many leases are renewed, and Renewing whether anybody does it.
	Held() (leases int, renewing bool)
}

// thereSlots is the server of a leased store.
type thereSlots interface {
	Take(id store.LeaseID) (now int64)
	Release(id store.LeaseID)
	// Renew returns the leases that were lost, what has been done about each, and whether the
	// call is answered, denied or lost.
	Renew(ids []store.LeaseID, seen []int64, until int64) (now int64, lost []store.LeaseID, done []string, outcome string)
	Reset() (answered bool)
	Lost(key string)
}

var leasedVariants = map[string]func(thereSlots) leased{}

const leasedFile = `package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

type Slots interface {
	Take(id store.LeaseID) (now int64)
	Release(id store.LeaseID)
	Renew(ids []store.LeaseID, seen []int64, until int64) (now int64, lost []store.LeaseID, done []string, outcome string)
	Reset() (answered bool)
	Lost(key string)
}

type Leased struct {
	*Store
	told *store.Observer
}

func (s Leased) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	for i := range charges {
		charges[i].Observer = s.told
	}
	return s.Store.Take(ctx, charges, results)
}

var there Slots

func ExploreLeases(w Slots) Leased {
	there = w
	s := New(nil)
	s.wrong = nil
	return Leased{s, &store.Observer{Tell: func(n store.Notice) { w.Lost(n.Key) }}}
}

func (s *Store) decided(t *batch.Call[takeRequest]) (reusable bool, err error) {
	d := &t.Body.Decision
	t.Since = time.Now()
	t.Body.decided = there.Take(d.Leases[0])
	s.recordClock(t.Body.decided)
	d.Results[0], d.Granted = store.Result{OK: true, Receipt: store.Receipt{Cost: 1, Lease: d.Leases[0]}}, true
	return true, nil
}

func (s *Store) released(t *batch.Call[settleRequest]) error {
	for i := range t.Body.charges {
		there.Release(t.Body.charges[i].Receipt.Lease)
		t.Body.results[i] = store.Result{OK: true}
	}
	return nil
}

func (r *renewals) releaseThere(commands []command) {
	for i := range commands {
		for _, id := range commands[i].args[2:] {
			there.Release(store.LeaseID(id.([]byte)))
		}
	}
}

func (r *renewals) renewThere(ctx context.Context, calls []*renewal, commands []command) {
	for i, c := range calls {
		commands[i].cmd = redis.NewCmd(ctx)
		var ids []store.LeaseID
		var seen []int64
		var at []int
		for k := range c.Keys {
			for _, l := range c.Leases[k] {
				ids, seen, at = append(ids, l.ID), append(seen, l.Seen), append(at, k)
			}
		}
		args := commands[i].args
		until, err := strconv.ParseInt(args[3+args[2].(int)+2].(string), 10, 64)
		if err != nil {
			panic(err)
		}
		now, lost, done, outcome := there.Renew(ids, seen, until)
		switch outcome {
		case "denied":
			commands[i].cmd.SetErr(ErrUnavailable)
			continue
		case "lost":
			commands[i].cmd.SetErr(ErrIndeterminate)
			continue
		}
		reply := []any{now}
		for j, id := range lost {
			for k := range ids {
				if ids[k] == id {
					reply = append(reply, int64(at[k]+1), string(id[:]), done[j])
				}
			}
		}
		commands[i].cmd.SetVal(reply)
	}
}

func (x Leased) Held() (leases int, renewing bool) {
	for _, h := range x.leases.byKey {
		leases += len(h.leases)
	}
	return leases, x.leases.stopped != nil
}
`

// renewedThere has what asks the server ask the one of the test.
var renewedThere = []orders.Edit{
	{File: "renewal.go", Was: "	r.server.exec(ctx, commands)\n	calls, commands = r.separate(ctx, times, calls, commands)\n", Is: "	r.renewThere(ctx, calls, commands)\n"},
	{File: "renewal.go", Was: "			r.server.exec(ctx, commands)\n", Is: "			r.releaseThere(commands)\n"},
	{File: "settle.go", Was: "reusable, err := s.settles.Do(ctx, call)", Is: "reusable, err := true, s.released(call)"},
	{File: "take.go", Was: "s.takes.Do(ctx, call)", Is: "s.decided(call)"},
	{File: "reset.go", Was: "context.WithTimeout(ctx, s.timeout)", Is: "ctx, func() {}"},
	{File: "reset.go", Was: "	go func() {\n		found, err := s.execAll(due, commands)\n		done <- answer{found, err}\n	}()\n", Is: "	if there.Reset() {\n		done <- answer{}\n	} else {\n		done <- answer{err: ErrUnavailable}\n	}\n	_ = commands\n"},
}

const leaseTime = 15 * time.Second

// slotServer is the server: the leases that it has, and when they end.
type slotServer struct {
	*orders.Run
	ends     map[store.LeaseID]int64
	renewals []string               // the outcome of each; the last is that of all others
	came     int                    // renewals
	taken    []store.LeaseID        // in their order
	given    map[store.LeaseID]bool // to callers
	released map[store.LeaseID]bool
	reset    map[store.LeaseID]bool // were taken before it
	ended    map[store.LeaseID]bool // said to be reset
	mark     int64                  // when the last reset was
	said     int                    // how often a lease was said to be lost that hasn't been released
	told     int
	closed   int64 // from when on nothing may be renewed; 0: it may
	over     bool  // Close has returned

	lasting bool // what is held lasts
	telling bool // what is lost is told
	quiet   bool // nothing is
	vain    bool // resets are
}

func (w *slotServer) now() int64 { return orders.AtTime(unsafe.Pointer(w)) }

func (w *slotServer) Take(id store.LeaseID) int64 {
	now := w.now()
	w.ends[id] = now + leaseTime.Microseconds()
	w.taken = append(w.taken, id)
	orders.Note("the server: a lease, %d in all", len(w.ends))
	return now
}

func (w *slotServer) Release(id store.LeaseID) {
	w.now()
	delete(w.ends, id)
	w.released[id] = true
	orders.Note("the server: released, %d left", len(w.ends))
}

func (w *slotServer) Reset() (answered bool) {
	now := w.now()
	orders.Note("the server: reset, in vain: %t", w.vain)
	if !w.vain {
		clear(w.ends)
		w.mark = now
		for _, id := range w.taken {
			w.reset[id] = true
		}
	}
	return !w.vain
}

// flush is a FLUSHALL.
func (w *slotServer) flush() {
	w.now()
	orders.Note("the server: flushed")
	clear(w.ends)
}

func (w *slotServer) Renew(ids []store.LeaseID, seen []int64, until int64) (now int64, lost []store.LeaseID, done []string, outcome string) {
	does := w.renewals[min(w.came, len(w.renewals)-1)]
	w.came++
	switch does {
	case "denied":
		w.now()
		return 0, nil, nil, "denied"
	case "late", "later": // the connection is lost, and the call executed
		lang.Go(func() {
			if does == "later" {
				lang.Receive(twin.After(3 * time.Second))
			}
			w.renew(ids, seen, until, does)
		})
		return 0, nil, nil, "lost"
	}
	now, lost, done = w.renew(ids, seen, until, does)
	return now, lost, done, does
}

// renew does what renew.lua does.
func (w *slotServer) renew(ids []store.LeaseID, seen []int64, until int64, does string) (now int64, lost []store.LeaseID, done []string) {
	now = w.now()
	if w.closed != 0 && now >= w.closed && does == "answered" {
		w.Broken("a closed store renews")
	}
	orders.Note("renewal %d of %d: %s", w.came, len(ids), does)
	for _, id := range w.taken {
		i := slices.Index(ids, id)
		if i < 0 {
			continue
		}
		if end, has := w.ends[id]; has && end >= now {
			w.ends[id] = now + leaseTime.Microseconds()
			continue
		}
		delete(w.ends, id)
		what := "entered"
		switch {
		case w.mark > 0 && seen[i] <= w.mark:
			what = "reset"
			if w.ended[id] && does == "answered" {
				w.Broken("a lease is renewed that was said to be reset")
			}
			w.ended[id] = does == "answered"
		case now > until:
			what = "late"
		default:
			if w.reset[id] {
				w.Broken("a lease is entered that was reset")
			}
			if w.over {
				w.Broken("a closed store enters a lease")
			}
			w.ends[id] = now + leaseTime.Microseconds()
		}
		if !w.released[id] && does == "answered" && what != "late" {
			w.said++
		}
		lost, done = append(lost, id), append(done, what)
	}
	orders.Note("the server: lost are %d, %v", len(lost), done)
	return now, lost, done
}

func (w *slotServer) Lost(string) {
	w.told++
	orders.Note("told that a lease is lost")
}

// handling is a set of concurrent actions on leases.
type handling struct {
	renewals []string
	actors   []string
}

func (x handling) String() string {
	return fmt.Sprintf("renewals %s: %s", strings.Join(x.renewals, ", "), strings.Join(x.actors, " | "))
}

// things is how many things are done.
func (x handling) things() int { return strings.Count(strings.Join(x.actors, ";"), ";") }

var slotLimit = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 9})
	if err != nil {
		panic(err)
	}
	return l
}()

func (x handling) scenario(newStore func(thereSlots) leased) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		all := strings.ReplaceAll(strings.Join(x.actors, "; "), "reset in vain", "")
		w := &slotServer{
			Run: r, ends: map[store.LeaseID]int64{}, renewals: x.renewals,
			given: map[store.LeaseID]bool{}, released: map[store.LeaseID]bool{}, reset: map[store.LeaseID]bool{}, ended: map[store.LeaseID]bool{},
			lasting: !strings.Contains(all, "reset") && !strings.Contains(all, "close"),
			quiet:   strings.Contains(all, "reset") && !strings.Contains(all, "reset elsewhere") && !strings.Contains(all, "flush"), // who resets a key knows
			telling: strings.Contains(all, "reset elsewhere") || !strings.Contains(all, "reset") && !strings.Contains(all, "close"),
		}
		s := newStore(w)
		for i, does := range x.actors {
			h := &holder{slotServer: w, store: s, ctx: context.Background()}
			r.Go(string(rune('A'+i)), func() {
				for what := range strings.SplitSeq(does, "; ") {
					h.do(what)
				}
			})
		}
		r.End(func() {
			if leases, renewing := s.Held(); leases > 0 || renewing {
				w.Broken("%d leases are held in the end, renewed: %t", leases, renewing)
			}
			if len(w.ends) > 0 {
				w.Broken("the server has %d leases in the end", len(w.ends))
			}
			if w.told > w.said || w.quiet && w.told > 0 {
				w.Broken("leases are lost %d times, and it is told %d times", w.said, w.told)
			}
		})
	}
}

// holder does one thing after the other.
type holder struct {
	*slotServer
	store leased
	ctx   context.Context
	lease store.Receipt
	held  bool // for a time in which it is renewed
}

func (h *holder) do(what string) {
	charges, results := []store.Charge{{Key: "k", Limit: slotLimit, Cost: 1}}, make([]store.Result, 1)
	var err error
	switch what {
	case "take":
		if h.store.Take(h.ctx, charges, results) == nil {
			h.lease = results[0].Receipt
			h.given[h.lease.Lease] = true
		}
	case "hold":
		lang.Receive(twin.After(17 * time.Second))
		h.held = true
	case "wait":
		lang.Receive(twin.After(5 * time.Second))
	case "settle":
		h.look()
		charges[0].Cost, charges[0].Receipt = 0, h.lease
		err = h.store.Settle(h.ctx, charges, results)
		h.held = false
	case "flush":
		h.flush()
	case "reset elsewhere": // by another process
		h.Reset()
	case "reset in vain":
		h.vain = true
		if _, err := h.store.Reset(h.ctx, "k", slotLimit); err == nil {
			h.Broken("a Reset that fails says nothing")
		}
	case "reset":
		_, err = h.store.Reset(h.ctx, "k", slotLimit)
	case "close":
		before := maps.Clone(h.given)
		err = h.store.Close()
		h.closed = h.now() + 1 // what was on its way may arrive
		h.over = true
		for id := range before {
			if _, has := h.ends[id]; has {
				h.Broken("a closed store holds a lease")
			}
		}
	default:
		panic(what)
	}
	if err != nil {
		h.Broken("%s: %v", what, err)
	}
}

// look says whether a lease that is held has been kept, or entered again, and its loss been told.
func (h *holder) look() {
	end, has := h.ends[h.lease.Lease]
	if h.lasting && h.held && (!has || end < h.now()) {
		h.Broken("a lease that is held has run out")
	}
	if h.telling && h.held && h.told != h.said {
		h.Broken("leases that are held are lost %d times, and it has been told %d times", h.said, h.told)
	}
}

var ofLeases = &orders.Elsewhere{
	Path:    "github.com/stint-go/stint/store/redisstore",
	Added:   map[string]string{"leased.go": leasedFile},
	Edits:   renewedThere,
	Mutants: leasesMutants,
	Into:    "leasedVariants",
	Entry:   "func(there thereSlots) leased { return V.ExploreLeases(there) }",
}

// Whatever callers do with leases, and whatever becomes of renewals: a lease that is held
// is kept while the server answers, and entered again if it is lost; its loss is told once, and to
// no holder that has released it; what is released or was reset never comes back, also by a
// renewal that is executed late; and nothing is renewed in the end.
func TestEveryOrderOfLeases(t *testing.T) {
	if len(leasedVariants) == 0 {
		explorations.Run(t)
		return
	}
	var handlings []handling
	handle := func(renewals string, actors ...string) {
		handlings = append(handlings, handling{strings.Split(renewals, "; "), actors})
	}
	for _, renewals := range []string{"answered", "denied; answered", "lost; answered"} {
		handle(renewals, "take; hold; settle")
		handle(renewals, "take; hold; settle", "take; wait; settle")
		handle(renewals, "take; settle; wait; take; hold; settle")
		handle(renewals, "take; hold; settle", "flush")
		handle(renewals, "take; hold; settle", "wait; flush")
		handle(renewals, "take; wait; settle", "take; wait; settle", "wait; flush")
		handle(renewals, "take; hold; settle", "wait; reset")
		handle(renewals, "take; hold; settle", "wait; reset in vain")
		handle(renewals, "take; hold; settle", "wait; close")
	}
	for _, renewals := range []string{"answered", "lost; answered", "late; answered", "later; answered", "later; late; answered"} {
		handle(renewals, "take; wait; settle", "flush")
		handle(renewals, "take; wait; settle", "wait; flush")
		handle(renewals, "take; wait; wait; settle", "wait; flush; wait; flush")
		handle(renewals, "take; hold; settle", "wait; flush; wait; reset elsewhere")
		handle(renewals, "take; hold; settle", "wait; reset elsewhere")
		handle(renewals, "take; wait; settle", "wait; reset")
	}
	handle("later; later; answered", "take; hold; settle", "flush; wait; wait; reset elsewhere")
	handle("answered", "take; hold; settle", "wait; close", "flush")
	handle("answered", "take; settle", "close")
	handle("answered", "close; take; hold; settle")
	slices.SortStableFunc(handlings, func(a, b handling) int { return a.things() - b.things() }) // mutants are found sooner
	orders.Explore(t, leasesMutants, handlings, func(variant string, x handling) func(*orders.Run) {
		return x.scenario(leasedVariants[variant])
	})
}

var leasesMutants = []orders.Variant{
	{Name: "the renewal ends in two steps", Edits: []orders.Edit{{File: "leases.go",
		Was: "	l.stopped = nil\n	return true\n", Is: "	l.mu.Unlock()\n	l.mu.Lock()\n	l.stopped = nil\n	return true\n"}}},
	{Name: "what was reset is renewed again", Edits: []orders.Edit{{File: "leases.go",
		Was: "	if !entered {\n		l.remove(h, id)\n	}\n", Is: ""}}},
	{Name: "what is entered again isn't renewed", Edits: []orders.Edit{{File: "leases.go",
		Was: "	if !entered {\n		l.remove(h, id)\n	}\n", Is: "	l.remove(h, id)\n"}}},
	{Name: "what is entered after its release stays", Edits: []orders.Edit{{File: "renewal.go",
		Was: "	r.releaseAgain(o.entered)\n", Is: ""}}},
	{Name: "what a renewal without an answer enters stays", Edits: []orders.Edit{{File: "renewal.go",
		Was: "	r.releaseAgain(o.uncertain)\n", Is: ""}}},
	{Name: "a renewal without an answer isn't waited for", Edits: []orders.Edit{{File: "renewal.go",
		Was: "		case <-ctx.Done():\n		case <-r.closed:\n		}\n	}\n	r.r", Is: "		default:\n		}\n	}\n	r.r"}}},
	{Name: "leases are entered however late", Edits: []orders.Edit{{File: "renewal.go",
		Was: "times.Wall+r.timeout().Microseconds()", Is: "times.Wall+1<<40"}}},
	{Name: "the server is taken to have had leases later", Edits: []orders.Edit{{File: "leases.go",
		Was: "renewed.at, renewed.seen = at, now\n", Is: "renewed.at, renewed.seen = at, now+6_000_000\n"}}},
	{Name: "Close doesn't wait for a renewal", Edits: []orders.Edit{{File: "renewal.go",
		Was: "		r.leases.underWay.Wait() // a renewal must not come after the release\n", Is: ""}}},
	{Name: "what has been released meanwhile is held again", Edits: []orders.Edit{{File: "leases.go",
		Was: "if renewed, held := h.leases[id]; held {", Is: "if renewed, held := h.leases[id]; held || true {"}}},
	{Name: "a release goes on being renewed", Edits: []orders.Edit{{File: "settle.go",
		Was: "	case releases(c):", Is: "	case releases(c) && c.Cost < 0:"}}},
	{Name: "a reset goes on being renewed", Edits: []orders.Edit{{File: "reset.go",
		Was: "	endReset(err == nil)\n", Is: "	endReset(false)\n"}}},
	{Name: "a reset that fails ends the renewal", Edits: []orders.Edit{{File: "reset.go",
		Was: "	endReset(err == nil)\n", Is: "	endReset(true)\n"}}},
	{Name: "who resets is told that leases are gone", Edits: []orders.Edit{{File: "leases.go",
		Was: "	if h == nil || h.resets > 0 {\n", Is: "	if h == nil {\n"}}},
	{Name: "a renewal that failed isn't made sooner again", Edits: []orders.Edit{{File: "renewal.go",
		Was: "			next = ttl / 12\n", Is: "			next = ttl\n"}}},
	{Name: "the renewal doesn't end with the store", Edits: []orders.Edit{{File: "leases.go",
		Was: "		close(l.stopped)\n", Is: ""}}},
	{Name: "Close releases no slots", Edits: []orders.Edit{{File: "leases.go",
		Was: "			held = append(held, heldLease{key, h.release(id, one.limit), one.several})\n", Is: "			_, _, _ = key, id, one\n"}}},
	{Name: "Close doesn't wait for its releases", Edits: []orders.Edit{{File: "redisstore.go",
		Was: "	<-released\n", Is: "	_ = released\n"}}},
	{Name: "leases of a closed store are renewed", Edits: []orders.Edit{{File: "leases.go",
		Was: "l.stopped == nil && !l.closed", Is: "l.stopped == nil"}}},
}
