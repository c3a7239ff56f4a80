package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// entries is the state in a list of entries, or in the text of a window.
func (p *pair) entries(a store.Algorithm) (s engine.State) {
	p.t.Helper()
	if a == store.SlidingWindow {
		return windowed(p.t, p.dump())
	}
	var sum, total int64
	for i, e := range p.rdb.LRange(context.Background(), p.key, 0, -1).Val() {
		w := numbers(p.t, strings.TrimSuffix(e, ":")+":0:0:0")
		if i > 0 {
			s.Log = append(s.Log, engine.Entry{At: s.A, Units: s.B})
		}
		s.Live, s.A, s.B, s.E, total = true, w[0], w[1], w[4], w[2]
		if s.B <= 0 {
			p.t.Fatalf("%s is empty", e)
		}
		sum += s.B
	}
	if s.C = sum; sum != total {
		p.t.Fatalf("the newest entry says %d in all, they are %d", total, sum)
	}
	return s
}

// windowed is the state in the text of a window.
func windowed(t *testing.T, text string) (s engine.State) {
	if text == "" {
		return s
	}
	head, older, _ := strings.Cut(text, ";")
	w := numbers(t, head)
	s = engine.State{Live: true, E: w[0], A: w[1], B: w[2] - w[3], C: w[2]}
	at := s.A - w[4]
	for older != "" {
		var entry string
		entry, older, _ = strings.Cut(older, ";")
		e := numbers(t, entry)
		s.Log = append(s.Log, engine.Entry{At: at, Units: e[0]})
		at += e[1]
		w[3] -= e[0]
	}
	if at != s.A || w[3] != 0 || s.B <= 0 {
		t.Fatalf("the sums of %s are wrong", text)
	}
	return s
}

// answered is the state that an answer tells of: of a log, the entries that the step asks for.
func (a answer) answered(t *testing.T, of store.Algorithm) (s engine.State) {
	if of == store.SlidingWindow {
		return windowed(t, a.raw)
	}
	head, between, _ := strings.Cut(a.raw, ";")
	w := numbers(t, head)
	if w == nil {
		return s
	}
	w = append(w, 0)
	s = engine.State{Live: true, A: w[0], B: w[1], C: w[2], E: w[4]}
	sum := int64(0)
	if w[3] > 0 {
		s.Log, sum = []engine.Entry{{At: s.A - w[3], Units: 1}}, 1
	}
	for between != "" {
		var entry string
		entry, between, _ = strings.Cut(between, ";")
		e := numbers(t, entry)
		if e[0] == s.A {
			e[1] -= s.B
		}
		s.Log = append(s.Log, engine.Entry{At: e[0], Units: e[1] - sum})
		sum = e[1]
	}
	return s
}

// TestSlidingTwins compares the algorithms whose state is a list of entries with their
// step, entry by entry.
func TestSlidingTwins(t *testing.T) {
	for _, a := range []store.Algorithm{store.SlidingWindow, store.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			ran := map[string]int{}
			p := newPair(t, a)
			for seed := range traces(150) {
				p.begin(uint64(seed))
				p.traceSliding(a, ran)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Log(ran)
		})
	}
}

