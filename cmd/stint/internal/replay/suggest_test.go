package replay_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// crowd returns the requests of so many clients within ten minutes or more: some come once, some in
// bursts, some like a clock, and a few all the time.
func crowd(seed uint64, clients int, resolution time.Duration) (all []replay.Request) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	for c := range clients {
		peer := fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255)
		n, gap := 1+rnd.IntN(6), time.Duration(1+rnd.IntN(20))*time.Second
		if rnd.IntN(50) == 0 {
			n, gap = 40+rnd.IntN(100), time.Duration(1+rnd.IntN(2000))*time.Millisecond
		}
		after := time.Duration(rnd.IntN(600)) * time.Second
		for range n {
			if rnd.IntN(3) > 0 {
				after += time.Duration(rnd.ExpFloat64() * float64(gap))
			}
			all = append(all, at(after.Truncate(resolution), peer))
		}
	}
	slices.SortStableFunc(all, func(a, b replay.Request) int { return a.End.Compare(b.End) })
	return all
}

// keysDenied returns how many keys a limit denies something, in the scenario in which they are most.
func keysDenied(t *testing.T, r replay.Rate, says replay.Says, requests []replay.Request) (most int64) {
	t.Helper()
	lim := made(stint.Rate(r.Units, r.Per(), stint.WithBurst(r.Burst)), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
	for _, s := range run(t, lim, says, requests).Scenarios {
		most = max(most, s.Limits[0].KeysDenied)
	}
	return most
}

// What Suggest proposes lets its share of the keys through, by the decisions of a limiter, and one
// less burst would not. So does each point of the curve.
func TestSuggestIsExact(t *testing.T) {
	for seed := range uint64(6) {
		resolution := []time.Duration{time.Microsecond, time.Millisecond, time.Second}[seed%3]
		says := everything
		says.Resolution = resolution
		clients := 1000 + int(seed)*37
		requests := crowd(seed, clients, resolution)
		lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
		r, err := replay.Suggest(lim, &sliceLog{says, slices.Clone(requests)}, replay.WithHeadroom(1))
		if err != nil {
			t.Fatal(err)
		}
		if l := r.Limits[0]; len(r.Limits) != 1 || l.Keys != int64(clients) || l.Requests != int64(len(requests)) || len(l.Shares) != 3 || l.Shares[1].Unknown == "" {
			t.Fatalf("seed %d: %+v", seed, l)
		}
		s := r.Limits[0].Shares[0]
		if s.Unknown != "" || s.Suggested != s.Least || len(s.Curve) < 10 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		points := []replay.Rate{s.Least, s.Curve[0], s.Curve[len(s.Curve)-1]}
		for range 3 {
			points = append(points, s.Curve[rnd.IntN(len(s.Curve))])
		}
		spared := int64(clients / 100) // of a hundred keys, one
		for i, p := range points {
			n := keysDenied(t, p, says, requests)
			if n > spared || i == 0 && resolution < time.Second && n != s.Touched {
				t.Errorf("seed %d: %+v denies %d of %d keys; touched: %d", seed, p, n, clients, s.Touched)
			}
			p.Burst--
			if p.Burst == 0 {
				continue
			}
			if n := keysDenied(t, p, says, requests); n <= spared {
				t.Errorf("seed %d: a burst less, %+v denies %d of %d keys", seed, p, n, clients)
			}
		}
		on := func(p replay.Rate) bool {
			return p.Burst == s.Least.Burst && p.Units*s.Least.Seconds == s.Least.Units*p.Seconds
		}
		if !slices.ContainsFunc(s.Curve, on) {
			t.Errorf("seed %d: %+v isn't on the curve", seed, s.Least)
		}
	}
}

// A share is told only of enough keys and a log that is long enough.
func TestSuggestSaysWhatItDoesNotKnow(t *testing.T) {
	lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
	for _, tt := range []struct {
		name          string
		clients       int
		span, horizon time.Duration
		known         []bool
		why           string
	}{
		{"few keys", 999, time.Hour, time.Minute, []bool{false, false, false}, "99% needs a log with 1000 keys, and this one has 999"},
		{"a thousand", 1000, time.Hour, time.Minute, []bool{true, false, false}, "99.9% needs a log with 10000 keys, and this one has 1000"},
		{"ten thousand", 10_000, time.Hour, time.Minute, []bool{true, true, false}, "99.99% needs a log with 100000 keys, and this one has 10000"},
		{"a hundred thousand", 100_000, time.Hour, time.Minute, []bool{true, true, true}, ""},
		{"long enough", 1000, 10 * time.Minute, time.Minute, []bool{true, false, false}, "99.9% needs a log with 10000 keys"},
		{"too short", 1000, 10*time.Minute - time.Millisecond, time.Minute, []bool{false, false, false}, "the log covers 9m59.999s, and must cover ten times the horizon of 1m0s: 10m0s"},
		{"a shorter horizon", 1000, 10*time.Minute - time.Millisecond, 59 * time.Second, []bool{true, false, false}, "99.9% needs"},
	} {
		var requests []replay.Request
		for c := range tt.clients {
			requests = append(requests, at(tt.span*time.Duration(c)/time.Duration(tt.clients-1), fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255)))
		}
		r, err := replay.Suggest(lim, &sliceLog{everything, requests}, replay.WithHorizon(tt.horizon))
		if err != nil {
			t.Fatal(err)
		}
		why := ""
		for i, s := range r.Limits[0].Shares {
			if known := s.Unknown == ""; known != tt.known[i] || known != (s.Suggested.Burst > 0) {
				t.Errorf("%s: share %v: %+v", tt.name, s.Share, s)
			}
			if why == "" {
				why = s.Unknown
			}
		}
		if !strings.HasPrefix(why, tt.why) {
			t.Errorf("%s: %q, want %q", tt.name, why, tt.why)
		}
	}
}

