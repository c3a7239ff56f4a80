package framework

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/internal/keys"
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
	if got, err := user.Of(entered); got != "ada" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := user.Of(r); got != "" || err == nil {
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
	if got, err := user.Of(entered); got != "" || err == nil {
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
	if got, err := user.Of(inner); got != "" || err == nil || !strings.Contains(err.Error(), "ours.Key: the request has not come through ours: mount the limiter with ours") {
		t.Errorf("in another framework: %q, %v", got, err)
	}
	ictx.End()
	octx.End()
	if got, err := user.Of(inner); got != "" || err == nil || !strings.Contains(err.Error(), "ours.Key: the request has not come through ours: mount the limiter with ours") {
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
				if got, _ := user.Of(r); got != "ada" && got != "" {
					t.Errorf("got %q", got)
				}
			}
		})
	}
	ctx.Carry(t.Context())
	ctx.End()
	all.Wait()
}

func TestUnfit(t *testing.T) {
	ofOther := Key("theirs", func(o *other) (string, error) { return o.user, nil })
	for _, tt := range []struct {
		name   string
		key    *keys.Key
		fitFor string // "": for all
	}{
		{"none", keys.Global, ""},
		{"a function", keys.Made("KeyFunc", user.Of), ""},
		{"one", user, "ours"},
		{"one, twice", keys.Join([]*keys.Key{user, user}), "ours"},
		{"another", keys.Hash(make([]byte, 32), ofOther), "theirs"},
		{"two", keys.FirstOf([]*keys.Key{user, ofOther}), "no adapter"},
	} {
		for _, adapter := range []string{"ours", "theirs", "any"} {
			err := Unfit(tt.key, adapter)
			if fits := tt.fitFor == "" || adapter == tt.fitFor; (err == nil) != fits {
				t.Errorf("%s: through %s: %v", tt.name, adapter, err)
			}
		}
	}
}
