package stint_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// optionErrors takes the error of New apart. Each of its elements is about an option.
func optionErrors(t *testing.T, err error) (all []stint.OptionError) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	for _, e := range joined.Unwrap() {
		var o *stint.OptionError
		if !errors.As(e, &o) {
			t.Errorf("%v holds no OptionError", e)
			continue
		}
		if o.Write == "" || o.Option+o.Problem == "" {
			t.Errorf("%+v doesn't say what is wrong, or what to write", *o)
		}
		all = append(all, stint.OptionError{Limit: o.Limit, Route: o.Route, Option: o.Option, Problem: o.Problem, Write: o.Write})
	}
	return all
}

// What New and the like refuse can be read from the fields of the error.
func TestOptionErrors(t *testing.T) {
	second := time.Second
	base := stint.Must(stint.New(theKey, stint.Rate(1, second, stint.WithName("base")), stint.WithStore(memstore.New())))
	family := limiter(t, theKey, stint.Rate(1, second, stint.WithName("old")))
	added := stint.Rate(1, second, stint.WithName("added"))
	derive(t, family, added)
	with := func(l *stint.Limiter, opts ...stint.Option) error { _, err := l.With(opts...); return err }
	unnamed := stint.Rate(1, second)

	type wrong = stint.OptionError
	tests := []struct {
		name string
		err  error
		want []wrong // but for Write, as far as it isn't given
	}{
		{"limits", stint.Check(theKey, stint.Rate(0, second, stint.WithName("a b")), stint.Rate(1, second, stint.WithBurst(-1), stint.WithAlgorithm(stint.SlidingLog), stint.WithDebt())), []wrong{
			{Limit: "a b", Option: "WithName", Problem: `name "a b"`},
			{Limit: "a b", Problem: "0 units", Write: "write a number from 1 to 1099511627776"},
			{Limit: "rate", Option: "WithDebt", Problem: "SlidingLog takes no debt"},
			{Limit: "rate", Option: "WithBurst(-1)", Write: "write 0 or more"},
		}},
		{"routes", stint.Check(theKey, stint.WithMaxWait(-1), stint.WithRoute("/a", nil, stint.WithCost(nil), stint.Concurrency(0)), stint.WithRoute("b")), []wrong{
			{Option: "WithMaxWait(-1ns)"},
			{Route: "/a", Limit: "concurrency", Problem: "0 units"},
			{Route: "/a", Problem: "option 1 is nil", Write: "leave it out"},
			{Route: "/a", Option: "WithCost(nil)"},
			{Route: "b", Problem: `parsing "b": at offset 0: host/path missing /`, Write: `write a pattern of http.ServeMux, such as "POST /login"`},
		}},
		{"limits of no key", stint.Check(unnamed, stint.WithRoute("/a", stint.Quota(1, stint.Daily))), []wrong{
			{Limit: "rate", Problem: "no key, and no default is safe"},
			{Route: "/a", Limit: "daily", Problem: "no key, and no default is safe"},
		}},
		{"key functions and predicates", stint.Check(unnamed, stint.WithKey(stint.Join(stint.Header("a b"), stint.Hash(nil, stint.Cookie("")))),
			stint.WithSkip(stint.FromCIDR())), []wrong{
			{Option: `WithKey(Header("a b"))`, Write: `write the name of a header field, such as "X-API-Key"`},
			{Option: "WithKey(Hash)", Problem: "a secret of 0 bytes can be guessed"},
			{Option: "WithSkip(FromCIDR)", Problem: "no network"},
		}},
		{"New", func() error { _, err := stint.New(); return err }(), []wrong{{Problem: "no limits"}}},
		{"With", with(base, unnamed, stint.Rate(1, second, stint.WithName("base"))), []wrong{
			{Limit: "base", Problem: "another limit has that name", Write: "write another stint.WithName"},
			{Limit: "rate", Problem: "a default name, which other limits in the store may have too", Write: "write stint.WithName"},
		}},
		{"Update", family.Update(theKey, unnamed, stint.WithStore(memstore.New())), []wrong{
			{Option: "WithStore", Problem: "not the limiter's store, which holds the counts"},
		}},
		{"Update, in a limiter derived", family.Update(theKey, added), []wrong{{Limit: "added", Problem: "inherited already", Write: "leave it out"}}},
		{"a plan's limits", stint.CheckLimits(stint.Rate(0, second, stint.WithName("plan"))), []wrong{{Limit: "plan", Problem: "0 units"}}},
		{"a plan's limit without a name", stint.CheckLimits(unnamed), []wrong{{Limit: "rate", Problem: "a default name, and what a key has consumed goes by the name"}}},
		{"no limit", stint.CheckLimits(stint.Limit{}), []wrong{{Problem: "zero Limit"}}},
	}
	for _, tt := range tests {
		got := optionErrors(t, tt.err)
		for i := range got {
			if i < len(tt.want) && tt.want[i].Write == "" {
				got[i].Write = ""
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got\n\t%+v\nwant\n\t%+v", tt.name, got, tt.want)
		}
	}
}

func TestOptionErrorText(t *testing.T) {
	for want, e := range map[string]stint.OptionError{
		"leave it out": {Write: "leave it out"},
		`WithRoute("/a"): limit "b": WithBurst: no burst: leave it out`: {Route: "/a", Limit: "b", Option: "WithBurst", Problem: "no burst", Write: "leave it out"},
		"WithBurst(-1): write 0 or more":                                {Option: "WithBurst(-1)", Write: "write 0 or more"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Whoever has other words for Go's names gets the texts with those.
func TestOptionErrorIn(t *testing.T) {
	key := stint.WithKey(stint.IP{Header: "100%v"}.Key())
	for _, tt := range []struct {
		opts []stint.Option
		want string
	}{
		{[]stint.Option{theKey, stint.Quota(1, stint.Daily, stint.WithBurst(5))}, "<FixedWindow> has no burst: leave it out, or write <TokenBucket>"},
		{[]stint.Option{theKey, stint.Rate(1, 0)}, "period 0s: write a positive duration, such as <time.Second>"},
		{[]stint.Option{theKey, stint.AdaptiveConcurrency(1, 2, stint.WithLatencyTimeout(time.Second))}, "<Gradient2> has no latency timeout: leave it out, or write <AIMD>"},
		{[]stint.Option{key, stint.Rate(1, time.Second)}, "no proxy is trusted, so 100%v would never be read: " +
			`write the addresses that your proxies connect from, such as <netip.MustParsePrefix("10.0.0.0/8")>, or <stint.RemoteIP()> if there are none`},
		{[]stint.Option{theKey, stint.Rate(1, time.Second, stint.WithName("50%v"))}, `name "50%v": write a letter, then up to 63 of A-Z a-z 0-9 _ . -`},
	} {
		var e *stint.OptionError
		if err := stint.Check(tt.opts...); !errors.As(err, &e) {
			t.Errorf("%v, want %s", err, tt.want)
			continue
		}
		problem, write := e.In(func(name string) string { return "<" + name + ">" })
		if got := problem + ": " + write; got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if got, want := e.Problem+": "+e.Write, strings.NewReplacer("<", "", ">", "").Replace(tt.want); got != want {
			t.Errorf("in Go %s\nwant %s", got, want)
		}
	}
}

// If a function returns a wrong limit, the request is refused with the same kind of
// error.
func TestOptionErrorOfALimitFunc(t *testing.T) {
	for want, l := range map[string]stint.Limit{
		"0 units":                     stint.Rate(0, time.Second),
		"zero Limit":                  {},
		"another limit has that name": stint.Rate(1, time.Second, stint.WithName("taken")),
	} {
		seen := &events{}
		lim := limiter(t, theKey, seen.option(), stint.Rate(9, time.Second, stint.WithName("taken")),
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{l}, nil }))
		through(lim, get("/"), nil)
		var e *stint.OptionError
		if err := seen.last().Err; !errors.As(err, &e) || e.Problem != want {
			t.Errorf("%v, want an OptionError with %q", err, want)
		}
	}
}
