package redisstore

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/lua"
	"github.com/stint-go/stint/store"
)

// Random traces through the scripts on a real server and through the steps:
// every field of every answer is the same, and so are the states that are kept.
// STINT_LONG=1 makes it 50 times as many, STINT_SEED=n one trace of them.
func TestTwins(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	perAlgorithm := 600
	if os.Getenv("STINT_LONG") != "" {
		perAlgorithm *= 50
	}
	if testing.Short() || underRace {
		perAlgorithm /= 10
	}
	first := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("STINT_SEED"), 10, 64); err == nil {
		first, perAlgorithm = s, 1
	}
	for _, a := range []store.Algorithm{
		store.TokenBucket, store.LeakyBucket, store.IntervalBucket, store.FixedWindow,
		store.SlidingWindow, store.SlidingLog, store.WarmUp, store.Concurrency, mixed, banned,
	} {
		name := "several limits"
		if a == banned {
			name = "several limits and a ban"
		} else if a != mixed {
			name = a.String()
		}
		t.Run(name, func(t *testing.T) {
			decisions := 0
			for seed := first; seed < first+uint64(perAlgorithm); seed++ {
				w := newTwins(rdb, seed, a)
				if err := w.play(); err != nil {
					t.Fatalf("STINT_SEED=%d: %v\n%s", seed, err, strings.Join(w.log, "\n"))
				}
				decisions += w.decisions
			}
			t.Logf("%d decisions", decisions)
			if decisions < 8*perAlgorithm {
				t.Errorf("%d decisions in %d traces", decisions, perAlgorithm)
			}
		})
	}
}

const (
	mixed  = store.Algorithm(255)
	banned = store.Algorithm(254)
)

// twins plays one trace through both.
type twins struct {
	rdb    *redis.Client
	rnd    *rand.Rand
	limits [][]*store.Limit // versions of each limit
	keys   []string
	now    int64
	states map[string]*store.State // by key in the server
	taken  []taken
	leases uint64

	decisions int
	log       []string
}

// taken is a charge that may be settled.
type taken struct {
	charge store.Charge
	key    string
	mine   store.Receipt // of the steps; the ids of leases differ
}

func newTwins(rdb *redis.Client, seed uint64, a store.Algorithm) *twins {
	w := &twins{rdb: rdb, rnd: rand.New(rand.NewPCG(seed, 7)), states: map[string]*store.State{}}
	w.now = w.roll(8 * 365 * 24 * 3600 * 1_000_000)
	w.keys = []string{"a", "b", "c"}[:1+w.roll(3)]
	n := 1
	if a == mixed || a == banned {
		n = 2 + int(w.roll(3))
	}
	for i := range n {
		of := a
		if a == mixed {
			of = store.Algorithm(w.roll(9))
		}
		if a == banned {
			of = pick(w, store.TokenBucket, store.TokenBucket, store.FixedWindow, store.SlidingLog, store.Concurrency, store.Ban)
			if i == n-1 {
				of = store.Ban
			}
		}
		versions := 1 + int(w.roll(2))*int(w.roll(3))
		var limits []*store.Limit
		for len(limits) < versions {
			s := w.spec(fmt.Sprintf("l%d", i), of)
			if logs := of == store.SlidingWindow || of == store.SlidingLog || of == store.Ban; logs && len(limits) > 0 {
				// What has left the window of one version is dropped by the next
				// write there, and by the next look here.
				first := limits[0].Spec()
				s.Period, s.Buckets = first.Period, first.Buckets
			}
			if l, err := store.NewLimit(s); err == nil {
				limits = append(limits, l)
			}
		}
		w.limits = append(w.limits, limits)
	}
	return w
}

func (w *twins) roll(n int64) int64 { return w.rnd.Int64N(n) }

func pick[T any](w *twins, choices ...T) T { return choices[w.roll(int64(len(choices)))] }

