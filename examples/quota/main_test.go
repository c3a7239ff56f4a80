package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestDayEndsAtLocalMidnight(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		server, err := api(3, berlin)
		if err != nil {
			t.Fatal(err)
		}
		get := func(key string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/", nil)
			if key != "" {
				r.Header.Set("X-API-Key", key)
			}
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w
		}
		for range 3 {
			if w := get("k1"); w.Code != http.StatusOK {
				t.Fatalf("within the quota: %d %s", w.Code, w.Body)
			}
		}
		if w := get("k1"); w.Code != http.StatusTooManyRequests {
			t.Fatalf("fourth of the day: %d %s", w.Code, w.Body)
		}
		if w := get("k2"); w.Code != http.StatusOK || w.Body.String() != "rate: 9 of 10 left\ndaily: 2 of 3 left\n" {
			t.Fatalf("another key: %d %q", w.Code, w.Body)
		}
		if w := get(""); w.Code != http.StatusForbidden {
			t.Fatalf("no key: %d", w.Code)
		}

		now := time.Now().In(berlin)
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, berlin)
		time.Sleep(time.Until(midnight) - time.Microsecond)
		if w := get("k1"); w.Code != http.StatusTooManyRequests {
			t.Fatalf("just before midnight in Berlin: %d", w.Code)
		}
		time.Sleep(time.Microsecond)
		if w := get("k1"); w.Code != http.StatusOK {
			t.Fatalf("midnight in Berlin: %d %s", w.Code, w.Body)
		}
	})
}
