package stint_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func TestBanOptions(t *testing.T) {
	rate := stint.Rate(1, time.Minute)
	for want, opts := range map[string][]stint.Option{
		": there is no rate or quota whose denials": {stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour))},
		`"b": there is no rate or quota whose`:      {rate, stint.WithRoute("/x", stint.Only(stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour), stint.WithName("b"))))},
		"1001 denials: use 1 to 1000":               {rate, stint.Ban(1001, time.Minute, stint.WithBanFor(time.Hour))},
		"0 denials: use 1 to 1000":                  {rate, stint.Ban(0, time.Minute, stint.WithBanFor(time.Hour))},
		"a period of 0s: use 1ms or more":           {rate, stint.Ban(1, 0, stint.WithBanFor(time.Hour))},
		`"ban": the ban has no duration: add stint.WithBanFor, such as stint.WithBanFor(time.Hour)`: {rate, stint.Ban(1, time.Minute)},
		`"ban": the ban's key is RemoteIP(), but no rate or quota has that key: give the ban the key of the rate or quota`: {stint.Rate(1, time.Minute, stint.WithKey(stint.Header("X-API-Key"))),
			stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour), stint.WithKey(stint.RemoteIP()))},
		"WithBanFor(-1s): use 1ms to 8760h":        {rate, stint.Ban(1, time.Minute, stint.WithBanFor(-time.Second))},
		`limit "ban": another limit has that name`: {rate, stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour), stint.WithName("ban")), stint.Ban(2, time.Minute, stint.WithBanFor(time.Hour), stint.WithName("ban"))},
	} {
		if _, err := stint.New(append(opts, theKey)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// banner is a limiter of one request an hour, which bans after two denials.
func banner(t *testing.T, opts ...stint.Option) *stint.Limiter {
	return limiter(t, append([]stint.Option{theKey, stint.Rate(1, time.Hour), stint.Ban(2, time.Hour, stint.WithBanFor(10*time.Hour))}, opts...)...)
}

func TestBanDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		l := banner(t, stint.WithObserver(func(e stint.Event) {
			if e.Kind != stint.EventEnded {
				kinds = append(kinds, e.Kind.String())
			}
		}))
		ask := func() stint.Decision {
			p, err := l.Take(t.Context(), "k", 1)
			var denied *stint.DeniedError
			if errors.As(err, &denied) {
				return denied.Decision
			}
			if err != nil {
				t.Fatal(err)
			}
			return p.Decision()
		}
		if d := ask(); !d.Allowed || d.Limit != "rate" || d.Limits[1].Remaining != 2 || d.Limits[1].Name != "ban" {
			t.Errorf("granted: %+v", d)
		}
		if d := ask(); d.Limit != "rate" || d.RetryAfter != time.Hour || !d.Limits[1].Allowed || d.Limits[1].Remaining != 1 {
			t.Errorf("denied once: %+v", d)
		}
		if d := ask(); d.Limit != "ban" || d.RetryAfter != 10*time.Hour || d.Limits[1].Allowed || d.Limits[1].Remaining != 0 {
			t.Errorf("denied twice: %+v", d)
		}
		time.Sleep(2 * time.Hour)
		if d := ask(); d.Limit != "ban" || d.RetryAfter != 8*time.Hour || !d.Limits[0].Allowed {
			t.Errorf("banned: %+v", d)
		}
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Allowed || d.RetryAfter != 8*time.Hour || !d.Limits[0].Allowed {
			t.Errorf("a peek at a ban: %+v, %v", d, err)
		}
		if got := strings.Join(kinds, " "); got != "Admitted Denied Denied Banned Denied" {
			t.Error(got)
		}
		if _, err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d := ask(); !d.Allowed {
			t.Errorf("Reset lifts no ban: %+v", d)
		}
	})
}

func TestBanReportsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := 0
		l := limiter(t, theKey, stint.Rate(1, time.Minute), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithDryRun(true)),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					began++
				}
			}))
		take := func() error { _, err := l.Take(t.Context(), "k", 1); return err }
		if take() != nil || take() == nil {
			t.Error("the rate doesn't hold")
		}
		time.Sleep(time.Minute)
		if err := take(); err != nil {
			t.Errorf("a ban that reports only denies: %v", err)
		}
		if began != 1 {
			t.Errorf("%d bans told of", began)
		}
	})
}

// A client that obeys the Retry-After of a Concurrency isn't banned, however often it asks.
func TestBanCountsNoDeniedSlot(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithName("slots")), stint.Rate(1, time.Hour, stint.WithBurst(20), stint.WithName("rate")),
			stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
		first := take(t, l, 1)
		for i := range 30 {
			_, err := l.Take(context.Background(), "k", 1)
			if d := denied(t, err).Decision; d.Limit != "slots" || d.RetryAfter != time.Second || d.Limits[2].Remaining != 2 {
				t.Fatalf("try %d: %+v", i, d)
			}
		}
		first.Done()
		take(t, l, 1).Done()
	})
}

// A call of Wait that is denied by its own deadline isn't counted.
func TestBanCountsNoDeadline(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(1, time.Hour, stint.WithMaxWait(2*time.Hour), stint.WithName("rate")),
			stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
		take(t, l, 1).Done()
		ask := map[string]func(context.Context, string, int64) (*stint.Permit, error){"Wait": l.Wait, "Take": l.Take}
		for name, ask := range ask {
			for range 5 {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				_, err := ask(ctx, "k", 1)
				cancel()
				if d := denied(t, err).Decision; d.Limit != "rate" || d.Limits[1].Remaining != 2 {
					t.Fatalf("%s: %+v", name, d)
				}
			}
		}
		for i := range 3 { // costs that never pass, whoever asks
			_, err := ask[[]string{"Wait", "Take", "Take"}[i]](context.Background(), "k", 1_000_000)
			if d := denied(t, err).Decision; d.Limits[1].Remaining != []int64{1, 0, 0}[i] || d.Limits[1].Allowed != (i == 0) {
				t.Fatalf("denial %d: %+v", i+1, d)
			}
		}
	})
}

// A wait that ends in a denial by its limits is counted once, by one more call of the store. If that
// call fails, the caller is denied all the same.
func TestBanCountsADeniedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		s := newSpy()
		l := limiter(t, theKey, stint.WithStore(s), seen.Option(), stint.Rate(1, time.Hour, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(1), stint.WithName("rate")),
			stint.Ban(2, time.Hour, stint.WithBanFor(3*time.Hour), stint.WithName("ban")))
		take(t, l, 1).Done()
		go func() { // fills the queue
			if p, err := l.Wait(t.Context(), "k", 1); err == nil {
				p.Done()
			}
		}()
		synctest.Wait()
		wait := func() stint.Decision {
			t.Helper()
			ctx, leave := context.WithCancel(t.Context())
			s.OnTake = func(c *storefake.Call) error { // the caller leaves before it hears of the denial
				leave()
				return c.Pass()
			}
			takes, settles := s.Counts()
			_, err := l.Wait(ctx, "k", 1)
			if moreTakes, moreSettles := s.Counts(); moreTakes != takes+1 || moreSettles != settles+1 {
				t.Errorf("%d calls to decide and %d to settle", moreTakes-takes, moreSettles-settles)
			}
			return denied(t, err).Decision
		}
		if d := wait(); d.Limit != "rate" || d.Limits[1].Remaining != 1 {
			t.Errorf("denied once: %+v", d)
		}
		s.OnSettle = func(*storefake.Call) error { return errDown }
		if d := wait(); d.Limit != "rate" || d.Limits[1].Remaining != 1 {
			t.Errorf("a denial that couldn't be counted: %+v", d)
		}
		s.OnSettle = nil
		if d := wait(); d.Limit != "ban" || d.RetryAfter != 3*time.Hour {
			t.Errorf("denied again: %+v", d)
		}
		if got := seen.Kinds(); !strings.HasSuffix(got, "Denied Denied Denied Banned") {
			t.Error(got)
		}
	})
}

