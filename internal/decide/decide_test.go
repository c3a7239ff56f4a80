package decide_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

var (
	errDown  = errors.New("down")
	errPanic = errors.New("a panic")
)

// before passes a call on behind f.
func before(f func() error) func(*storefake.Call) error {
	return func(c *storefake.Call) error {
		if err := f(); err != nil {
			return err
		}
		return c.Pass()
	}
}

// bench is a backend over a store that a test may break, with a rate of ten and four slots.
type bench struct {
	*decide.Backend
	memory      *memstore.Store
	store       *storefake.Store // before it
	rate, slots *limit.Limit
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{memory: memstore.New(), Backend: new(decide.Backend)}
	b.store = &storefake.Store{Store: b.memory, AtOnce: true}
	b.Store, b.Lines = b.store, new(lines.Lines)
	b.Keys = adaptive.NewKeys(func(string, string) {})
	b.Local = b.Keys.Over(b.Store)
	b.Current = func(l *limit.Limit) *limit.Limit { return l }
	b.rate = &limit.Limit{StoreLimit: newLimit(t, store.Spec{Name: "rate", Units: 10, Period: time.Hour})}
	b.slots = &limit.Limit{
		StoreLimit: newLimit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 4}),
		Kind:       limit.Concurrent, Needs: limit.Slots | limit.Releases,
		Wait: limit.Wait{For: limit.ForSlot, Slots: func(c *store.Charge) int64 { return c.Limit.Spec().Units }, Shares: func() *lines.Shares { return nil }},
	}
	return b
}

func newLimit(t *testing.T, s store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// call returns a call of three units and a slot of a key.
func (b *bench) call() *decide.Call {
	c := new(decide.Call)
	c.Init(func(context.Context) int { return 0 }, nil, func(int, int64, time.Duration) {})
	c.By(b.Backend)
	c.Add(b.rate, "key", 3)
	c.Add(b.slots, "key", 1)
	return c
}

// used returns what is used of the rate and of the slots, in the store and as counted in the
// lines: "3 1 1".
func (b *bench) used(t *testing.T) string {
	t.Helper()
	b.store.OnTake = nil
	results := make([]store.Result, 2)
	if err := b.store.Take(t.Context(), []store.Charge{{Key: "key", Limit: b.rate.StoreLimit}, {Key: "key", Limit: b.slots.StoreLimit}}, results); err != nil {
		t.Fatal(err)
	}
	_, _, counted := b.Lines.Counts()
	return fmt.Sprint(10-results[0].Remaining, results[1].Held, counted)
}

// What was granted has one owner at a time, which gives it back unless it was spent.
func TestOneOwner(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, b *bench, c *decide.Call)
		used string
	}{
		{"granted, and not handed over", func(t *testing.T, b *bench, c *decide.Call) {}, "0 0 0"},
		{"left charged", func(t *testing.T, b *bench, c *decide.Call) { c.LeaveCharged() }, "3 1 1"},
		{"handed over, and still in use", func(t *testing.T, b *bench, c *decide.Call) {
			c.HandTo(new(decide.Grants))
		}, "3 1 1"},
		{"handed over, and ended", func(t *testing.T, b *bench, c *decide.Call) {
			gs := new(decide.Grants)
			c.HandTo(gs)
			gs.ReleaseLocally(b.Backend, 0, false, nil)
			gs.End(t.Context(), b.Backend, decide.Ending{Leases: true}, func(decide.Settlement) {})
		}, "3 0 0"},
		{"handed over, and settled", func(t *testing.T, b *bench, c *decide.Call) {
			gs, handler := new(decide.Grants), new(decide.HandlerSettled)
			c.HandTo(gs)
			if s := gs.Settle(t.Context(), b.Backend, []decide.Amend{{Grant: 0, Cost: 1}}, false, handler); s.Err != nil || !s.Amended {
				t.Errorf("settled: %+v", s)
			}
			// What the handler has settled itself stays.
			gs.ReleaseLocally(b.Backend, 0, false, nil)
			gs.End(t.Context(), b.Backend, decide.Ending{Leases: true, Amends: []decide.Amend{{Grant: 0, Cost: 9}}, HandlerSettled: handler}, func(s decide.Settlement) {
				if s.Amended {
					t.Error("a charge that the handler has settled is settled again")
				}
			})
		}, "1 0 0"},
		{"handed over, and amended", func(t *testing.T, b *bench, c *decide.Call) {
			gs := new(decide.Grants)
			c.HandTo(gs)
			gs.ReleaseLocally(b.Backend, 0, false, nil)
			gs.End(t.Context(), b.Backend, decide.Ending{Leases: true, Amends: []decide.Amend{{Grant: 0, Cost: 7}}}, func(s decide.Settlement) {
				if !s.Amended || len(s.Charges) != 2 {
					t.Errorf("amended: %+v", s)
				}
			})
		}, "7 0 0"},
		{"given back twice", func(t *testing.T, b *bench, c *decide.Call) {
			if s := c.Undo(t.Context()); len(s.Charges) != 2 {
				t.Errorf("%d charges given back, want 2", len(s.Charges))
			}
			if s := c.Undo(t.Context()); len(s.Charges) != 0 {
				t.Error("given back again")
			}
		}, "0 0 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			c := b.call()
			if err := c.Decide(t.Context()); err != nil || !c.Allowed || !c.Owns() {
				t.Fatalf("%v, allowed %v, owned %v", err, c.Allowed, c.Owns())
			}
			if got := b.used(t); got != "3 1 1" {
				t.Fatalf("%s are used by a granted call", got)
			}
			test.do(t, b, c)
			c.Undo(t.Context())
			if c.Owns() {
				t.Error("owned after it was given back")
			}
			if got := b.used(t); got != test.used {
				t.Errorf("%s are used, want %s", got, test.used)
			}
		})
	}
}

