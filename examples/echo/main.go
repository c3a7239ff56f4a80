// Command echo limits an echo application. A denial is an error, so the application's
// own HTTPErrorHandler writes it like every other error of the API. The fields are
// already set.
//
//	go run ./examples/echo
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, app()))
}

const usage = `echo listens on http://%[1]v and allows each address 5 requests in 10 s.
Try, in another terminal: the last two are denied, and the HTTPErrorHandler says so.

  for i in $(seq 7); do curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' http://%[1]v/items; done
  curl -i http://%[1]v/items

`

func app() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		status, body := http.StatusInternalServerError, map[string]string{"error": "internal"}
		var denied *stint.DeniedError
		var he *echo.HTTPError
		switch {
		case errors.As(err, &denied):
			status, body = denied.StatusCode(), map[string]string{"error": "slow down", "limit": denied.Decision.Limit}
		case errors.As(err, &he):
			status, body = he.Code, map[string]string{"error": http.StatusText(he.Code)}
		}
		if !c.Response().Committed {
			_ = c.JSON(status, body)
		}
	}
	e.Use(stintecho.New(
		stint.Rate(5, 10*time.Second, stint.WithName("api")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
	))
	e.GET("/items", func(c echo.Context) error {
		return c.JSON(http.StatusOK, []string{"a", "b"})
	})
	e.GET("/healthz", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return e
}
