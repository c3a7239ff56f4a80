package framework

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// own is a framework's context.
type own struct {
	user string
	r    *http.Request
}

func (o *own) SetRequest(r *http.Request) { o.r = r }

// other is another framework's.
type other struct{ own }

var user = Key("ours", func(o *own) (string, error) { return o.user, nil })

func TestEnter(t *testing.T) {
	type key struct{}
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "parent's"))
	o := &own{user: "ada"}
	entered, ctx := Enter(r, o)
	if o.r != entered || entered == r {
		t.Error("the framework's context and key functions have different requests")
	}
	if got, err := user(entered); got != "ada" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := user(r); got != "" || err == nil {
		t.Errorf("the request it was made of: %q, %v", got, err)
	}
	if got := ctx.Value(key{}); got != "parent's" {
		t.Errorf("the parent's value is %v", got)
	}
	ctx.Carry(context.WithValue(r.Context(), key{}, "its own"))
	if got := ctx.Value(key{}); got != "its own" {
		t.Errorf("the value carried is %v", got)
	}

	ctx.End()
	if got, err := user(entered); got != "" || err == nil {
		t.Errorf("after End: %q, %v", got, err)
	}
	if ctx.own != nil {
		t.Error("the framework's context is held after End")
	}
	if got := ctx.Value(key{}); got != "its own" {
		t.Errorf("after End the value carried is %v", got)
	}
}

// A request may go through one framework inside another: each key function sees its own
// context, and nothing of one that has ended.
func TestEnterInside(t *testing.T) {
	outer, octx := Enter(httptest.NewRequest("GET", "/", nil), &own{user: "ada"})
	inner, ictx := Enter(outer, &other{own{user: "bob"}})
	missing := (*MissingError)(nil)
	if got, err := user(inner); got != "" || !errors.As(err, &missing) {
		t.Errorf("in another framework: %q, %v", got, err)
	}
	ictx.End()
	octx.End()
	if got, err := user(inner); got != "" || !errors.As(err, &missing) {
		t.Errorf("after both: %q, %v", got, err)
	}
}

// What a key function has started may outlive it, and Admit.
func TestContextIsShared(t *testing.T) {
	r, ctx := Enter(httptest.NewRequest("GET", "/", nil), &own{user: "ada"})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if got, _ := user(r); got != "ada" && got != "" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	ctx.Carry(t.Context())
	ctx.End()
	all.Wait()
}

func TestAsks(t *testing.T) {
	ofOther := Key("theirs", func(o *other) (string, error) { return o.user, nil })
	for _, tt := range []struct {
		name   string
		keys   []func(*http.Request) (string, error)
		known  bool
		fitFor string
	}{
		{"none", nil, false, "any"},
		{"one", []func(*http.Request) (string, error){user, user}, true, "ours"},
		{"another", []func(*http.Request) (string, error){ofOther}, true, "theirs"},
		{"two", []func(*http.Request) (string, error){user, ofOther}, true, ""},
	} {
		var a Asks
		p := new(Probe)
		r := httptest.NewRequest("GET", "/", nil).WithContext(Lead(t.Context(), p))
		for _, k := range tt.keys {
			_, _ = k(r)
		}
		a.Note(p)
		if a.Known() != tt.known {
			t.Errorf("%s: known %v", tt.name, a.Known())
		}
		for _, adapter := range []string{"ours", "theirs", "any"} {
			err := a.Unfit(adapter)
			if fits := !tt.known || adapter == tt.fitFor; (err == nil) != fits {
				t.Errorf("%s: through %s: %v", tt.name, adapter, err)
			}
		}
	}

	var a Asks
	if a.Missed(errors.New("no session")) || a.Known() {
		t.Error("another error is taken for a framework that is missing")
	}
	_, err := user(httptest.NewRequest("GET", "/", nil))
	if !a.Missed(errors.Join(errors.New("no session"), err)) || !a.Known() || a.Unfit("theirs") == nil {
		t.Errorf("%v is not known for what it is", err)
	}
}
