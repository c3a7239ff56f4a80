package replay_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/store"
)

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// at returns a request that ended some time after noon.
func at(after time.Duration, peer string) replay.Request {
	return replay.Request{End: noon.Add(after), Method: "GET", Target: "/", Peer: peer, Status: 200, Fields: []string{""}}
}

// made returns what makes a limiter of options.
func made(opts ...stint.Option) func() (*stint.Limiter, error) {
	return func() (*stint.Limiter, error) { return stint.New(opts...) }
}

func run(t *testing.T, newLimiter func() (*stint.Limiter, error), says replay.Says, requests []replay.Request, opts ...replay.RunOption) *replay.Report {
	t.Helper()
	r, err := replay.Run(newLimiter, &sliceLog{says, requests}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A log with whole seconds is replayed in two scenarios, and the stricter counts.
func TestWholeSeconds(t *testing.T) {
	var requests []replay.Request
	for second := range 10 {
		for range 4 {
			requests = append(requests, at(time.Duration(second)*time.Second, "192.0.2.1"))
		}
	}
	says := everything
	says.Resolution = time.Second
	lim := made(stint.Rate(4, time.Second, stint.WithBurst(1)), stint.WithKey(stint.RemoteIP()))
	r := run(t, lim, says, requests)
	if len(r.Scenarios) != 2 || r.Scenarios[0].Name != replay.AtOnce || r.Scenarios[1].Name != replay.Evenly {
		t.Fatalf("%d scenarios: %+v", len(r.Scenarios), r.Scenarios)
	}
	if a, b := r.Scenarios[0].Denied, r.Scenarios[1].Denied; a != 30 || b != 0 {
		t.Errorf("%d denied all at once, want 30; %d evenly spread, want 0", a, b)
	}
	if s := r.Strictest(); s.Name != replay.AtOnce || s.DeniedShare() != 0.75 {
		t.Errorf("the strictest is %s, with %v denied", s.Name, s.DeniedShare())
	}
}

// What a log doesn't say is never guessed.
func TestNotJudged(t *testing.T) {
	key, function := stint.WithKey(stint.RemoteIP()), func(*http.Request) (string, error) { return "k", nil }
	rate := func(opts ...stint.RateOption) stint.Option { return stint.Rate(1, time.Hour, opts...) }
	nothing := replay.Says{Resolution: time.Microsecond}
	for _, tt := range []struct {
		name  string
		opts  []stint.Option
		says  replay.Says
		want  string       // in why
		only  string       // of these requests: the reason
		reads []keys.Reads // of the predicates
	}{
		{"address", []stint.Option{rate(), key}, nothing, "the address", "", nil},
		{"header", []stint.Option{rate(), stint.WithKey(stint.Header("X-Tenant"))}, everything, "header field X-Tenant", "", nil},
		{"cookie", []stint.Option{rate(), stint.WithKey(stint.Cookie("session"))}, everything, "header field Cookie", "", nil},
		{"proxy", []stint.Option{rate(), stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8")))}, everything, "header field X-Forwarded-For", "", nil},
		{"pattern", []stint.Option{rate(), stint.WithKey(stint.Pattern())}, everything, "the route that the application's router matched", "", nil},
		{"mux", []stint.Option{rate(), stint.WithKey(stint.MuxPattern(http.NewServeMux()))}, nothing, "the requests' host", "", nil},
		{"function", []stint.Option{rate(), stint.WithKey(stint.KeyFunc(function))}, everything, "a function", "", nil},
		{"joined", []stint.Option{rate(), stint.WithKey(stint.Join(stint.RemoteIP(), stint.Header("X-Tenant")))}, everything, "header field X-Tenant", "", nil},
		{"given", []stint.Option{rate(), stint.WithKey(stint.GivenKey())}, everything, "GivenKey", "", nil},
		{"cost", []stint.Option{rate(stint.WithCost(func(*http.Request) int64 { return 2 })), key}, everything, "computes its cost", "", nil},
		{"settled", []stint.Option{rate(stint.WithSettle(func(*http.Request, int, int64) int64 { return replay.UnknownCost })), key}, everything, "computes its cost after the response", "", nil},
		{"settled by status", []stint.Option{rate(stint.WithSettle(stint.FailedOnly)), key}, replay.Says{Peer: true}, "the status", "", nil},
		{"refunded by status", []stint.Option{rate(stint.WithSettle(stint.RefundOn(304))), key}, replay.Says{Peer: true}, "the status", "", nil},
		{"slots", []stint.Option{stint.Concurrency(1), key}, replay.Says{Peer: true}, "the log has no durations", "", nil},
		{"queue", []stint.Option{stint.Concurrency(1, stint.WithMaxWait(time.Second)), key}, everything, "its requests wait for slots", "", nil},
		{"adaptive", []stint.Option{stint.AdaptiveConcurrency(1, 2), key}, everything, "adaptive", "", nil},
		{"bandwidth", []stint.Option{stint.Bandwidth(100_000), key}, everything, "bandwidth", "", nil},
		{"limit function", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, errors.New("called") }), key}, everything, "WithLimitFunc", "", nil},
		{"ban", []stint.Option{stint.Ban(5, time.Minute, stint.WithBanFor(time.Minute)), rate(stint.WithCost(func(*http.Request) int64 { return 2 }), stint.WithBurst(2)), key}, everything, "it counts denials by limit", "", nil},
		{"skip", []stint.Option{rate(), key, stint.WithSkip(func(*http.Request) bool { return true })}, everything, "", "skip or block matches it: a function", nil},
		{"network", []stint.Option{rate(), stint.WithKey(stint.Global()), stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("192.0.2.0/24")))}, nothing, "", "skip or block matches it: the log doesn't have the address", []keys.Reads{{Peer: true}}},
		{"host", []stint.Option{rate(), stint.WithKey(stint.Global()), stint.WithRoute("api.test/", stint.Exempt())}, nothing, "", "depends on the host", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, made(tt.opts...), tt.says, []replay.Request{at(0, "192.0.2.1"), at(time.Second, "192.0.2.1")}, replay.WithPredicates(tt.reads...))
			s := r.Scenarios[0]
			if s.Denied > 0 {
				t.Errorf("%d denied", s.Denied)
			}
			if tt.only == "" {
				if !slices.ContainsFunc(r.NotJudged, func(n replay.NotJudged) bool { return strings.Contains(n.Why, tt.want) }) {
					t.Errorf("%+v, want one about %q", r.NotJudged, tt.want)
				}
				return
			}
			for why, n := range s.Unjudged {
				if strings.Contains(why, tt.only) && n == 2 && s.Requests == 0 {
					return
				}
			}
			t.Errorf("%v, and %d judged; want 2 because %q", s.Unjudged, s.Requests, tt.only)
		})
	}
}

