package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func get(server http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestStaleInsteadOfDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site()
		var w *httptest.ResponseRecorder
		for range 7 {
			if w = get(server, "/"); w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
		}
		if got := w.Body.String(); got != "stale page, version 5\n" {
			t.Errorf("seventh answer %q, want the stale fifth", got)
		}
		if w.Header().Get("Retry-After") != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("seventh answer's fields: %v", w.Header())
		}
		time.Sleep(2 * time.Second)
		if got := get(server, "/").Body.String(); got != "page, version 6\n" {
			t.Errorf("two seconds later: %q, want a fresh page", got)
		}
	})
}

func TestRedirect(t *testing.T) {
	server := site()
	if w := get(server, "/export"); w.Code != http.StatusOK {
		t.Fatalf("first export: %d", w.Code)
	}
	w := get(server, "/export")
	if w.Code != http.StatusFound || w.Header().Get("Location") != "/export/queued" {
		t.Fatalf("second export: %d to %q", w.Code, w.Header().Get("Location"))
	}
}