func (w *twins) spec(name string, a store.Algorithm) store.Spec {
	s := store.Spec{Name: name, Algorithm: a}
	s.Units = pick(w, 1, 2, 3, 5, 7, 10, 13, 60, 100, 365, 999, 1000, 7000, 1+w.roll(50), 1+w.roll(1_000_000))
	period := pick(w, time.Millisecond, 100*time.Millisecond, time.Second, time.Second, time.Minute, time.Minute,
		time.Hour, 24*time.Hour, 365*24*time.Hour, 13*time.Microsecond, time.Duration(1+w.roll(1e7))*time.Microsecond)
	burst := pick(w, 0, 0, 1, 2, s.Units/2, 1+w.roll(100), 1+w.roll(1_000_000))
	switch a {
	case store.TokenBucket:
		s.Period, s.Burst = period, burst
		s.Queue = pick(w, 0, 0, 0, 1, 10, 1+w.roll(1000))
		s.Debt = w.roll(5) == 0
	case store.LeakyBucket:
		s.Period, s.Burst, s.Queue = period, pick(w, 0, burst), pick(w, 0, 1, 5, 1+w.roll(1000))
	case store.IntervalBucket, store.FixedWindow:
		if a == store.IntervalBucket {
			s.Burst = burst
		}
		if s.Period = period; w.roll(2) == 0 {
			s.Period, s.Window = 0, w.window()
		}
	case store.SlidingWindow:
		s.Period, s.Buckets = period, pick[int64](w, 0, 1, 2, 3, 7, 10, 60)
	case store.SlidingLog:
		s.Period, s.Units = period, min(s.Units, 200)
	case store.WarmUp:
		s.Period, s.WarmUp = period, pick(w, time.Second, 4*time.Second, 100*time.Millisecond, time.Minute)
	case store.Concurrency:
		s.Units = min(s.Units, 50)
	case store.Ban:
		s.Period, s.Units = period, pick(w, 1, 2, 3, 5, 1+w.roll(20))
		s.Ban = pick(w, time.Microsecond, time.Millisecond, period, 2*period, time.Hour)
	}
	return s
}

var berlin, _ = time.LoadLocation("Europe/Berlin")

func (w *twins) window() store.Window {
	window := pick(w, store.Hourly, store.Daily, store.Weekly, store.Monthly, store.Every(7*time.Second), store.Every(time.Hour))
	if _, fixed := window.Fixed(); !fixed && w.roll(2) == 0 && berlin != nil {
		window = window.In(berlin)
	}
	return window
}

// scale is the time in which something happens to a limit.
func (w *twins) scale(l *store.Limit) int64 {
	s := l.Spec()
	switch {
	case s.Period > 0:
		return max(1, s.Period.Microseconds())
	case s.Algorithm == store.Concurrency:
		return 1000
	}
	return s.Window.Length(time.Unix(0, 0)).Microseconds()
}

func (w *twins) play() error {
	w.rdb.FlushDB(context.Background())
	for range 10 + w.roll(20) {
		l := w.limits[0][0]
		span := w.scale(l)
		w.now += pick(w, 0, 0, 1, w.roll(1+span/max(1, l.Spec().Units)), w.roll(1+span), w.roll(1+2*span), w.roll(1+span/10))
		err := w.adopt()
		switch {
		case err != nil:
		case len(w.taken) > 0 && w.roll(3) == 0:
			err = w.settle()
		default:
			err = w.take()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *twins) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.now)+fmt.Sprintf(format, args...))
}

// told has leases last longer than traces, and the client often wrong about the
// server's clock.
func (w *twins) told(many bool) told {
	wall := w.now + pick(w, 0, 0, 0, -1, 1, 3600_000_000, -3600_000_000, w.roll(3*24*3600_000_000), -w.roll(24*3600_000_000))
	return told{clock: strconv.FormatInt(w.now, 10) + ",0", wall: wall, many: many, lease: 1e15}
}

// The clock of the trace stands still while the server's goes on, so that a key
// would be gone too early: here they all live for a while longer.
const longer = `local redis = {call = function(c, ...)
	local a = {...}
	if c == 'SET' and a[3] == 'PX' then a[4] = a[4] + 3600000 end
	if c == 'PEXPIRE' then a[2] = a[2] + 3600000 end
	return redis.call(c, unpack(a))
end, pcall = redis.pcall}
`

func (w *twins) run(s *lua.Script, keys []string, args []any) (any, error) {
	return w.rdb.Eval(context.Background(), longer+s.Source, keys, args...).Result()
}

// cost is about what the limit can take.
func (w *twins) cost(l *store.Limit) int64 {
	s := l.Spec()
	most := min(max(s.Burst, s.Units)+max(s.Queue, 0), 1<<40)
	return min(pick(w, 0, 1, 1, 1, 2, 3, 1+w.roll(most), 1+w.roll(2*most), most, most+1), 1<<40)
}

func (w *twins) maxWait(l *store.Limit) time.Duration {
	if w.roll(3) > 0 {
		return 0
	}
	s := l.Spec()
	span := time.Duration(w.scale(l)) * time.Microsecond
	if s.Window != (store.Window{}) {
		return time.Duration(w.roll(int64(5 * span)))
	}
	return min(pick(w, span/time.Duration(s.Units), span, 10*span, time.Duration(w.roll(int64(min(span, 1e15))+1))), 1<<62)
}

