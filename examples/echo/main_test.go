package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

func TestErrorHandlerWritesTheDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := app()
		get := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w
		}
		for range 5 {
			if w := get("/items"); w.Code != http.StatusOK {
				t.Fatalf("items: %d %s", w.Code, w.Body)
			}
		}
		w := get("/items")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"limit":"api"`) {
			t.Fatalf("sixth: %d %s", w.Code, w.Body)
		}
		if got := w.Header().Get("Retry-After"); got != "2" {
			t.Fatalf("sixth: Retry-After %q, want the 2 s in which a token comes", got)
		}
		if w := get("/healthz"); w.Code != http.StatusNoContent {
			t.Fatalf("the health check is limited: %d", w.Code)
		}
	})
}
