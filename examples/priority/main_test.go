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
// reports have the places. As they finish, checkouts come first, then the page, and then
// the reports.
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

// TestFull sends more reports than may be served and wait, and then five checkouts.
func TestFull(t *testing.T) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		server := shop(900 * time.Millisecond)
		start := time.Now()
		var mu sync.Mutex
		answers := map[string]int{}
		var clients sync.WaitGroup
		send := func(path string, n int) {
			for range n {
				clients.Go(func() {
					w := httptest.NewRecorder()
					server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
					mu.Lock()
					defer mu.Unlock()
					answers[fmt.Sprint(path, " ", w.Code, " ", time.Since(start).Round(time.Second))]++
				})
			}
			synctest.Wait()
		}
		send("/reports", 30)
		send("/checkout", 5)
		clients.Wait()
		// Six reports find the queue full, the checkouts take the places of five, and for eleven of
		// the others there is no slot within three seconds.
		want := map[string]int{
			"/reports 200 1s": 4, "/checkout 200 2s": 4, "/checkout 200 3s": 1, "/reports 200 3s": 3, "/reports 200 4s": 4,
			"/reports 503 0s": 11, "/reports 503 3s": 8,
		}
		if !maps.Equal(answers, want) {
			t.Errorf("answers %v, want %v", answers, want)
		}
	})
}