// decision draws charges, at most one on each limit.
func (w *twins) decision() *decision {
	d := &decision{}
	for i := range w.limits {
		if i > 0 && w.roll(4) == 0 {
			continue
		}
		l := pick(w, w.limits[i]...)
		key := pick(w, w.keys...)
		d.charges = append(d.charges, store.Charge{
			Key: key, Limit: l, Cost: w.cost(l), MaxWait: w.maxWait(l), DryRun: w.roll(10) == 0,
		})
		d.keys = append(d.keys, key+":"+l.Name()+l.Algorithm().String())
		w.leases++
		d.leases = append(d.leases, store.Lease(w.leases))
	}
	d.results = make([]store.Result, len(d.charges))
	return d
}

func (w *twins) take() error {
	var ds []*decision
	calls, times := pick(w, 1, 1, 2, 5), pick(w, 1, 1, 1, 4)
	for _, limits := range w.limits {
		if a := limits[0].Algorithm(); len(limits) > 1 && (a == store.IntervalBucket || a == store.FixedWindow) {
			calls, times = 1, 1 // see adopt
		}
	}
	for range calls {
		d := w.decision()
		for range times {
			again := *d
			again.results = make([]store.Result, len(d.charges))
			again.leases = slices.Clone(d.leases)
			for i := range again.leases {
				w.leases++
				again.leases[i] = store.Lease(w.leases)
			}
			ds = append(ds, &again)
		}
	}
	for _, d := range ds {
		for i, c := range d.charges {
			w.note("take %s %v cost %d wait %v dry %v", d.keys[i], c.Limit.Spec(), c.Cost, c.MaxWait, c.DryRun)
		}
	}
	p := newPlan(ds)
	script, args := takeArgs(&p, w.told(true), 0)
	reply, err := w.run(script, p.keys, args)
	if err != nil {
		return err
	}
	_, stale, err := takeAnswer(&p, reply)
	if err != nil {
		return fmt.Errorf("%w: %v", err, reply)
	}
	if len(stale) > 0 {
		return fmt.Errorf("stale: %v", reply)
	}
	// In the order of the call: of several ways through the script, a key has one.
	for i := range p.shapes {
		for _, e := range p.shapes[i].entries {
			for _, d := range e.decisions {
				if err := w.decide(d); err != nil {
					return fmt.Errorf("%w\nanswer %v", err, reply)
				}
			}
		}
	}
	return w.compare()
}

func (w *twins) state(key string) *store.State {
	if w.states[key] == nil {
		w.states[key] = &store.State{}
	}
	return w.states[key]
}

// decide decides d by the steps.
func (w *twins) decide(d *decision) error {
	w.decisions++
	states := make([]store.State, len(d.charges))
	for i, key := range d.keys {
		states[i] = *w.state(key)
		states[i].Log = slices.Clone(states[i].Log)
	}
	results := make([]store.Result, len(d.charges))
	w.leases++
	now := store.Now{Steady: w.now, Wall: w.now, Lease: store.Lease(w.leases)}
	granted := store.Decide(now, d.charges, states, results)
	for i, key := range d.keys {
		w.keep(key, d.charges[i].Limit, &states[i], results[i].Receipt.Cost > 0)
		mine := results[i].Receipt
		if d.charges[i].Limit.Algorithm() == store.Concurrency && mine.Cost > 0 {
			results[i].Receipt.Lease = d.leases[i]
		}
		if results[i] != d.results[i] || granted != d.granted {
			return fmt.Errorf("charge %d on %s: got %+v, want %+v", i, key, d.results[i], results[i])
		}
		if results[i].Receipt.Cost > 0 {
			c := d.charges[i]
			c.Receipt = results[i].Receipt
			w.taken = append(w.taken, taken{c, key, mine})
		}
	}
	return nil
}

// keep keeps a state. The steps write down that time has passed; the server
// keeps what has been charged, or changed its numbers.
func (w *twins) keep(key string, l *store.Limit, s *store.State, charged bool) {
	was := w.state(key)
	switch l.Algorithm() {
	case store.SlidingWindow, store.SlidingLog, store.Concurrency, store.Ban:
		charged = true
	case store.TokenBucket, store.LeakyBucket, store.IntervalBucket:
		charged = charged || s.Live && s.C != was.C
	}
	if charged || s.Live && s.Numbers != was.Numbers {
		*was = *s
	}
}

