package wire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// Random traces, those of versionstest.Seeds, through the scripts on a real server and through
// the steps: every field of every answer is the same, and so are the states that
// are kept. Limits have several versions, which take turns; clocks are set; keys are
// left alone for years, and expire when the scripts have said.
func TestTwins(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	first, perAlgorithm := versionstest.Seeds(12)
	for _, a := range append(slices.Clone(charged), mixed, banned) {
		name := "several limits"
		if a == banned {
			name = "several limits and a ban"
		} else if a != mixed {
			name = a.String()
		}
		t.Run(name, func(t *testing.T) {
			decisions := 0
			for seed := first; seed < first+perAlgorithm; seed++ {
				w := drawTwins(rdb, seed, a)
				if err := w.play(); err != nil {
					t.Fatalf("STINT_SEED=%d: %v\n%s", seed, err, strings.Join(w.log, "\n"))
				}
				decisions += w.decisions
			}
			t.Logf("%d decisions", decisions)
			if decisions < 8*int(perAlgorithm) {
				t.Errorf("%d decisions in %d traces", decisions, perAlgorithm)
			}
		})
	}
}

// TestTwinsInBatches charges keys in batches that a script compares as texts. It goes past
// many multiples of the grid, at first on instants from which a charge ends at one, and pauses for
// as long as keys that are full again are kept.
func TestTwinsInBatches(t *testing.T) {
	w := newTwins(redistest.Start(t).Client(), 1)
	w.keys, w.now = []string{"a", "b", "c", "d", "e"}, 1e12
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 10, Period: time.Second, Burst: 20})
	if err != nil {
		t.Fatal(err)
	}
	w.limits = [][]*store.Limit{{l}}
	for n := range 600 {
		w.now += pick[int64](w, 0, 100_000, 100_000, 200_000)
		if n > 200 && n < 400 {
			w.now += w.roll(2) * w.roll(100_000)
		}
		if w.roll(20) == 0 {
			w.now += 100_000 * w.roll(30)
		}
		if err := w.expire(); err != nil {
			t.Fatal(err)
		}
		d := &Decision{Results: make([]store.Result, 1), Leases: make([]store.LeaseID, 1), Keys: make([]string, 1)}
		d.Charges = []store.Charge{{Limit: l, Cost: pick[int64](w, 0, 1, 1, 1, 1, 2, 3, 20, 21), MaxWait: pick(w, 0, 0, 0, time.Second)}}
		ds := w.onAll(d)
		if n > 400 {
			ds = ds[:3] // too few for texts
		}
		if err := w.ask(ds); err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(w.log, "\n"))
		}
	}
}

// TestRunThatLacksFunctions: where the last column of a run meets a state that needs
// functions, the decisions before it are charged with what was kept of their looks.
func TestRunThatLacksFunctions(t *testing.T) {
	server := redistest.Start(t)
	w := newTwins(server.Client(), 1)
	w.keys, w.now = []string{"a", "b", "c"}, 1e12
	for i, a := range []store.Algorithm{store.SlidingWindow, store.SlidingCounter, store.IntervalBucket} {
		var versions []*store.Limit
		for _, period := range []time.Duration{time.Minute, time.Hour} {
			l, err := store.NewLimit(store.Spec{Name: fmt.Sprintf("l%d", i), Algorithm: a, Units: 100 * int64(i+1), Period: period})
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, l)
		}
		w.limits = append(w.limits, versions)
	}
	decide := func(key string, version int, cost int64, limits ...int) *Decision {
		d := &Decision{Results: make([]store.Result, len(limits)), Leases: make([]store.LeaseID, len(limits))}
		for _, i := range limits {
			l := w.limits[i][version]
			d.Charges = append(d.Charges, store.Charge{Key: key, Limit: l, Cost: cost})
			d.Keys = append(d.Keys, key+":"+l.StateName())
		}
		return d
	}
	check := func(ds ...*Decision) {
		t.Helper()
		if err := w.ask(ds); err != nil {
			t.Fatal(err)
		}
	}
	check(decide("b", 0, 3, 2)) // of another version: the script has to carry it over
	for cost := range int64(3) {
		check(decide("a", 1, 1+cost, 0, 1, 2), decide("b", 1, 1+cost, 0, 1, 2), decide("c", 1, 1+cost, 0, 1, 2))
		check(decide("b", 0, 3, 2))
	}
}

