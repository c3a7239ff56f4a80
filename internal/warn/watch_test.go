package warn

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
)

func request() *http.Request {
	return &http.Request{URL: &url.URL{Path: "/"}, Header: http.Header{}, RemoteAddr: "198.51.100.1:4711"}
}

// What a watch keeps is gone when it has seen enough, or a key twice. At most 32 of a
// process keep something at a time.
func TestTablesAreBounded(t *testing.T) {
	look := func(w *watch, n int) {
		for i := range n {
			w.look(request(), "key"+strconv.Itoa(i), 0)
		}
	}
	begun := make([]watch, 2*mostTables)
	for i := range begun {
		look(&begun[i], 2*soon)
	}
	if n := tables.Load(); n != mostTables {
		t.Fatalf("%d tables, want %d", n, mostTables)
	}
	for i := range begun {
		if i%2 == 0 {
			w := &begun[i]
			w.look(request(), "key"+strconv.Itoa(soon+1), 0)
		} else {
			for j := 2 * soon; j < looks; j++ {
				begun[i].look(request(), strconv.Itoa(j), 0)
			}
			if found, over := begun[i].found(0); !over || found.Has(KeysNeverRepeat) != (i < mostTables) {
				t.Errorf("watch %d found %b, over %v", i, found, over)
			}
		}
	}
	if n := tables.Load(); n != 0 {
		t.Errorf("%d tables are left", n)
	}
}

// Goroutines that look at once find what one would have.
func TestLookConcurrently(t *testing.T) {
	var w watch
	var all sync.WaitGroup
	asked := make([]int, 8)
	for g := range asked {
		all.Go(func() {
			for i := range looks {
				if w.look(request(), strconv.Itoa(g*looks+i), 0) {
					asked[g]++
				}
			}
		})
	}
	all.Wait()
	n := 0
	for _, a := range asked {
		n += a
	}
	found, over := w.found(0)
	if n != 3 || !over || found != 1<<KeysNeverRepeat {
		t.Errorf("asked %d times, found %b, over %v", n, found, over)
	}
}
