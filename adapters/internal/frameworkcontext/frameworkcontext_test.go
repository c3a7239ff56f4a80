package frameworkcontext

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
)

type (
	own   struct{ user string }
	other struct{ user string }
	value struct{}
)

func TestContext(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), value{}, "parent's"))
	c := New(r, &own{"ada"})
	led := c.Request()
	if got, ok := From[*own](led); !ok || got.user != "ada" {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := From[*own](r); ok || led == r {
		t.Error("the request it was made of leads there too")
	}
	if _, ok := From[*other](led); ok {
		t.Error("it leads to another framework's context")
	}
	if got := led.Context().Value(value{}); got != "parent's" {
		t.Errorf("the parent's value is %v", got)
	}
	ctx, cancel := context.WithCancel(led.Context())
	defer cancel()
	if _, ok := From[*own](led.WithContext(ctx)); !ok {
		t.Error("a context below doesn't lead there")
	}
	c.End()
	if _, ok := From[*own](led); ok || led.Context().Value(value{}) != "parent's" {
		t.Error("it still leads there after the end, or has lost its values")
	}
}

// A request may go through one framework inside another: each has its own context, and
// none finds one that has ended.
func TestContextInside(t *testing.T) {
	outer := New(httptest.NewRequest("GET", "/", nil), &own{"ada"})
	r := New(outer.Request(), &other{"bob"}).Request()
	if got, ok := From[*own](r); !ok || got.user != "ada" {
		t.Errorf("below another framework: %v, %v", got, ok)
	}
	inner := New(r, &own{"eve"})
	r = inner.Request()
	if got, ok := From[*own](r); !ok || got.user != "eve" {
		t.Errorf("the inner one: %v, %v", got, ok)
	}
	inner.End()
	if got, ok := From[*own](r); ok {
		t.Errorf("after the inner one's end: %v", got)
	}
}

// What a function has started may outlive its request.
func TestContextIsShared(t *testing.T) {
	c := New(httptest.NewRequest("GET", "/", nil), &own{"ada"})
	r := c.Request()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if got, ok := From[*own](r); ok && got.user != "ada" {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	c.End()
	all.Wait()
}

func TestContextTakesOneAllocation(t *testing.T) {
	r, o := httptest.NewRequest("GET", "/", nil), new(own)
	if n := testing.AllocsPerRun(100, func() { New(r, o) }); n != 1 {
		t.Errorf("%v allocations", n)
	}
}
