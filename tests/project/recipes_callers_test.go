package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// login is the body of a request that logs in.
type login struct{ Account, Password string }

type loginKey struct{}

// readLogin reads the body once, for the key of the limits and for the handler.
func readLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
		if err != nil {
			http.Error(w, "the body is too long", http.StatusRequestEntityTooLarge)
			return
		}
		var l login
		if err := json.Unmarshal(body, &l); err != nil {
			http.Error(w, "send JSON with an account and a password", http.StatusBadRequest)
			return
		}
		l.Account = strings.ToLower(strings.TrimSpace(l.Account)) // " Ada " and "ada" are one account
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), loginKey{}, l)))
	})
}

// account is the key of the inner limits.
func account(r *http.Request) (string, error) {
	l, _ := r.Context().Value(loginKey{}).(login)
	return l.Account, nil // an empty account is denied with 403
}

// An account has five failures in each spelling together; logins that succeed cost nothing; the
// size of the body is bounded; and an address that goes on is banned.
func TestFailedLogins(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	mux := http.NewServeMux()
	logIn := func(w http.ResponseWriter, r *http.Request) {
		if l := r.Context().Value(loginKey{}).(login); l.Account != "ada" || l.Password != "lovelace" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}

	outer := stint.Must(stint.New(
		stint.WithKey(stint.RemoteIP()),
		stint.Rate(20, time.Minute, stint.WithName("login-address")),
		stint.Ban(50, 10*time.Minute, stint.WithBanFor(time.Hour), stint.WithName("login-ban"))))
	inner := stint.Must(stint.New(
		stint.WithSettle(stint.FailedOnly), // a login that succeeds is refunded
		stint.Rate(5, 15*time.Minute, stint.WithName("login-account-address"),
			stint.WithKey(stint.Hash(secret, stint.Join(stint.KeyFunc(account), stint.RemoteIP())))),
		stint.Rate(100, time.Hour, stint.WithName("login-account"),
			stint.WithKey(stint.Hash(secret, stint.KeyFunc(account))))))
	mux.Handle("POST /login",
		stinthttp.Middleware(outer)(readLogin(stinthttp.Middleware(inner)(http.HandlerFunc(logIn)))))

	post := func(address, body string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", strings.NewReader(body))
		r.RemoteAddr = address + ":1000"
		mux.ServeHTTP(w, r)
		return w.Code
	}
	synctest.Test(t, func(t *testing.T) {
		const right, attacker, owner = `{"account":"Ada","password":"lovelace"}`, "192.0.2.1", "192.0.2.2"
		for range 10 {
			if code := post(attacker, right); code != http.StatusOK {
				t.Fatalf("a login that succeeds: %d", code)
			}
		}
		time.Sleep(time.Minute) // the address has 20 tries again
		for i, spelling := range []string{"ada", "ADA", " ada", `ada\t`, "aDa  ", "ada "} {
			want := http.StatusUnauthorized
			if i == 5 {
				want = http.StatusTooManyRequests
			}
			if code := post(attacker, `{"account":"`+spelling+`","password":"guess"}`); code != want {
				t.Errorf("failure %d, %q: %d, want %d", i+1, spelling, code, want)
			}
		}
		for body, want := range map[string]int{
			right: http.StatusTooManyRequests, // from this address
			`{"account":"` + strings.Repeat("a", 4<<10) + `"}`: http.StatusRequestEntityTooLarge,
			`{"account":" ","password":"guess"}`:               http.StatusForbidden,
			`null`:                                             http.StatusForbidden,
			`account=ada`:                                      http.StatusBadRequest,
			right + right:                                      http.StatusBadRequest,
		} {
			if code := post(attacker, body); code != want {
				t.Errorf("%.50s: %d, want %d", body, code, want)
			}
		}
		if code := post(owner, right); code != http.StatusOK {
			t.Errorf("the owner, at another address: %d", code)
		}
		for range 100 { // more than 50 of them are denied
			post(attacker, `{"account":"bob","password":"guess"}`)
		}
		time.Sleep(30 * time.Minute)
		if code := post(attacker, `{"account":"carl","password":"guess"}`); code != http.StatusTooManyRequests {
			t.Errorf("half an hour later: %d, want a ban", code)
		}
		time.Sleep(time.Hour)
		if code := post(attacker, right); code != http.StatusOK {
			t.Errorf("after the ban: %d", code)
		}
	})
}

// Allow tells a denial from another error.
func TestCallsOutsideHTTP(t *testing.T) {
	lim := stint.Must(stint.New(stint.Rate(1, time.Minute), stint.WithKey(stint.GivenKey())))

	handle := func(ctx context.Context, tenant string) (string, error) {
		err := lim.Allow(ctx, tenant, 1)
		var denied *stint.DeniedError
		if errors.As(err, &denied) {
			after, _ := denied.Decision.Retry()
			return fmt.Sprintf("try again in %v", after), nil
		}
		if err != nil {
			return "", err // no denial: an empty key, or a store that fails with FailClosed, for example
		}
		return "done", nil
	}

	synctest.Test(t, func(t *testing.T) {
		for _, want := range []string{"done", "try again in 1m0s"} {
			if got, err := handle(t.Context(), "acme"); got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		if got, err := handle(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Errorf("without a key: %q, %v", got, err)
		}
	})
}
