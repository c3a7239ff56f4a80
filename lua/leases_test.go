package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

func limitOf(t *testing.T, s store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// renew renews a lease of so many slots, which the server had at an instant, and returns what has
// been done about it if it was lost. It may be entered up to an instant.
func (p *pair) renew(id byte, slots, seen, until int64) string {
	p.t.Helper()
	lease := store.LeaseID{0: id, 15: 'w'}
	reply, err := p.rdb.Eval(context.Background(), shim+scripts.Renew().Source, []string{p.key, p.key + "%reset"},
		fmt.Sprintf("%d,0", p.now), leaseTime, until, 1, string(lease[:]), fmt.Sprintf("%d:%d ", slots, seen)).Slice()
	switch {
	case err != nil:
		p.t.Fatal(err)
	case len(reply) == 4 && reply[1] == int64(1) && reply[2] == string(lease[:]):
		return reply[3].(string)
	case len(reply) != 1 || reply[0] != p.now:
		p.t.Fatal(reply)
	}
	return ""
}

// keep renews a lease that isn't lost.
func (p *pair) keep(id byte) {
	p.t.Helper()
	if what := p.renew(id, 1, p.now, p.now); what != "" {
		p.t.Fatal("the lease is lost, and", what)
	}
}

// A lease that is lost is entered again with its slots, unless it was reset since the server
// had it, or may have been, or the renewal is late. Others find it in the set as if it had been
// taken there, whatever else the set has, and the set has a lifetime.
func TestLostLeasesAreEntered(t *testing.T) {
	p := newPair(t, store.Concurrency)
	const hour = 3_600_000_000
	seed := uint64(0)
	for _, weight := range []int64{1, 3} {
		for _, c := range []struct {
			name         string
			others       []int64 // slots of leases taken since it was lost
			reset        int64   // how long ago the limit was reset; 0: never
			seen         int64   // how long ago the server had it
			late, broken bool
			want         string
		}{
			{name: "alone", seen: leaseTime, want: "entered"},
			{name: "after an outage", seen: 11 * hour, want: "entered"},
			{name: "after half a day", seen: 12 * hour, want: "reset"},
			{name: "beside another", others: []int64{1}, seen: 1, want: "entered"},
			{name: "beside several", others: []int64{1, 1, 1, 1}, seen: 1, want: "entered"},
			{name: "beside one of several slots", others: []int64{2, 1}, seen: 1, want: "entered"},
			{name: "in place of a string", broken: true, seen: 1, want: "entered"},
			{name: "late", late: true, seen: 1, want: "late"},
			{name: "late and reset", late: true, reset: 1, seen: 2, want: "reset"},
			{name: "reset since", reset: 10, seen: 11, want: "reset"},
			{name: "reset at that instant", reset: 10, seen: 10, want: "reset"},
			{name: "reset before", reset: 10, seen: 9, want: "entered"},
			{name: "reset, and taken again by another", reset: 10, others: []int64{1}, seen: 20, want: "reset"},
		} {
			seed++
			p.begin(seed)
			l := limitOf(t, store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 4})
			fail := func(format string, args ...any) {
				t.Helper()
				t.Errorf("%d slots, %s: %s", weight, c.name, fmt.Sprintf(format, args...))
			}
			ctx, held := context.Background(), int64(0)
			for i, slots := range c.others {
				if ok, _ := p.held(l, slots, byte(100+i)); !ok {
					t.Fatal(c.name)
				}
				held += slots
			}
			if c.broken {
				p.rdb.Set(ctx, p.key, "1", 0)
			}
			if c.reset > 0 {
				p.rdb.Set(ctx, p.key+"%reset", p.now-c.reset, 0)
			}
			until := p.now
			if c.late {
				until--
			}
			if got := p.renew(1, weight, p.now-c.seen, until); got != c.want {
				fail("%q, want %q", got, c.want)
				continue
			}
			if c.want == "entered" {
				held += weight
				p.keep(1)
				if n, err := p.rdb.Exists(ctx, p.key+"!until").Result(); err != nil || n != 1 {
					fail("the set has no lifetime: %v", err)
				}
			}
			if _, n := p.held(l, 0, 0); int64(n) != held {
				fail("%d held, want %d", n, held)
			}
			if ok, n := p.held(l, 4, 50); ok != (held == 0) || int64(n) != held {
				fail("of %d held, %v for four more", n, ok)
			}
			if held == 0 {
				continue
			}
			release := call{op: "settle", receipt: store.Receipt{Cost: weight, Lease: store.LeaseID{0: 1, 15: 'w'}}}
			release.lease = release.receipt.Lease
			if c.want == "entered" {
				held -= weight
			}
			if got := p.send(l, release); got.raw != strconv.FormatInt(held, 10) {
				fail("%s held after its release, want %d", got.raw, held)
			}
			p.now += leaseTime / 2
			if ok, _ := p.held(l, 1, 60); ok != (held < 4) {
				fail("of %d held, %v for one more", held, ok)
			} else if ok {
				p.now += leaseTime - 1 // after the lifetime that the renewal has given the set
				if _, n := p.held(l, 0, 0); n != 1 {
					fail("%d held of a lease that has been given since", n)
				}
			}
		}
	}
}

// held takes, looks or releases, and returns whether that was granted and how many slots
// the script says were held before.
func (p *pair) held(l *store.Limit, cost int64, id byte) (ok bool, held int) {
	p.t.Helper()
	c := call{op: "take", cost: cost}
	c.lease[0], c.lease[15] = id, 'w'
	got := p.send(l, c)
	held, err := strconv.Atoi(got.raw)
	if err != nil {
		p.t.Fatal(got)
	}
	return got.ok, held
}

