package lua_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shim stands before a script: what expires in it expires by the test's clock, which
// stands still between two calls. When a key does is noted in another, and whether this
// call has said so.
const shim = `
local call_, told_ = redis.call, string.match(ARGV[1], '(-?%d+),') + 0
local function set_(key, ms)
  call_('SET', key .. '!until', string.format('%.0f', told_ + ms * 1000))
  call_('SET', key .. '!told', ms)
end
local function noting(run) return function(...)
  local a = {...}
  if a[1] == 'PEXPIRE' then
    set_(a[2], a[3])
    return 1
  elseif a[1] == 'PTTL' then
    local at = call_('GET', a[2] .. '!until')
    return at and math.floor((at - told_) / 1000) or -1
  elseif a[1] == 'SET' and a[4] == 'PX' then
    set_(a[2], a[5])
    a[4], a[5] = nil, nil
  elseif a[1] == 'SET' then
    a[4] = nil
  end
  return run((unpack or table.unpack)(a))
end end
local redis = {call = noting(redis.call), pcall = noting(redis.pcall)}
`

// sets are the algorithms as the scripts know them.
var sets = map[store.Algorithm]scripts.Set{
	store.IntervalBucket: scripts.IntervalBucket, store.FixedWindow: scripts.FixedWindow, store.SlidingWindow: scripts.SlidingWindow,
	store.SlidingCounter: scripts.SlidingCounter, store.SlidingLog: scripts.SlidingLog, store.WarmUp: scripts.WarmUp, store.Concurrency: scripts.Concurrency,
}

var letters = map[store.Algorithm]string{
	store.IntervalBucket: "i", store.FixedWindow: "f", store.SlidingWindow: "s",
	store.SlidingCounter: "k", store.SlidingLog: "g", store.WarmUp: "w", store.Concurrency: "c",
}

// arguments are those of a charge, as the algorithm's file says.
func arguments(l *store.Limit, c call, spans []engine.Span) []any {
	t, s := l.Engine(engine.Access{}).Terms(), l.Spec()
	wait := any("")
	if c.maxWait > 0 {
		wait = min(c.maxWait, t.Patience)
	}
	windows := func(r ...any) []any {
		if length, ok := s.Window.Engine(engine.Access{}).Fixed(); ok {
			near := s.Window.Engine(engine.Access{}).Around(spans[0].Start, 0, 2)
			return append(append([]any{fmt.Sprintf("%d,1", length)}, r...), near[0].Start, near[1].Start, near[2].Start)
		} else if s.Period > 0 {
			return append(append([]any{fmt.Sprintf("%d,0", t.Period)}, r...), t.Period, "", "")
		}
		told, pairs := "", 0
		for i, w := range spans {
			told += fmt.Sprintf(",%d,%d", w.Number, w.Start)
			pairs++
			if i == len(spans)-1 || spans[i+1].Start != w.End {
				told += fmt.Sprintf(",-,%d", w.End)
				pairs++
			}
		}
		limit := fmt.Sprintf("%d,2,%d%s", s.Window.Engine(engine.Access{}).Nominal(), pairs, told)
		near := s.Window.Engine(engine.Access{}).Around(spans[0].Start, 0, 2)
		return append(append([]any{limit}, r...), near[0].Start, near[1].Start, near[2].Start)
	}
	tick := int64(1)
	for range t.Scale.Exponent {
		tick *= 10
	}
	switch s.Algorithm {
	case store.IntervalBucket:
		return windows(c.cost, wait, s.Units, t.Numbers.Unit, s.Burst)
	case store.FixedWindow:
		head, room := "", ""
		if s.Period == 0 && spans[0].Start >= 0 && spans[0].Start%60_000_000 == 0 {
			head = fmt.Sprintf("1%08d", spans[0].Start/60_000_000)
		}
		if most := min(s.Units, 9_999_999_999) - c.cost; c.cost > 0 && most >= 0 {
			room = fmt.Sprintf("%010d", most)
		}
		return windows(c.cost, wait, s.Units, head, room)
	case store.SlidingWindow:
		return []any{s.Units, c.cost, min(c.maxWait, t.Patience), t.Token, t.Scale.PerTick, tick, s.Buckets}
	case store.SlidingCounter:
		return []any{c.cost, wait, s.Units, t.Period}
	case store.SlidingLog:
		return []any{s.Units, c.cost, min(c.maxWait, t.Patience), t.Period}
	case store.WarmUp:
		return []any{fmt.Sprintf("%d,%d", t.Largest, t.Longest), c.cost, c.maxWait, t.Token, t.Scale.PerTick, tick, t.Scale.Code(), t.Warm}
	default:
		return []any{c.cost, s.Units, leaseTime, 2 * (leaseTime/1000 + 1)}
	}
}

