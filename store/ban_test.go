package store

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
)

// Bans agree with a model that keeps every denial for ever and counts anew each time.
func TestBanModel(t *testing.T) {
	begun, denied, granted := 0, 0, 0
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n, within, d := 1+rnd.Int64N(6), 1+rnd.Int64N(50), 1+rnd.Int64N(80)
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		ban, err := NewLimit(Spec{Name: "ban", Algorithm: Ban, Units: n, Period: us(within), Ban: us(d)})
		if err != nil {
			t.Fatal(err)
		}
		rate, err := NewLimit(Spec{Name: "rate", Units: 1, Period: us(1 + rnd.Int64N(20))})
		if err != nil {
			t.Fatal(err)
		}
		var denials []int64
		since, until := int64(0), int64(math.MinInt64) // of the last ban
		states, results := make([]State, 2), make([]Result, 2)
		for now := rnd.Int64N(1000) - 500; len(denials) < 40; now += rnd.Int64N(12) {
			charges := []Charge{{Key: "k", Limit: rate, Cost: rnd.Int64N(3)}, {Key: "k", Limit: ban, Cost: 1, Final: true}}
			passes := Decide(Now{Steady: now}, charges, states, results)
			counted := func() (count int64) {
				for i, at := range denials {
					if int64(i) >= since && at > now-within {
						count++
					}
				}
				return count
			}
			want := Result{OK: true}
			switch {
			case now < until:
				want.OK, want.RetryAfter = false, us(until-now)
				denied++
			case !passes:
				if denials = append(denials, now); counted() >= n {
					since, until = int64(len(denials)), now+d
					want.OK, want.RetryAfter, want.Begun = false, us(d), true
					begun++
				}
			default:
				granted++
			}
			if now >= until {
				want.Remaining = n - counted()
			}
			if r := results[1]; r.OK != want.OK || r.RetryAfter != want.RetryAfter || r.Begun != want.Begun || r.Remaining != want.Remaining || passes && now < until || r.Receipt != (Receipt{}) {
				t.Fatalf("seed %d, %d denials in %d, for %d: at %d, denied at %v: got %+v, want %+v", seed, n, within, d, now, denials, r, want)
			}
			if s := states[1].open(); int64(len(s.Log)) >= n && n > 1 || !s.Live && results[1].ResetAfter != 0 {
				t.Fatalf("seed %d at %d: %+v", seed, now, s)
			}
			if now > 1_000_000 {
				break // costs of 0 and 1 may never be denied
			}
		}
	}
	if begun < 1000 || denied < 1000 || granted < 1000 {
		t.Errorf("%d bans, %d denied by them, %d granted", begun, denied, granted)
	}
}

// Settle counts one denial if it raises the cost, and nothing while the key is banned. No cost that is
// lower or the same changes a ban.
func TestBanAmend(t *testing.T) {
	ban, err := NewLimit(Spec{Name: "ban", Algorithm: Ban, Units: 3, Period: time.Minute, Ban: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	now := Now{Steady: 1000}
	for _, s := range []algorithm.State{{}, {Live: true, Numbers: ban.steps().Terms().Numbers, Log: []algorithm.Entry{{At: 900, Units: 1}}}, {Live: true, Numbers: ban.steps().Terms().Numbers, W: algorithm.Words{algorithm.BannedUntil: 2000, algorithm.BanLength: 1500}}} {
		for _, cost := range []int64{0, 1} {
			after, r := State{}, Result{}
			*after.open() = s
			c := Charge{Key: "k", Limit: ban, Cost: cost, Receipt: Receipt{Cost: 1, Instant: 900, Mark: 1}}
			Amend(now, &c, &after, &r)
			if after.open().W[algorithm.BannedUntil] != s.W[algorithm.BannedUntil] || len(after.open().Log) != len(s.Log) || after.open().Live != s.Live {
				t.Errorf("%+v settled to %d: %+v", s, cost, after)
			}
		}
	}
	state, r := State{}, Result{}
	for i, want := range []Result{
		{OK: true, Remaining: 2}, {OK: true, Remaining: 1}, {Begun: true, RetryAfter: time.Hour}, {RetryAfter: time.Hour},
	} {
		c := Charge{Key: "k", Limit: ban, Cost: 1 + int64(i)}
		if Amend(now, &c, &state, &r); r.OK != want.OK || r.Remaining != want.Remaining || r.Begun != want.Begun || r.RetryAfter != want.RetryAfter {
			t.Errorf("denial %d: %+v, want %+v", i+1, r, want)
		}
	}
}

// If the clock is set back, no denial is forgotten before its time, and no ban is
// prolonged.
func TestBanClockSetBack(t *testing.T) {
	newLimit := func(s Spec) *Limit {
		l, err := NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ban := newLimit(Spec{Name: "ban", Algorithm: Ban, Units: 3, Period: 100 * time.Microsecond, Ban: time.Millisecond})
	rate := newLimit(Spec{Name: "rate", Units: 1, Period: time.Hour})
	states, results := make([]State, 2), make([]Result, 2)
	charges := []Charge{{Key: "k", Limit: rate, Cost: 1}, {Key: "k", Limit: ban, Cost: 1, Final: true}}
	for i, step := range []struct {
		at    int64
		left  int64
		reset int64 // us
	}{
		{1000, 3, 0}, {1000, 2, 100}, {950, 1, 100}, // both as if at 950
		{1049, 0, 1000},              // with both
		{1050, 0, 999}, {2048, 0, 1}, // banned
		{1000, 0, 1000}, {1999, 0, 1}, // and for no longer than it was to be
		{2000, 2, 100},
	} {
		Decide(Now{Steady: step.at}, charges, states, results)
		if r := results[1]; r.Remaining != step.left || r.ResetAfter != time.Duration(step.reset)*time.Microsecond {
			t.Fatalf("%d, at %d: %+v, want %d left, reset after %d us", i, step.at, r, step.left, step.reset)
		}
	}
}

func TestBanSpec(t *testing.T) {
	good := Spec{Name: "ban", Algorithm: Ban, Units: 3, Period: time.Minute, Ban: time.Hour}
	if _, err := NewLimit(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"ban 0s":                       func(s *Spec) { s.Ban = 0 },
		"ban 1ns":                      func(s *Spec) { s.Ban = 1 },
		"at most a year":               func(s *Spec) { s.Ban = 366 * 24 * time.Hour },
		"1001 denials: use 1 to 1000":  func(s *Spec) { s.Units = 1001 },
		"0 denials":                    func(s *Spec) { s.Units = 0 },
		"a period of 0s":               func(s *Spec) { s.Period = 0 },
		"Ban has no burst":             func(s *Spec) { s.Burst = 3 },
		"Ban has no queue":             func(s *Spec) { s.Queue = 3 },
		"Ban can't have a Window":      func(s *Spec) { s.Period, s.Window = 0, Daily },
		"Ban: TokenBucket doesn't ban": func(s *Spec) { s.Algorithm = TokenBucket },
		"only a SlidingWindow is divided into buckets": func(s *Spec) { s.Buckets = 3 },
		"Ban can't go into debt":                       func(s *Spec) { s.Debt = true },
		"Ban doesn't warm up":                          func(s *Spec) { s.WarmUp = time.Second },
		"whole number of microseconds":                 func(s *Spec) { s.Period = time.Second + 1 },
	} {
		s := good
		change(&s)
		if _, err := NewLimit(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}
