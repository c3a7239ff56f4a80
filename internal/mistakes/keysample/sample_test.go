package keysample

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

// A sample keeps at most a thousand keys, notifies when there may be something new, and then closes.
func TestSampleCloses(t *testing.T) {
	notified := make(chan Findings)
	s := New(OfField)
	for range 2 {
		s.Start(func() { notified <- s.Findings() })
	}
	for i := range size {
		if !s.Open() {
			t.Fatalf("closed after %d requests", i)
		}
		if s.Add(request(), strconv.Itoa(i)); i+1 == early {
			if found := <-notified; found != 0 {
				t.Errorf("found %b after %d requests", found, early)
			}
		}
	}
	if found := <-notified; found != NeverRepeats || s.Open() || len(s.kept) != mostKept {
		t.Errorf("found %b, open %v, with %d keys kept", found, s.Open(), len(s.kept))
	}
	s.Add(request(), "0")
	if s.Start(nil); s.Open() || s.Findings() != NeverRepeats {
		t.Error("it goes on")
	}
}

// A sample that hasn't been started, or can show nothing, takes no request.
func TestSampleStaysClosed(t *testing.T) {
	for _, s := range []*Sample{new(Sample), New(OfPeer), New(0)} {
		if s.signs == 0 {
			s.Start(func() {})
		}
		if s.Open() || s.Findings() != 0 {
			t.Errorf("open %v, found %b", s.Open(), s.Findings())
		}
	}
}

// Concurrent requests lead to the findings of the same requests one after the other.
func TestSampleConcurrently(t *testing.T) {
	notified := make(chan bool, 9)
	s := New(OfPeer)
	s.Start(func() { notified <- true })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for s.Open() {
				s.Add(request(), "198.51.100.1")
			}
		})
	}
	all.Wait()
	<-notified
	<-notified
	if found := s.Findings(); found != OneKey || len(notified) > 0 {
		t.Errorf("found %b, notified %d times more", found, len(notified))
	}
}