// A call that may have to wait for a turn asks the store once, whatever the answer is, and
// begins to wait only if it has to. If its caller leaves, its turn stays the line's, and passes
// unused if no call waits for it.
func TestMayWait(t *testing.T) {
	for _, test := range []struct {
		name           string
		used, cost     int64
		leaves         bool // while the store is asked
		allowed, begun bool
		waited         time.Duration
		left           string
	}{
		{"passes", 9, 1, false, true, false, 0, "10 0 0"},
		{"waits", 10, 1, false, true, true, 6 * time.Minute, "10 0 0"}, // a tenth of an hour later
		{"would wait for too long", 10, 3, false, false, false, 0, "10 0 0"},
		{"passes, and has left", 7, 2, true, true, false, 0, "6 0 0"},       // one has come since
		{"has a turn, and has left", 10, 1, true, false, true, 0, "10 0 0"}, // its turn has used the one
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.rate.Needs, b.rate.Wait = limit.Waits, limit.Wait{MaxWait: 15 * time.Minute}
				call := func(ctx context.Context, cost int64) (*decide.Call, error) {
					c := new(decide.Call)
					c.Init(func(context.Context) int { return 0 }, nil, func(int, int64, time.Duration) {})
					c.By(b.Backend)
					c.Add(b.rate, "key", cost)
					return c, c.Decide(ctx)
				}
				if c, err := call(t.Context(), test.used); err != nil || !c.Allowed {
					t.Fatal(err)
				} else {
					c.LeaveCharged()
				}
				asked := 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b.store.OnTake = func(call *storefake.Call) error {
					err := call.Pass()
					if asked++; test.leaves {
						cancel()
					}
					return err
				}
				c, err := call(ctx, test.cost)
				if canceled := (*decide.Canceled)(nil); errors.As(err, &canceled) != test.leaves || !test.leaves && err != nil {
					t.Errorf("the error is %v", err)
				}
				if asked != 1 || c.Allowed != test.allowed || c.Owns() != test.allowed || c.Waited != test.waited || c.BeganWaiting != test.begun {
					t.Errorf("asked %d times, allowed %v, owned %v, waited %v, begun %v", asked, c.Allowed, c.Owns(), c.Waited, c.BeganWaiting)
				}
				if test.leaves {
					c.Undo(t.Context())
					time.Sleep(6 * time.Minute)
				} else {
					c.LeaveCharged()
				}
				synctest.Wait()
				if waiting, n, _ := b.Lines.Counts(); waiting+n > 0 {
					t.Errorf("%d wait in %d lines when the turn has passed", waiting, n)
				}
				if got := b.used(t); got != test.left {
					t.Errorf("%s are used, want %s", got, test.left)
				}
			})
		})
	}
}

