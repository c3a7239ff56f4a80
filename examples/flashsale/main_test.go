package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func buy(server http.Handler, user string) int {
	r := httptest.NewRequest("POST", "/buy", nil)
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w.Code
}

// rush sends n buyers at once and says how many were sold to, how many saw the
// waiting room, and when the last one left.
func rush(server http.Handler, wave string, n int) (sold, waiting int64, took time.Duration) {
	var s, w atomic.Int64
	start := time.Now()
	var buyers sync.WaitGroup
	for i := range n {
		buyers.Go(func() {
			switch buy(server, fmt.Sprintf("%s-%d", wave, i)) {
			case http.StatusOK:
				s.Add(1)
			case http.StatusServiceUnavailable:
				w.Add(1)
			}
		})
	}
	buyers.Wait()
	return s.Load(), w.Load(), time.Since(start)
}

func TestColdThenWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := shop()
		cold, waiting, took := rush(server, "cold", 500)
		if cold+waiting != 500 || cold == 0 || took > 3*time.Second {
			t.Fatalf("cold: %d sold, %d in the waiting room, in %v", cold, waiting, took)
		}
		// Keep it busy until it is warm, then send as many again.
		var warm int64
		for i := range 8 {
			warm, waiting, took = rush(server, fmt.Sprint("wave", i), 500)
			if warm+waiting != 500 || took > 3*time.Second {
				t.Fatalf("wave %d: %d sold, %d in the waiting room, in %v", i, warm, waiting, took)
			}
		}
		// A third of 60 in three seconds at first, all of them once warm.
		if cold > 30 || warm < 55 || warm > 61 {
			t.Errorf("sold %d in the first three seconds and %d once warm, want about 20 and 60", cold, warm)
		}
	})
}

func TestSecondClick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := shop()
		if code := buy(server, "ada"); code != http.StatusOK {
			t.Fatalf("first click: %d", code)
		}
		if code := buy(server, "ada"); code != http.StatusTooManyRequests {
			t.Fatalf("second click: %d", code)
		}
	})
}