// charged are the algorithms that charge something.
var charged = slices.DeleteFunc(versionstest.Algorithms(), func(a store.Algorithm) bool { return a == store.Ban })

const (
	mixed  = store.Algorithm(255)
	banned = store.Algorithm(254)
)

// earliest is how far before the first instant of 2026 traces begin, in microseconds.
const earliest = -7 * 365 * 24 * 3600 * 1_000_000

// twins plays one trace through both.
type twins struct {
	rdb     *redis.Client
	rnd     *rand.Rand
	limits  [][]*store.Limit // versions of each limit
	keys    []string
	now     int64
	states  map[string]*store.State // by key in the server
	touched map[string]*store.Limit // who looked at it last
	untils  map[string]int64        // its lifetime's end when that was last looked at
	taken   []taken
	leases  uint64
	bare    bool // scripts run as they are

	decisions int
	log       []string
}

// taken is a charge that may be settled.
type taken struct {
	charge store.Charge
	key    string
	mine   store.Receipt // of the steps; the ids of leases differ
}

func newTwins(rdb *redis.Client, seed uint64) *twins {
	return &twins{
		rdb: rdb, rnd: rand.New(rand.NewPCG(seed, 7)), states: map[string]*store.State{},
		touched: map[string]*store.Limit{}, untils: map[string]int64{},
	}
}

// drawTwins draws the limits of a trace.
func drawTwins(rdb *redis.Client, seed uint64, a store.Algorithm) *twins {
	w := newTwins(rdb, seed)
	w.now = w.roll(8*365*24*3600*1_000_000) - pick[int64](w, 0, 0, 0, 0, -earliest)
	w.keys = []string{"a", "b", "c", "d", "e"}[:pick(w, 1, 2, 3, 5)]
	n := 1
	if a == mixed || a == banned {
		n = 2 + int(w.roll(3))
	}
	for i := range n {
		of := a
		if a == mixed {
			of = pick(w, charged...)
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
			if len(limits) > 0 && w.roll(3) > 0 {
				s = w.another(limits[0].Spec(), s)
			}
			if l, err := store.NewLimit(s); err == nil {
				limits = append(limits, l)
			}
		}
		w.limits = append(w.limits, limits)
	}
	return w
}

// another is a version of s that has some of its numbers from t.
func (w *twins) another(s, t store.Spec) store.Spec {
	for range 1 + w.roll(2) {
		switch w.roll(5) {
		case 0:
			s.Units = t.Units
		case 1:
			if s.Period > 0 && t.Period > 0 {
				s.Period = t.Period
			}
		case 2:
			if s.Burst > 0 {
				s.Burst = 1 + w.roll(4*s.Burst)
			}
		case 3:
			s.Period *= time.Duration(pick[int64](w, 2, 10, 60))
		case 4:
			s.Buckets, s.Queue, s.Debt, s.WarmUp, s.Ban = t.Buckets, t.Queue, t.Debt, t.WarmUp, t.Ban
		}
	}
	return s
}

func (w *twins) roll(n int64) int64 { return w.rnd.Int64N(n) }

func pick[T any](w *twins, choices ...T) T { return choices[w.roll(int64(len(choices)))] }

const twoYears = 2 * 365 * 24 * 3600 * 1_000_000

// any is a number up to most, of any length.
func (w *twins) any(most int64) int64 { return 1 + w.roll(most)>>w.roll(44) }