// What is known of a request's method is enough for most that may be preflights.
func TestPreflight(t *testing.T) {
	requests := []replay.Request{at(0, "192.0.2.1"), at(time.Second, "192.0.2.1")}
	requests[1].Method = "OPTIONS"
	s := run(t, made(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithSkip(stint.Preflight)), everything, requests,
		replay.WithPredicates(keys.Reads{Method: "OPTIONS", Fields: []string{"Origin", "Access-Control-Request-Method"}})).Scenarios[0]
	if s.Requests != 1 || len(s.Unjudged) != 1 {
		t.Errorf("%d judged, not: %v", s.Requests, s.Unjudged)
	}
}

// Keys for which there is no room are decided together, and a report says so.
func TestOverflow(t *testing.T) {
	var requests []replay.Request
	for i := range 100 {
		requests = append(requests, at(time.Duration(i)*time.Millisecond, fmt.Sprintf("192.0.2.%d", i)))
	}
	lim := made(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()))
	if r := run(t, lim, everything, requests); r.Log.Overflow != 0 || r.Scenarios[0].Denied != 0 {
		t.Errorf("%d charges found no room, %d denied", r.Log.Overflow, r.Scenarios[0].Denied)
	}
	if r := run(t, lim, everything, requests, replay.WithMaxKeys(10)); r.Log.Overflow < 80 {
		t.Errorf("%d charges found no room of 10 keys", r.Log.Overflow)
	}
}

func TestProgress(t *testing.T) {
	log := &endless{sliceLog{says: everything}, 250_000}
	var told []replay.Progress
	if _, err := replay.Run(made(stint.Rate(1, time.Second), stint.WithKey(stint.Global()), stint.WithoutWarnings()), log,
		replay.WithProgress(func(p replay.Progress) { told = append(told, p) })); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[1].Requests != 200_000 || !told[1].At.Equal(noon.Add(200*time.Second-time.Millisecond)) {
		t.Errorf("%+v", told)
	}
}

// endless is a log of as many requests, one each millisecond.
type endless struct {
	sliceLog
	left int
}

