// Command login protects a login form against guessing, from two sides. One address may
// try 20 times a minute, whatever the accounts. One account may be tried 5 times in 15
// minutes, whatever the addresses. A successful login refunds its try on the account,
// so only failures count there. An address that is denied 50 times in ten minutes is
// banned for an hour.
//
//	go run ./examples/login
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, site(map[string]string{"ada": "lovelace"})))
}

const usage = `login listens on http://%[1]v; the password of ada is lovelace.
Try, in another terminal: logins that succeed don't count, of guesses the sixth is denied.

  for i in $(seq 6); do curl -s -d 'account=ada&password=lovelace' http://%[1]v/login; done
  for i in $(seq 6); do curl -s -d 'account=ada&password=guess' http://%[1]v/login; done

`

func site(passwords map[string]string) http.Handler {
	secret := make([]byte, 32)
	rand.Read(secret)

	limits := stint.Must(stint.New(
		stint.Rate(100, time.Minute),
		stint.WithKey(stint.RemoteIP()),
		// The pattern also matches the cleaned path: //login doesn't slip past.
		stint.WithRoute("POST /login",
			stint.Rate(20, time.Minute, stint.WithName("login-address")),
			stint.Rate(5, 15*time.Minute, stint.WithName("login-account"),
				// The store must not show which accounts are tried.
				stint.WithKey(stint.Hash(secret, stint.KeyFunc(account)))),
			// An address that goes on regardless is banned for an hour.
			stint.Ban(50, 10*time.Minute, stint.WithBanFor(time.Hour), stint.WithName("login-ban")),
		),
	))

	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		name, _ := account(r)
		if want, known := passwords[name]; !known || r.PostFormValue("password") != want {
			http.Error(w, "wrong account or password", http.StatusUnauthorized)
			return
		}
		if err := stint.FromContext(r.Context()).Settle(r.Context(), 0, "login-account"); err != nil {
			log.Print(err) // the try stays counted, the login still succeeds
		}
		fmt.Fprintln(w, "welcome")
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	// The form is read before the request is decided, so its size is bounded first.
	return http.MaxBytesHandler(stinthttp.Middleware(limits)(mux), 64<<10)
}

// account is the form's account, written as in the user table: "Ada " must not get a
// second set of tries.
func account(r *http.Request) (string, error) {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("account"))), nil
}