// Each rate of a limiter is sized by its own requests, keys and costs.
func TestSuggestByRoute(t *testing.T) {
	lim := made(
		stint.Rate(1, time.Second, stint.WithName("all"), stint.WithKey(stint.Header("X-Api-Key"))),
		stint.Quota(10, stint.Daily, stint.WithName("quota")),
		stint.Rate(1, time.Second, stint.WithName("tenant"), stint.WithKey(stint.Header("X-Tenant"))),
		stint.WithRoute("POST /login", stint.Only(stint.Rate(3, time.Second, stint.WithName("login"), stint.WithFixedCost(3)))),
		stint.WithRoute("POST /pay", stint.Only(stint.Rate(1, time.Second, stint.WithName("paid"), stint.WithSettle(stint.FailedOnly)))),
		stint.WithRoute("GET /healthz", stint.Exempt()),
		stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
	var requests []replay.Request
	for i := range 1200 {
		for _, to := range []string{"GET /", "POST /login", "POST /login", "POST /pay", "GET /healthz"} {
			r := at(time.Duration(i)*time.Second, fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
			r.Method, r.Target, _ = strings.Cut(to, " ")
			r.Fields = []string{fmt.Sprint("key-", i)}
			requests = append(requests, r)
		}
	}
	requests = append(requests, at(1200*time.Second, "10.0.0.1"))
	var told int
	r, err := replay.Suggest(lim, &sliceLog{everything, requests}, replay.WithHeadroom(2), replay.WithProgress(func(replay.Progress) { told++ }))
	if err != nil {
		t.Fatal(err)
	}
	var limits []string
	for _, l := range r.Limits {
		limits = append(limits, fmt.Sprintf("%s of %q: %d of %d, %d and %d with headroom", l.Limit, l.Route, l.Requests, l.Keys, l.Shares[0].Least.Burst, l.Shares[0].Suggested.Burst))
	}
	// Three for a request, two at once: a burst of six.
	want := []string{`all of "": 1200 of 1200, 1 and 2 with headroom`, `login of "POST /login": 2400 of 1200, 6 and 12 with headroom`}
	if !slices.Equal(limits, want) {
		t.Errorf("%q, want %q", limits, want)
	}
	var not []string
	for _, n := range r.NotJudged {
		not = append(not, n.Limit+": "+n.Why)
	}
	slices.Sort(not)
	if len(not) != 3 || !strings.HasPrefix(not[0], "paid: its cost is only known") || !strings.HasPrefix(not[1], "quota: numbers are only suggested for") || !strings.HasPrefix(not[2], "tenant: its key: the log doesn't have") {
		t.Errorf("not judged: %q", not)
	}
	left := map[string]int64{"no limit applies": 1200, "only limits apply for which suggest has no numbers": 1200, "empty key": 1}
	if !maps.Equal(r.LeftOut, left) {
		t.Errorf("left out: %v, want %v", r.LeftOut, left)
	}
	if r.Log.Requests != 6001 || r.Headroom != 2 || r.Horizon != 60 || told != 0 {
		t.Errorf("%+v", r)
	}
}

func TestSuggestTop(t *testing.T) {
	lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
	requests := crowd(3, 1500, time.Millisecond)
	suggest := func(opts ...replay.SuggestOption) []replay.KeyNeed {
		r, err := replay.Suggest(lim, &sliceLog{everything, slices.Clone(requests)}, append(opts, replay.WithHeadroom(1))...)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Limits[0].Shares[0]
		if s.Touched < 5 || s.Touched > 15 {
			t.Fatalf("%+v", s)
		}
		for i, k := range s.Top {
			if k.Burst <= s.Suggested.Burst || k.Requests < k.Burst || i > 0 && k.Burst > s.Top[i-1].Burst {
				t.Errorf("%+v of %+v", k, s.Suggested)
			}
		}
		return s.Top
	}
	if top := suggest(replay.WithTop(3)); len(top) != 3 || !strings.HasPrefix(top[0].Key, "10.0.") {
		t.Errorf("%+v", top)
	}
	if top := suggest(replay.WithHashedKeys([]byte("secret"))); len(top) < 5 || !strings.HasPrefix(top[0].Key, "#") {
		t.Errorf("%+v", top)
	}
}

// With few keys, each of the busiest gets numbers that deny it nothing, and one less would.
func TestBusiestKeys(t *testing.T) {
	says := everything
	for _, says.Resolution = range []time.Duration{time.Millisecond, time.Second} {
		requests := crowd(5, 60, says.Resolution)
		for i := range requests { // over five hours and some
			requests[i].End = requests[i].End.Add(30 * requests[i].End.Sub(requests[0].End))
		}
		lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
		r, err := replay.Suggest(lim, &sliceLog{says, slices.Clone(requests)}, replay.WithTop(7))
		if err != nil {
			t.Fatal(err)
		}
		l := r.Limits[0]
		if l.Keys != 60 || len(l.Busiest) != 7 || l.Shares[0].Unknown == "" {
			t.Fatalf("%+v", l)
		}
		denied := func(key string, option stint.Option) (n int64) {
			lim := made(option, stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
			for _, s := range run(t, lim, says, slices.Clone(requests), replay.WithTop(1000)).Scenarios {
				for _, k := range s.Top {
					if k.Key == key {
						n = max(n, k.Denied)
					}
				}
			}
			return n
		}
		for i, k := range l.Busiest {
			if k.Rate.Burst < 1 || k.Hour < 1 || k.Day != 0 || i > 0 && k.Requests > l.Busiest[i-1].Requests {
				t.Fatalf("%+v", k)
			}
			rate := func(burst int64) stint.Option { return stint.Rate(k.Rate.Units, k.Rate.Per(), stint.WithBurst(burst)) }
			if n := denied(k.Key, rate(k.Rate.Burst)); n > 0 {
				t.Errorf("%+v: %d denied", k, n)
			}
			if k.Rate.Burst > 1 && denied(k.Key, rate(k.Rate.Burst-1)) == 0 {
				t.Errorf("%+v: a smaller burst denies nothing", k)
			}
			if n := denied(k.Key, stint.Quota(k.Hour, stint.Hourly)); n > 0 {
				t.Errorf("%+v: the quota denies %d", k, n)
			}
			if k.Hour > 1 && denied(k.Key, stint.Quota(k.Hour-1, stint.Hourly)) == 0 {
				t.Errorf("%+v: a smaller quota denies nothing", k)
			}
		}
	}
	// A day is known of a log that covers nearly one.
	var requests []replay.Request
	for i := range 24 {
		requests = append(requests, at(time.Duration(i)*time.Hour, "192.0.2.1"))
	}
	for _, tt := range []struct{ hours, want int64 }{{24, 24}, {22, 0}} {
		lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
		r, err := replay.Suggest(lim, &sliceLog{everything, slices.Clone(requests[:tt.hours])}, replay.WithHashedKeys([]byte("secret")))
		if err != nil {
			t.Fatal(err)
		}
		if k := r.Limits[0].Busiest[0]; !strings.HasPrefix(k.Key, "#") || k.Hour != 1 || (k.Day > 0) != (tt.want > 0) {
			t.Errorf("%d hours: %+v", tt.hours, k)
		}
	}
}

func TestSuggestErrors(t *testing.T) {
	lim := made(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()))
	for _, o := range []replay.SuggestOption{replay.WithHeadroom(0.99), replay.WithHeadroom(math.NaN()), replay.WithHeadroom(1001), replay.WithHorizon(0), replay.WithHorizon(math.MaxInt64), replay.WithTop(-1)} {
		if _, err := replay.Suggest(lim, &sliceLog{everything, []replay.Request{at(0, "192.0.2.1")}}, o); err == nil || !strings.Contains(err.Error(), "write ") {
			t.Errorf("an option that isn't one: %v", err)
		}
	}
	if _, err := replay.Suggest(lim, &sliceLog{everything, nil}); !errors.Is(err, replay.ErrEmpty) {
		t.Error(err)
	}
	if _, err := replay.Suggest(nil, &sliceLog{everything, nil}); err == nil || !strings.Contains(err.Error(), "Suggest without") {
		t.Error(err)
	}
	says := everything
	for _, says.Resolution = range []time.Duration{time.Millisecond, time.Second} {
		three := []replay.Request{at(0, "192.0.2.1"), at(0, "192.0.2.2"), at(0, "192.0.2.3")}
		if _, err := replay.Suggest(lim, &sliceLog{says, slices.Clone(three)}, replay.WithMaxKeys(2)); err == nil || !strings.Contains(err.Error(), "more than 2 keys") {
			t.Error(err)
		}
		if _, err := replay.Suggest(lim, &sliceLog{says, three}, replay.WithMaxKeys(3)); err != nil {
			t.Error(err)
		}
	}
}
