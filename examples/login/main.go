// Command login protects a login form against guessing with two limiters, one in the other.
//
// The outer one goes by address: 20 tries a minute, whatever the accounts. An address that is denied
// 50 times in ten minutes is banned for an hour. This stops one address, whether it guesses at
// one account or at many, and every try counts.
//
// The inner one goes by account and address: 5 tries in 15 minutes. It slows down one address at one
// account, and only there: the owner, at another address, isn't denied. A botnet has a try from each
// of its addresses, so a third limit goes by account alone. It is loose, 100 failures an hour,
// because while it denies, it denies the owner too. Only failures count in these two.
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
Try, in another terminal: logins that succeed don't count for the account, of guesses the sixth is denied,
and an address that goes on is banned.

  for i in $(seq 6); do curl -s -d 'account=ada&password=lovelace' http://%[1]v/login; done
  for i in $(seq 6); do curl -s -d 'account=ada&password=guess' http://%[1]v/login; done
  for i in $(seq 80); do curl -s -d 'account=ada&password=guess' http://%[1]v/login; done

`

func site(passwords map[string]string) http.Handler {
	secret := make([]byte, 32)
	rand.Read(secret)
	// The store must not show which accounts are tried.
	hashed := func(keys ...stint.Key) stint.Key { return stint.Hash(secret, stint.Join(keys...)) }

	// A ban counts the denials of limits with its own key, so the rate by address is in a limiter
	// around the others: it is charged for a try that they deny.
	outer := stint.Must(stint.New(
		stint.Rate(100, time.Minute),
		stint.WithKey(stint.RemoteIP()),
		// The pattern also matches the cleaned path: //login doesn't slip past.
		stint.WithRoute("POST /login",
			stint.Rate(20, time.Minute, stint.WithName("login-address")),
			stint.Ban(50, 10*time.Minute, stint.WithBanFor(time.Hour), stint.WithName("login-ban"))),
	))
	inner := stint.Must(stint.New(
		stint.WithSettle(stint.FailedOnly), // successful logins cost nothing
		stint.Rate(5, 15*time.Minute, stint.WithName("login-account-address"),
			stint.WithKey(hashed(stint.KeyFunc(account), stint.RemoteIP()))),
		stint.Rate(100, time.Hour, stint.WithName("login-account"),
			stint.WithKey(hashed(stint.KeyFunc(account)))),
	))

	mux := http.NewServeMux()
	mux.Handle("POST /login", stinthttp.Middleware(inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := account(r)
		if want, known := passwords[name]; !known || r.PostFormValue("password") != want {
			http.Error(w, "wrong account or password", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	})))
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	// The form is read before the request is decided, so its size is bounded first.
	return http.MaxBytesHandler(stinthttp.Middleware(outer)(mux), 64<<10)
}

// account is the form's account, written as in the user table: "Ada " must not get a
// second set of tries.
func account(r *http.Request) (string, error) {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("account"))), nil
}