func (w *twins) spec(name string, a store.Algorithm) store.Spec {
	s := store.Spec{Name: name, Algorithm: a}
	s.Units = pick(w, 1, 2, 3, 5, 7, 10, 13, 60, 100, 365, 999, 1000, 7000, 1+w.roll(50), 1+w.roll(1_000_000))
	period := pick(w, time.Millisecond, 100*time.Millisecond, time.Second, time.Second, time.Minute, time.Minute,
		time.Hour, 24*time.Hour, 365*24*time.Hour, 13*time.Microsecond, time.Duration(1+w.roll(1e7))*time.Microsecond)
	burst := pick(w, 0, 0, 1, 2, s.Units/2, 1+w.roll(100), 1+w.roll(1_000_000))
	if w.roll(3) == 0 { // any number at all
		s.Units, period, burst = w.any(store.MaxCost), time.Duration(w.any(twoYears))*time.Microsecond, pick(w, 0, 1, w.any(store.MaxCost))
	}
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
		s.Period, s.Buckets = period, pick(w, 0, 1, 2, 3, 7, 10, 60, 1+w.roll(1000))
	case store.SlidingCounter:
		s.Period = period
	case store.SlidingLog:
		s.Period, s.Units = period, min(s.Units, 200)
	case store.WarmUp:
		s.Period, s.WarmUp = period, pick(w, time.Second, 4*time.Second, 100*time.Millisecond, time.Minute,
			time.Duration(w.any(twoYears))*time.Microsecond)
	case store.Concurrency:
		s.Units = min(s.Units, 50)
	case store.Ban:
		s.Period, s.Units = period, pick(w, 1, 2, 3, 5, 1+w.roll(20))
		s.Ban = pick(w, time.Microsecond, time.Millisecond, period, 2*period, time.Hour)
	default:
		panic("no numbers of " + a.String())
	}
	return s
}

var zones []*time.Location

func init() {
	for _, n := range []string{"Europe/Berlin", "Australia/Lord_Howe", "Pacific/Chatham", "Africa/Casablanca", "Antarctica/Troll", "America/Havana", "Asia/Beirut", "America/Asuncion", "America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati"} {
		l, err := time.LoadLocation(n)
		if err != nil {
			panic(err)
		}
		zones = append(zones, l)
	}
}

func (w *twins) window() store.Window {
	window := pick(w, store.Hourly, store.Daily, store.Weekly, store.Monthly, store.Yearly, store.Every(7*time.Second), store.Every(time.Hour))
	if _, _, fixed := inside.Fixed(window); !fixed && w.roll(2) == 0 {
		window = window.In(pick(w, zones...))
	}
	if w.roll(3) == 0 {
		window = window.From(time.Date(2023+int(w.roll(4)), 1, int(w.roll(400)), 0, 0, int(w.roll(86400)), 0, time.UTC))
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
		was := w.now
		w.pass()
		err := w.expire()
		if w.now < was && err == nil {
			err = w.reread()
		}
		if w.roll(20) == 0 {
			w.reset()
		}
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

// pass has time go by.
func (w *twins) pass() {
	l, was := w.limits[0][0], w.now
	span := w.scale(l)
	w.now += pick(w, 0, 0, 1, w.roll(1+span/max(1, l.Spec().Units)), w.roll(1+span), w.roll(1+2*span), w.roll(1+span/10))
	switch w.roll(12) {
	case 0: // the clock is set
		w.now += pick[int64](w, -1, 1) * w.roll(1+pick(w, span/10, span, 3*span, 1_000_000))
	case 1: // no call comes for long
		w.now += w.roll(1 + pick(w, span*w.roll(1000), 2*365*24*3600*1_000_000))
	}
	w.now = min(max(w.now, earliest), 15*365*24*3600*1_000_000)
	if w.now < was {
		// The steps drop what is over from a state that they only look at, and the server doesn't
		// write it: set back, the clock shows the difference.
		for key, limits := range w.kept() {
			*w.state(key), _, _ = w.stored(key, limits[0])
		}
	}
}

// reread has the steps go on from what the server keeps, since its clock was set back: a look
// has brought a state to the present there only where it has written it.
func (w *twins) reread() error {
	for key, limits := range w.kept() {
		s, _, err := w.stored(key, limits[0])
		if err != nil {
			return err
		}
		*w.state(key) = s
	}
	return nil
}

func (w *twins) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.now)+fmt.Sprintf(format, args...))
}

// told has leases last longer than traces, and the client often wrong about the
// server's clock.
func (w *twins) times(asked []int64) Times {
	wall := w.now + pick(w, 0, 0, 0, -1, 1, 3600_000_000, -3600_000_000, w.roll(3*24*3600_000_000), -w.roll(24*3600_000_000))
	return Times{Clock: strconv.FormatInt(w.now, 10) + ",0", Wall: wall, Asked: asked, Lease: longLease}
}

