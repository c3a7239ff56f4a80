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

// renew renews a lease.
func (p *pair) renew(id byte) {
	p.t.Helper()
	lease := store.LeaseID{0: id, 15: 'w'}
	lost, err := p.rdb.Eval(context.Background(), scripts.Renew().Source, []string{p.key}, fmt.Sprintf("%d,0", p.now), leaseTime, 1, string(lease[:])).Slice()
	if err != nil || len(lost) > 0 {
		p.t.Fatal(lost, err)
	}
}

// held takes, looks or releases, and returns whether that was granted and how many slots
// the script says were held before.
func (p *pair) held(l *store.Limit, cost int64, id byte) (ok bool, held int) {
	p.t.Helper()
	c := call{op: "take", cost: cost}
	c.lease[0], c.lease[15] = id, 'w'
	got := p.send(l, c, nil)
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
			p.renew(1)
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
		p.send(l, released, nil)
		p.now -= step
		p.held(l, 1, 2)
		for range 20 {
			p.now += leaseTime / 3
			if _, held := p.held(l, 0, 0); held != 1 {
				t.Fatalf("%d us back: %d held, want 1", step, held)
			}
			p.renew(2)
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
			if got := p.send(l, x, nil); !got.ok {
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
