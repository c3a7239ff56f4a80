// Command echo limits an echo application. A refusal is an error like any
// other there: the application's own HTTPErrorHandler writes it, so that it
// looks like every other error of the API; the fields are already set.
//
//	go run ./examples/echo
//	for i in $(seq 7); do curl -si http://127.0.0.1:8080/items | head -1; done
package main

import (
	"errors"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, app()))
}

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
