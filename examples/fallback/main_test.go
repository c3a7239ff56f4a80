package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/failover"
)

// The Redis goes away and comes back: every request is answered, limits go on
// holding, and the breaker opens and closes once.
func TestRedisGoesAwayAndComesBack(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	limits := degrading(rdb, time.Minute)
	defer limits.Close()
	app := limited(limits, http.HandlerFunc(hello))
	ask := func(method, path string) int {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	until := func(want failover.State) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // a real server, which goes and comes
			if code := ask("GET", "/"); code != http.StatusOK && code != http.StatusTooManyRequests {
				t.Fatalf("status %d", code)
			}
			if limits.State() == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("never %v: %+v", want, limits.Stats())
			}
		}
	}
	if code := ask("GET", "/"); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	server.Kill()
	until(failover.Open)
	passed := 0
	for range 10 {
		if ask("POST", "/login") == http.StatusOK {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d logins of 10 passed while memory decides, want 5", passed)
	}
	server.Restart()
	until(failover.Closed)
	if s := limits.Stats(); s.Opened != 1 {
		t.Errorf("the breaker opened %d times", s.Opened)
	}
}
