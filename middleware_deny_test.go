package stint_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// answers are what a handler may make of a refusal. They mean the same through
// every adapter, and to WithErrorHandler.
var answers = []struct {
	name   string
	do     http.HandlerFunc
	status int // 0: the handler has left the request to the limiter
	body   string
}{
	{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("cached")) }, 200, "cached"},
	{"a string", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "cached") }, 200, "cached"},
	{"a copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("cached")) }, 200, "cached"},
	{"an empty body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, 200, ""},
	{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200, ""},
	{"a flush by the controller", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, 200, ""},
	{"a status and a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); _, _ = io.WriteString(w, "tea") }, 418, "tea"},
	{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, ""},
	{"200", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 200, ""},
	{"nothing", func(http.ResponseWriter, *http.Request) {}, 0, ""},
	{"an empty copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("")) }, 0, ""},
	{"fields", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Note", "kept")
		h.Set("Content-Type", "text/html")
		h.Set("Content-Length", "7")
		h.Set("Content-Encoding", "gzip")
		h.Set("Cache-Control", "public")
	}, 0, ""},
}

func TestDenyHandlersAnswer(t *testing.T) {
	errorHandler := func(h http.HandlerFunc) stint.Option {
		return stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, _ error) { h(w, r) })
	}
	costly := stint.WithCost(func(*http.Request) int64 { return 2 })
	const temporary = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Capacity temporarily reduced","status":503,"violated-policies":["concurrency"]}`
	refusals := []struct {
		name    string
		opts    func(http.HandlerFunc) []stint.Option
		path    string
		status  int
		problem string
	}{
		{"rate", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), costly, stint.WithDenyHandler(h)}
		}, "/", 429, problem("rate")},
		{"no such route", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), costly, stint.WithDenyHandler(h)}
		}, "/nowhere", 429, problem("rate")},
		{"slots of the service", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Concurrency(1), costly, stint.WithDenyHandler(h)}
		}, "/", 503, temporary},
		{"blocked", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), errorHandler(h),
				stint.WithBlock(func(*http.Request) bool { return true })}
		}, "/", 403, `{"type":"about:blank","title":"Forbidden","status":403}`},
		{"store down", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute, stint.WithName("rate")), errorHandler(h),
				stint.WithStore(down{}), stint.WithFailurePolicy(stint.FailClosed)}
		}, "/", 503, `{"type":"about:blank","title":"Service Unavailable","status":503}`},
	}
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			for _, r := range refusals {
				for _, as := range answers {
					for _, method := range []string{"GET", "HEAD"} {
						h := a.build(one(compiled(t, append(r.opts(as.do), byAll)...), func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequest(method, r.path, nil))
						status, body := as.status, as.body
						if status == 0 {
							status, body = r.status, r.problem
						}
						if w.Code != status || method == "GET" && strings.TrimSpace(w.Body.String()) != body {
							t.Errorf("%s, %s %s: got %d %q, want %d %q", r.name, method, as.name, w.Code, w.Body, status, body)
						}
						if as.status != 0 {
							continue
						}
						f := w.Header()
						if f.Get("Content-Type") != "application/problem+json" || f.Get("Cache-Control") != "no-store" ||
							f.Get("Content-Length") != "" || f.Get("Content-Encoding") != "" || (f.Get("X-Note") != "") != (as.name == "fields") {
							t.Errorf("%s, %s %s: got fields %v", r.name, method, as.name, f)
						}
					}
				}
			}
		})
	}
}

// A deny handler that hijacks the connection has answered.
func TestDenyHandlerHijacks(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			l := compiled(t, stint.Rate(1, time.Minute), byAll, stint.WithCost(func(*http.Request) int64 { return 2 }),
				stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, "HTTP/1.0 420 Raw\r\n\r\nraw")
				})))
			srv := serve(t, a.build(one(l, nil)))
			resp, err := srv.Client().Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 420 || string(body) != "raw" {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
		})
	}
}

// The writer of a deny handler can do what the server's can.
func TestDenyHandlerWriter(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			seen := ""
			can := func(w http.ResponseWriter) {
				_, flusher := w.(http.Flusher)
				_, hijacker := w.(http.Hijacker)
				_, readerFrom := w.(io.ReaderFrom)
				for name, ok := range map[string]bool{"flush": flusher, "hijack": hijacker, "read from": readerFrom || a.name != "std"} {
					if !ok {
						t.Errorf("can't %s", name)
					}
				}
				if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
					t.Error(err)
				}
				seen += "."
			}
			l := compiled(t, stint.Rate(1, time.Minute), byKey, stint.WithCost(func(*http.Request) int64 { return 2 }),
				stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { can(w) })),
				stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
					if !errors.Is(err, stint.ErrEmptyKey) {
						t.Error(err)
					}
					can(w)
				}))
			srv := serve(t, a.build(one(l, nil)))
			for _, key := range []string{"", "a"} {
				r, _ := http.NewRequest("GET", srv.URL, nil)
				r.Header.Set("X-Key", key)
				resp, err := srv.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if seen != ".." {
				t.Errorf("the handlers ran %d times, want 2", len(seen))
			}
		})
	}
}
