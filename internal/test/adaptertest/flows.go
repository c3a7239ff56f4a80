package adaptertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
)

func flowPanics(t *testing.T, a Adapter) {
	values := []any{"boom", http.ErrAbortHandler, "boom", http.ErrAbortHandler}
	for i, value := range values {
		synctest.Test(t, func(t *testing.T) {
			l := compiled(t, stint.Concurrency(1), byAll)
			if i > 1 {
				l = compiled(t, stint.AdaptiveConcurrency(1, 1), byAll)
			}
			h := a.Build(one(l, func(http.ResponseWriter, *http.Request) {
				if limitertest.Free(t, l) != 0 {
					t.Error("the handler runs without a slot")
				}
				panic(value)
			}))
			for range 3 {
				func() {
					defer func() {
						if got := recover(); got != value {
							t.Errorf("recovered %v, want %v", got, value)
						}
					}()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
			}
			if n := limitertest.Free(t, l); n != 1 {
				t.Errorf("%d slots free, want 1", n)
			}
		})
	}
}

func flowSlots(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Concurrency(2), stint.WithKey(stint.Header("X-Key")))
		h := a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "served")
		}))
		var mu sync.Mutex
		codes := map[int]int{}
		ask := func() {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Key", "a")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
			if got, want := w.Header().Get("RateLimit-Policy"), `"concurrency";q=2;qu="concurrent-requests"`; got != want {
				t.Errorf("got RateLimit-Policy %s, want %s", got, want)
			}
			if w.Code == 429 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("got Retry-After %q, want 1", w.Header().Get("Retry-After"))
			}
		}
		for range 2 {
			var all sync.WaitGroup
			for range 5 {
				all.Go(ask)
			}
			all.Wait()
		}
		if codes[200] != 4 || codes[429] != 6 {
			t.Errorf("got %v, want twice 2 of 5 served", codes)
		}
	})
	// No client is to blame for the slots of the whole service.
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Concurrency(1), byAll)
		var h http.Handler
		h = a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			inner := httptest.NewRecorder()
			h.ServeHTTP(inner, httptest.NewRequest("GET", "/", nil))
			_, _ = fmt.Fprintln(w, inner.Code, inner.Header().Get("Retry-After"))
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Body.String(); got != "503 1\n" {
			t.Errorf("a request inside the only slot got %q, want 503 and Retry-After 1", got)
		}
	})
}

// An adaptive limit is full like any other, learns from the handlers, and from
// their panics.
func flowAdaptive(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var changes []stint.LimitChange
		l := compiled(t, stint.AdaptiveConcurrency(1, 50), byAll, stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventLimitChanged {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, *e.Change)
			}
		}))
		h := a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			if r.Header.Get("X-Panic") != "" {
				panic("boom")
			}
		}))
		codes := map[int]int{}
		ask := func(panics string) {
			defer func() { _ = recover() }()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Panic", panics)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
			if w.Code == 503 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("got Retry-After %q, want 1", w.Header().Get("Retry-After"))
			}
		}
		burst := func(panics string) {
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() { ask(panics) })
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		burst("")
		burst("")
		burst("")
		if codes[200] != 60 || codes[503] != 30 {
			t.Errorf("got %v, want thrice 20 served of 30", codes)
		}
		burst("yes")
		burst("yes")
		if n := limitertest.Free(t, l); n >= 20 {
			t.Errorf("%d slots free after handlers have panicked", n)
		}
		want := stint.LimitChange{Limit: "adaptive", From: 20, To: 21, Reason: stint.AdaptiveGrowing, InFlight: 19,
			Latency: 100 * time.Millisecond, Baseline: 100 * time.Millisecond}
		if len(changes) < 2 || changes[0] != want && changes[1] != want ||
			changes[len(changes)-1].Reason != stint.AdaptiveDrops {
			t.Errorf("told of %+v", changes)
		}
	})
}

// What the response says, the adaptive limit learns, unless the handler says
// otherwise.
func flowAdaptiveStatus(t *testing.T, a Adapter) {
	for _, tt := range []struct {
		name string
		do   http.HandlerFunc
		want int64
	}{
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 10},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, 10},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 20},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 20},
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, 20},
		{"503, ignored", func(w http.ResponseWriter, r *http.Request) {
			stint.FromContext(r.Context()).Ignore()
			w.WriteHeader(503)
		}, 20},
		{"200, dropped", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "from the cache, as the backend is full")
			stint.FromContext(r.Context()).Drop()
		}, 10},
		{"200, then a panic", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic("boom")
		}, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := compiled(t, stint.AdaptiveConcurrency(1, 20), byAll)
			h := a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Millisecond)
				tt.do(w, r)
			}))
			for range 20 {
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
				time.Sleep(100 * time.Millisecond)
			}
			if n := limitertest.Free(t, l); n != tt.want {
				t.Errorf("%s: the limit is %d, want %d", tt.name, n, tt.want)
			}
		})
	}
	// A denial further in is not the service's failure.
	synctest.Test(t, func(t *testing.T) {
		outer := compiled(t, stint.AdaptiveConcurrency(1, 20), byAll)
		inner := compiled(t, stint.Concurrency(5, stint.WithCost(func(*http.Request) int64 { return 6 })), byAll)
		h := a.Build(Site{Limits: []*stint.Limiter{outer}, Routes: []Route{{Path: "/", Limits: []*stint.Limiter{inner}}}})
		for range 20 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 503 {
				t.Fatalf("got %d, want 503", w.Code)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := limitertest.Free(t, outer); n != 20 {
			t.Errorf("the limit further out is %d, want 20", n)
		}
	})
}

