package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"
)

func TestSearchIsTighter(t *testing.T) {
	gin.SetMode(gin.TestMode)
	synctest.Test(t, func(t *testing.T) {
		server := app()
		do := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			return w
		}
		for range 2 {
			if w := do("POST", "/search"); w.Code != http.StatusOK {
				t.Fatalf("search: %d %s", w.Code, w.Body)
			}
		}
		w := do("POST", "/search")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"search"`) {
			t.Fatalf("third search: %d %s, want a denial that names its limit", w.Code, w.Body)
		}
		// Of the 20 that everyone has, the two searches took two and the
		// denied one none; this request takes the third.
		w = do("GET", "/items")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"requests left":17`) {
			t.Fatalf("items: %d %s", w.Code, w.Body)
		}
	})
}
