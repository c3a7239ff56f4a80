package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/policy"
)

// start serves with the limits of a file until the test ends.
func start(t *testing.T, file string, opts ...policy.Option) (http.Handler, *policy.Watcher) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	server, watcher, err := api(ctx, file, append(opts,
		policy.WithDebounce(20*time.Millisecond))...)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		<-watcher.Done()
	})
	return server, watcher
}

func do(server http.Handler, method, path, tenant string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if tenant != "" {
		r.Header.Set("X-Tenant", tenant)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

// TestFile is the file as it is shipped.
func TestFile(t *testing.T) {
	server, _ := start(t, "policy.yaml")
	for _, tt := range []struct{ method, path, tenant, policy string }{
		{"GET", "/items", "small", `"flow";q=10;w=1, "in-flight";q=8;qu="concurrent-requests", "requests";q=100;w=90000`},
		{"GET", "/items", "large", `"flow";q=10;w=1, "in-flight";q=8;qu="concurrent-requests", "requests";q=10000;w=90000`},
		{"GET", "/items", "new", `"flow";q=10;w=1, "in-flight";q=8;qu="concurrent-requests", "requests";q=100;w=90000`},
		{"POST", "/reports", "small", `"flow";q=10;w=1, "in-flight";q=8;qu="concurrent-requests", "reports";q=2;qu="concurrent-requests", "requests";q=100;w=90000`},
		{"GET", "/healthz", "", ""},
	} {
		w := do(server, tt.method, tt.path, tt.tenant)
		if got := strings.Join(w.Header().Values("RateLimit-Policy"), ", "); w.Code != http.StatusOK || got != tt.policy {
			t.Errorf("%s %s of %q: %d, %s", tt.method, tt.path, tt.tenant, w.Code, got)
		}
	}
	if w := do(server, "GET", "/items", ""); w.Code != http.StatusForbidden {
		t.Errorf("no tenant: %d", w.Code)
	}
	for i, want := range []int{200, 200, 200, 429} {
		if w := do(server, "POST", "/signup", ""); w.Code != want {
			t.Errorf("signup %d: %d, want %d", i+1, w.Code, want)
		}
	}
}

// TestChangeUnderLoad changes the file while 16 connections ask as fast as
// they can. Requests get one of the two answers throughout, what has been
// counted stays, and a file with a mistake changes nothing.
func TestChangeUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	// A window that no test meets the end of, so that the numbers are exact.
	quota := func(n int) string {
		return fmt.Sprintf("version: 1\nkey: tenant\nlimits:\n- {name: all, quota: %d/52w}\n- {rate: 1_000_000/1s, dry-run: true}\nroutes: {GET /healthz: {exempt: true}}\n", n)
	}
	replace(quota(100))
	changes := make(chan policy.Change, 16)
	handler, watcher := start(t, file, policy.WithObserver(func(c policy.Change) { changes <- c }))
	server := httptest.NewServer(handler)
	defer server.Close()

	var served, denied atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	defer clients.Wait()
	defer close(stop)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 16 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, _ := http.NewRequest("GET", server.URL+"/items", nil)
				r.Header.Set("X-Tenant", "large")
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
				switch res.StatusCode {
				case http.StatusOK:
					served.Add(1)
				case http.StatusTooManyRequests:
					denied.Add(1)
				default:
					t.Errorf("status %d", res.StatusCode)
				}
			}
		})
	}
	// exhausted waits until the quota is used up and some have been denied.
	exhausted := func(n int64) {
		t.Helper()
		before := denied.Load()
		for end := time.Now().Add(time.Minute); served.Load() < n || denied.Load() < before+100; time.Sleep(time.Millisecond) { // a real file is watched
			if time.Now().After(end) || t.Failed() {
				t.Fatalf("%d served, %d denied, want %d served", served.Load(), denied.Load(), n)
			}
		}
		if got := served.Load(); got != n {
			t.Fatalf("%d served, want %d", got, n)
		}
	}
	exhausted(100)
	for _, step := range []struct {
		file  string
		good  bool
		serve int64
	}{
		{quota(250), true, 250},
		{quota(300) + "limit: []\n", false, 250},
		{"", false, 250},
		{quota(200), true, 250}, // less than has been served: nothing more
		{quota(400), true, 400},
	} {
		replace(step.file)
		select {
		case c := <-changes:
			if (c.Err == nil) != step.good || (watcher.Err() == nil) != step.good {
				t.Fatalf("%q: %v, Err %v", step.file, c.Err, watcher.Err())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q: not noticed", step.file)
		}
		if w := do(handler, "GET", "/healthz", ""); w.Code != http.StatusOK || step.good != (w.Body.String() == "up\n") {
			t.Errorf("health page of %q: %d %s", step.file, w.Code, w.Body)
		}
		exhausted(step.serve)
	}
	t.Logf("%d served, %d denied", served.Load(), denied.Load())
}
