package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns sends 15 requests at once: one is served now, ten wait for a turn
// of 200 ms each, four find the queue full and are denied without waiting.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := paced()
		start := time.Now()
		var (
			mu      sync.Mutex
			served  []time.Duration
			denied  int
			clients sync.WaitGroup
		)
		for range 15 {
			clients.Go(func() {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				mu.Lock()
				defer mu.Unlock()
				switch waited := time.Since(start); {
				case w.Code == http.StatusOK:
					served = append(served, waited)
				case waited != 0:
					t.Errorf("denied with %d after %v, want at once", w.Code, waited)
				default:
					denied++
				}
			})
		}
		clients.Wait()

		var want []time.Duration
		for i := range 11 {
			want = append(want, time.Duration(i)*200*time.Millisecond)
		}
		if !slices.Equal(served, want) || denied != 4 {
			t.Errorf("served after %v, %d denied; want %v and 4", served, denied, want)
		}
	})
}