func (l *endless) Next(r *replay.Request) error {
	if l.left == 0 {
		return io.EOF
	}
	l.left--
	*r = at(time.Duration(250_000-1-l.left)*time.Millisecond, "192.0.2.1")
	return nil
}

// The keys that change, and back.
func TestAgainst(t *testing.T) {
	old := made(stint.Rate(2, time.Hour, stint.WithKey(stint.RemoteIP()), stint.WithName("old")))
	next := made(stint.Rate(2, time.Hour, stint.WithKey(stint.Header("X-Api-Key")), stint.WithName("new")))
	var requests []replay.Request
	for i := range 4 { // one address, two keys; then one key, four addresses
		a, b := at(time.Duration(i)*time.Second, "192.0.2.1"), at(time.Duration(i)*time.Second, fmt.Sprintf("198.51.100.%d", i))
		a.Fields, b.Fields = []string{fmt.Sprint("k", i%2)}, []string{"shared"}
		requests = append(requests, a, b)
	}
	r := run(t, next, everything, requests, replay.WithAgainst(old))
	want := &replay.Flips{ToDenied: 2, ToAllowed: 2, Keys: []replay.Flip{
		{Limit: "new", Key: "shared", ToDenied: 2}, {Limit: "old", Key: "192.0.2.1", ToAllowed: 2},
	}}
	if got := r.Scenarios[0].Flips; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	hashed := run(t, next, everything, requests, replay.WithAgainst(old), replay.WithHashedKeys([]byte("secret")))
	text := fmt.Sprintf("%+v", hashed)
	if strings.Contains(text, "shared") || strings.Contains(text, "192.0.2.1") || !strings.Contains(text, "#") {
		t.Errorf("keys are shown: %s", text)
	}
}

// Lines are sorted within the window. Beyond it, a log that runs backwards is an error.
func TestOrder(t *testing.T) {
	lim := made(stint.Rate(1, 10*time.Second), stint.WithKey(stint.RemoteIP()))
	long := at(9*time.Second, "192.0.2.1")
	long.Took = 9 * time.Second // it arrived first, and was logged last
	r := run(t, lim, everything, []replay.Request{at(8*time.Second, "192.0.2.1"), at(7*time.Second, "192.0.2.9"), long})
	s := r.Scenarios[0]
	if s.Denied != 1 || s.Top[0].First != noon.Add(8*time.Second) || r.Log.Sorted != 1 || r.Log.Moved != 0 {
		t.Errorf("%+v; top %+v", r.Log, s.Top)
	}
	if !r.Log.From.Equal(noon) || !r.Log.To.Equal(noon.Add(9*time.Second)) {
		t.Errorf("from %v to %v", r.Log.From, r.Log.To)
	}
	_, err := replay.Run(lim, &sliceLog{everything, []replay.Request{at(6*time.Minute, "192.0.2.1"), at(0, "192.0.2.1")}})
	if err == nil || !strings.Contains(err.Error(), "run backwards") {
		t.Errorf("backwards: %v", err)
	}
	longer := at(20*time.Second, "192.0.2.2")
	longer.Took = 15 * time.Second
	r = run(t, lim, everything, []replay.Request{at(5*time.Second, "192.0.2.1"), at(15*time.Second, "192.0.2.1"), at(19*time.Second, "192.0.2.1"), longer}, replay.WithWindow(time.Second))
	if r.Log.Moved != 1 || r.Scenarios[0].Requests != 4 {
		t.Errorf("%+v", r.Log)
	}
}