// Slots of processes that died aren't counted once their leases have run out, whether the
// limit is full or not, and whether leases hold one slot or several.
func TestDeadSlotsDontCount(t *testing.T) {
	p := newPair(t, store.Concurrency)
	for _, weight := range []int64{1, 2} {
		p.begin(uint64(weight))
		l := limitOf(t, store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 100})
		for id := range 30 {
			p.held(l, weight, byte(id))
		}
		p.now += leaseTime / 2
		p.held(l, 1, 200)
		for _, step := range []struct{ pause, want int64 }{
			{leaseTime/2 - 1, 30*weight + 1}, {1, 1}, {leaseTime/2 - 1, 1}, {1, 0},
		} {
			p.now += step.pause
			if _, held := p.held(l, 0, 0); int64(held) != step.want {
				t.Errorf("leases of %d slots: %d held, want %d", weight, held, step.want)
			}
		}
	}
}

// After the clock was set back, slots of processes that died come free within two leases
// of the first Take, whatever that asks: also where some leases hold several slots, and
// others were given since.
func TestDeadSlotsWhenTheClockIsSetBack(t *testing.T) {
	p := newPair(t, store.Concurrency)
	seed := uint64(0)
	for _, weight := range []int64{1, 2} {
		for _, step := range []int64{1, leaseTime / 2, leaseTime, 2 * leaseTime, 240 * leaseTime} {
			for _, free := range []int64{0, 2} { // free slots
				seed++
				p.begin(seed)
				l := limitOf(t, store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 3*weight + free})
				for id := range 3 {
					p.now += leaseTime / 5
					p.held(l, weight, byte(id))
				}
				p.now -= step
				if free > 0 {
					p.held(l, 1, 100)
				}
				p.now += leaseTime / 2
				p.held(l, 0, 0) // who looks, or is denied
				p.now += 2*leaseTime + 1
				if ok, held := p.held(l, 3*weight, 101); !ok || held != 0 {
					t.Errorf("leases of %d slots, %d us back, %d free: %d held two leases after a look, and a charge is granted: %v", weight, step, free, held, ok)
				}
			}
		}
	}
}

// A lease that is renewed keeps its slot, whatever the clock does.
func TestLiveSlotsWhenTheClockIsSetBack(t *testing.T) {
	p := newPair(t, store.Concurrency)
	for seed, step := range []int64{1, leaseTime / 2, leaseTime, 2 * leaseTime, 240 * leaseTime} {
		p.begin(uint64(seed))
		l := limitOf(t, store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 2})
		p.held(l, 1, 1)
		p.now -= step
		for range 20 {
			p.now += leaseTime / 3
			p.held(l, 1, 2) // dies each time; the second slot is taken or not
			if _, held := p.held(l, 0, 0); held < 1 {
				t.Fatalf("%d us back: the slot is lost", step)
			}
			p.keep(1)
		}
	}
}

// A set whose last slot was released before the clock was set back lives as long as the
// slots that are taken after that.
func TestEmptySetsWhenTheClockIsSetBack(t *testing.T) {
	p := newPair(t, store.Concurrency)
	for seed, step := range []int64{1, leaseTime / 2, leaseTime, 2 * leaseTime, 240 * leaseTime} {
		p.begin(uint64(seed))
		l := limitOf(t, store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 2})
		p.held(l, 1, 1)
		released := call{op: "settle"}
		released.receipt.Cost, released.receipt.Lease = 1, store.LeaseID{0: 1, 15: 'w'}
		released.lease = released.receipt.Lease
		p.send(l, released)
		p.now -= step
		p.held(l, 1, 2)
		for range 20 {
			p.now += leaseTime / 3
			if _, held := p.held(l, 0, 0); held != 1 {
				t.Fatalf("%d us back: %d held, want 1", step, held)
			}
			p.keep(2)
		}
		p.now += leaseTime
		if ok, held := p.held(l, 2, 3); !ok || held != 0 {
			t.Errorf("%d us back: a lease later, %d held, and a charge of both is granted: %v", step, held, ok)
		}
	}
}

// Logs and slots that have lost their lifetime are given one by a charge that comes ten
// seconds, or a lease, after the last one.
func TestLostLifetimes(t *testing.T) {
	for _, c := range []struct {
		spec  store.Spec
		pause int64
	}{
		{store.Spec{Name: "x", Algorithm: store.SlidingLog, Units: 9, Period: time.Hour}, 10_000_000},
		{store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 9}, leaseTime},
	} {
		p := newPair(t, c.spec.Algorithm)
		p.begin(1)
		l := limitOf(t, c.spec)
		charge := func(id byte) {
			t.Helper()
			x := call{op: "take", cost: 1}
			x.lease[0], x.lease[15] = id, 'w'
			if got := p.send(l, x); !got.ok {
				t.Fatal(got)
			}
		}
		charge(1)
		if gone, err := p.rdb.Del(context.Background(), p.key+"!until").Result(); err != nil || gone != 1 {
			t.Fatal(gone, err)
		}
		p.now += c.pause
		charge(2)
		if n, err := p.rdb.Exists(context.Background(), p.key+"!until").Result(); err != nil || n != 1 {
			t.Errorf("%v: the key stays for ever: %v", c.spec.Algorithm, err)
		}
	}
}