// longLease is longer than traces.
var longLease = NewLeaseTime(1e15 * time.Microsecond)

// tries is how often a call is made until the script knows all windows that it needs.
const tries = 8

var errAsks = errors.New("the script keeps asking for calendar windows")

// run runs a script, whose lifetimes are counted by the trace's clock.
func (w *twins) run(s *scripts.Script, keys []string, args []any) (any, error) {
	if w.bare {
		return asIs(s).Run(context.Background(), w.rdb, keys, args...).Result()
	}
	expiring, ok := expirings.Load(s.SHA)
	if !ok {
		expiring, _ = expirings.LoadOrStore(s.SHA, redis.NewScript(redistest.Expiring+s.Source))
	}
	return expiring.(*redis.Script).Run(context.Background(), w.rdb, keys, args...).Result()
}

var expirings sync.Map // of the SHA of a script, to the *redis.Script run instead

// asIs is a script as go-redis runs it, which hashes its text anew for each that it makes.
func asIs(s *scripts.Script) *redis.Script {
	known, ok := plains.Load(s.SHA)
	if !ok {
		known, _ = plains.LoadOrStore(s.SHA, redis.NewScript(s.Source))
	}
	return known.(*redis.Script)
}

var plains sync.Map // of the SHA of a script, to its *redis.Script

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
func (w *twins) decision() *Decision {
	d := &Decision{}
	for i := range w.limits {
		if i > 0 && w.roll(4) == 0 {
			continue
		}
		l := pick(w, w.limits[i]...)
		key := pick(w, w.keys...)
		d.Charges = append(d.Charges, store.Charge{
			Key: key, Limit: l, Cost: w.cost(l), MaxWait: w.maxWait(l), DryRun: w.roll(10) == 0, Final: w.roll(4) > 0,
		})
		d.Keys = append(d.Keys, key+":"+l.StateName())
		w.leases++
		d.Leases = append(d.Leases, store.Lease(w.leases))
	}
	d.Results = make([]store.Result, len(d.Charges))
	return d
}

func (w *twins) take() error {
	var ds []*Decision
	if len(w.keys) > 3 && w.roll(2) == 0 { // enough for a script to compare texts
		return w.ask(w.onAll(w.decision()))
	}
	times := pick(w, 1, 1, 1, 4)
	for range pick(w, 1, 1, 2, 5) {
		d := w.decision()
		for range times {
			ds = append(ds, w.again(d))
		}
	}
	return w.ask(ds)
}

// onAll is d on each of the keys.
func (w *twins) onAll(d *Decision) (ds []*Decision) {
	for _, key := range w.keys {
		other := w.again(d)
		other.Charges, other.Keys = slices.Clone(d.Charges), slices.Clone(d.Keys)
		for i := range other.Charges {
			l := other.Charges[i].Limit
			other.Charges[i].Key, other.Keys[i] = key, key+":"+l.StateName()
		}
		ds = append(ds, other)
	}
	return ds
}

// again is d once more, with leases of its own.
func (w *twins) again(d *Decision) *Decision {
	again := *d
	again.Results = make([]store.Result, len(d.Charges))
	again.Leases = slices.Clone(d.Leases)
	for i := range again.Leases {
		w.leases++
		again.Leases[i] = store.Lease(w.leases)
	}
	return &again
}

// ask has both decide ds, in one call.
func (w *twins) ask(ds []*Decision) error {
	for _, d := range ds {
		for i, c := range d.Charges {
			w.note("take %s %v cost %d wait %v dry %v final %v", d.Keys[i], c.Limit.Spec(), c.Cost, c.MaxWait, c.DryRun, c.Final)
		}
	}
	asked := w.foreseen(ds)
	for range tries {
		p := NewTakeCall(ds)
		script, args := p.Args(w.times(asked), 0)
		reply, err := w.run(script, p.Keys, args)
		if err != nil {
			return err
		}
		_, left, err := p.Answer(reply)
		if err != nil {
			return fmt.Errorf("%w: %v", err, reply)
		}
		// In the order of the call: of several ways through the script, a key has one.
		for i := range p.shapes {
			for _, e := range p.shapes[i].entries {
				for _, d := range e.decisions {
					if slices.Contains(left.Items, d) {
						continue
					}
					if err := w.decide(d); err != nil {
						return fmt.Errorf("%w\nanswer %v", err, reply)
					}
				}
			}
		}
		if ds = left.Items; len(ds) == 0 {
			return w.compare()
		}
		asked = append(asked, left.Asked...)
	}
	return errAsks
}