// A report says when and for how long keys would have been held up, how near limits come to
// their bounds, and what became of requests that are denied.
func TestReport(t *testing.T) {
	var requests []replay.Request
	for i := range 6 { // a burst of 4 and one each 10 s: the last two are denied
		r := at(time.Duration(i)*time.Second, "192.0.2.1")
		r.Status = 503
		requests = append(requests, r)
	}
	requests = append(requests, at(6*time.Second, "192.0.2.2")) // uses a quarter
	r := run(t, made(stint.Rate(1, 10*time.Second, stint.WithBurst(4), stint.WithName("rate")), stint.WithKey(stint.RemoteIP())), everything, requests)
	s := r.Scenarios[0]
	if s.Requests != 7 || s.Denied != 2 || s.FailedAnyway != 2 || *s.Statuses["5xx"] != (replay.Count{Requests: 6, Denied: 2}) || *s.Statuses["2xx"] != (replay.Count{Requests: 1}) || *s.Routes[""] != s.Count {
		t.Errorf("%+v", s)
	}
	want := replay.LimitReport{Limit: "rate", Count: s.Count, Keys: 2, KeysDenied: 1, PeakUse: 100}
	want.Use[2], want.Use[11] = 1, 1
	if !reflect.DeepEqual(s.Limits, []replay.LimitReport{want}) {
		t.Errorf("%+v, want %+v", s.Limits, want)
	}
	key := replay.KeyReport{Limit: "rate", Key: "192.0.2.1", Count: replay.Count{Requests: 6, Denied: 2}, First: noon.Add(4 * time.Second), Last: noon.Add(5 * time.Second), Held: 6}
	if !reflect.DeepEqual(s.Top, []replay.KeyReport{key}) {
		t.Errorf("%+v, want %+v", s.Top, key)
	}
	if l := s.Timeline; !l.Start.Equal(noon) || l.Step != 1 || len(l.Slots) != 7 || !reflect.DeepEqual(l.Limits, []string{"rate", ""}) ||
		!reflect.DeepEqual(l.Slots[4], replay.Slot{Requests: 1, Denied: []int64{1, 0}}) || !reflect.DeepEqual(l.Slots[6], replay.Slot{Requests: 1, Denied: []int64{0, 0}}) {
		t.Errorf("%+v", l)
	}
}

// A long log has a timeline of a bounded number of slots, which lose nothing.
func TestLongTimeline(t *testing.T) {
	var requests []replay.Request
	for i := range 5000 {
		requests = append(requests, at(time.Duration(i)*time.Minute, "192.0.2.1"))
	}
	s := run(t, made(stint.Rate(1, 10*time.Minute), stint.WithKey(stint.RemoteIP())), everything, requests).Scenarios[0]
	sum, denied := int64(0), int64(0)
	for _, slot := range s.Timeline.Slots {
		sum += slot.Requests
		denied += slot.Denied[0]
	}
	if n := len(s.Timeline.Slots); n > 400 || n < 200 || sum != 5000 || denied != s.Denied || denied != 4500 {
		t.Errorf("%d slots with %d requests, %d denied", n, sum, denied)
	}
}

// Other denials than by limits are counted by their reason.
func TestReasons(t *testing.T) {
	blocked := at(0, "198.51.100.1")
	keyless := at(time.Second, "192.0.2.1")
	broken := at(2*time.Second, "192.0.2.1")
	broken.Target = "/%zz"
	s := run(t, made(stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-Api-Key")),
		stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("198.51.100.0/24")))), everything, []replay.Request{blocked, keyless, broken}, replay.WithPredicates(keys.Reads{Peer: true})).Scenarios[0]
	if want := map[string]int64{"blocked": 1, "empty key": 1}; !reflect.DeepEqual(s.Reasons, want) || s.Denied != 2 || len(s.Unjudged) != 1 {
		t.Errorf("%v, want %v; %d denied, not judged: %v", s.Reasons, want, s.Denied, s.Unjudged)
	}
}

// A run uses neither observers nor the store of the limiter it gets.
func TestRunTouchesNothing(t *testing.T) {
	lim := made(stint.Rate(1, time.Hour, stint.WithName("r")), stint.WithKey(stint.RemoteIP()), stint.WithStore(brokenStore{}),
		stint.WithObserver(func(e stint.Event) { t.Errorf("observed %v", e.Kind) }))
	if s := run(t, lim, everything, []replay.Request{at(0, "192.0.2.1"), at(1, "192.0.2.1")}).Scenarios[0]; s.Denied != 1 {
		t.Errorf("%d denied", s.Denied)
	}
}

// brokenStore panics if it is used.
type brokenStore struct{ store.Store }

func TestErrors(t *testing.T) {
	fails := errors.New("no limiter")
	log := func() replay.Log { return &sliceLog{everything, []replay.Request{at(0, "192.0.2.1")}} }
	bad := func() (*stint.Limiter, error) { return nil, fails }
	if _, err := replay.Run(bad, log()); err != fails {
		t.Error(err)
	}
	if _, err := replay.Run(byAddress(1), log(), replay.WithAgainst(bad)); err != fails {
		t.Error(err)
	}
	for _, o := range []replay.RunOption{replay.WithWindow(0), replay.WithTop(-1), replay.WithMaxKeys(0)} {
		if _, err := replay.Run(byAddress(1), log(), o); err == nil {
			t.Error("a wrong option isn't rejected")
		}
	}
	if _, err := replay.Run(nil, log()); err == nil {
		t.Error("no limiter isn't rejected")
	}
}