const leaseTime = 15_000_000

// pair is a key in the server, and the step that its scripts must equal.
type pair struct {
	t            *testing.T
	rdb          *redis.Client
	take, settle *redis.Script
	key          string
	rnd          *rand.Rand
	now          int64
}

type call struct {
	op      string
	cost    int64
	maxWait int64
	receipt store.Receipt
	lease   store.LeaseID
}

type answer struct {
	asked      []int64
	ok         bool
	raw, after string
	ttl        int64 // -1: none was set
}

func (p *pair) send(l *store.Limit, c call, spans []engine.Span) answer {
	p.t.Helper()
	script, args := p.take, []any{fmt.Sprintf("%d,0", p.now), 1}
	if c.op == "take" {
		args = append(args, "+"+letters[l.Algorithm()], 1, "", "", "", string(c.lease[:]))
		args = append(args, arguments(l, c, spans)...)
	} else {
		script = p.settle
		args = append(args, letters[l.Algorithm()], 1, c.cost, c.receipt.Cost, c.receipt.Instant, c.receipt.Mark, string(c.lease[:]), "")
		args = append(args, arguments(l, call{cost: 1}, spans)...)
	}
	if l.Algorithm() == store.Concurrency || l.Algorithm() == store.SlidingLog {
		args = append(args, 0)
	}
	ctx, pipe := context.Background(), p.rdb.Pipeline()
	pipe.Del(ctx, p.key+"!told")
	run := script.EvalSha(ctx, pipe, []string{p.key}, args...)
	dump, told := pipe.Get(ctx, p.key), pipe.Get(ctx, p.key+"!told")
	_, _ = pipe.Exec(ctx) // fails where a key isn't there, too
	reply, err := run.Slice()
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{ok: reply[1] == int64(1), ttl: -1, after: dump.Val()}
	if found := reply[len(reply)-1]; found != nil {
		a.raw = fmt.Sprint(found)
	}
	if asked, ok := strings.CutPrefix(a.raw, "?"); ok {
		for word := range strings.SplitSeq(asked, ",") {
			a.asked = append(a.asked, number(p.t, word))
		}
	}
	if _, left, ok := strings.Cut(a.raw, "|"); ok {
		a.raw = left
	}
	if ms, err := told.Int64(); err == nil {
		a.ttl = ms
	}
	return a
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func numbers(t testing.TB, s string) []int64 {
	t.Helper()
	if s == "" {
		return nil
	}
	var ns []int64
	for w := range strings.SplitSeq(s, ":") {
		ns = append(ns, number(t, w))
	}
	return ns
}

// zoned tells windows that the script has to be told of.
func zoned(l *store.Limit) bool {
	w := l.Spec().Window
	_, fixed := w.Engine(engine.Access{}).Fixed()
	return w != (store.Window{}) && !fixed
}

// ask sends few windows of the calendar first, and those that the script asks for.
func (p *pair) ask(l *store.Limit, c call) answer {
	p.t.Helper()
	var spans []engine.Span
	w := l.Spec().Window
	if w != (store.Window{}) {
		at := p.now
		if p.rnd.IntN(4) == 0 {
			at += p.rnd.Int64N(1e12) - 5e11
		}
		spans = w.Engine(engine.Access{}).Around(at, p.rnd.IntN(4), p.rnd.IntN(4))
	}
	for range 8 {
		a := p.send(l, c, spans)
		if len(a.asked) == 0 {
			return a
		}
		for _, at := range a.asked {
			spans = append(spans, w.Engine(engine.Access{}).Around(at, p.rnd.IntN(2), p.rnd.IntN(2))...)
		}
		slices.SortFunc(spans, func(a, b engine.Span) int { return cmp.Compare(a.Start, b.Start) })
		spans = slices.Compact(spans)
	}
	p.t.Fatal("the script asks for ever more of the calendar")
	return answer{}
}

func (p *pair) dump() string { return p.rdb.Get(context.Background(), p.key).Val() }

func newPair(t *testing.T, a store.Algorithm) *pair {
	take, settle := redis.NewScript(shim+scripts.Take(sets[a]).Source), redis.NewScript(shim+scripts.Settle(sets[a]).Source)
	rdb := client(t)
	for _, script := range []*redis.Script{take, settle} {
		if err := script.Load(context.Background(), rdb).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return &pair{t: t, rdb: rdb, take: take, settle: settle}
}

// begin begins a trace on a fresh key.
func (p *pair) begin(seed uint64) {
	p.key, p.rnd = redistest.Prefix(p.t)+"k", rand.New(rand.NewPCG(seed, 0x5717))
	p.now = oneOf(p.rnd, 0, p.rnd.Int64N(4e14), p.rnd.Int64N(3e13), -p.rnd.Int64N(5e14))
}

// latest is how far a trace may go: what is exact in a double ends after 20
// years.
const latest = 15 * 365 * 24 * 3600 * 1e6

func client(t *testing.T) *redis.Client { return redistest.Shared(t).Client() }

func traces(n int) int {
	if os.Getenv("STINT_LONG") != "" {
		return 50 * n
	}
	if testing.Short() {
		return n / 8
	}
	return n / 2
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Africa/Cairo"}

func drawLimit(r *rand.Rand, a store.Algorithm) *store.Limit {
	for {
		s := store.Spec{Name: "limit", Algorithm: a}
		s.Units = oneOf(r, 1, 2, 3, 5, 10, 60, 100, 365, 999, 1000, 7000, 1_000_000, 1+r.Int64N(20), 1+r.Int64N(2000), 1+r.Int64N(store.MaxCost))
		s.Period = oneOf(r, time.Second, time.Minute, time.Hour, 24*time.Hour, 100*time.Millisecond, 7*time.Second,
			time.Microsecond, 13*time.Microsecond, 365*24*time.Hour, micros(1+r.Int64N(10_000_000)))
		calendar := func() {
			s.Period = 0
			loc, err := time.LoadLocation(oneOf(r, zones...))
			if err != nil {
				panic(err)
			}
			s.Window = oneOf(r, store.Every(oneOf(r, time.Second, time.Minute, time.Hour, 24*time.Hour, 7*time.Microsecond, micros(1+r.Int64N(100_000_000)))),
				store.Hourly.In(loc), store.Daily.In(loc), store.Weekly.In(loc), store.Monthly.In(loc))
		}
		switch a {
		case store.IntervalBucket:
			s.Burst = oneOf(r, 0, 1, 2, 3, 10, 2*s.Units, 1+r.Int64N(5000))
			if s.Burst/s.Units > 100 {
				continue
			}
			if r.IntN(2) == 0 {
				calendar()
			}
		case store.FixedWindow:
			if r.IntN(2) == 0 {
				calendar()
			}
		case store.SlidingWindow:
			s.Buckets = oneOf(r, 0, 1, 2, 3, 7, 10, 60, 1+r.Int64N(100))
		case store.WarmUp:
			s.WarmUp = oneOf(r, s.Period, 4*s.Period, 10*time.Second, time.Minute, micros(1+r.Int64N(10_000_000)))
		case store.Concurrency:
			s.Period = 0
			s.Units = min(s.Units, 50)
		}
		if l, err := store.NewLimit(s); err == nil {
			return l
		}
	}
}

// drawLimits draws a limit and what it was or becomes, as far as they share a state.
func drawLimits(r *rand.Rand, a store.Algorithm) []*store.Limit {
	ls := []*store.Limit{drawLimit(r, a)}
	for r.IntN(3) == 0 {
		if r.IntN(2) == 0 {
			if l := drawLimit(r, a); l.StateName() == ls[0].StateName() {
				ls = append(ls, l)
			}
			continue
		}
		s := ls[0].Spec()
		switch r.IntN(3) {
		case 0:
			s.Units = max(1, s.Units+r.Int64N(11)-5)
		case 1:
			if s.Burst > 0 {
				s.Burst = max(1, s.Burst+r.Int64N(11)-5)
			}
		case 2:
			if s.Period > 0 {
				s.Period *= 2
			}
		}
		if s.Burst/s.Units > 100 {
			continue
		}
		if l, err := store.NewLimit(s); err == nil && l.StateName() == ls[0].StateName() {
			ls = append(ls, l)
		}
	}
	return ls
}

// length is about how long the limit's window is.
func length(l *store.Limit) int64 {
	s := l.Spec()
	return max(1, s.Period.Microseconds(), s.Window.Length(time.Unix(0, 0)).Microseconds())
}

func (p *pair) step(l *store.Limit, last store.Result) {
	n, r := length(l), p.rnd
	d := oneOf(r, 0, 0, 0, 0, 1, r.Int64N(n), r.Int64N(n), r.Int64N(n/max(1, l.Spec().Units)+2), n, n-1, n+1,
		last.ResetAfter.Microseconds(), last.ResetAfter.Microseconds()-1, last.ResetAfter.Microseconds()+1,
		last.Delay.Microseconds(), r.Int64N(5)*n)
	if last.RetryAfter != store.Never && r.IntN(4) == 0 {
		d = last.RetryAfter.Microseconds() - r.Int64N(2)
	}
	if r.IntN(40) == 0 {
		d = -r.Int64N(2 * n) // the server's clock has been set back
	}
	if p.now+d < latest {
		p.now += max(d, -1e12)
	}
}

func (p *pair) draw(l *store.Limit, last store.Result, made []store.Receipt) call {
	r, n := p.rnd, length(l)
	if len(made) > 0 && r.IntN(4) == 0 {
		c := call{op: "settle", receipt: oneOf(r, made...)}
		if r.IntN(2) == 0 {
			c.receipt = made[len(made)-1]
		}
		c.cost = oneOf(r, 0, 0, r.Int64N(c.receipt.Cost+1), c.receipt.Cost, c.receipt.Cost+r.Int64N(4))
		c.lease = c.receipt.Lease
		return c
	}
	c := call{op: "take"}
	all := max(l.Spec().Units, l.Spec().Burst)
	c.cost = oneOf(r, 0, 1, 1, 1, 2, 3, last.Remaining, last.Remaining+1, all, all+1, r.Int64N(all+3), r.Int64N(all/3+2))
	if l.Spec().Algorithm == store.WarmUp {
		c.cost = min(c.cost, 1<<20)
	}
	if r.IntN(3) == 0 {
		c.maxWait = oneOf(r, 1, r.Int64N(n), n, 3*n, r.Int64N(n/max(1, all)+2), 365*24*3600*1e6)
		if last.RetryAfter != store.Never && last.RetryAfter > 0 {
			c.maxWait = oneOf(r, c.maxWait, last.RetryAfter.Microseconds(), last.RetryAfter.Microseconds()-1)
		}
		c.maxWait = max(0, min(c.maxWait, 365*24*3600*1e6))
	}
	return c
}

// oracle runs the step on s.
func (p *pair) oracle(l *store.Limit, c call, s engine.State) (engine.State, store.Result) {
	s.Log = slices.Clone(s.Log)
	now := store.Now{Steady: p.now, Wall: p.now, Lease: c.lease}
	states, results := []store.State{stateOf(s)}, make([]store.Result, 1)
	charge := store.Charge{Limit: l, Cost: c.cost, MaxWait: micros(c.maxWait), Receipt: c.receipt}
	if c.op == "take" {
		store.Decide(now, []store.Charge{charge}, states, results)
	} else {
		store.Amend(now, &charge, &states[0], &results[0])
	}
	return *states[0].Engine(engine.Access{}), results[0]
}

// lifetime is how long the step says that s is kept.
func lifetime(l *store.Limit, now int64, is engine.State, r *store.Result) time.Duration {
	s := stateOf(is)
	return l.Lifetime(store.Now{Steady: now, Wall: now}, &s, r)
}

func stateOf(is engine.State) (s store.State) {
	*s.Engine(engine.Access{}) = is
	return s
}

func (c call) String() string {
	return fmt.Sprintf("%s cost %d, wait %d, %+v", c.op, c.cost, c.maxWait, c.receipt)
}
