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

// looks shows the watch requests with keys of their own, by number.
func (w *watch) looks(from, to int) {
	for i := from; i < to; i++ {
		w.look(request(), "key"+strconv.Itoa(i), new(Source))
	}
}

// What a watch keeps is gone when it has seen enough, or a key twice. At most 32 of a
// process keep something at a time: the newest, since older ones may belong to options that
// are no longer in force.
func TestTablesAreBounded(t *testing.T) {
	begun := make([]watch, 2*mostTables)
	for i := range begun {
		begun[i].looks(0, 2*soon)
	}
	if n := len(tables.all); n != mostTables {
		t.Fatalf("%d tables, want %d", n, mostTables)
	}
	for i := range begun {
		w := &begun[i]
		if i%2 == 0 {
			w.looks(soon+1, soon+2)
			continue
		}
		w.looks(2*soon, looks)
		if found, over := w.found(0); !over || found.Unique != (i >= mostTables) {
			t.Errorf("watch %d found %+v, over %v", i, found, over)
		}
	}
	if n := len(tables.all); n != 0 {
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
				if w.look(request(), strconv.Itoa(g*looks+i), new(Source)) {
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
	if n != 3 || !over || found != (Found{Unique: true}) {
		t.Errorf("asked %d times, found %+v, over %v", n, found, over)
	}
}