// foreseen returns what the script would ask in a call of several charges: it would look
// at those that it can before it asks, and again after, which rounds twice.
func (w *twins) foreseen(ds []*Decision) (asked []int64) {
	if len(ds) == 1 && len(ds[0].Charges) == 1 {
		return nil
	}
	for _, d := range ds {
		for i := range d.Charges {
			asked = append(asked, w.needs(&d.Charges[i], d.Keys[i])...)
		}
	}
	return asked
}

// needs are the instants around which the script needs windows for a charge.
func (w *twins) needs(c *store.Charge, key string) []int64 {
	if !argsOf(c.Limit).zoned() {
		return nil
	}
	until := w.now + whole(maxWait(c, inside.Terms(c.Limit).Patience))
	return []int64{w.now, inside.State(w.state(key)).W[algorithm.Start], c.Receipt.Instant, until}
}

func (w *twins) state(key string) *store.State {
	if w.states[key] == nil {
		w.states[key] = &store.State{}
	}
	return w.states[key]
}

// decide decides d by the steps.
func (w *twins) decide(d *Decision) error {
	w.decisions++
	states := make([]store.State, len(d.Charges))
	for i, key := range d.Keys {
		states[i] = *w.state(key)
		inside.State(&states[i]).Log = slices.Clone(inside.State(&states[i]).Log)
	}
	results := make([]store.Result, len(d.Charges))
	w.leases++
	now := store.Now{Steady: w.now, Wall: w.now, Lease: store.Lease(w.leases)}
	granted := store.Decide(now, d.Charges, states, results)
	for i, key := range d.Keys {
		*w.state(key) = states[i]
		w.touched[key] = d.Charges[i].Limit
		mine := results[i].Receipt
		if d.Charges[i].Limit.Algorithm() == store.Concurrency && mine.Cost > 0 {
			results[i].Receipt.Lease = d.Leases[i]
		}
		if results[i] != d.Results[i] || granted != d.Granted {
			return fmt.Errorf("charge %d on %s: got %+v, want %+v", i, key, d.Results[i], results[i])
		}
		if results[i].Receipt.Cost > 0 || d.Charges[i].Limit.Algorithm() == store.Ban {
			c := d.Charges[i]
			c.Receipt = results[i].Receipt
			w.taken = append(w.taken, taken{c, key, mine})
		}
	}
	return nil
}

func (w *twins) settle() error {
	var ss []*Settlement
	var which []int
	for range pick(w, 1, 1, 3) {
		i := int(w.roll(int64(len(w.taken))))
		t := &w.taken[i]
		c := t.charge
		c.Cost = pick(w, 0, 0, c.Receipt.Cost, w.roll(c.Receipt.Cost+1), c.Receipt.Cost+1, w.roll(2*c.Receipt.Cost+2), c.Cost)
		if c.Limit.Algorithm() == store.Concurrency {
			c.Cost = min(c.Cost, 1000)
		}
		if w.roll(6) == 0 { // by a caller who has other numbers by now
			c.Limit = pick(w, w.versions(c.Limit)...)
		}
		key := c.Key + ":" + c.Limit.StateName()
		s := &Settlement{Charge: &c, Result: new(store.Result), Key: key}
		if spec := c.Limit.Spec(); spec.Algorithm == store.Ban && w.roll(3) == 0 {
			ban := spec.Ban.Microseconds()
			c.Cost, c.Receipt = 1, store.Receipt{}
			s.BanFor = pick(w, 1000, ban, 2*ban, 1+w.roll(1+2*ban), 1+w.roll(1_000_000))
		}
		w.note("settle %s %v from %d to %d, ban for %d", key, c.Limit.Spec(), c.Receipt.Cost, c.Cost, s.BanFor)
		ss = append(ss, s)
		which = append(which, i)
	}
	var asked []int64
	for _, s := range ss {
		if len(ss) > 1 { // see foreseen
			asked = append(asked, w.needs(s.Charge, s.Key)...)
		}
	}
	for range tries {
		script, keys, args := SettleArgs(Group(ss), w.times(asked), 0)
		reply, err := w.run(script, keys, args)
		if err != nil {
			return err
		}
		_, left, err := SettleAnswer(Group(ss), reply)
		if err != nil {
			return fmt.Errorf("settling: %w", err)
		}
		if err := w.amend(ss, which, left.Items, reply); err != nil {
			return err
		}
		again := make([]int, len(left.Items))
		for i, s := range left.Items {
			again[i] = which[slices.Index(ss, s)]
		}
		if ss, which = left.Items, again; len(ss) == 0 {
			return w.compare()
		}
		asked = append(asked, left.Asked...)
	}
	return errAsks
}

