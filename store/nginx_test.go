package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// zone is a limit_req of nginx as its documentation has it, in millionths of a
// request (nginx counts thousandths, and loses the rest) and milliseconds.
// burst may be in excess; of that all is delayed but the first delay (nodelay:
// delay is burst).
type zone struct {
	rate         int64 // a minute
	burst, delay int64

	excess, last int64
	seen         bool
}

const request = 1_000_000

// look is the excess with one more request at now, in milliseconds.
func (z *zone) look(now int64) (excess int64, ok bool) {
	if z.seen {
		excess = max(0, z.excess-z.rate*request/60_000*(now-z.last)+request)
	}
	return excess, excess <= z.burst*request
}

// answer decides a request in several zones: none is charged if one denies, and
// the longest delay counts.
func answer(zs []*zone, now int64) (delay time.Duration, ok bool) {
	for _, z := range zs {
		if _, ok := z.look(now); !ok {
			return 0, false
		}
	}
	for _, z := range zs {
		z.excess, _ = z.look(now)
		z.last, z.seen = now, true
		if beyond := z.excess - z.delay*request; beyond > 0 {
			delay = max(delay, time.Duration(beyond/(z.rate*request/60_000))*time.Millisecond)
		}
	}
	return delay, true
}

// spec is the zone as a limit: burst=B delay=D is Burst D and Queue B-D, and
// nodelay a token bucket of B+1.
func (z *zone) spec() store.Spec {
	s := store.Spec{Algorithm: store.LeakyBucket, Units: z.rate, Period: time.Minute, Burst: z.delay, Queue: z.burst - z.delay}
	if s.Burst == 0 {
		s.Burst = store.None
	}
	if s.Queue == 0 {
		s.Queue = store.None
	}
	if z.delay == z.burst {
		s = store.Spec{Units: s.Units, Period: s.Period, Burst: z.burst + 1}
	}
	return s
}

// TestNginxZones runs random requests through two zones of 6r/m and 10r/s in
// every combination of burst, delay and nodelay.
func TestNginxZones(t *testing.T) {
	for n := range traces(t, 300) {
		d := seed(n)
		zs := []*zone{{rate: 6}, {rate: 600}}
		if d.roll(2) == 0 {
			zs[0], zs[1] = zs[1], zs[0]
		}
		for _, z := range zs {
			z.burst = oneOf[int64](d, 0, 1, 2, 5, 20)
			z.delay = oneOf(d, 0, z.burst, d.roll(z.burst+1))
		}
		desk := newDesk(t, zs[0].spec(), zs[1].spec())
		for i := range 100 {
			step := oneOf[int64](d, 0, 0, 1, 10, 99, 100, 101, d.roll(1000), 1000, 9900, 10_000, d.roll(100_000))
			desk.sleep(time.Duration(step) * ms)
			wait, ok := answer(zs, desk.now.Steady/1000)
			got, rs := desk.take(1, 0)
			// nginx delays by whole milliseconds, rounded down.
			if got != ok || ok && delay(rs).Truncate(ms) != wait {
				t.Fatalf("seed %d, request %d at %d ms in %v: %v %v, nginx %v %v",
					n, i, desk.now.Steady/1000, fmt.Sprint(*zs[0], *zs[1]), got, delay(rs), ok, wait)
			}
		}
	}
}

// The same by hand.
func TestNginxByHand(t *testing.T) {
	const no = -1
	type ask struct {
		at   time.Duration
		want time.Duration // its delay
	}
	slow, fast := zone{rate: 6}, zone{rate: 600}
	with := func(z zone, burst, delay int64) zone { z.burst, z.delay = burst, delay; return z }
	for _, tc := range []struct {
		name       string
		slow, fast zone
		requests   []ask
	}{
		{
			"no burst: one every ten seconds", slow, fast,
			[]ask{{0, 0}, {0, no}, {100 * ms, no}, {9999 * ms, no}, {10 * sec, 0}, {10 * sec, no}},
		},
		{
			"burst=5 nodelay and burst=2: what the second denies the first isn't charged",
			with(slow, 5, 5), with(fast, 2, 0),
			[]ask{
				{0, 0}, {0, 100 * ms}, {0, 200 * ms}, {0, no}, {0, no},
				{300 * ms, 0}, {300 * ms, 100 * ms}, {300 * ms, 200 * ms},
				{600 * ms, no}, {9999 * ms, no}, {10 * sec, 0},
			},
		},
		{
			"burst=5 delay=2: three at once, three wait for their turn",
			with(slow, 5, 2), with(fast, 10, 10),
			[]ask{{0, 0}, {0, 0}, {0, 0}, {0, 10 * sec}, {0, 20 * sec}, {0, 30 * sec}, {0, no}, {10 * sec, 30 * sec}},
		},
		{
			"burst=5: one at once, five queue", with(slow, 5, 0), fast,
			[]ask{{0, 0}, {0, no}, {100 * ms, 9900 * ms}, {200 * ms, 19800 * ms}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, tc.slow.spec(), tc.fast.spec())
			for i, r := range tc.requests {
				d.now.Steady = r.at.Microseconds()
				ok, rs := d.take(1, 0)
				if ok != (r.want != no) || ok && delay(rs) != r.want {
					t.Fatalf("request %d at %v: %v, delay %v; want %v", i, r.at, ok, delay(rs), r.want)
				}
			}
		})
	}
}
