package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// No plan is not no limit: a function that returns nothing lets nothing pass, unless another
// limit of the request holds, or it says that the request is exempt.
func TestNoLimits(t *testing.T) {
	returns := func(limits ...stint.Limit) stint.Option {
		return stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return limits, nil })
	}
	plan := stint.Rate(9, time.Hour, stint.WithName("plan"))
	rate := stint.Rate(9, time.Hour, stint.WithName("rate"))
	for _, tt := range []struct {
		name string
		opts []stint.Option
		want int
	}{
		{"nothing", []stint.Option{returns()}, 500},
		{"a plan", []stint.Option{returns(plan)}, 200},
		{"exempt", []stint.Option{returns(stint.Exempt())}, 200},
		{"exempt beside a limit", []stint.Option{returns(stint.Exempt(), plan)}, 500},
		{"nothing, beside a limit", []stint.Option{returns(), rate}, 200},
		{"nothing, beside a dry run", []stint.Option{returns(), stint.Rate(9, time.Hour, stint.WithName("dry"), stint.WithDryRun(true))}, 500},
		{"nothing, beside a limit that is left out", []stint.Option{returns(), stint.WithEmptyKey(stint.SkipEmptyKey),
			stint.Rate(9, time.Hour, stint.WithName("left"), stint.WithKey(stint.Header("X-None")))}, 500},
		{"nothing, beside a Bandwidth", []stint.Option{returns(), stint.Bandwidth(1 << 20)}, 200},
		{"nothing, in a dry run", []stint.Option{returns(), stint.WithDryRun(true)}, 200},
		{"a plan that can't be used, in a dry run", []stint.Option{returns(stint.Rate(0, time.Hour)), stint.WithDryRun(true)}, 200},
		{"one that is enforced, in a dry run", []stint.Option{returns(stint.Rate(0, time.Hour, stint.WithDryRun(false))), stint.WithDryRun(true)}, 500},
		{"nothing, beside another's plan", []stint.Option{returns(), returns(plan)}, 200},
		{"nothing, beside another's exemption", []stint.Option{returns(), returns(stint.Exempt())}, 500},
		{"on a route that is exempt", []stint.Option{returns(), stint.WithRoute("/", stint.Exempt())}, 200},
	} {
		seen := &events{}
		l := limiter(t, append(tt.opts, everybody, seen.Option())...)
		if got := through(l, get("/"), nil).Code; got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		if tt.want == 500 && seen.Last().Kind != stint.EventLimitsFailed {
			t.Errorf("%s: told %v", tt.name, seen.Kinds())
		}
	}
	if err := limiter(t, everybody, returns()).Admit(httptest.NewRecorder(), get("/"), nil); !errors.Is(err, stint.ErrNoLimits) {
		t.Errorf("error %v", err)
	}

	// Inside a limiter that has charged the request already, its limits hold.
	outer := limiter(t, everybody, rate)
	inner := derive(t, outer, returns())
	w := through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(through(inner, r, nil).Code) })
	if w.Code != 200 {
		t.Errorf("inside the limiter that it extends: %d", w.Code)
	}

	if err := stint.CheckLimits(stint.Exempt()); err != nil {
		t.Error(err)
	}
	if err := stint.CheckLimits(stint.Exempt(), plan); err == nil {
		t.Error("Exempt beside a limit is no mistake")
	}
}

