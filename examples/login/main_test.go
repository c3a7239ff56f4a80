package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func try(server http.Handler, path, ip, account, password string) *httptest.ResponseRecorder {
	form := url.Values{"account": {account}, "password": {password}}
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = ip + ":1234"
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

func TestAccountIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		// Every guess from an address of its own and in another spelling.
		for i, name := range []string{"ada", "Ada", " ada", "ADA", "ada "} {
			if w := try(server, "/login", fmt.Sprintf("192.0.2.%d", i), name, "guess"); w.Code != http.StatusUnauthorized {
				t.Fatalf("guess %d: %d %s", i+1, w.Code, w.Body)
			}
		}
		w := try(server, "/login", "192.0.2.99", "ada", "lovelace")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "login-account") {
			t.Fatalf("sixth try: %d %s", w.Code, w.Body)
		}
		if w := try(server, "/login", "192.0.2.99", "grace", "x"); w.Code != http.StatusUnauthorized {
			t.Fatalf("another account: %d", w.Code)
		}
		time.Sleep(3 * time.Minute) // a fifth of the 15 minutes: one try is back
		if w := try(server, "/login", "192.0.2.99", "ada", "lovelace"); w.Code != http.StatusOK {
			t.Fatalf("after three minutes: %d %s", w.Code, w.Body)
		}
	})
}

func TestSuccessDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		for i := range 15 {
			if w := try(server, "/login", "192.0.2.1", "ada", "lovelace"); w.Code != http.StatusOK {
				t.Fatalf("login %d: %d %s", i+1, w.Code, w.Body)
			}
		}
	})
}

func TestAddressIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(nil)
		for i := range 20 {
			if w := try(server, "/login", "192.0.2.1", fmt.Sprint("user", i), "123456"); w.Code != http.StatusUnauthorized {
				t.Fatalf("account %d: %d %s", i+1, w.Code, w.Body)
			}
		}
		w := try(server, "/login", "192.0.2.1", "user20", "123456")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "login-address") {
			t.Fatalf("21st account: %d %s", w.Code, w.Body)
		}
	})
}

func TestEmptyAccountIsDenied(t *testing.T) {
	server := site(nil)
	if w := try(server, "/login", "192.0.2.1", " ", "x"); w.Code != http.StatusForbidden {
		t.Fatalf("empty account: %d %s", w.Code, w.Body)
	}
}

// An address that doesn't stop is banned, and no other.
func TestPersistenceIsBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		var w *httptest.ResponseRecorder
		for i := range 20 + 50 {
			w = try(server, "/login", "192.0.2.1", fmt.Sprint("account", i), "guess")
		}
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "abnormal-usage-detected") {
			t.Fatalf("the fiftieth denial: %d %s", w.Code, w.Body)
		}
		time.Sleep(59 * time.Minute)
		if w := try(server, "/login", "192.0.2.1", "grace", "x"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" {
			t.Fatalf("after 59 minutes: %d %v", w.Code, w.Header())
		}
		if w := try(server, "/login", "192.0.2.2", "ada", "lovelace"); w.Code != http.StatusOK {
			t.Fatalf("another address: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		if w := try(server, "/login", "192.0.2.1", "ada", "lovelace"); w.Code != http.StatusOK {
			t.Fatalf("after an hour: %d %s", w.Code, w.Body)
		}
	})
}
