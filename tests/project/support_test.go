// Package project tests what the project says of itself: that its documents are true, that
// its picture, its API list and its Makefile match the code, that it can be released and
// installed.
package project

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// The tests run in the root of the project, whose module its users have without the
// modules beside it.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv("GOWORK", "off")
	os.Exit(m.Run())
}

func limiter(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mount mounts a limiter in front of a handler that answers 200.
func mount(l *stint.Limiter) http.Handler {
	return stinthttp.Middleware(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// logger is an option that logs into text what is wrong.
func logger(text *strings.Builder) stint.Option { return loggerTo(text) }

// loggerTo is logger, for a writer that several goroutines use.
func loggerTo(w io.Writer) stint.Option {
	return stint.WithLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// eventually waits until done is true. What it waits for is another process.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}