// versions are those of a limit that take turns.
func (w *twins) versions(l *store.Limit) []*store.Limit {
	for _, limits := range w.limits {
		if limits[0].Name() == l.Name() {
			return limits
		}
	}
	return nil
}

// amend settles what the script has settled by the steps.
func (w *twins) amend(ss []*Settlement, which []int, left []*Settlement, reply any) error {
	for i, s := range ss {
		if slices.Contains(left, s) {
			continue
		}
		w.decisions++
		t := &w.taken[which[i]]
		c := *s.Charge
		theirs := c.Receipt.Lease
		c.Receipt.Lease = t.mine.Lease
		var want store.Result
		now := store.Now{Steady: w.now, Wall: w.now}
		settled := *w.state(s.Key)
		inside.State(&settled).Log = slices.Clone(inside.State(&settled).Log)
		if s.BanFor > 0 {
			store.BanFor(now, c.Limit, time.Duration(s.BanFor)*time.Microsecond, &settled, &want)
		} else {
			store.Amend(now, &c, &settled, &want)
		}
		*w.state(s.Key) = settled
		w.touched[s.Key] = c.Limit
		if s.BanFor > 0 {
			if *s.Result != want {
				return fmt.Errorf("banning %s: got %+v, want %+v\nanswer %v", s.Key, *s.Result, want, reply)
			}
			continue
		}
		t.mine = want.Receipt
		want.Receipt.Lease = theirs
		if *s.Result != want {
			return fmt.Errorf("settling %s: got %+v, want %+v\nanswer %v", s.Key, *s.Result, want, reply)
		}
		if w.roll(4) > 0 { // else the spent one stays, and may be handed in again
			t.charge.Receipt = want.Receipt
		} else {
			t.mine = s.Charge.Receipt
			t.mine.Lease = c.Receipt.Lease
		}
	}
	return nil
}

// kept are the keys, with the versions of their limits that have the same states, which the
// server keeps as the steps do: leases have other ids.
func (w *twins) kept() iter.Seq2[string, []*store.Limit] {
	return func(yield func(string, []*store.Limit) bool) {
		for _, limits := range w.limits {
			if limits[0].Algorithm() == store.Concurrency {
				continue
			}
			var names []string
			versions := map[string][]*store.Limit{}
			for _, l := range limits {
				if versions[l.StateName()] == nil {
					names = append(names, l.StateName())
				}
				versions[l.StateName()] = append(versions[l.StateName()], l)
			}
			for _, name := range names {
				for _, k := range w.keys {
					if !yield(k+":"+name, versions[name]) {
						return
					}
				}
			}
		}
	}
}

// stored is the server's value of a key.
func (w *twins) stored(key string, l *store.Limit) (s store.State, raw string, err error) {
	return decoded(l, key, w.value(w.rdb, key, l))
}

// value asks for the server's value of a key.
func (w *twins) value(on redis.Cmdable, key string, l *store.Limit) redis.Cmder {
	if l.Algorithm() == store.SlidingLog {
		return on.LRange(context.Background(), key, 0, -1)
	}
	return on.Get(context.Background(), key)
}