// A request that waits for a slot is denied by the store again and again, which must
// not count.
func TestBanAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Minute)), stint.Rate(3, time.Hour), stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour)))
		first, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *stint.Permit)
		go func() {
			p, err := l.Take(context.Background(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			granted <- p
		}()
		time.Sleep(30 * time.Second)
		first.Done()
		(<-granted).Done()
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Limits[2].Remaining != 2 {
			t.Errorf("waiting was counted: %+v, %v", d.Limits, err)
		}
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		for range 2 {
			if _, err := l.Take(t.Context(), "k", 1); err == nil {
				t.Fatal("the rate doesn't hold")
			}
		}
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[2].Remaining != 0 || d.RetryAfter != time.Hour {
			t.Errorf("what the rate denies isn't counted beside a limit that waits: %+v", d.Limits)
		}
	})
}

// Denials by an inner limiter count for the outer limiter's ban.
func TestBanNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limiter(t, theKey, stint.Rate(100, time.Hour), stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour)))
		inner, err := outer.With(stint.Rate(1, time.Hour, stint.WithName("inner")))
		if err != nil {
			t.Fatal(err)
		}
		h := mount(outer, mount(inner, nil).ServeHTTP)
		var got []int
		for range 5 {
			got = append(got, answerOf(h))
		}
		if d, err := outer.Peek(t.Context(), "k"); err != nil || len(d.Limits) != 2 {
			t.Fatal(d, err)
		} else if d.Limits[1].Allowed {
			t.Errorf("answered %v, and not banned: %+v", got, d.Limits)
		}
	})
}

func answerOf(h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Code
}

// A ban without a rate or a quota beside it is a mistake.
func TestBanWithNothingToCount(t *testing.T) {
	ban := func() stint.Limit { return stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour)) }
	for _, tt := range []struct {
		name string
		opts []stint.Option
		ok   bool
	}{
		{"alone", []stint.Option{ban()}, false},
		{"bandwidth", []stint.Option{ban(), stint.Bandwidth(1 << 20)}, false},
		{"adaptive", []stint.Option{ban(), stint.AdaptiveConcurrency(1, 10)}, false},
		{"slots that are waited for", []stint.Option{ban(), stint.Concurrency(1, stint.WithMaxWait(time.Second))}, false},
		{"slots with a queue", []stint.Option{ban(), stint.Concurrency(1, stint.WithQueue(5))}, false},
		{"slots without", []stint.Option{ban(), stint.Concurrency(1, stint.WithQueue(0))}, false},
		{"quota", []stint.Option{ban(), stint.Quota(1, stint.Daily)}, true},
		{"rate that waits", []stint.Option{ban(), stint.Rate(1, time.Second, stint.WithMaxWait(time.Second))}, true},
		{"only reports for now", []stint.Option{ban(), stint.Rate(1, time.Second, stint.WithDryRun(true))}, true},
		{"route", []stint.Option{ban(), stint.Rate(1, time.Second), stint.WithRoute("/", stint.Only(ban()))}, false},
		{"the limiter's beside a route", []stint.Option{stint.Rate(1, time.Second), stint.WithRoute("/", ban())}, true},
		{"a route's beside the limiter", []stint.Option{ban(), stint.WithRoute("/", stint.Rate(1, time.Second))}, true},
		{"limit func", []stint.Option{ban(), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })}, true},
	} {
		_, err := stint.New(append(tt.opts, theKey)...)
		if tt.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "there is no rate or quota whose denials the ban could count: add") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := limiter(t, theKey, stint.Rate(1, time.Minute)).With(ban()); err != nil {
		t.Errorf("beside what is inherited: %v", err)
	}
}

