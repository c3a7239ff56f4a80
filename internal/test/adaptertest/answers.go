package adaptertest

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
	"github.com/stint-go/stint/internal/test/storefake"
)

// answers are the ways in which a handler may answer a denial. They mean the same through
// every adapter, and to WithErrorHandler.
var answers = []struct {
	name   string
	do     http.HandlerFunc
	status int // the denial's, byLimiter, or the handler's own
	body   string
}{
	{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("own")) }, denials, "own"},
	{"a string", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") }, denials, "own"},
	{"a copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("own")) }, denials, "own"},
	{"a copy of what can't be written at once", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("own too much"), 3))
	}, denials, "own"},
	{"an empty body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, denials, ""},
	{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, denials, ""},
	{"a flush by the controller", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, denials, ""},
	{"a hint before a body", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "own")
	}, denials, "own"},
	{"a status and a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); _, _ = io.WriteString(w, "tea") }, 418, "tea"},
	{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, ""},
	{"200", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 200, ""},
	{"nothing", func(http.ResponseWriter, *http.Request) {}, byLimiter, ""},
	{"an empty copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("")) }, byLimiter, ""},
	{"fields", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Note", "kept")
		h.Set("Content-Type", "text/html")
		h.Set("Content-Length", "7")
		h.Set("Content-Encoding", "gzip")
		h.Set("Cache-Control", "public")
	}, byLimiter, ""},

	{"http.Error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "own", 420) }, 420, "own"},
	{"http.NotFound", http.NotFound, 404, "404 page not found"},
	{"http.Redirect", func(w http.ResponseWriter, _ *http.Request) {
		http.Redirect(w, httptest.NewRequest("POST", "/", nil), "/queue", http.StatusSeeOther)
	}, 303, ""},
	{"http.ServeContent", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "own.txt", time.Time{}, strings.NewReader("own"))
	}, 200, "own"},
	{"http.ServeFileFS", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, pages, "own.txt") }, 200, "own"},
	{"http.FileServer", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/own.txt"
		http.FileServerFS(pages).ServeHTTP(w, r)
	}, 200, "own"},
	{"http.FileServer without the file", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/none"
		http.FileServerFS(pages).ServeHTTP(w, r)
	}, 404, "404 page not found"},
	{"http.TimeoutHandler", func(w http.ResponseWriter, r *http.Request) { // writes 200 itself
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") }), time.Minute, "").ServeHTTP(w, r)
	}, 200, "own"},
	{"http.StripPrefix and a mux", func(w http.ResponseWriter, r *http.Request) {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })
		http.StripPrefix("", mux).ServeHTTP(w, r)
	}, denials, "own"},
	{"httputil.ReverseProxy", func(w http.ResponseWriter, r *http.Request) {
		proxy := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: upstream{}, FlushInterval: -1}
		proxy.ServeHTTP(w, r)
	}, 203, "own"},

	{"Degrade, a body", degrade(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("own")) }), 200, "own"},
	{"Degrade, a copy", degrade(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("own"), 3))
	}), 200, "own"},
	{"Degrade, a flush", degrade(func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }), 200, ""},
	{"Degrade, nothing", degrade(func(http.ResponseWriter, *http.Request) {}), 200, ""},
	{"Degrade, a status", degrade(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }), 418, ""},
	{"Degrade, http.NotFound", degrade(http.NotFound), 404, "404 page not found"},
}

const (
	denials   = -1 // the status of the denial
	byLimiter = 0  // the handler has left the request to the limiter
)

func degrade(h http.HandlerFunc) http.HandlerFunc { return stint.Degrade(h).ServeHTTP }

var pages = fstest.MapFS{"own.txt": {Data: []byte("own")}}

// final records the status of the response; httptest's would that of a hint before it.
type final struct{ *httptest.ResponseRecorder }

func (w *final) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

// upstream is a server that a proxy asks.
type upstream struct{}

func (upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if got := httptrace.ContextClientTrace(r.Context()); got != nil && got.Got1xxResponse != nil {
		if err := got.Got1xxResponse(http.StatusEarlyHints, nil); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: 203, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("own")), Request: r}, nil
}