// A logger further out sees the route, and the server the form whose files it
// has to remove, though the handler ran with another *http.Request.
func flowComesBack(t *testing.T, a Adapter) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "big")
	_, _ = part.Write(bytes.Repeat([]byte("x"), 1<<16))
	_ = form.Close()

	var name, seen string
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	h := a.Build(Site{Limits: []*stint.Limiter{l},
		Routes: []Route{{Path: "/users/{id}", Do: func(w http.ResponseWriter, r *http.Request) {
			if stint.FromContext(r.Context()) == nil {
				t.Error("no permit")
			}
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
				return
			}
			f, err := r.MultipartForm.File["file"][0].Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if f, ok := f.(*os.File); ok {
				name = f.Name()
			}
			if a.Pattern == "" {
				_ = r.MultipartForm.RemoveAll() // as handlers of such a router have to
			}
		}}}})
	logged := make(chan struct{})
	srv := limitertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(logged)
		h.ServeHTTP(w, r)
		seen = r.Pattern
		if (r.MultipartForm != nil) != (a.Pattern != "") {
			t.Errorf("the server sees the form: %v", r.MultipartForm != nil)
		}
	}))
	resp, err := srv.Client().Post(srv.URL+"/users/7", form.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	<-logged
	if seen != a.Pattern {
		t.Errorf("the logger sees the pattern %q, want %q", seen, a.Pattern)
	}
	srv.Close() // waits for the server's own end of the request
	if _, err := os.Stat(name); name == "" || !os.IsNotExist(err) {
		t.Errorf("the uploaded file %q was left behind: %v", name, err)
	}
}

// A client that leaves while its request waits gives its turn to the next.
func flowLeavesQueue(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		start := time.Now()
		l := compiled(t, stint.Rate(1, s, stint.WithBurst(1)), stint.WithMaxWait(time.Minute), byAll)
		var mu sync.Mutex
		served := map[string]time.Duration{}
		h := a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served[r.Header.Get("X-Name")] = time.Since(start)
		}))
		ask := func(ctx context.Context, name string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
			r.Header.Set("X-Name", name)
			h.ServeHTTP(w, r)
			return w
		}
		var all sync.WaitGroup
		ask(context.Background(), "a")
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if w := ask(ctx, "b"); w.Code != 503 {
				t.Errorf("got %d %q, want 503", w.Code, w.Body)
			}
		})
		time.Sleep(s / 4)
		all.Go(func() { ask(context.Background(), "c") })
		time.Sleep(s / 4)
		cancel()
		time.Sleep(s / 4)
		all.Go(func() { ask(context.Background(), "d") })
		all.Wait()
		if _, ok := served["b"]; ok {
			t.Error("who had left was served")
		}
		if served["c"] != s || served["d"] != 2*s {
			t.Errorf("served %v, want c after 1s, in b's place, and d after 2s", served)
		}
	})
}

// The same with a real connection that is closed.
func flowHangsUp(t *testing.T, a Adapter) {
	decided := make(chan string, 3)
	canceled := make(chan struct{}, 1)
	l := compiled(t, stint.Concurrency(1), stint.WithMaxWait(time.Minute),
		stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			if r.URL.RawQuery != "" { // New calls it too
				decided <- r.URL.RawQuery
			}
			return "everybody", nil
		})),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventCanceled {
				canceled <- struct{}{}
			}
		}))
	inside, leave := make(chan struct{}), make(chan struct{})
	var served sync.Map
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
		served.Store(r.URL.RawQuery, true)
		if r.URL.RawQuery == "first" {
			close(inside)
			<-leave
		}
	})))
	ask := func(ctx context.Context, name string) error {
		r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+"/?"+name, nil)
		resp, err := srv.Client().Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	var all sync.WaitGroup
	all.Go(func() { _ = ask(context.Background(), "first") })
	<-decided
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		if ask(ctx, "second") == nil {
			t.Error("who had hung up got an answer")
		}
	})
	<-decided
	cancel()
	<-canceled
	close(leave)
	if err := ask(context.Background(), "third"); err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, ok := served.Load("second"); ok {
		t.Error("who had hung up was served")
	}
}

func flowWaits(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(2)), byAll)
		start := time.Now()
		var mu sync.Mutex
		var served []time.Duration
		h := a.Build(one(l, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Since(start))
			if got := stint.FromContext(r.Context()).Decision().Delay; got != time.Since(start) {
				t.Errorf("Delay %v after %v", got, time.Since(start))
			}
		}))
		codes := make(chan int, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				codes <- w.Code
			}()
		}
		denials := 0
		for range 5 {
			if <-codes == 429 {
				denials++
				if time.Since(start) != 0 {
					t.Error("a denial has waited")
				}
			}
		}
		if denials != 2 || fmt.Sprint(served) != "[0s 1s 2s]" {
			t.Errorf("%d denied, served at %v", denials, served)
		}
	})
}