// decoded is the state that the answer to value says.
func decoded(l *store.Limit, key string, value redis.Cmder) (s store.State, raw string, err error) {
	if log, is := value.(*redis.StringSliceCmd); is {
		entries, err := log.Result()
		if err != nil || len(entries) == 0 {
			return s, "", err
		}
		is := inside.State(&s)
		var sum int64
		for i, e := range entries {
			if i > 0 {
				is.Log = append(is.Log, algorithm.Entry{At: is.W[algorithm.Newest], Units: is.W[algorithm.NewestUnits]})
			}
			w := strings.Split(e, ":")
			is.Live, is.W[algorithm.Newest], is.W[algorithm.NewestUnits], is.W[algorithm.Counted], is.W[algorithm.NewestLead] = true, whole(w[0]), whole(w[1]), 0, 0
			if sum += is.W[algorithm.NewestUnits]; i < len(entries)-1 {
				continue
			}
			if is.W[algorithm.Counted] = whole(w[2]); len(w) > 4 {
				is.W[algorithm.NewestLead] = whole(w[4])
			}
		}
		if sum != is.W[algorithm.Counted] {
			err = fmt.Errorf("%s: the newest entry says %d in all, they are %d", key, is.W[algorithm.Counted], sum)
		}
		return s, strings.Join(entries, " "), err
	}
	raw, err = value.(*redis.StringCmd).Result()
	if err != nil && err != redis.Nil {
		return s, raw, err
	}
	err = decode(&store.Charge{Limit: l}, raw, &s)
	return s, raw, err
}