// However many requests are denied at the instant at which a ban begins, it begins
// once.
func TestBanBeginsOnce(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var seen events
		// Two processes would be no different: they share the store.
		opts := []stint.Option{theKey, stint.WithStore(s), seen.Option(), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.Ban(20, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban"))}
		limiters := []*stint.Limiter{limiter(t, opts...), limiter(t, opts...)}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if p, err := limiters[i%2].Take(context.Background(), "k", 1); err == nil {
					p.Done()
				}
			})
		}
		wg.Wait()
		count := map[string]int{}
		for _, e := range seen.All() {
			by := e.Kind.String()
			if e.Kind == stint.EventDenied {
				by = "by " + e.Decision.Limit
			}
			count[by]++
		}
		// Of 199 denied the twentieth begins the ban.
		if count["Admitted"] != 1 || count["Banned"] != 1 || count["by rate"] != 19 || count["by ban"] != 180 {
			t.Errorf("%v", count)
		}
	})
}

// A denial answered from memory doesn't begin the ban again.
func TestBanBeginsOnceFromMemory(t *testing.T) {
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)), redisstore.WithDenyCache(100))
	var seen events
	l := limiter(t, theKey, stint.WithStore(s), seen.Option(), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
	take(t, l, 1).Done()
	for range 4 {
		if _, err := l.Take(context.Background(), "k", 1); err == nil {
			t.Fatal("passes")
		}
	}
	if got := seen.Kinds(); got != "Admitted Denied Denied Banned Denied Denied" {
		t.Error(got)
	}
	if _, err := l.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	take(t, l, 1).Done()
}

// A ban by one process holds in all, and any of them can lift it.
func TestBanInAFleet(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	process := func() *stint.Limiter {
		s := redisstore.New(server.Client(), patient, redisstore.WithPrefix(prefix))
		return limiter(t, theKey, stint.WithStore(s), stint.Rate(2, time.Hour, stint.WithName("rate")), stint.Ban(4, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
	}
	a, b := process(), process()
	for i, l := range []*stint.Limiter{a, b, a, b, a, b, a} {
		p, err := l.Take(context.Background(), "k", 1)
		switch {
		case i < 2:
			if err != nil {
				t.Fatal(i, err)
			}
			p.Done()
		case i < 5:
			if d := denied(t, err).Decision; d.Limit != "rate" || d.Limits[1].Remaining != int64(5-i) {
				t.Fatalf("%d: %+v", i, d)
			}
		default:
			if d := denied(t, err).Decision; d.Limit != "ban" || d.RetryAfter < 59*time.Minute || d.RetryAfter > time.Hour {
				t.Fatalf("%d: %+v", i, d)
			}
		}
	}
	if _, err := a.Take(context.Background(), "another", 1); err != nil {
		t.Errorf("another key: %v", err)
	}
	if _, err := b.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	take(t, a, 1).Done()
}

// Granted, denied or banned, a request costs one call of the store and none at its
// end: the ban is looked up in the call that charges.
func TestBanCostsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(2, time.Hour, stint.WithName("rate")), stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
		if got := codes(l, "GET", "/", 6); got != "200 200 429 429 429 429" {
			t.Fatal(got)
		}
		if takes, settles := s.Counts(); takes != 6 || settles != 0 {
			t.Errorf("6 requests made %d calls to decide and %d to settle", takes, settles)
		}
	})
}

