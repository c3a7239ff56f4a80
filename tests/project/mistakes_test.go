package project

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// What docs/mistakes.md says that a limiter says, it says.
func TestDocumentedMistakes(t *testing.T) {
	rate, ours := stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP())
	failing := func(opts ...stint.Option) func(*testing.T) string {
		return func(t *testing.T) string {
			_, err := stint.New(opts...)
			if err == nil {
				t.Fatal("New has no error")
			}
			return "`New` fails: `" + strings.TrimPrefix(err.Error(), "stint: ") + "`"
		}
	}
	warning := func(key stint.Key) func(*testing.T) string {
		return func(t *testing.T) string {
			logged := new(strings.Builder)
			synctest.Test(t, func(t *testing.T) {
				h := mount(limiter(t, stint.Rate(1000, time.Second), stint.WithKey(key), logger(logged)))
				for i := range 300 {
					r := httptest.NewRequest("GET", "/", nil)
					r.RemoteAddr = fmt.Sprintf("10.0.0.7:%d", 1025+i)
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i%250))
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
				synctest.Wait() // warnings are logged beside requests
			})
			return said(logged)
		}
	}
	logging := func(l *stint.Limiter, logged *strings.Builder) string {
		through(l)
		return said(logged)
	}
	mistakes := []func(t *testing.T) string{
		failing(rate, stint.WithKey(stint.Header("X-Forwarded-For"))),
		warning(stint.RemoteIP()),
		failing(rate),
		func(t *testing.T) string {
			logged := new(strings.Builder)
			l := limiter(t, rate, stint.WithKey(stint.Header("X-API-Key")), logger(logged))
			if w := through(l); w.Code != http.StatusForbidden {
				t.Errorf("status %d", w.Code)
			}
			return logging(l, logged)
		},
		warning(stint.KeyFunc(func(r *http.Request) (string, error) { return r.RemoteAddr, nil })),
		func(*testing.T) string { return rebuilt() },
		failing(rate, ours, stint.WithStore(memstore.New())),
		func(t *testing.T) string {
			logged, s := new(strings.Builder), stint.WithStore(memstore.New())
			limiter(t, stint.Rate(1, time.Second, stint.WithName("api")), ours, s)
			return logging(limiter(t, stint.Rate(2, time.Second, stint.WithName("api")), ours, s, logger(logged)), logged)
		},
		failing(stint.Rate(1, time.Second, stint.WithName("api")), ours, stint.WithStore(redisstore.New((*redis.Client)(nil)))),
		func(t *testing.T) string {
			l := limiter(t, stint.Rate(10, time.Minute, stint.WithBurst(5)), ours, stint.WithCost(func(*http.Request) int64 { return 8 }))
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			err := l.Admit(w, r, func(http.ResponseWriter, *http.Request) {})
			var denied *stint.DeniedError
			if !errors.As(err, &denied) || denied.Decision.RetryAfter != stint.Never {
				t.Fatalf("error %v", err)
			}
			if l.Deny(w, r, err); w.Header().Get("Retry-After") != "" {
				t.Errorf("fields %v", w.Header())
			}
			return ": `" + strings.TrimPrefix(err.Error(), "stint: denied by limit rate: ") + "`"
		},
		failing(ours, stint.WithRoute("GET /users/:id", rate)),
		failing(stint.Rate(100, 60), ours),
	}
	text := read(t, "docs/mistakes.md")
	for i, says := range mistakes {
		_, row, found := strings.Cut(text, "\n| "+strconv.Itoa(i+1)+" | ")
		row, _, _ = strings.Cut(row, "\n")
		if want := says(t); !found || !strings.HasSuffix(row, want+" |") {
			t.Errorf("mistake %d: the document says\n%s\nwant\n%s", i+1, row, want)
		}
	}
	if strings.Contains(text, "\n| "+strconv.Itoa(len(mistakes)+1)+" | ") {
		t.Error("there are more mistakes than are tried")
	}
}

// said is the first line that a logger has written.
func said(logged *strings.Builder) string {
	_, text, _ := strings.Cut(logged.String(), `msg="stint: `)
	text, _, _ = strings.Cut(text, `"`)
	return ": `" + text + "`"
}

// rebuilt is the line, once per process, about handlers that build limiters.
var rebuilt = sync.OnceValue(func() string {
	warned := make(chan string, 1)
	tell := stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWarning {
			warned <- e.Warning.Text
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stint.Must(stint.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()), tell))
	}))
	defer server.Close()
	for range 1000 {
		if resp, err := http.Get(server.URL); err == nil {
			_ = resp.Body.Close()
		}
		runtime.GC() // it counts the limiters that are no longer used
		select {
		case text := <-warned:
			return ": `" + text + "`"
		default:
		}
	}
	return ""
})
