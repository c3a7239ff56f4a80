package stint_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// New, With and Update reject a limit without a name in a store that others may use,
// wherever the limit is.
func TestNamesInASharedStore(t *testing.T) {
	shared := stint.WithStore(memstore.New())
	rate := stint.Rate(5, time.Minute)
	named := func(name string) stint.Limit { return stint.Rate(5, time.Minute, stint.WithName(name)) }
	const want = `limit "rate": the limit has only its default name`
	tests := []struct {
		name   string
		first  []stint.Option // of New, with the store; or as it is where with is given
		with   []stint.Option
		update []stint.Option
		want   []string
	}{
		{"named", []stint.Option{shared, named("a"), stint.WithRoute("/r", named("b"))}, []stint.Option{named("c")}, []stint.Option{named("d")}, nil},
		{"New", []stint.Option{shared, rate}, nil, nil, []string{want}},
		{"each is reported", []stint.Option{shared, rate, stint.Quota(1, stint.Daily), stint.Concurrency(1), stint.AdaptiveConcurrency(1, 2),
			stint.Bandwidth(5000), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour))}, nil, nil,
			[]string{want, `limit "daily": the limit has only its default name`, `limit "concurrency": the limit has only its default name`, `limit "adaptive": the limit has only its default name`, `limit "bandwidth": the limit has only its default name`, `limit "ban": the limit has only its default name`}},
		{"a route", []stint.Option{shared, named("a"), stint.WithRoute("/r", rate)}, nil, nil, []string{`WithRoute("/r"): ` + want}},
		{"wrong itself as well", []stint.Option{shared, stint.Rate(0, time.Second)}, nil, nil, []string{want, "0 units"}},
		{"With", []stint.Option{shared, named("a")}, []stint.Option{rate}, nil, []string{want}},
		{"With another store", []stint.Option{shared, named("a")}, []stint.Option{named("b"), stint.WithStore(memstore.New())}, nil, nil},
		{"With a store, inherited", []stint.Option{rate, stint.WithRoute("/r", stint.Quota(1, stint.Daily))}, []stint.Option{shared, named("a")}, nil,
			[]string{`limit "rate": the limit of the extended limiter has only its default name`, `limit "daily": the limit of the extended limiter has only its default name`}},
		{"Update", []stint.Option{shared, named("a")}, nil, []stint.Option{rate}, []string{want}},
		{"a store of its own", []stint.Option{rate, stint.WithRoute("/r", stint.Rate(1, time.Second))}, []stint.Option{stint.Rate(1, time.Hour)}, []stint.Option{rate}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := stint.New(append(tt.first, theKey)...)
			if err == nil && tt.with != nil {
				_, err = l.With(tt.with...)
			}
			if err == nil && tt.update != nil {
				err = l.Update(append(tt.update, theKey)...)
			}
			reports(t, err, tt.want...)
		})
	}
}