// Each side of a failover counts for itself, and a Reset reaches both.
func TestBanOverAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := newSpy()
		s := failover.New(resettable{primary}, memstore.New(), failover.WithProbe(time.Second, 250*time.Millisecond))
		defer s.Close()
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.Ban(2, time.Hour, stint.WithBanFor(2*time.Hour), stint.WithName("ban")))
		ban := func() string {
			_, err := l.Take(t.Context(), "k", 1)
			if err == nil {
				return "passes"
			}
			return denied(t, err).Decision.Limit
		}
		expect := func(when string, want ...string) {
			t.Helper()
			for i, w := range want {
				if got := ban(); got != w {
					t.Fatalf("%s, %d: %s, want %s", when, i, got, w)
				}
			}
		}
		expect("primary", "passes", "rate", "ban", "ban")
		primary.FailWith(errDown)
		expect("secondary", "passes", "rate", "ban", "ban")
		primary.FailWith(nil)
		time.Sleep(time.Minute)
		expect("primary again", "ban")
		if _, err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		expect("lifted", "passes")
		primary.FailWith(errDown)
		expect("lifted there too", "passes")
	})
}

type resettable struct{ *spy }

func (r resettable) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	return r.Store.(store.Resetter).Reset(ctx, key, limits...)
}

// Denials are kept when the numbers change, and a ban ends when it was announced to.
func TestBanUpdate(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		with := func(limits ...stint.Option) []stint.Option {
			return append(limits, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")))
		}
		l := limiter(t, append(with(stint.Ban(5, time.Hour, stint.WithBanFor(10*time.Hour), stint.WithName("ban"))), stint.WithStore(s))...)
		denials := func(by string) stint.Decision {
			t.Helper()
			_, err := l.Take(context.Background(), "k", 1)
			d := denied(t, err).Decision
			if d.Limit != by {
				t.Fatalf("denied by %s, want %s: %+v", d.Limit, by, d)
			}
			return d
		}
		take(t, l, 1).Done()
		for range 3 {
			denials("rate")
		}
		update(t, l, with(stint.Ban(2, time.Hour, stint.WithBanFor(2*time.Hour), stint.WithName("ban")))...)
		if d, err := l.Peek(context.Background(), "k"); err != nil || !d.Limits[0].Allowed || d.Limits[0].Remaining != 1 {
			t.Fatalf("lowered below what it has counted: %+v, %v", d, err)
		}
		begun := denials("ban").RetryAfter
		update(t, l, with(stint.Ban(100, time.Second, stint.WithBanFor(time.Second), stint.WithName("ban")))...)
		if d := denials("ban"); begun > 2*time.Hour || d.RetryAfter > begun || d.RetryAfter < begun-time.Minute {
			t.Errorf("told %v, then %v", begun, d.RetryAfter)
		}
		update(t, l, with()...)
		denials("rate")
		update(t, l, with(stint.Ban(3, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))...)
		denials("ban")
	})
}

// One Ban given to several routes is one ban, also where they have only their own limits.
func TestBanOverRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ban := stint.Ban(3, time.Hour, stint.WithBanFor(time.Hour))
		l := limiter(t, theKey, stint.Rate(100, time.Hour), ban,
			stint.WithRoute("POST /login", stint.Rate(1, time.Hour)),
			stint.WithRoute("/search", stint.Only(stint.Rate(1, time.Hour), ban)),
			stint.WithRoute("/health", stint.Exempt()))
		if got := codes(l, "POST", "/login", 3) + " " + codes(l, "GET", "/search", 2); got != "200 429 429 200 429" {
			t.Fatal(got)
		}
		for _, path := range []string{"/", "/search", "//search"} {
			w := through(l, get(path), nil)
			if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "abnormal-usage-detected") || w.Header().Get("Retry-After") != "3600" {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
		}
		if got := codes(l, "GET", "/health", 1); got != "200" {
			t.Errorf("an exempt route: %s", got)
		}
		time.Sleep(time.Hour)
		if got := codes(l, "GET", "/", 1); got != "200" {
			t.Errorf("an hour later: %s", got)
		}
	})
}

