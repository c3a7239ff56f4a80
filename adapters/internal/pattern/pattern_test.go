package pattern

import (
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestOf(t *testing.T) {
	var c Cache
	for range 2 {
		for _, want := range []string{"GET /users/:id", "POST /users/:id"} {
			method, path, _ := strings.Cut(want, " ")
			if got := c.Of(method, path); got != want {
				t.Errorf("Of(%q, %q) = %q", method, path, got)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { c.Of("GET", "/users/:id") }); n != 0 {
		t.Errorf("%v allocations for a pattern seen before, want none", n)
	}
}

func TestOfIsBounded(t *testing.T) {
	var c Cache
	for i := range most + 10 {
		path := "/" + strconv.Itoa(i)
		if got := c.Of("GET", path); got != "GET "+path {
			t.Fatalf("Of = %q", got)
		}
	}
	n := 0
	for range c.known.Range {
		n++
	}
	if n > most {
		t.Errorf("%d patterns are remembered, want at most %d", n, most)
	}
}

func TestOfConcurrently(t *testing.T) {
	var c Cache
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				path := "/" + strconv.Itoa(i)
				if got := c.Of("GET", path); got != "GET "+path {
					t.Errorf("Of = %q", got)
				}
			}
		})
	}
	wg.Wait()
}