func (p *pair) traceSliding(a store.Algorithm, ran map[string]int) {
	r := p.rnd
	limits := drawLimits(r, a)
	small := r.IntN(2) == 0 // many entries
	var last store.Result
	var made []store.Receipt
	for range 4 + r.IntN(50+250*pick(small, 1, 0)) {
		l := limits[0]
		if r.IntN(4) == 0 {
			l = oneOf(r, limits...)
		}
		c := p.draw(l, last, made)
		if small && p.now < latest {
			p.now += r.Int64N(length(l)/50 + 2)
			if c.op == "take" && r.IntN(8) > 0 {
				c.cost = min(c.cost, 1+r.Int64N(3))
			}
		} else {
			p.step(l, last)
		}
		if !p.sliding(l, c, &last) {
			return
		}
		ran[fmt.Sprintf("%s %v", c.op, last.OK)]++
		if last.Receipt.Cost > 0 || c.op == "settle" {
			made = append(made, last.Receipt)
		}
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// sliding makes one call of the script and of the step.
func (p *pair) sliding(l *store.Limit, c call, last *store.Result) bool {
	p.t.Helper()
	before := p.entries(l.Algorithm())
	want, result := p.oracle(l, c, before)
	got := p.send(l, c, nil)
	after := p.entries(l.Algorithm())
	present, stands := p.oracle(l, call{op: "take"}, after)
	fail := func(format string, args ...any) bool {
		p.t.Errorf("%+v at %d: %v\nstate %+v\n%s", l.Spec(), p.now, c, before, fmt.Sprintf(format, args...))
		return false
	}
	if want.Live != present.Live || want.A != present.A || want.B != present.B || want.C != present.C || !slices.Equal(want.Log, present.Log) {
		return fail("got  %+v\nwant %+v", present, want)
	}
	if c.op == "take" {
		if _, again := p.oracle(l, c, got.answered(p.t, l.Algorithm())); again != result || got.ok != result.OK {
			return fail("%v, answer %s\ngot  %+v\nwant %+v", got.ok, got.raw, again, result)
		}
	} else if _, peek := p.oracle(l, call{op: "take"}, p.settled(l, c, got)); peek != stands {
		return fail("answer %s\ngot  %+v\nwant %+v", got.raw, peek, stands)
	}
	if c.op == "take" && result.OK && c.cost > 0 {
		_, peek := p.oracle(l, call{op: "take"}, want)
		until, _ := p.rdb.Get(context.Background(), p.key+"!until").Int64()
		slack := min(l.Spec().Period, 10*time.Second).Microseconds()
		if lasts := lifetime(l, p.now, want, &peek).Microseconds(); until-p.now < lasts || until-p.now > lasts+slack+2000 {
			return fail("expires after %d us, lasts %d us", until-p.now, lasts)
		}
	}
	*last = result
	return true
}

// settled is the state after a settlement, as its answer tells: of a log what is left, of
// a window what was found.
func (p *pair) settled(l *store.Limit, c call, got answer) engine.State {
	s := got.answered(p.t, l.Algorithm())
	if l.Algorithm() == store.SlidingWindow {
		s, _ = p.oracle(l, c, s)
	}
	return s
}

// TestWindowWithoutLifetime denies a charge on a key whose lifetime was removed,
// in a later bucket than the one it was charged in.
func TestWindowWithoutLifetime(t *testing.T) {
	ctx, p := context.Background(), newPair(t, store.SlidingWindow)
	p.begin(1)
	p.now = 0
	l, err := store.NewLimit(store.Spec{Name: "limit", Algorithm: store.SlidingWindow, Units: 2, Period: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.send(l, call{op: "take", cost: 2}, nil); !got.ok {
		t.Fatal(got)
	}
	p.rdb.Del(ctx, p.key+"!until")
	p.now = 1_500_000
	if got := p.send(l, call{op: "take", cost: 1}, nil); got.ok {
		t.Fatal(got)
	}
	until, err := p.rdb.Get(ctx, p.key+"!until").Int64()
	if full := int64(10_000_000); err != nil || until < full || until > full+2_000_000 {
		t.Errorf("expires at %d, is full at %d: %v", until, full, err)
	}
}

// TestSlidingLongLists goes through lists that are read in several parts.
func TestSlidingLongLists(t *testing.T) {
	p := newPair(t, store.SlidingLog)
	p.begin(1)
	p.now = 0
	l, err := store.NewLimit(store.Spec{Name: "limit", Algorithm: store.SlidingLog, Units: 2500, Period: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	var last store.Result
	var made []store.Receipt
	for range 2500 {
		p.now += 100
		c := call{op: "take", cost: 1}
		got := p.send(l, c, nil)
		_, last = p.oracle(l, c, got.answered(t, l.Algorithm()))
		if !last.OK {
			t.Fatal("denied")
		}
		made = append(made, last.Receipt)
	}
	r := rand.New(rand.NewPCG(1, 2))
	p.now = 1_000_050 // entries leave from here on, 100 every 10 ms
	for range 250 {
		p.now += oneOf[int64](r, 0, 1, 100, 3000, 10_000)
		c := call{op: "settle", receipt: oneOf(r, oneOf(r, made...), made[len(made)-1-r.IntN(20)])}
		if r.IntN(2) == 0 {
			c = call{op: "take", cost: oneOf[int64](r, 0, 1, 500, 1000, 2500), maxWait: oneOf[int64](r, 0, 0, 0, 1000)}
		}
		if !p.sliding(l, c, &last) {
			return
		}
	}
}