// A tenant's plan may contain a ban; a ban of the same name in another plan continues
// it.
func TestBanInAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := stint.Rate(1, time.Hour)
		free := []stint.Limit{rate, stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour))}
		paid := []stint.Limit{rate, stint.Ban(50, time.Hour, stint.WithBanFor(time.Minute))}
		limits := free
		l := limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return limits, nil }))
		if got := codes(l, "GET", "/", 3); got != "200 429 429" {
			t.Fatal(got)
		}
		limits = paid
		w := through(l, get("/"), nil)
		if w.Header().Get("Retry-After") != "3600" || !strings.Contains(w.Body.String(), `"rate","ban"]`) {
			t.Errorf("%v %s", w.Header(), w.Body)
		}
	})
}

// The fields show the limits that are charged, and when to come back.
func TestBanFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(5, time.Hour, stint.WithDryRun(true)), stint.Quota(1, stint.Daily, stint.WithDryRun(true)),
			stint.Rate(1, time.Second, stint.WithName("calls")), stint.Ban(1, time.Hour, stint.WithBanFor(90*time.Second)), stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders))
		take(t, l, 1).Done()
		w := through(l, get("/"), nil)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "90" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
			if got := w.Header().Values(field); len(got) != 1 || !strings.HasPrefix(got[0], `"calls";`) || strings.Contains(got[0], "ban") {
				t.Errorf("%s: %q", field, got)
			}
		}
		if got := w.Header().Get("X-RateLimit-Limit"); got != "1" {
			t.Errorf("X-RateLimit-Limit: %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nothing to tell of but the ban
		rate := stint.Rate(1, time.Hour)
		opts := func(rate stint.Limit) []stint.Option {
			return []stint.Option{theKey, rate, stint.Ban(1, time.Hour, stint.WithBanFor(time.Minute)), stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders)}
		}
		l := limiter(t, opts(rate)...)
		codes(l, "GET", "/", 2)
		update(t, l, opts(stint.Rate(1, time.Hour, stint.WithDryRun(true)))...)
		w := through(l, get("/"), nil)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		for field := range w.Header() {
			if strings.Contains(strings.ToLower(field), "ratelimit") {
				t.Errorf("%s: %q", field, w.Header()[field])
			}
		}
	})
}

// A ban outranks a full service in the answer: 503 would ask the client to try again.
func TestBanOutranksCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithKey(stint.Global())), stint.Rate(1, time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)))
		h := mount(l, nil)
		answer := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/"))
			return w
		}
		var full *httptest.ResponseRecorder
		w := through(l, get("/"), func(http.ResponseWriter, *http.Request) {
			full = answer() // the rate denies too, which begins the ban
		})
		if w.Code != 200 || full.Code != http.StatusTooManyRequests {
			t.Errorf("%d, %d %s", w.Code, full.Code, full.Body)
		}
		if got := answer(); got.Code != http.StatusTooManyRequests || !strings.Contains(got.Body.String(), "abnormal-usage") {
			t.Errorf("banned: %d %s", got.Code, got.Body)
		}
	})
}

// A denial counts once, also while a turn that another caller has left is on its way back to
// the store, and calls that it may be in the way of ask again.
func TestBanCountsADenialOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow(0, time.Second)
		var banned int
		l := limiter(t, stint.Rate(1, time.Minute, stint.WithName("rate")), stint.Ban(2, time.Minute, stint.WithBanFor(time.Hour), stint.WithName("ban")),
			stint.WithKey(stint.GivenKey()), stint.WithStore(s), stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					banned++
				}
			}))
		if err := l.Allow(t.Context(), "other", 1); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := l.Wait(ctx, "other", 1)
			left <- err
		}()
		synctest.Wait()
		leave()
		if err := l.Allow(t.Context(), "key", 1); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{0, 1} {
			if err := l.Allow(t.Context(), "key", 1); !errors.Is(err, stint.ErrDenied) {
				t.Fatal(err)
			}
			if banned != want {
				t.Errorf("%d bans after %d denials, want %d", banned, i+1, want)
			}
		}
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