// reports checks that err says each of want once, and nothing else.
func reports(t *testing.T, err error, want ...string) {
	t.Helper()
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	ok := len(lines) == len(want)
	for _, w := range want {
		ok = ok && strings.Count(strings.Join(lines, "\n"), w) == 1
	}
	if !ok {
		t.Errorf("error\n\t%s\nwant just\n\t%s", strings.Join(lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// If a WithLimitFunc returns a limit without a name, the request is denied.
func TestNamesOfLimitFuncs(t *testing.T) {
	fresh := stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
		if r.URL.Path == "/named" {
			return []stint.Limit{stint.Rate(5, time.Minute, stint.WithName("plan"))}, nil
		}
		return []stint.Limit{stint.Rate(5, time.Minute)}, nil
	})
	for _, tt := range []struct {
		name, path string
		opts       []stint.Option
		want       int
	}{
		{"unnamed", "/", []stint.Option{fresh, stint.WithStore(memstore.New())}, 500},
		{"named", "/named", []stint.Option{fresh, stint.WithStore(memstore.New())}, 200},
		{"a store of its own", "/", []stint.Option{fresh}, 200},
	} {
		seen := &events{}
		l := limiter(t, append(tt.opts, theKey, seen.Option())...)
		if w := through(l, get(tt.path), nil); w.Code != tt.want {
			t.Errorf("%s: status %d, want %d: %v", tt.name, w.Code, tt.want, seen.Last().Err)
		}
		if err := seen.Last().Err; tt.want == 500 && !strings.Contains(err.Error(), "give it a name with stint.WithName") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Five requests on one limiter don't use up another limiter's five.
func TestLimitersOnOneStoreAreApart(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		first := limiter(t, stint.Rate(5, time.Hour, stint.WithName("login")), theKey, stint.WithStore(s))
		second := limiter(t, stint.Rate(100, time.Hour, stint.WithName("calls")), theKey, stint.WithStore(s))
		if got := codes(first, "GET", "/", 6); got != "200 200 200 200 200 429" {
			t.Errorf("first: %s", got)
		}
		if through(second, get("/"), nil); remaining(t, second) != 99 {
			t.Errorf("second: %d left after one request, want 99 of 100", remaining(t, second))
		}
	})
}

// An Update may give the store again, and no other. A derived limiter may have one of its own.
func TestStoreOfALimiter(t *testing.T) {
	own, other := stint.WithStore(memstore.New(memstore.WithMaxKeys(9))), stint.WithStore(memstore.New(memstore.WithMaxKeys(9)))
	for _, tt := range []struct {
		name       string
		opts, then []stint.Option
		want       []string
	}{
		{"given again", []stint.Option{own}, []stint.Option{own}, nil},
		{"left out", []stint.Option{own}, nil, nil},
		{"another", []stint.Option{own}, []stint.Option{other}, []string{"WithStore: Update can't change the store"}},
		{"in place of its own", nil, []stint.Option{other}, []string{"WithStore: Update can't change the store"}},
	} {
		rate := stint.Rate(1, time.Hour, stint.WithName("rate"))
		l, err := stint.New(append(tt.opts, rate, theKey)...)
		for range 2 { // also after an Update it is as New has made it
			if err == nil {
				err = l.Update(append(tt.then, rate, theKey)...)
			}
		}
		t.Run(tt.name, func(t *testing.T) { reports(t, err, tt.want...) })
	}

	l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("rate")), theKey)
	take(t, l, 1)
	inner := derive(t, l, stint.Rate(9, time.Hour, stint.WithName("inner")), other)
	if d, err := inner.Peek(t.Context(), "k"); err != nil || d.Limits[0].Remaining != 1 {
		t.Errorf("derived with a store of its own: %+v, %v", d.Limits, err)
	}
}

// Check returns what New would.
func TestCheck(t *testing.T) {
	for _, opts := range [][]stint.Option{
		{stint.Rate(1, time.Second), theKey},
		{stint.Rate(0, time.Second), nil, stint.WithKey(stint.Header("a b"))},
		{stint.Rate(1, time.Second), theKey, stint.WithStore(memstore.New())},
	} {
		_, err := stint.New(opts...)
		if got := stint.Check(opts...); (got == nil) != (err == nil) || err != nil && got.Error() != err.Error() {
			t.Errorf("Check: %v\nNew: %v", got, err)
		}
	}
}

// logTo has the default logger write to w until the test ends.
func logTo(t *testing.T, w io.Writer) {
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		// SetDefault leads package log to slog, whose first handler leads back.
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
}

