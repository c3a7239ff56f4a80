package replay_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/internal/keys"
)

func TestIdle(t *testing.T) {
	key := stint.WithKey(stint.RemoteIP())
	for _, tt := range []struct {
		name string
		opts []stint.Option
		want string // the limit, and part of the text; or ""
	}{
		{"a quota that the rate can't reach", []stint.Option{stint.Rate(10, time.Minute, stint.WithBurst(50)), stint.Quota(15_100, stint.Daily)}, "daily: at most 15050"},
		{"a quota that it can", []stint.Option{stint.Rate(10, time.Minute, stint.WithBurst(50)), stint.Quota(15_049, stint.Daily)}, ""},
		{"a wider rate", []stint.Option{stint.Rate(10, time.Second), stint.Rate(600, time.Minute, stint.WithName("wide"))}, "wide: no larger burst"},
		{"a faster one with less burst", []stint.Option{stint.Rate(10, time.Second), stint.Rate(12, time.Second, stint.WithBurst(9), stint.WithName("wide"))}, ""},
		{"twice the same", []stint.Option{stint.Rate(10, time.Second, stint.WithName("a")), stint.Rate(10, time.Second, stint.WithName("b"))}, "a: no larger burst"},
		{"another key", []stint.Option{stint.Rate(10, time.Second), stint.Rate(600, time.Minute, stint.WithName("wide"), stint.WithKey(stint.Global()))}, ""},
		{"a dry run", []stint.Option{stint.Rate(10, time.Second, stint.WithDryRun(true)), stint.Rate(600, time.Minute, stint.WithName("wide"))}, ""},
		{"another cost", []stint.Option{stint.Rate(10, time.Second), stint.Rate(600, time.Minute, stint.WithName("wide"), stint.WithFixedCost(100))}, ""},
		{"a settled one", []stint.Option{stint.Rate(10, time.Second, stint.WithSettle(stint.FailedOnly)), stint.Rate(600, time.Minute, stint.WithName("wide"))}, ""},
		{"one with turns", []stint.Option{stint.Rate(10, time.Second, stint.WithMaxWait(time.Second)), stint.Rate(600, time.Minute, stint.WithName("wide"))}, ""},
		{"a window", []stint.Option{stint.Rate(1, time.Second), stint.Rate(61, time.Minute, stint.WithAlgorithm(stint.SlidingWindow), stint.WithName("window"))}, "window: at most 61"},
	} {
		all := replay.Idle(stint.Must(stint.New(append(tt.opts, key)...)))
		if tt.want == "" {
			if len(all) > 0 {
				t.Errorf("%s: %+v", tt.name, all)
			}
			continue
		}
		name, text, _ := strings.Cut(tt.want, ": ")
		if len(all) != 1 || all[0].Limit != name || !strings.Contains(all[0].Text, text) {
			t.Errorf("%s: %+v, want %s", tt.name, all, tt.want)
		}
	}
	l := stint.Must(stint.New(stint.Rate(10, time.Second), key,
		stint.WithRoute("/a", stint.Rate(600, time.Minute, stint.WithName("wide")))))
	if all := replay.Idle(l); len(all) != 1 || all[0].Route != "/a" || all[0].Limit != "wide" {
		t.Errorf("in a route: %+v", all)
	}
}