func (w *twins) settle() error {
	var ss []*settlement
	var which []int
	seen := map[string]bool{}
	for range pick(w, 1, 1, 3) {
		i := int(w.roll(int64(len(w.taken))))
		t := &w.taken[i]
		if seen[t.key] && w.versions(t.key) > 1 {
			continue
		}
		seen[t.key] = true
		c := t.charge
		c.Cost = pick(w, 0, 0, c.Receipt.Cost, w.roll(c.Receipt.Cost+1), c.Receipt.Cost+1, w.roll(2*c.Receipt.Cost+2), c.Cost)
		if c.Limit.Algorithm() == store.Concurrency {
			c.Cost = min(c.Cost, 1000)
		}
		w.note("settle %s %v from %d to %d", t.key, c.Limit.Spec(), c.Receipt.Cost, c.Cost)
		ss = append(ss, &settlement{charge: &c, result: new(store.Result), key: t.key})
		which = append(which, i)
	}
	script, keys, args := settleArgs(ss, w.told(true))
	reply, err := w.run(script, keys, args)
	if err != nil {
		return err
	}
	_, stale, err := settleAnswer(ss, reply)
	if err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	for i, s := range ss {
		if slices.Contains(stale, s) { // of a window longer ago than any bound told
			continue
		}
		w.decisions++
		t := &w.taken[which[i]]
		c := *s.charge
		theirs := c.Receipt.Lease
		c.Receipt.Lease = t.mine.Lease
		var want store.Result
		now := store.Now{Steady: w.now, Wall: w.now}
		settled := *w.state(t.key)
		settled.Log = slices.Clone(settled.Log)
		store.Amend(now, &c, &settled, &want)
		states := []store.State{*w.state(t.key)}
		store.Decide(now, []store.Charge{{Limit: c.Limit}}, states, make([]store.Result, 1))
		w.keep(t.key, c.Limit, &settled, !reflect.DeepEqual(states[0], settled))
		t.mine = want.Receipt
		want.Receipt.Lease = theirs
		if *s.result != want {
			return fmt.Errorf("settling %s: got %+v, want %+v\nanswer %v", t.key, *s.result, want, reply)
		}
		if w.roll(4) > 0 { // else the spent one stays, and may be handed in again
			t.charge.Receipt = want.Receipt
		} else {
			t.mine = s.charge.Receipt
			t.mine.Lease = c.Receipt.Lease
		}
	}
	return w.compare()
}

// strings are the limits whose states are strings in the server.
func (w *twins) strings() iter.Seq2[string, []*store.Limit] {
	return func(yield func(string, []*store.Limit) bool) {
		for _, limits := range w.limits {
			switch limits[0].Algorithm() {
			case store.SlidingWindow, store.SlidingLog, store.Concurrency:
				continue // kept in other ways: their answers have to do
			}
			for _, k := range w.keys {
				if !yield(k+":"+limits[0].Name()+limits[0].Algorithm().String(), limits) {
					return
				}
			}
		}
	}
}

// stored is what the server keeps for a key.
func (w *twins) stored(key string, l *store.Limit) (s store.State, raw string, err error) {
	raw, err = w.rdb.Get(context.Background(), key).Result()
	if err != nil && err != redis.Nil {
		return s, raw, err
	}
	s, err = decode(&store.Charge{Limit: l}, raw)
	return s, raw, err
}

func (w *twins) versions(key string) int {
	for k, limits := range w.strings() {
		if k == key {
			return len(limits)
		}
	}
	return 1
}

// adopt takes over the server's states of limits with several versions: what a
// look by one of them has written down, but not changed, the next may value
// otherwise, and the steps write down more.
func (w *twins) adopt() error {
	for key, limits := range w.strings() {
		if len(limits) == 1 {
			continue
		}
		s, _, err := w.stored(key, limits[0])
		if err != nil {
			return err
		}
		*w.state(key) = s
	}
	return nil
}

// compare holds what the server keeps to the states of the steps.
func (w *twins) compare() error {
	for key, limits := range w.strings() {
		got, raw, err := w.stored(key, limits[0])
		if err != nil {
			return err
		}
		if raw == "" && len(limits) > 1 {
			continue // as if never seen to the version that wrote last
		}
		// A state that says no more than none does may be kept or not.
		l := limits[0]
		if i := slices.IndexFunc(limits, func(l *store.Limit) bool { return l.Terms().Numbers == got.Numbers }); i >= 0 {
			l = limits[i]
		}
		if want := *w.state(key); w.present(got, l) != w.present(want, l) {
			return fmt.Errorf("%s: the server keeps %q, %+v, the steps %+v", key, raw, got, want)
		}
		if raw != "" {
			if ttl := w.rdb.PTTL(context.Background(), key).Val(); ttl <= 0 {
				return fmt.Errorf("%s: %q lives for %v", key, raw, ttl)
			}
		}
	}
	return nil
}

// present is a state's words as of now, under one of the limit's versions.
func (w *twins) present(s store.State, l *store.Limit) string {
	charges := []store.Charge{{Limit: l}}
	states, results := []store.State{s}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: w.now, Wall: w.now}, charges, states, results)
	if s = states[0]; l.Algorithm() != store.Ban {
		s.Log = nil
	}
	if l.Lifetime(&s, &results[0]) == 0 || reflect.DeepEqual(s, store.State{}) {
		return "none"
	}
	return fmt.Sprintf("%+v", s)
}
