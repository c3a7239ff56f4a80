package stint_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// New, With and Update refuse a limit without a name in a store that others may use,
// wherever the limit is.
func TestNamesInASharedStore(t *testing.T) {
	shared := stint.WithStore(memstore.New())
	rate := stint.Rate(5, time.Minute)
	named := func(name string) stint.Limit { return stint.Rate(5, time.Minute, stint.WithName(name)) }
	const want = `limit "rate": a default name`
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
			stint.Bandwidth(5000), stint.Ban(1, time.Hour, time.Hour)}, nil, nil,
			[]string{want, `limit "daily": a default name`, `limit "concurrency": a default name`, `limit "adaptive": a default name`, `limit "bandwidth": a default name`, `limit "ban": a default name`}},
		{"a route", []stint.Option{shared, named("a"), stint.WithRoute("/r", rate)}, nil, nil, []string{`WithRoute("/r"): ` + want}},
		{"wrong itself as well", []stint.Option{shared, stint.Rate(0, time.Second)}, nil, nil, []string{want, "0 units"}},
		{"With", []stint.Option{shared, named("a")}, []stint.Option{rate}, nil, []string{want}},
		{"With another store", []stint.Option{shared, named("a")}, []stint.Option{rate, stint.WithMemory()}, nil, nil},
		{"With a store, inherited", []stint.Option{rate, stint.WithRoute("/r", stint.Quota(1, stint.Daily))}, []stint.Option{shared, named("a")}, nil,
			[]string{`limit "rate": inherited with a default name`, `limit "daily": inherited with a default name`}},
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

// If a WithLimitFunc returns a limit without a name, the request is refused.
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
		l := limiter(t, append(tt.opts, theKey, seen.option())...)
		if w := through(l, get(tt.path), nil); w.Code != tt.want {
			t.Errorf("%s: status %d, want %d: %v", tt.name, w.Code, tt.want, seen.last().Err)
		}
		if err := seen.last().Err; tt.want == 500 && !strings.Contains(err.Error(), "write stint.WithName") {
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

func TestWithMemory(t *testing.T) {
	small := stint.WithMemory(memstore.WithMaxKeys(1))
	l := limiter(t, stint.Rate(1, time.Hour), theKey, small)
	// A store of one key has the others share a state: nobody beyond it is alone.
	refused := 0
	for _, key := range []string{"a", "b", "c"} {
		if _, err := l.Take(t.Context(), key, 1); err != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of 3 keys refused in a store of one, want the one that shares another's state", refused)
	}

	for _, tt := range []struct {
		name       string
		opts, then []stint.Option
		want       []string
	}{
		{"said again", []stint.Option{small}, []stint.Option{small}, nil},
		{"left out", []stint.Option{small}, nil, nil},
		{"another size", []stint.Option{small}, []stint.Option{stint.WithMemory(memstore.WithMaxKeys(2))}, []string{"WithMemory: not the limiter's store"}},
		{"the default's", nil, []stint.Option{stint.WithMemory()}, nil},
		{"in place of a store", []stint.Option{stint.WithStore(memstore.New())}, []stint.Option{stint.WithMemory()}, []string{"WithMemory: not the limiter's store"}},
		{"beside a store", []stint.Option{small, stint.WithStore(memstore.New())}, nil, []string{"WithMemory: given beside WithStore: leave one out"}},
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

	// A derived limiter may have a memory of its own.
	inner := derive(t, l, stint.Rate(9, time.Hour), stint.WithMemory())
	if d, err := inner.Peek(t.Context(), "a"); err != nil || d.Limits[0].Remaining != 1 {
		t.Errorf("derived with its own memory: %+v, %v", d.Limits, err)
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