// A call that isn't granted owns nothing, and says why.
func TestNotGranted(t *testing.T) {
	fails := func() error { return errDown }
	for _, test := range []struct {
		name  string
		begin func(b *bench, c *decide.Call) context.Context
		err   string
	}{
		{"denied", func(b *bench, c *decide.Call) context.Context {
			c.Charges[0].Cost = 11
			return context.Background()
		}, "<nil>"},
		{"context ended", func(b *bench, c *decide.Call) context.Context {
			ctx, stop := context.WithCancel(context.Background())
			stop()
			return ctx
		}, "*decide.Canceled"},
		{"store down, open", func(b *bench, c *decide.Call) context.Context {
			b.store.OnTake = before(fails)
			return context.Background()
		}, "*decide.Failed false"},
		{"store down, closed", func(b *bench, c *decide.Call) context.Context {
			b.rate.Closed, b.store.OnTake = true, before(fails)
			return context.Background()
		}, "*decide.Failed true"},
		{"store down as the client leaves", func(b *bench, c *decide.Call) context.Context {
			ctx, stop := context.WithCancel(context.Background())
			b.store.OnTake = before(func() error { stop(); return errDown })
			return ctx
		}, "*decide.Canceled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			c := b.call()
			err := c.Decide(test.begin(b, c))
			got := fmt.Sprintf("%T", err)
			if failed := (*decide.Failed)(nil); errors.As(err, &failed) {
				got = fmt.Sprintf("%s %v", got, failed.Closed)
			}
			if got != test.err {
				t.Errorf("the error is a %s, want %s", got, test.err)
			}
			if c.Allowed || c.Owns() {
				t.Errorf("allowed %v, owned %v", c.Allowed, c.Owns())
			}
			if used := b.used(t); used != "0 0 0" {
				t.Errorf("%s are used", used)
			}
		})
	}
}

