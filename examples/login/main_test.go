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

// attack sends n guesses, one every 100 ms, and counts those that reach a password.
func attack(server http.Handler, n int, of func(i int) (ip, account string)) (reached int, last *httptest.ResponseRecorder) {
	for i := range n {
		ip, account := of(i)
		if last = try(server, "/login", ip, account, "guess"); last.Code == http.StatusUnauthorized {
			reached++
		}
		time.Sleep(100 * time.Millisecond)
	}
	return reached, last
}

// 200 guesses at one account from one address: five reach a password, the address is banned, and
// the owner signs in elsewhere.
func TestOneAddressAtOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		reached, last := attack(server, 200, func(int) (string, string) { return "192.0.2.1", "ada" })
		if reached != 5 {
			t.Errorf("%d guesses reached a password, want 5", reached)
		}
		banned(t, server, last)
		if w := try(server, "/login", "192.0.2.2", "ada", "lovelace"); w.Code != http.StatusOK {
			t.Errorf("the owner elsewhere: %d %s", w.Code, w.Body)
		}
	})
}

// 200 guesses at as many accounts from one address: its rate lets 23 through, and it is banned.
func TestOneAddressAtManyAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		reached, last := attack(server, 200, func(i int) (string, string) { return "192.0.2.1", fmt.Sprint("user", i) })
		if reached < 20 || reached > 25 {
			t.Errorf("%d guesses reached a password, want 20 and a few", reached)
		}
		banned(t, server, last)
		if w := try(server, "/login", "192.0.2.2", "user7", "x"); w.Code != http.StatusUnauthorized {
			t.Errorf("an owner elsewhere: %d %s", w.Code, w.Body)
		}
	})
}

// One account from 200 addresses: 100 guesses reach its password, and then a few more each minute. No
// address is banned. The owner is denied as well while it lasts.
func TestManyAddressesAtOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := site(map[string]string{"ada": "lovelace"})
		reached, last := attack(server, 200, func(i int) (string, string) {
			// In other spellings of the account.
			return fmt.Sprintf("192.0.2.%d", i), []string{"ada", "Ada", " ada", "ADA "}[i%4]
		})
		if reached != 100 || last.Code != http.StatusTooManyRequests || !strings.Contains(last.Body.String(), "login-account") {
			t.Errorf("%d guesses reached the password, want 100; the last: %d %s", reached, last.Code, last.Body)
		}
		if w := try(server, "/login", "198.51.100.1", "ada", "lovelace"); w.Code != http.StatusTooManyRequests {
			t.Errorf("the owner: %d", w.Code)
		}
		if w := try(server, "/login", "192.0.2.1", "grace", "x"); w.Code != http.StatusUnauthorized {
			t.Errorf("another account from one of the addresses: %d", w.Code)
		}
		time.Sleep(time.Minute)
		if w := try(server, "/login", "198.51.100.1", "ada", "lovelace"); w.Code != http.StatusOK {
			t.Errorf("the owner, a minute after the attack: %d", w.Code)
		}
	})
}

// banned checks that the answer is a ban, which ends an hour after it began.
func banned(t *testing.T, server http.Handler, last *httptest.ResponseRecorder) {
	t.Helper()
	if last.Code != http.StatusTooManyRequests || !strings.Contains(last.Body.String(), "abnormal-usage-detected") {
		t.Fatalf("the last guess: %d %s", last.Code, last.Body)
	}
	if w := try(server, "/login", "192.0.2.1", "grace", "x"); w.Code != http.StatusTooManyRequests {
		t.Errorf("another account from the address: %d", w.Code)
	}
	time.Sleep(time.Hour)
	if w := try(server, "/login", "192.0.2.1", "grace", "x"); w.Code != http.StatusUnauthorized {
		t.Errorf("after an hour: %d %s", w.Code, w.Body)
	}
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

func TestEmptyAccountIsDenied(t *testing.T) {
	server := site(nil)
	if w := try(server, "/login", "192.0.2.1", " ", "x"); w.Code != http.StatusForbidden {
		t.Fatalf("empty account: %d %s", w.Code, w.Body)
	}
}