func TestNamesakes(t *testing.T) {
	limit := func(n int64, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, time.Minute, append(opts, stint.WithName("calls"))...)
	}
	make := func(t *testing.T, s store.Store, opts ...stint.Option) *stint.Limiter {
		l := limiter(t, append(opts, stint.WithKey(stint.Header("X-Secret-Key")), stint.WithStore(s))...)
		t.Cleanup(func() { runtime.KeepAlive(l) }) // one that is gone means nothing by its names
		return l
	}
	key := stint.WithKey(stint.Header("X-Secret-Key"))
	const sixNotFive = "TokenBucket: 6 per 1m0s, burst 6, not TokenBucket: 5 per 1m0s, burst 5"
	tests := []struct {
		name string
		do   func(t *testing.T, s store.Store)
		want []string // what each line says
	}{
		{"other numbers", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			make(t, s, limit(6))
		}, []string{sixNotFive}},
		{"once, however many follow", func(t *testing.T, s store.Store) {
			first := make(t, s, limit(5))
			for n := range 5 {
				make(t, s, limit(int64(6+n%2)))
			}
			update(t, first, limit(9), key)
		}, []string{sixNotFive}},
		{"the same numbers", func(t *testing.T, s store.Store) {
			daily := func() stint.Limit {
				zone, _ := time.LoadLocation("Europe/Berlin") // another pointer each time
				return stint.Quota(5, stint.Daily.In(zone), stint.WithName("daily"))
			}
			make(t, s, limit(5), daily())
			make(t, s, limit(5, stint.WithBurst(5), stint.WithKey(stint.Global())), daily())
		}, nil},
		{"names apart", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			make(t, s, limit(6, stint.WithName("x")), stint.Rate(6, time.Minute, stint.WithName("others")))
		}, []string{sixNotFive}},
		{"stores apart", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			make(t, memstore.New(), limit(6))
			limiter(t, limit(7), key)
		}, nil},
		{"a family", func(t *testing.T, s store.Store) {
			l := make(t, s, limit(5), stint.WithRoute("/r", stint.Quota(5, stint.Daily, stint.WithName("r"))))
			derive(t, l, stint.Rate(6, time.Minute, stint.WithName("more")))
			update(t, l, limit(6), key)
			update(t, l, limit(7), key, stint.WithRoute("/r", stint.Quota(6, stint.Daily, stint.WithName("r"))))
		}, nil},
		{"an update that runs into another's", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			l := make(t, s, limit(5))
			update(t, l, limit(6), key)
			update(t, l, limit(5), key)
			update(t, l, limit(6), key)
		}, []string{sixNotFive}},
		{"an update that gets out of its way", func(t *testing.T, s store.Store) {
			l := make(t, s, limit(5))
			update(t, l, stint.Rate(5, time.Minute, stint.WithName("own")), key, stint.WithoutWarnings("update-drops"))
			make(t, s, limit(6))
		}, nil},
		{"a route's", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			make(t, s, stint.Rate(1, time.Second, stint.WithName("own")), stint.WithRoute("/r", limit(6)))
		}, []string{sixNotFive}},
		{"a derived limiter's", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			derive(t, limiter(t, stint.Rate(1, time.Second, stint.WithName("own")), key), limit(6), stint.WithStore(s))
		}, []string{sixNotFive}},
		{"plans", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			n := int64(5)
			l := make(t, s, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
				n++
				return []stint.Limit{limit(n)}, nil
			}))
			r := get("/")
			r.Header.Set("X-Secret-Key", "k")
			for range 3 {
				if w := through(l, r, nil); w.Code != 200 {
					t.Error(w.Code)
				}
			}
		}, nil},
		{"another algorithm, and numbers of every kind", func(t *testing.T, s store.Store) {
			named := stint.WithName("calls")
			make(t, s, stint.Ban(5, time.Minute, stint.WithBanFor(time.Hour), named), stint.Rate(1, time.Second, stint.WithName("own")))
			make(t, s, stint.Bandwidth(1_000_000, stint.WithBurst(8192), named))
		}, []string{"Bandwidth: 1000000 bytes per 1s, burst 8192, not Ban: 5 denials per 1m0s, banned for 1h0m0s"}},
		{"an adaptive limit's, which is this process's", func(t *testing.T, s store.Store) {
			make(t, s, stint.AdaptiveConcurrency(1, 5, stint.WithName("calls")))
			make(t, s, stint.AdaptiveConcurrency(1, 6, stint.WithName("calls")))
		}, nil},
		{"a store that can't be compared", func(t *testing.T, s store.Store) {
			make(t, layers{s}, limit(5))
			make(t, layers{s}, limit(6))
		}, nil},
		{"one that isn't to be warned", func(t *testing.T, s store.Store) {
			make(t, s, limit(5), stint.WithoutWarnings("name-conflict"))
			make(t, s, limit(6))
			make(t, s, limit(7), stint.WithoutWarnings())
		}, nil},
		{"what is only tried", func(t *testing.T, s store.Store) {
			make(t, s, limit(5))
			if err := stint.Check(limit(6), key, stint.WithStore(s)); err != nil {
				t.Error(err)
			}
		}, nil},
	}
	conflict := regexp.MustCompile(`msg="stint: limit \\"calls\\" is \\"(.*)\\" here, but \\"(.*)\\" in another limiter .* limit=calls warning=name-conflict `)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var logged bytes.Buffer
			logTo(t, &logged)
			tt.do(t, memstore.New())
			var got []string
			text := strings.Join(slices.DeleteFunc(slices.Collect(strings.Lines(logged.String())), func(line string) bool {
				return !strings.Contains(line, "warning=name-conflict")
			}), "")
			for line := range strings.Lines(text) {
				if m := conflict.FindStringSubmatch(line); m != nil {
					line = m[1] + ", not " + m[2]
				}
				got = append(got, line)
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) || strings.Contains(strings.ToLower(text), "secret") {
				t.Errorf("logged\n%s\nwant %q", text, tt.want)
			}
		})
	}
}