// If a store panics instead of answering, the call owns nothing.
func TestStorePanics(t *testing.T) {
	b := newBench(t)
	c := b.call()
	b.store.OnTake = before(func() error { panic(errPanic) })
	func() {
		defer func() {
			if got := recover(); got != errPanic {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = c.Decide(t.Context())
	}()
	if c.Allowed || c.Owns() {
		t.Errorf("allowed %v, owned %v", c.Allowed, c.Owns())
	}
	if used := b.used(t); used != "0 0 0" {
		t.Errorf("%s are used", used)
	}
}

// Limits of this process decide alone while the store is down, and the call says what was
// lost.
func TestStoreDownBesideAdaptive(t *testing.T) {
	b := newBench(t)
	c := new(decide.Call)
	c.Init(func(context.Context) int { return 0 }, nil, func(int, int64, time.Duration) {})
	c.By(b.Backend)
	here := b.Keys.Limit(newLimit(t, store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: 10}),
		adaptive.Config{Algorithm: adaptive.Gradient2, Min: 1, Max: 10, Start: 5, Window: adaptive.DefaultWindow, Tolerance: adaptive.DefaultTolerance})
	c.Add(b.rate, "key", 3)
	c.Add(&limit.Limit{StoreLimit: here, Kind: limit.Adaptive, Needs: limit.Local | limit.Slots, Wait: b.slots.Wait}, "key", 1)
	c.Locally()
	b.store.OnTake = before(func() error { return errDown })
	if err := c.Decide(t.Context()); err != nil || !c.Allowed {
		t.Fatalf("%v, allowed %v", err, c.Allowed)
	}
	if c.Lost == nil || c.Lost.Err != errDown || len(c.Lost.Charges) != 2 {
		t.Errorf("lost %+v", c.Lost)
	}
	if len(c.Limits) != 1 || c.Limits[0].Kind != limit.Adaptive || b.Keys.Len() != 1 {
		t.Errorf("%d limits decided, %d keys in this process", len(c.Limits), b.Keys.Len())
	}
	if c.Undo(t.Context()); c.Owns() {
		t.Error("owned after it was given back")
	}
	if used := b.used(t); !strings.HasPrefix(used, "0 ") {
		t.Errorf("%s are used", used)
	}
}

// A charge with a settlement of unknown outcome isn't settled again, neither by the handler nor at the end. After a
// settlement that wasn't made it is.
func TestUnknownSettlement(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		again   bool // by the handler
		settles int
		used    string
	}{
		{"unknown", errDown, false, 2, "3 0 0"},
		{"not made", store.NotMade(errDown), true, 3, "1 0 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			c := b.call()
			if err := c.Decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			gs := new(decide.Grants)
			c.HandTo(gs)
			b.store.OnSettle = before(func() error { return test.err })
			if s := gs.Settle(t.Context(), b.Backend, []decide.Amend{{Grant: 0, Cost: 1}}, false, nil); !errors.Is(s.Err, errDown) || len(s.Charges) != 1 {
				t.Errorf("settled: %+v", s)
			}
			b.store.OnSettle = nil
			if s := gs.Settle(t.Context(), b.Backend, []decide.Amend{{Grant: 0, Cost: 1}}, false, nil); s.Amended != test.again {
				t.Errorf("settled again: %+v", s)
			}
			gs.ReleaseLocally(b.Backend, 0, false, nil)
			gs.End(t.Context(), b.Backend, decide.Ending{Leases: true, Amends: []decide.Amend{{Grant: 0, Cost: 1}}}, func(decide.Settlement) {})
			if _, settles := b.store.Counts(); settles != test.settles {
				t.Errorf("the store was asked %d times, want %d", settles, test.settles)
			}
			if used := b.used(t); used != test.used {
				t.Errorf("%s are used, want %s", used, test.used)
			}
			again := new(decide.Call)
			gs.Recall(again)
			if costs := []int64{again.Charges[0].Cost, again.Charges[1].Cost}; !slices.Equal(costs, []int64{map[bool]int64{true: 1, false: 3}[test.again], 1}) {
				t.Errorf("the grants say that they cost %v", costs)
			}
		})
	}
}