// What Idle calls idle never denies first, whatever comes.
func TestIdleIsIdle(t *testing.T) {
	lim := made(stint.Rate(3, time.Second, stint.WithBurst(5), stint.WithName("rate")), stint.Quota(10_805, stint.Hourly, stint.WithName("quota")), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
	if l := stint.Must(lim()); len(replay.Idle(l)) != 1 {
		t.Fatal("the quota isn't idle")
	}
	var requests []replay.Request
	for i := range 72_000 { // as many as the rate lets through, for two hours
		requests = append(requests, at(time.Duration(i)*100*time.Millisecond, "192.0.2.1"))
	}
	for _, l := range run(t, lim, everything, requests).Scenarios[0].Limits {
		if l.Limit == "quota" && l.Denied > 0 || l.Limit == "rate" && l.Denied == 0 {
			t.Errorf("limit %s denies %d", l.Limit, l.Denied)
		}
	}
}

func TestExplain(t *testing.T) {
	called := func(*http.Request) (string, error) { t.Error("called"); return "", nil }
	l := stint.Must(stint.New(
		stint.Rate(10, time.Second, stint.WithName("rate")),
		stint.Rate(10, time.Second, stint.WithName("tenant"), stint.WithKey(stint.KeyFunc(called)), stint.WithDryRun(true)),
		stint.Rate(10, time.Second, stint.WithName("api-key"), stint.WithKey(stint.Header("X-Api-Key"))),
		stint.WithKey(stint.RemoteIP()),
		stint.WithRoute("POST /login", stint.Only(stint.Rate(5, time.Minute, stint.WithFixedCost(2), stint.WithName("login")))),
		stint.WithSkip(stint.RemoteIP().In(netip.MustParsePrefix("10.0.0.0/8"))),
		stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("203.0.113.0/24"))),
	))
	peers := []keys.Reads{{Peer: true}, {Peer: true}}
	request := func(method, target, peer string) *http.Request {
		r := httptest.NewRequest(method, target, nil)
		r.RemoteAddr = peer + ":1234"
		return r
	}
	if got := replay.Explain(l, request("GET", "/", "10.1.2.3"), peers...); !reflect.DeepEqual(got, replay.Explanation{Exempt: true}) {
		t.Errorf("%+v", got)
	}
	if got := replay.Explain(l, request("GET", "/", "203.0.113.9"), peers...); !reflect.DeepEqual(got, replay.Explanation{Blocked: true}) {
		t.Errorf("%+v", got)
	}
	want := replay.Explanation{Route: "POST /login", Limits: []replay.Explained{
		{Limit: "login", Rule: "TokenBucket: 5 per 1m0s, burst 5", KeyFrom: "RemoteIP()", Key: "192.0.2.1", Cost: 2},
	}}
	if got := replay.Explain(l, request("POST", "/login", "192.0.2.1"), peers...); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	got := replay.Explain(l, request("GET", "/", "192.0.2.1"), peers...)
	if len(got.Limits) != 3 || got.Limits[0].Key != "192.0.2.1" || !strings.Contains(got.Limits[1].Left, "a function") || !got.Limits[1].DryRun || !strings.Contains(got.Limits[2].Left, "403") {
		t.Errorf("%+v", got)
	}
}

// Behind a proxy, the address that it has logged is the last of the forwarding field.
func TestBehindProxy(t *testing.T) {
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	lim := made(stint.Rate(1, time.Hour), stint.WithKey(stint.ForwardedIP(trusted)))
	requests := []replay.Request{at(0, "192.0.2.1"), at(1, "192.0.2.2"), at(2, "192.0.2.1")}
	r := run(t, lim, everything, requests)
	if len(r.NotJudged) != 1 {
		t.Errorf("judged without the field: %+v", r.Scenarios[0])
	}
	r, err := replay.Run(lim, replay.BehindProxy(&sliceLog{everything, requests}, "10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Scenarios[0]; len(r.NotJudged) != 0 || s.Denied != 1 || s.Top[0].Key != "192.0.2.1" {
		t.Errorf("%+v; not judged: %v", s, r.NotJudged)
	}
	says := everything
	says.Fields = []string{"X-Forwarded-For"}
	forged := at(3, "192.0.2.1") // what clients send comes before
	forged.Fields = []string{"198.51.100.1"}
	log := replay.BehindProxy(&sliceLog{says, []replay.Request{forged}}, "10.0.0.1")
	if all := read(t, log); all[0].Fields[0] != "198.51.100.1, 192.0.2.1" || all[0].Peer != "10.0.0.1" {
		t.Errorf("%+v", all[0])
	}
}