// If what limits are read from fails, the limiter's failure policy decides, as for its store.
func TestSourceErrors(t *testing.T) {
	source := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return nil, &stint.SourceError{Err: errDown}
	})
	function := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return nil, fmt.Errorf("tenant: %w", &stint.SourceError{Err: errDown})
	})
	instead := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(1, time.Hour, stint.WithName("default"))}, &stint.SourceError{Err: errDown}
	})
	unfit := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(1, time.Hour, stint.WithName("default")), {}}, nil
	})
	closed := stint.WithFailurePolicy(stint.FailClosed)
	for _, tt := range []struct {
		name  string
		opts  []stint.Option
		want  [2]int
		retry bool
	}{
		{"open", []stint.Option{source}, [2]int{200, 200}, false},
		{"open, of a function", []stint.Option{function}, [2]int{200, 200}, false},
		{"open, beside another limit", []stint.Option{source, stint.Rate(1, time.Hour)}, [2]int{200, 429}, true},
		{"open, beside a function without limits", []stint.Option{source, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })}, [2]int{500, 500}, false},
		{"closed", []stint.Option{source, closed}, [2]int{503, 503}, true},
		{"closed, of a function", []stint.Option{function, closed}, [2]int{503, 503}, true},
		{"closed, in a dry run", []stint.Option{source, closed, stint.WithDryRun(true)}, [2]int{200, 200}, false},
		{"others instead", []stint.Option{instead, closed}, [2]int{200, 429}, true},
		{"open, and some can't be used", []stint.Option{unfit}, [2]int{200, 429}, true},
		{"closed, and some can't be used", []stint.Option{unfit, closed}, [2]int{503, 503}, true},
	} {
		seen := &events{}
		l := limiter(t, append(tt.opts, everybody, seen.Option())...)
		for i, want := range tt.want {
			if w := through(l, get("/"), nil); w.Code != want || i == 1 && (w.Header().Get("Retry-After") != "") != tt.retry {
				t.Errorf("%s: request %d: %d %v, want %d", tt.name, i, w.Code, w.Header(), want)
			}
			told := map[bool]string{true: "SourceFailed", false: "LimitsFailed"}[want != 503 && want != 500]
			if !strings.Contains(seen.Kinds(), told) {
				t.Errorf("%s: told %v", tt.name, seen.Kinds())
			}
		}
	}
}

// What a limiter says of limits is about the limiter as it is now.
func TestLimitUser(t *testing.T) {
	var by stint.LimitUser
	source := stint.WithLimitSource(stint.Global(), func(_ context.Context, _ string, asks stint.LimitUser) ([]stint.Limit, error) {
		by = asks
		return []stint.Limit{stint.Exempt()}, nil
	})
	plan := stint.Rate(5, time.Hour, stint.WithName("plan"))
	l := limiter(t, everybody, source, stint.Rate(100, time.Hour, stint.WithName("own")))
	check := func(want string, limits ...stint.Limit) {
		t.Helper()
		through(l, get("/"), nil)
		err := by.Check(limits...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	check("", plan)
	id := by.ID()
	check("", stint.Exempt())
	check("zero Limit", stint.Limit{})
	check(`limit "own": another limit has that name`, plan, stint.Rate(5, time.Hour, stint.WithName("own")))
	if err := l.Update(stint.Complete(), everybody, source, stint.WithFixedCost(6)); err != nil {
		t.Fatal(err)
	}
	check("a request costs 6, and no more than 5 ever pass", plan)
	check("", stint.Rate(6, time.Hour, stint.WithName("own")))
	derive(t, l, stint.Rate(9, time.Hour, stint.WithName("inner")))
	check(`limit "inner": another limit has that name`, stint.Rate(9, time.Hour, stint.WithName("inner")))
	if by.ID() != id {
		t.Error("the same limiter is another one after an Update")
	}
	if l = limiter(t, everybody, source); through(l, get("/"), nil).Code != 200 || by.ID() == id {
		t.Error("two limiters are one")
	}
	if none := (stint.LimitUser{}); none.ID() != nil || none.Check(plan) != nil {
		t.Error("the zero LimitUser is a limiter")
	}
}

// A limit that a function returns and that can't hold any request is an error, and names what
// to write.
func TestLimitsThatNoRequestHas(t *testing.T) {
	for _, tt := range []struct {
		limit stint.Limit
		want  string
	}{
		{stint.Rate(9, time.Hour, stint.WithKey(stint.GivenKey())), `limit "rate": WithKey(GivenKey()): requests don't have it: write another key`},
		{stint.Concurrency(9, stint.WithShare(1, 50)), `limit "concurrency": WithShare: no request waits for a slot, and shares order those that wait: write stint.WithQueue or stint.WithMaxWait`},
	} {
		seen := &events{}
		l := limiter(t, everybody, seen.Option(), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{tt.limit}, nil }))
		if got := through(l, get("/"), nil).Code; got != 500 || !strings.Contains(seen.Last().Err.Error(), tt.want) {
			t.Errorf("%d %v, want %s", got, seen.Last().Err, tt.want)
		}
	}
	_, err := stint.New(stint.WithKey(stint.GivenKey()), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil }))
	if want := "WithLimitFunc: the default key is GivenKey(), which requests don't have: write another stint.WithKey"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
