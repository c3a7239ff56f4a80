package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBurst checks what the printed curl lines show: ten answers with fields, then
// a denial that says when to come back, then one more after that time.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limited(http.HandlerFunc(hello))
		get := func() *http.Response {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w.Result()
		}
		for i := range 10 {
			res := get()
			if res.StatusCode != http.StatusOK {
				t.Fatalf("request %d: status %d", i+1, res.StatusCode)
			}
			if res.Header.Get("RateLimit") == "" || res.Header.Get("RateLimit-Policy") == "" {
				t.Fatalf("request %d: no RateLimit fields in %v", i+1, res.Header)
			}
		}

		res := get()
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
			t.Fatalf("request 11: status %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
		}
		if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
			t.Fatalf("request 11: Content-Type %q", got)
		}
		var problem struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.NewDecoder(res.Body).Decode(&problem); err != nil {
			t.Fatal(err)
		}
		if problem.Status != http.StatusTooManyRequests || len(problem.Violated) != 1 || problem.Violated[0] != "rate" {
			t.Fatalf("problem body: %+v", problem)
		}

		time.Sleep(time.Second)
		if res := get(); res.StatusCode != http.StatusOK {
			t.Fatalf("a second later: status %d", res.StatusCode)
		}
	})
}

// TestLoad runs against a real server with a real clock: 64 connections ask as fast as
// they can. Whatever the machine does meanwhile, the handler runs burst + floor(rate ×
// elapsed) times: no more in the time of the whole run, and no less in that from the
// first answer to the start of the last request that was denied.
func TestLoad(t *testing.T) {
	length := 5 * time.Second
	if testing.Short() {
		length = time.Second
	}
	var served, asked atomic.Int64
	server := httptest.NewServer(limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		hello(w, r)
	})))
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	get := func() (denied bool) {
		res, err := client.Get(server.URL)
		if err != nil {
			t.Error(err)
			return false
		}
		res.Body.Close()
		asked.Add(1)
		return res.StatusCode == http.StatusTooManyRequests
	}
	start := time.Now()
	get() // opens the bucket
	opened := time.Now()
	var mu sync.Mutex
	var last time.Duration // when a request was sent that was denied
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for at := time.Duration(0); at < length && !t.Failed(); {
				if at = time.Since(opened); get() {
					mu.Lock()
					last = max(last, at)
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()

	due := func(elapsed time.Duration) int64 { return 10 + int64(elapsed/time.Second) }
	whole, got := time.Since(start), served.Load()
	if got > due(whole) {
		t.Errorf("the handler ran %d times in %v, want at most %d", got, whole, due(whole))
	}
	if got < due(last) {
		t.Errorf("the handler ran %d times in %v, want at least %d", got, last, due(last))
	}
	t.Logf("%d of %d requests passed in %v", got, asked.Load(), whole)
}
