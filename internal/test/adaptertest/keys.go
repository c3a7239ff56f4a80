package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
)

// users are a site of one route behind a limiter that is mounted after the router's own
// authentication.
func users(opts func(stint.Key) *stint.Limiter) Site {
	return Site{
		ByUser: func(k stint.Key) []*stint.Limiter { return []*stint.Limiter{opts(k)} },
		Routes: []Route{{Path: "/"}},
	}
}

func asUser(h http.Handler, user string) int {
	w, r := httptest.NewRecorder(), get("/")
	r.Header.Set("X-User", user)
	h.ServeHTTP(w, r)
	return w.Code
}

// Every function of a limiter sees the framework's context, with each request, until the
// request ends.
func flowContext(t *testing.T, a Adapter) {
	if a.User == nil {
		t.Skip("net/http has no context beside the request's")
	}
	var asked []string
	var kept []*http.Request
	is := func(what string, r *http.Request) bool {
		user, ok := a.User(r)
		if !ok || user != "ada" {
			t.Errorf("%s: got %q, %v", what, user, ok)
		}
		asked, kept = append(asked, what), append(kept, r)
		return user == "ada"
	}
	number := func(what string, of int64) func(*http.Request) int64 {
		return func(r *http.Request) int64 { is(what, r); return of }
	}
	plan := stint.Rate(2, time.Hour, stint.WithName("plan"), stint.WithCost(number("cost", 1)),
		stint.WithSettle(func(r *http.Request, _ int, _ int64) int64 { return number("settle", 1)(r) }))
	h := a.Build(users(func(stint.Key) *stint.Limiter {
		return compiled(t,
			stint.Concurrency(9),
			stint.WithObserver(func(e stint.Event) {
				if e.Request != nil {
					is("event", e.Request)
				}
			}),
			stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { user, _ := a.User(r); is("key", r); return user, nil })),
			stint.WithSkip(func(r *http.Request) bool { return !is("skip", r) }),
			stint.WithBlock(func(r *http.Request) bool { return !is("block", r) }),
			stint.WithPriority(func(r *http.Request) int { is("priority", r); return 1 }),
			stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) { is("limits", r); return []stint.Limit{plan}, nil }),
			stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { is("deny", r); w.WriteHeader(420) })))
	}))
	for _, want := range []int{200, 200, 420} {
		asked = nil
		if got := asUser(h, "ada"); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
		all := strings.Fields("skip block priority key limits cost event settle")
		if want == 420 {
			all = strings.Fields("skip block priority key limits cost event deny")
		}
		slices.Sort(asked)
		if slices.Sort(all); !slices.Equal(asked, all) {
			t.Errorf("asked %q, want %q", asked, all)
		}
	}
	for _, r := range kept {
		if user, ok := a.User(r); ok {
			t.Errorf("a request that has ended leads to %q", user)
		}
	}
	if _, ok := a.User(get("/")); ok {
		t.Error("a request from elsewhere leads to a context")
	}
}

// A limiter with the router's own key decides as with a key of the request. It costs one
// allocation more: the request that leads to the router's context, if it has one. Outside HTTP it charges the key that
// it is given.
func flowOwnKey(t *testing.T, a Adapter) {
	var l *stint.Limiter
	h := a.Build(users(func(k stint.Key) *stint.Limiter {
		l = compiled(t, stint.Rate(2, time.Hour), stint.WithKey(k))
		return l
	}))
	if got := asUser(h, "ada"); got != 200 {
		t.Fatal(got)
	}
	ctx := context.Background()
	if d, err := l.Peek(ctx, "ada"); err != nil || d.Remaining != 1 {
		t.Errorf("Peek: %+v, %v", d, err)
	}
	if err := l.Allow(ctx, "ada", 1); err != nil {
		t.Error(err)
	}
	denied := (*stint.DeniedError)(nil)
	if _, err := l.Take(ctx, "ada", 1); !errors.As(err, &denied) || denied.Decision.Limit != "rate" {
		t.Error(err)
	}
	if _, err := l.Reset(ctx, "ada"); err != nil || asUser(h, "ada") != 200 {
		t.Errorf("Reset: %v", err)
	}

	if raceEnabled {
		return // the race detector allocates
	}
	for what, opts := range map[string][]stint.Option{"with a permit": nil, "without": {stint.WithoutPermit()}} {
		allocs := func(other ...stint.Key) float64 {
			n, _ := allocations(a.Build(users(func(k stint.Key) *stint.Limiter {
				return compiled(t, append(opts, ample(), stint.WithKey(append(other, k)[0]))...)
			})))
			return n
		}
		of, more := allocs(stint.Header("X-User")), 1.
		if a.User == nil {
			more = 0
		}
		if own := allocs(); own != of+more {
			t.Errorf("%s: %v allocations, %v with a key of the request", what, own, of)
		}
	}
}

// foreign is a key of an adapter that none of these is.
var foreign = stint.KeyFunc(func(*http.Request) (string, error) { return "", errForeign }).ForAdapter("stintother")

var errForeign = errors.New("the request has not come through stintother")