func flowDenyHandlers(t *testing.T, a Adapter) {
	errorHandler := func(h http.HandlerFunc) stint.Option {
		return stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, _ error) { h(w, r) })
	}
	costly := stint.WithCost(func(*http.Request) int64 { return 2 })
	const temporary = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Capacity temporarily reduced","status":503,"violated-policies":["concurrency"]}`
	kinds := []struct {
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
			return []stint.Option{stint.Concurrency(1, costly), stint.WithDenyHandler(h)}
		}, "/", 503, temporary},
		{"blocked", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), errorHandler(h),
				stint.WithBlock(func(*http.Request) bool { return true })}
		}, "/", 403, `{"type":"about:blank","title":"Forbidden","status":403}`},
		{"store down", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute, stint.WithName("rate")), errorHandler(h),
				stint.WithStore(storefake.Down()), stint.WithFailurePolicy(stint.FailClosed)}
		}, "/", 503, `{"type":"about:blank","title":"Service Unavailable","status":503}`},
	}
	for _, r := range kinds {
		for _, as := range answers {
			for _, method := range []string{"GET", "HEAD"} {
				h := a.Build(one(compiled(t, append(r.opts(as.do), byAll)...), func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
				w := &final{httptest.NewRecorder()}
				h.ServeHTTP(w, httptest.NewRequest(method, r.path, nil))
				status, body := as.status, as.body
				switch status {
				case denials:
					status = r.status
				case byLimiter:
					status, body = r.status, r.problem
				}
				if w.Code != status || method == "GET" && strings.TrimSpace(w.Body.String()) != body {
					t.Errorf("%s, %s %s: got %d %q, want %d %q", r.name, method, as.name, w.Code, w.Body, status, body)
				}
				f := w.Header()
				if degraded := strings.HasPrefix(as.name, "Degrade"); degraded && (f.Get("Retry-After") != "" || f.Get("Cache-Control") != "no-store") {
					t.Errorf("%s, %s %s: got fields %v", r.name, method, as.name, f)
				}
				if as.status != byLimiter {
					continue
				}
				if f.Get("Content-Type") != "application/problem+json" || f.Get("Cache-Control") != "no-store" ||
					f.Get("Content-Length") != "" || f.Get("Content-Encoding") != "" || (f.Get("X-Note") != "") != (as.name == "fields") {
					t.Errorf("%s, %s %s: got fields %v", r.name, method, as.name, f)
				}
			}
		}
	}
}

// A deny handler that hijacks the connection has answered.
func flowDenyHandlerHijacks(t *testing.T, a Adapter) {
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
	srv := limitertest.Serve(t, a.Build(one(l, nil)))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 420 || string(body) != "raw" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

// The writer of a deny handler can do what the server's can.
func flowDenyHandlerWriter(t *testing.T, a Adapter) {
	seen := ""
	can := func(w http.ResponseWriter) {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		for name, ok := range map[string]bool{"flush": flusher, "hijack": hijacker, "read from": readerFrom || a.Name != "std"} {
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
	srv := limitertest.Serve(t, a.Build(one(l, nil)))
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
}

// A denial that only the limiter answers takes no allocation.
func flowAllocates(t *testing.T, a Adapter) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	allocs := func(want int, opts ...stint.Option) float64 {
		n, status := allocations(a.Build(one(compiled(t, append(opts, byAll)...), answering(204, ""))))
		if status != want {
			t.Fatalf("got %d, want %d", status, want)
		}
		return n
	}
	router, _ := allocations(a.Build(Site{Routes: []Route{{Path: "/", Do: answering(204, "")}}}))
	router += a.Mounting
	for what, got := range map[string]float64{
		"denied":           allocs(429, stint.Rate(1, 700*24*time.Hour), stint.WithProblem()),
		"without a permit": allocs(204, ample(), stint.WithoutPermit()),
	} {
		if got > router {
			t.Errorf("%s: %v allocations, of them %v the router's", what, got, router)
		}
	}
}

// The server removes the files of the request that it knows, also those of a form that a
// deny handler or an error handler has read.
func flowDeniedFiles(t *testing.T, a Adapter) {
	denies := stint.Rate(1, time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 }))
	read := func(r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	}
	byHandler := stint.WithDenyHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { read(r) }))
	byErrorHandler := stint.WithErrorHandler(func(_ http.ResponseWriter, r *http.Request, _ error) { read(r) })
	fails := stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("no user") })
	sites := map[string]Site{
		"by a constant key": one(compiled(t, byHandler, denies, byAll), nil),
		"without a key":     one(compiled(t, byErrorHandler, denies, stint.WithKey(fails)), nil),
	}
	if a.User != nil { // on net/http, authentication passes on a copy of the request
		sites["by its own key"] = users(func(own stint.Key) *stint.Limiter { return compiled(t, byHandler, denies, stint.WithKey(own)) })
	}
	for name, s := range sites {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		_, _ = form.CreateFormFile("file", "empty")
		_ = form.Close()
		r := httptest.NewRequest("GET", "/", &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		a.Build(s).ServeHTTP(w, r)
		if seen := r.MultipartForm != nil; w.Code != 429 && w.Code != 500 || !seen && a.Pattern != "" {
			t.Errorf("%s: status %d, the server sees the form: %v", name, w.Code, seen)
		}
	}
}