// A conflict is described for as long as there is one.
func TestNamesakesAreDescribed(t *testing.T) {
	s := memstore.New()
	limit := func(n int64) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName("calls")) }
	first := limiter(t, limit(5), theKey, stint.WithStore(s))
	second := limiter(t, limit(6), theKey, stint.WithStore(s), newLogged(0).with())
	for i, step := range []struct {
		of   *stint.Limiter
		n    int64
		want bool
	}{{second, 6, true}, {first, 6, false}, {first, 7, true}, {second, 7, false}} {
		update(t, step.of, limit(step.n), theKey)
		if all := second.Describe().Warnings; len(all) > 0 != step.want || step.want && all[0].Kind != "name-conflict" {
			t.Errorf("step %d: described %+v", i+1, all)
		}
	}
	if all := first.Describe().Warnings; len(all) > 0 {
		t.Errorf("both are warned: %+v", all)
	}
}

// A logger may use limiters, because no lock is held.
func TestNamesakesAreLoggedWithoutALock(t *testing.T) {
	s := memstore.New()
	limit := func(n int64) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName("calls")) }
	l := limiter(t, limit(5), theKey, stint.WithStore(s))
	limiter(t, limit(5), theKey, stint.WithStore(s))
	called := false
	logger := slog.New(handling(func() {
		if !called {
			called = true
			update(t, l, limit(7), theKey)
			limiter(t, limit(8), theKey, stint.WithStore(s))
		}
	}))
	update(t, l, limit(6), theKey, stint.WithLogger(logger))
	if !called {
		t.Error("nothing was logged")
	}
}

// handling is a handler that calls a function for each line.
type handling func()

func (h handling) Enabled(context.Context, slog.Level) bool  { return true }
func (h handling) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handling) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handling) WithGroup(string) slog.Handler             { return h }

// collected waits until what is garbage is gone, as far as it is asked.
func collected(gone func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if runtime.GC(); gone() {
			return true
		}
	}
	return false
}

// What is known of names keeps no store alive, not even one that refers back to its
// limiter.
func TestNamesakesKeepNoStore(t *testing.T) {
	gone := func() weak.Pointer[spy] {
		s := newSpy() // that leads to its limiter, as one with a callback may
		l := limiter(t, stint.Rate(5, time.Minute, stint.WithName("calls")), theKey, stint.WithStore(s))
		s.OnTake = func(c *asks) error { l.Lines(); return c.Pass() }
		limiter(t, stint.Rate(5, time.Minute, stint.WithName("calls")), theKey, stint.WithStore(s))
		return weak.Make(s)
	}()
	if !collected(func() bool { return gone.Value() == nil }) {
		t.Error("a store is kept that nobody uses")
	}
}
