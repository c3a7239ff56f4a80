package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoGoesFirst sends eight reports, then a page, then four checkouts. Four
// reports have the places. As they finish, checkouts come first; then the page
// and the reports, which have waited for as long as a class is worth.
func TestWhoGoesFirst(t *testing.T) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		server := shop(900 * time.Millisecond) // so that none finishes as a wait ends
		start := time.Now()
		var mu sync.Mutex
		served := map[string][]time.Duration{}
		var clients sync.WaitGroup
		send := func(path string, n int) {
			for range n {
				clients.Go(func() {
					w := httptest.NewRecorder()
					server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
					mu.Lock()
					defer mu.Unlock()
					if w.Code == 200 {
						served[path] = append(served[path], time.Since(start).Round(time.Second))
					}
				})
				synctest.Wait()
			}
			time.Sleep(10 * time.Millisecond)
		}
		send("/reports", 8)
		send("/", 1)
		send("/checkout", 4)
		clients.Wait()
		for _, at := range served {
			slices.Sort(at)
		}
		want := "map[/:[3s] /checkout:[2s 2s 2s 2s] /reports:[1s 1s 1s 1s 3s 3s 3s 4s]]"
		if got := fmt.Sprint(served); got != want {
			t.Errorf("served at %s, want %s", got, want)
		}
	})
}

// TestFull sends more than may be served and wait.
func TestFull(t *testing.T) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		server := shop(900 * time.Millisecond)
		start := time.Now()
		var mu sync.Mutex
		denied := map[time.Duration]int{}
		var clients sync.WaitGroup
		for range 30 {
			clients.Go(func() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				if w.Code == 503 {
					mu.Lock()
					defer mu.Unlock()
					denied[time.Since(start).Round(time.Second)]++
				}
			})
		}
		clients.Wait()
		// Six find the queue full, and for eight of the others there is no place
		// within three seconds.
		if want := map[time.Duration]int{0: 6, 3 * time.Second: 8}; !maps.Equal(denied, want) {
			t.Errorf("denied %v, want %v", denied, want)
		}
	})
}
