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

// TestBurst is what the printed curl lines show: ten answers with fields, then
// a refusal that says when to come back, then one more after that time.
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

// TestLoad runs against a real server with a real clock: 64 connections ask as
// fast as they can, and the handler runs burst + floor(rate × elapsed) times.
// Tokens come at whole seconds after the first request, so stopping half way
// between two leaves room for a slow machine.
func TestLoad(t *testing.T) {
	elapsed := 5500 * time.Millisecond
	if testing.Short() {
		elapsed = 1500 * time.Millisecond
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

	get := func() {
		res, err := client.Get(server.URL)
		if err != nil {
			t.Error(err)
			return
		}
		res.Body.Close()
		asked.Add(1)
	}
	get() // opens the bucket
	end := time.Now().Add(elapsed)
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				get()
			}
		})
	}
	clients.Wait()

	want := 10 + int64(elapsed/time.Second)
	if got := served.Load(); got != want {
		t.Errorf("the handler ran %d times of %d asked in %v, want %d", got, asked.Load(), elapsed, want)
	}
	t.Logf("%d of %d requests passed in %v", served.Load(), asked.Load(), elapsed)
}