// A call whose store fails while it waits is decided without the store, and keeps its place in the line: before calls
// that arrived later.
func TestRankOutlivesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Keys = adaptive.NewKeys(func(name, key string) { b.Lines.Wake(lines.Key{Limit: name, Key: key, Decided: true}) })
		b.Local = b.Keys.Over(b.Store)
		here := b.Keys.Limit(newLimit(t, store.Spec{Name: "adaptive", Algorithm: store.Concurrency, Units: 1}),
			adaptive.Config{Algorithm: adaptive.Gradient2, Min: 1, Max: 1, Start: 1, Window: adaptive.DefaultWindow, Tolerance: adaptive.DefaultTolerance})
		local := &limit.Limit{StoreLimit: here, Kind: limit.Adaptive, Needs: limit.Local | limit.Slots, Wait: b.slots.Wait}
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		begin := func(name string, stored int64) *decide.Call {
			c := new(decide.Call)
			c.Init(func(context.Context) int { return 0 }, nil, func(int, int64, time.Duration) { note(name + " waits") })
			c.By(b.Backend)
			if stored > 0 {
				c.Add(b.slots, "key", stored)
			}
			c.Add(local, "key", 1)
			c.Locally()
			c.Patient = true
			return c
		}
		var down atomic.Bool
		b.store.OnTake = before(func() error {
			if down.Load() {
				return errDown
			}
			return nil
		})
		holder := begin("holder", 4)
		if err := holder.Decide(t.Context()); err != nil || !holder.Allowed {
			t.Fatalf("%v, allowed %v", err, holder.Allowed)
		}
		var wg sync.WaitGroup
		wait := func(name string, stored int64) {
			wg.Go(func() {
				c := begin(name, stored)
				if err := c.Decide(t.Context()); err != nil || !c.Allowed {
					t.Errorf("%s: %v, allowed %v", name, err, c.Allowed)
				}
				note(name)
				c.Undo(t.Context())
			})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		wait("first", 1)
		wait("second", 0)
		down.Store(true) // the first learns of it when it asks again
		time.Sleep(2 * time.Second)
		synctest.Wait()
		holder.Undo(t.Context())
		wg.Wait()
		if want := []string{"first waits", "second waits", "first", "second"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// Slots in memory are released without a Settle, unless observers need its time or something else is settled too. They
// are released once, and waiting calls are woken.
func TestReleaseOfSlots(t *testing.T) {
	for _, test := range []struct {
		name    string
		ending  decide.Ending
		settles int
	}{
		{"slots", decide.Ending{Leases: true}, 0},
		{"slots, for an observer", decide.Ending{Leases: true, Timed: true}, 1},
		{"slots, and a cost", decide.Ending{Leases: true, Amends: []decide.Amend{{Grant: 0, Cost: 3}}}, 1},
		{"slots have been released", decide.Ending{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.Release = func(key string, l *store.Limit, lease store.LeaseID) {
					charges := []store.Charge{{Key: key, Limit: l, Receipt: store.Receipt{Lease: lease}}}
					if err := b.memory.Settle(t.Context(), charges, make([]store.Result, 1)); err != nil {
						t.Error(err)
					}
				}
				b.slots.StoreLimit = newLimit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 1})
				holder, gs := b.call(), new(decide.Grants)
				if err := holder.Decide(t.Context()); err != nil || !holder.Allowed {
					t.Fatalf("%v, allowed %v", err, holder.Allowed)
				}
				holder.HandTo(gs)
				next := b.call()
				next.Patient = true
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := next.Decide(t.Context()); err != nil || !next.Allowed {
						t.Errorf("%v, allowed %v", err, next.Allowed)
					}
				})
				synctest.Wait()
				began, ends := time.Now(), 0
				gs.ReleaseLocally(b.Backend, 0, false, nil)
				gs.End(t.Context(), b.Backend, test.ending, func(end decide.Settlement) {
					if ends++; end.Err != nil {
						t.Error(end.Err)
					}
				})
				synctest.Wait()
				if test.ending.Leases && (!next.Allowed || time.Since(began) > 0) {
					t.Error("the waiting call hasn't been woken")
				}
				if !test.ending.Leases {
					gs.End(t.Context(), b.Backend, decide.Ending{Leases: true}, func(decide.Settlement) {})
				}
				wg.Wait()
				gs.End(t.Context(), b.Backend, decide.Ending{Leases: true}, func(decide.Settlement) {}) // again: it isn't the next one's
				if got := b.used(t); got != "6 1 1" {
					t.Errorf("%s used, want 6 1 1", got)
				}
				if _, settles := b.store.Counts(); ends != 1 || settles != test.settles {
					t.Errorf("%d ends, %d settlements, want 1 and %d", ends, settles, test.settles)
				}
			})
		})
	}
}

// If a store panics in Settle, the grants still end, and calls that wait for the slots are woken.
func TestStorePanicsInSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slots.StoreLimit = newLimit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 1})
		holder := b.call()
		if err := holder.Decide(t.Context()); err != nil || !holder.Allowed {
			t.Fatalf("%v, allowed %v", err, holder.Allowed)
		}
		gs := new(decide.Grants)
		holder.HandTo(gs)

		var asked atomic.Int32
		b.store.OnTake = before(func() error { asked.Add(1); return nil })
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			c := b.call()
			c.Patient = true
			_ = c.Decide(ctx)
		})
		synctest.Wait()
		asked.Store(0)
		b.store.OnSettle = before(func() error { panic(errPanic) })
		var end decide.Settlement
		func() {
			defer func() {
				if got := recover(); got != errPanic {
					t.Errorf("recovered %v", got)
				}
			}()
			gs.ReleaseLocally(b.Backend, 0, false, nil)
			gs.End(t.Context(), b.Backend, decide.Ending{Leases: true, Amends: []decide.Amend{{Grant: 0, Cost: 1}}}, func(s decide.Settlement) {
				end = s
				end.Charges = slices.Clone(s.Charges)
			})
		}()
		synctest.Wait()
		if end.Err == nil || len(end.Charges) != 2 || end.Amended {
			t.Errorf("ended by %+v", end)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the waiting call has asked %d times, want 1", n)
		}
		leave()
		wg.Wait()
	})
}
