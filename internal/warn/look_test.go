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

// A look keeps at most a thousand keys, asks when there may be something new, and then is over.
func TestLookIsOver(t *testing.T) {
	asked := make(chan Found)
	l := NewLook(OfField)
	for range 2 {
		l.Begin(func() { asked <- l.Found() })
	}
	for i := range looks {
		if !l.Open() {
			t.Fatalf("over after %d requests", i)
		}
		if l.See(request(), strconv.Itoa(i)); i+1 == soon {
			if found := <-asked; found != 0 {
				t.Errorf("found %b after %d requests", found, soon)
			}
		}
	}
	if found := <-asked; found != NeverRepeats || l.Open() || len(l.kept) != mostKept {
		t.Errorf("found %b, open %v, with %d keys kept", found, l.Open(), len(l.kept))
	}
	l.See(request(), "0")
	if l.Begin(nil); l.Open() || l.Found() != NeverRepeats {
		t.Error("it goes on")
	}
}

// A look that hasn't begun, or can show nothing, looks at nothing.
func TestLookAtNothing(t *testing.T) {
	for _, l := range []*Look{new(Look), NewLook(OfPeer), NewLook(0)} {
		if l.signs == 0 {
			l.Begin(func() {})
		}
		if l.Open() || l.Found() != 0 {
			t.Errorf("open %v, found %b", l.Open(), l.Found())
		}
	}
}

// Goroutines that look at once find what one would have.
func TestLookConcurrently(t *testing.T) {
	asked := make(chan bool, 9)
	l := NewLook(OfPeer)
	l.Begin(func() { asked <- true })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for l.Open() {
				l.See(request(), "198.51.100.1")
			}
		})
	}
	all.Wait()
	<-asked
	<-asked
	if found := l.Found(); found != OneKey || len(asked) > 0 {
		t.Errorf("found %b, asked %d times more", found, len(asked))
	}
}