// whole is a number as the scripts write it.
func whole(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// until asks when the server lets a key expire, by the trace's clock.
func (w *twins) until(on redis.Cmdable, key string) *redis.StringCmd {
	return on.Get(context.Background(), redistest.ExpiryOf(key))
}

// expire lets keys expire. What has expired is as if never seen: to whoever
// touched it last, and to all other versions of its limit. Windows of zones are not
// known to others.
func (w *twins) expire() error {
	var untils []*redis.StringCmd
	w.atOnce(func(p redis.Pipeliner) {
		for key := range w.kept() {
			untils = append(untils, w.until(p, key))
		}
	})
	n := 0
	for key, limits := range w.kept() {
		until, err := untils[n].Int64()
		if n++; err != nil {
			continue
		}
		if until > w.now {
			continue
		}
		for _, l := range limits {
			if l != w.touched[key] && (argsOf(l).zoned() || argsOf(w.touched[key]).zoned()) || w.mixed(key, limits) {
				continue
			}
			if got := w.present(*w.state(key), l); got != "none" {
				_, raw, _ := w.stored(key, limits[0])
				return fmt.Errorf("%s has expired at %d: %q, to %+v it is %s", key, until, raw, l.Spec(), got)
			}
		}
		w.forget(key)
	}
	return nil
}

// reset resets a key. Receipts from before may be settled after.
func (w *twins) reset() {
	var keys []string
	for key := range w.kept() {
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		w.forget(pick(w, keys...))
	}
}

func (w *twins) forget(key string) {
	w.note("%s is forgotten", key)
	w.rdb.Del(context.Background(), key, redistest.ExpiryOf(key))
	*w.state(key) = store.State{}
}

// atOnce has ask send its commands together. Each of them has its own error.
func (w *twins) atOnce(ask func(redis.Pipeliner)) {
	p := w.rdb.Pipeline()
	ask(p)
	_, _ = p.Exec(context.Background())
}

// compare holds what the server keeps to the states of the steps.
func (w *twins) compare() error {
	var values []redis.Cmder
	var untils []*redis.StringCmd
	w.atOnce(func(p redis.Pipeliner) {
		for key, limits := range w.kept() {
			values, untils = append(values, w.value(p, key, limits[0])), append(untils, w.until(p, key))
		}
	})
	n := -1
	for key, limits := range w.kept() {
		n++
		got, raw, err := decoded(limits[0], key, values[n])
		if err != nil {
			return err
		}
		if w.mixed(key, limits) && slices.ContainsFunc(limits, func(l *store.Limit) bool {
			return w.present(got, l) == "none" && w.present(*w.state(key), l) == "none"
		}) {
			w.forget(key) // a look may drop a state that is over, though others take it for longer
			continue
		}
		for _, l := range limits {
			if want := *w.state(key); w.present(got, l) != w.present(want, l) {
				return fmt.Errorf("%s: the server keeps %q, %s, the steps %s, to %+v", key, raw, w.present(got, l), w.present(want, l), l.Spec())
			}
		}
		if a := limits[0].Algorithm(); a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket {
			// A look has the steps drop KeptUntil if that is over, and the server keep it: that differs
			// if the clock is set back behind it.
			*w.state(key) = got
		}
		if !slices.ContainsFunc(limits, func(l *store.Limit) bool { return w.present(*w.state(key), l) != "none" }) {
			w.forget(key) // as a store may, or may not
			continue
		}
		if err := w.lives(key, raw, untils[n], limits); err != nil {
			return err
		}
	}
	return nil
}

// mixed tells whether not all versions know when a state is over: it is in windows of a calendar
// that not all know, or what is reserved in later windows takes more of them for some.
func (w *twins) mixed(key string, limits []*store.Limit) bool {
	is := inside.State(w.state(key))
	if limits[0].Algorithm() == store.FixedWindow && is.W[algorithm.Later] > 0 {
		return len(limits) > 1
	}
	units := []int64{is.Numbers.Unit}
	if l := limits[0]; l.Algorithm() == store.IntervalBucket { // it may be converted by any version
		for _, l := range limits {
			units = append(units, inside.Terms(l).Numbers.Unit)
		}
	}
	return slices.ContainsFunc(units, func(unit int64) bool {
		another := func(l *store.Limit) bool { return inside.Terms(l).Numbers.Unit != unit }
		return unit < 0 && -unit%8 > 1 && slices.ContainsFunc(limits, another)
	})
}

// lives holds a key's lifetime, where it has just been set, to what is left of its
// state: no shorter, and no longer than twice the time to full and ten seconds.
func (w *twins) lives(key, raw string, at *redis.StringCmd, limits []*store.Limit) error {
	l := w.touched[key]
	until, err := at.Int64()
	if err != nil {
		return fmt.Errorf("%s: %q has no lifetime: %w", key, raw, err)
	}
	was := w.untils[key]
	w.untils[key] = until
	if w.mixed(key, limits) {
		return nil
	}
	charges := []store.Charge{{Limit: l}}
	states, results := []store.State{*w.state(key)}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: w.now, Wall: w.now}, charges, states, results)
	left := l.Lifetime(store.Now{Steady: w.now, Wall: w.now}, &states[0], &results[0]).Microseconds()
	if until-w.now > 100*365*24*3600*1_000_000 {
		return nil // nothing is looked for beyond 200 years
	}
	if got := w.presentAt(until, *w.state(key), l); got != "none" {
		return fmt.Errorf("%s: %q expires in %d us, and is %s then", key, raw, until-w.now, got)
	}
	full := left
	for _, l := range limits { // another may have set it, and this one only looked
		if t := inside.Terms(l); t.Scale.PerTick > 0 && t.Capacity > 0 {
			full = max(full, t.Capacity/t.Scale.PerTick*t.Scale.Tick())
		}
		if l.Algorithm() == store.IntervalBucket {
			full = max(full, l.Lifetime(store.Now{Steady: w.now, Wall: w.now}, w.state(key), &store.Result{}).Microseconds())
		}
	}
	if until != was && until-w.now > 2*full+10_002_000 {
		return fmt.Errorf("%s: %q expires in %d us and is full in %d", key, raw, until-w.now, full)
	}
	return nil
}

// present is a state's words as of now, under one of the limit's versions.
func (w *twins) present(s store.State, l *store.Limit) string { return w.presentAt(w.now, s, l) }

func (w *twins) presentAt(at int64, s store.State, l *store.Limit) string {
	inside.State(&s).Log = slices.Clone(inside.State(&s).Log)
	charges := []store.Charge{{Limit: l}}
	states, results := []store.State{s}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: at, Wall: at}, charges, states, results)
	s = states[0]
	if l.Lifetime(store.Now{Steady: at, Wall: at}, &s, &results[0]) == 0 {
		return "none"
	}
	return fmt.Sprintf("%+v", s)
}