// places are where a limiter may have a key.
func places(t *testing.T, k stint.Key) map[string]*stint.Limiter {
	byAddress, by := stint.WithKey(stint.RemoteIP()), stint.WithKey(k)
	rate := stint.Rate(1, time.Hour)
	inherited, err := compiled(t, by, rate).With(stint.Quota(1, stint.Daily, byAddress))
	if err != nil {
		t.Fatal(err)
	}
	routed, err := compiled(t, byAddress, stint.WithRoute("/a", rate)).With(stint.Quota(1, stint.Daily, by))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*stint.Limiter{
		"by default":   compiled(t, by, rate),
		"of one":       compiled(t, byAddress, rate, stint.Quota(1, stint.Daily, by)),
		"on a route":   compiled(t, byAddress, rate, stint.WithRoute("/a", by, stint.Quota(1, stint.Daily))),
		"with a route": routed,
		"inherited":    inherited,
	}
	if k != stint.GivenKey() { // which New rejects there
		all["of a limit func"] = compiled(t, by, stint.Rate(1, time.Hour, byAddress), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil }))
	}
	return all
}

// parts are the keys that k may be part of.
func parts(k stint.Key) map[string]stint.Key {
	return map[string]stint.Key{
		"joined":          stint.Join(stint.Header("X-Tenant"), k),
		"after a failure": stint.Join(stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("no session") }), k),
		"hashed":          stint.Hash(secret, k),
		"first of":        stint.FirstOf(k, stint.RemoteIP()),
	}
}

var secret = []byte("0123456789abcdef")

// mounting is the text of the panic when the adapter mounts a limiter, "" without one.
func mounting(a Adapter, of func(stint.Key) *stint.Limiter) (panicked string) {
	defer func() {
		if v := recover(); v != nil {
			panicked = fmt.Sprint(v)
		}
	}()
	a.Build(users(of))
	return ""
}

// A limiter with another framework's key, or with a GivenKey, is rejected when it is
// mounted, wherever the key is, and the error says what to write.
func flowForeignKey(t *testing.T, a Adapter) {
	const (
		another = "stintother.Key, which requests through "
		instead = " don't have: mount the limiter with stintother, or use a stint.KeyFunc of the request"
	)
	check := func(name string, l *stint.Limiter, want ...string) {
		t.Helper()
		got := mounting(a, func(stint.Key) *stint.Limiter { return l })
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q, want %q in it", name, got, text)
			}
		}
		lines := strings.Split(got, "\n")
		if slices.Sort(lines); len(slices.Compact(slices.Clone(lines))) < len(lines) {
			t.Errorf("%s, a line comes twice: %q", name, got)
		}
	}
	for place, l := range places(t, foreign) {
		check(place, l, another, instead)
	}
	for part, k := range parts(foreign) {
		check(part, compiled(t, stint.WithKey(k), stint.Rate(1, time.Hour)), another, instead)
	}
	for place, l := range places(t, stint.GivenKey()) {
		check("GivenKey "+place, l, "GivenKey, which requests don't have")
	}
	// The router's own key may be anywhere, but not beside another's.
	for place := range places(t, stint.Global()) {
		if got := mounting(a, func(k stint.Key) *stint.Limiter { return places(t, k)[place] }); got != "" {
			t.Errorf("its own key, %s: %s", place, got)
		}
	}
	for part := range parts(stint.Global()) {
		if got := mounting(a, func(k stint.Key) *stint.Limiter {
			return compiled(t, stint.WithKey(parts(k)[part]), stint.Rate(1, time.Hour))
		}); got != "" {
			t.Errorf("its own key, %s: %s", part, got)
		}
	}
	if got := mounting(a, func(k stint.Key) *stint.Limiter {
		return compiled(t, stint.WithKey(stint.Join(k, foreign)), stint.Rate(1, time.Hour))
	}); !strings.Contains(got, another) {
		t.Errorf("of two frameworks: %q", got)
	}
}

// An Update may bring a key that the adapter doesn't have: no request passes because of
// it. A key that it has takes effect at once.
func flowKeyByUpdate(t *testing.T, a Adapter) {
	var l *stint.Limiter
	var own stint.Key
	h := a.Build(users(func(k stint.Key) *stint.Limiter {
		own, l = k, compiled(t, stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()))
		return l
	}))
	for _, tt := range []struct {
		key           stint.Key
		first, second int
		kinds         string
	}{
		{own, 200, 429, "Updated Admitted Denied"},
		{foreign, 500, 500, "Updated KeyFailed KeyFailed"},
	} {
		seen := &limitertest.Events{}
		if err := l.Update(stint.Rate(1, time.Hour), stint.WithKey(tt.key), seen.Option()); err != nil {
			t.Fatal(err)
		}
		first, second := asUser(h, "ada"), asUser(h, "ada")
		if first != tt.first || second != tt.second || seen.Kinds() != tt.kinds {
			t.Errorf("%v: got %d, %d, %s", tt.key, first, second, seen.Kinds())
		}
		if err := seen.Last().Err; tt.first == 500 && !errors.Is(err, errForeign) {
			t.Errorf("%v: %v", tt.key, err)
		}
	}
}

// A Limiter that New hasn't made can't be mounted.
func flowNotMounted(t *testing.T, a Adapter) {
	for _, l := range []*stint.Limiter{nil, {}} {
		if got := mounting(a, func(stint.Key) *stint.Limiter { return l }); !strings.Contains(got, "make one with stint.New") {
			t.Errorf("%+v: %q", l, got)
		}
	}
}
