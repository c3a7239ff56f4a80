package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store/memstore"
)

func TestTransportRetries(t *testing.T) {
	const s = time.Second
	nobody := func() *http.Request { return get("http://a.test/") }
	with := func(method string, body io.Reader, change func(*http.Request)) func() *http.Request {
		return func() *http.Request {
			r, _ := http.NewRequest(method, "http://a.test/", body)
			if change != nil {
				change(r)
			}
			return r
		}
	}
	again := []func(*Transport){func(t *Transport) { t.Retryable = func(*http.Request) bool { return true } }}
	forbidden := []func(*Transport){func(t *Transport) { t.RetryForbidden = true }}
	tests := []struct {
		name   string
		script []string
		r      func() *http.Request
		opts   []func(*Transport)
		status int
		waits  []time.Duration // between the requests the server sees
	}{
		{"no limit", nil, nobody, nil, 200, nil},
		{"once", []string{"429 Retry-After: 2"}, nobody, nil, 200, []time.Duration{2 * s}},
		{"twice", []string{"429 Retry-After: 2", "429 Retry-After: 5"}, nobody, nil, 200, []time.Duration{2 * s, 5 * s}},
		{"by the RateLimit field", []string{`429 RateLimit: "p";r=0;t=4`}, nobody, nil, 200, []time.Duration{4 * s}},
		{"at once", []string{"429 Retry-After: 0", "503 Retry-After: 0", "429 Retry-After: 0"}, nobody, nil, 200, []time.Duration{s, 2 * s, 4 * s}},
		{"a date that is over", []string{"429 Retry-After: Sat, 21 Nov 1998 12:00:30 GMT"}, nobody, nil, 200, []time.Duration{s}},
		{"used up for no time", []string{`429 RateLimit: "p";r=0;t=0`}, nobody, nil, 200, []time.Duration{s}},
		{"used up for no time, earlier drafts", []string{"429 RateLimit-Remaining: 0|RateLimit-Reset: 0"}, nobody, nil, 200, []time.Duration{s}},
		{"reset in this second", []string{"429 X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1795262430|Date: Sat, 21 Nov 2026 12:00:30 GMT"}, nobody, nil, 200, []time.Duration{s}},
		{"at once, and a time", []string{`429 Retry-After: 0|RateLimit: "p";r=0;t=4`}, nobody, nil, 200, []time.Duration{4 * s}},
		{"unsaid", []string{"429", "429", "429"}, nobody, nil, 200, []time.Duration{s, 2 * s, 4 * s}},
		{"at most three times", []string{"429", "429", "429", "429"}, nobody, nil, 429, []time.Duration{s, 2 * s, 4 * s}},
		{"never", []string{"429 Retry-After: 1"}, nobody, []func(*Transport){retries(0)}, 429, nil},
		{"negative is never", []string{"429 Retry-After: 1"}, nobody, []func(*Transport){retries(-1)}, 429, nil},
		{"once, by option", []string{"429", "429"}, nobody, []func(*Transport){retries(1)}, 429, []time.Duration{s}},

		{"POST without a body", []string{"429"}, with("POST", nil, nil), nil, 429, nil},
		{"POST with GetBody", []string{"429"}, with("POST", strings.NewReader("x"), nil), nil, 429, nil},
		{"POST that may be sent again, without a body", []string{"429"}, with("POST", nil, nil), again, 200, []time.Duration{s}},
		{"POST that may be sent again, with NoBody", []string{"429"}, with("POST", http.NoBody, nil), again, 200, []time.Duration{s}},
		{"POST that may be sent again, with GetBody", []string{"429"}, with("POST", strings.NewReader("x"), nil), again, 200, []time.Duration{s}},
		{"POST that may be sent again, unavailable", []string{"503"}, with("POST", strings.NewReader("x"), nil), again, 200, []time.Duration{s}},
		{"GET that may not", []string{"429"}, nobody, []func(*Transport){func(t *Transport) { t.Retryable = func(*http.Request) bool { return false } }}, 429, nil},
		{"POST that can't be sent twice", []string{"429"}, with("POST", io.MultiReader(strings.NewReader("x")), nil), again, 429, nil},
		{"GetBody fails", []string{"429"}, with("POST", strings.NewReader("x"), func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		}), again, 429, nil},

		{"unavailable", []string{"503 Retry-After: 2"}, nobody, nil, 200, []time.Duration{2 * s}},
		{"unavailable, method unsaid", []string{"503 Retry-After: 2"}, with("GET", nil, func(r *http.Request) { r.Method = "" }), nil, 200, []time.Duration{2 * s}},
		{"unavailable PUT", []string{"503 Retry-After: 2"}, with("PUT", strings.NewReader("x"), nil), nil, 503, nil},
		{"unavailable DELETE", []string{"503 Retry-After: 2"}, with("DELETE", nil, nil), nil, 503, nil},
		{"unavailable PUT with a key", []string{"503 Retry-After: 2"}, with("PUT", strings.NewReader("x"), func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "1")
		}), nil, 200, []time.Duration{2 * s}},
		{"unavailable POST", []string{"503 Retry-After: 2"}, with("POST", nil, nil), nil, 503, nil},
		{"unavailable PATCH", []string{"503 Retry-After: 2"}, with("PATCH", nil, nil), nil, 503, nil},
		{"unavailable POST with a key", []string{"503 Retry-After: 2"}, with("POST", nil, func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "1")
		}), nil, 200, []time.Duration{2 * s}},
		{"forbidden", []string{"403 Retry-After: 2"}, nobody, nil, 403, nil},
		{"forbidden, and it may be sent again", []string{"403 Retry-After: 2", "403 X-RateLimit-Remaining: 0|X-RateLimit-Reset: 3"}, nobody, forbidden, 200, []time.Duration{2 * s, 3 * s}},
		{"forbidden without a time, and it may be sent again", []string{"403"}, nobody, forbidden, 403, nil},
		{"forbidden with a time that is over, and it may be sent again", []string{"403 Retry-After: 0"}, nobody, forbidden, 403, nil},
		{"broken", []string{"500 Retry-After: 2"}, nobody, nil, 500, nil},

		{"a minute", []string{"429 Retry-After: 60"}, nobody, nil, 200, []time.Duration{60 * s}},
		{"longer", []string{"429 Retry-After: 61"}, nobody, nil, 429, nil},
		{"longer, by option", []string{"429 Retry-After: 61"}, nobody, []func(*Transport){maxWait(2 * time.Minute)}, 200, []time.Duration{61 * s}},
		{"no patience", []string{"429 Retry-After: 1"}, nobody, []func(*Transport){maxWait(0)}, 429, nil},
		{"the overflow of others", []string{"429 Retry-After: 9223372037"}, nobody, nil, 429, nil},
		{"the overflow of others, patiently", []string{"429 Retry-After: 9223372037"}, nobody, []func(*Transport){maxWait(1 << 62)}, 200, []time.Duration{farthest}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := script(test.script...)
				resp, err := transport(nil, srv, test.opts...).RoundTrip(test.r())
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != test.status {
					t.Errorf("got status %d, want %d", resp.StatusCode, test.status)
				}
				var waits []time.Duration
				for i := 1; i < len(srv.at); i++ {
					waits = append(waits, srv.at[i]-srv.at[i-1])
				}
				if !slices.EqualFunc(waits, test.waits, within) {
					t.Errorf("got waits %v, want %v and jitter", waits, test.waits)
				}
				for i, b := range srv.opened {
					if last := i == len(srv.opened)-1; last && (b.read != 0 || b.closed != 0) {
						t.Errorf("the answer returned had been read (%d bytes) or closed", b.read)
					} else if !last && b.closed == 0 {
						t.Errorf("answer %d was not closed", i)
					}
				}
				if got := mustRead(t, resp, err); got != "answer "+string(rune('0'+len(test.waits))) {
					t.Errorf("got the body of another answer: %q", got)
				}
			})
		})
	}
}

// The body is sent in full each time, the request stays unchanged, and every body that
// was opened is closed.
func TestTransportBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 1", "429 Retry-After: 1")
		var opened []*body
		open := func() (io.ReadCloser, error) {
			b := &body{Reader: strings.NewReader("payload")}
			opened = append(opened, b)
			return b, nil
		}
		r := get("http://a.test/")
		r.Method = "POST"
		r.Header.Set("Idempotency-Key", "1")
		r.Body, _ = open()
		r.GetBody = open
		before, was := r.Body, *r
		resp, err := transport(nil, srv).RoundTrip(r)
		_ = mustRead(t, resp, err)
		if got := srv.bodies; !slices.Equal(got, []string{"payload", "payload", "payload"}) {
			t.Errorf("sent %q", got)
		}
		if r.Body != before || r.Method != was.Method || r.URL != was.URL || len(r.Header) != 1 {
			t.Error("the request was changed")
		}
		for i, b := range opened {
			if b.closed == 0 {
				t.Errorf("request body %d was not closed", i)
			}
		}
	})
}

// RoundTrip closes the body even if nothing is sent.
func TestTransportClosesBodyOnErrors(t *testing.T) {
	failing := func(*http.Request) (string, error) { return "", errors.New("who?") }
	tests := []struct {
		name string
		opts []func(*Transport)
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		{"no destination", []func(*Transport){destination(stint.KeyFunc(failing))}, nil, nil},
		{"canceled", nil, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, context.Canceled},
		{"canceled in the queue", nil, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			stop := time.AfterFunc(time.Minute, cancel)
			return ctx, func() { stop.Stop(); cancel() }
		}, context.Canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := script()
				lim := limiter(t, stint.Rate(1, time.Hour))
				rt := transport(lim, srv, test.opts...)
				if _, err := lim.Take(context.Background(), "http://a.test", 1); err != nil {
					t.Fatal(err)
				}
				b := &body{Reader: strings.NewReader("payload")}
				r, _ := http.NewRequest("POST", "http://a.test/", b)
				if test.ctx != nil {
					ctx, cancel := test.ctx()
					defer cancel()
					r = r.WithContext(ctx)
				}
				resp, err := rt.RoundTrip(r)
				if err == nil || resp != nil || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("got %v, %v", resp, err)
				}
				if b.closed == 0 {
					t.Error("the request's body was not closed")
				}
				if len(srv.times()) != 0 {
					t.Error("the request was sent")
				}
			})
		})
	}
}

func TestTransportDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 10")
		client := &http.Client{Transport: transport(nil, srv), Timeout: 5 * time.Second}
		start := time.Now()
		resp, err := client.Get("http://a.test/")
		if err != nil || resp.StatusCode != 429 {
			t.Fatalf("got %v, %v", resp, err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("came back after %v, want at once: the pause is longer than the timeout", d)
		}
		if got := mustRead(t, resp, err); got != "answer 0" {
			t.Errorf("got body %q", got)
		}
		// Who can wait, does; who can't is sent on for the server's own answer.
		if resp, err = client.Get("http://a.test/"); err != nil || time.Since(start) != 0 {
			t.Errorf("impatient: %v after %v", err, time.Since(start))
		}
		_ = mustRead(t, resp, err)
		client.Timeout = 0
		resp, err = client.Get("http://a.test/")
		_ = mustRead(t, resp, err)
		if d := time.Since(start); d < 10*time.Second {
			t.Errorf("patient: sent after %v, want 10s", d)
		}
	})
}

// A request whose deadline is too early for its place in the line still waits for the
// pause.
func TestTransportDeadlineInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 10")
		rt := transport(nil, srv, retries(0))
		resp, err := rt.RoundTrip(get("http://a.test/"))
		_ = mustRead(t, resp, err)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+100*time.Millisecond)
				defer cancel()
				resp, err := rt.RoundTrip(get("http://a.test/").WithContext(ctx))
				_ = mustRead(t, resp, err)
			})
		}
		all.Wait()
		for _, at := range srv.at[1:] {
			if at < 10*time.Second {
				t.Fatalf("sent %v early", 10*time.Second-at)
			}
		}
	})
}

func TestTransportWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 30")
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		resp, err := transport(nil, srv).RoundTrip(get("http://a.test/").WithContext(ctx))
		if resp != nil || !errors.Is(err, context.Canceled) || time.Since(start) != 3*time.Second {
			t.Errorf("got %v, %v after %v", resp, err, time.Since(start))
		}
		if srv.opened[0].closed == 0 {
			t.Error("the answer given up was not closed")
		}
	})
}

func TestTransportPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script()
		rt := transport(limiter(t, stint.Rate(2, time.Second, stint.WithBurst(1))), srv)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				resp, err := rt.RoundTrip(get("http://a.test/"))
				_ = mustRead(t, resp, err)
			})
		}
		all.Go(func() {
			resp, err := rt.RoundTrip(get("http://b.test/"))
			_ = mustRead(t, resp, err)
		})
		all.Wait()
		want := []time.Duration{0, 0, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second}
		if !slices.Equal(srv.at, want) {
			t.Errorf("sent at %v, want %v", srv.at, want)
		}
	})
}

// The limits of docs/outgoing.md's example hold for all processes, in any second.
func TestTransportKeepsTheRateOfAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New()
		var inFlight, most atomic.Int64
		srv := newServer(func(int, *http.Request) *http.Response { return answer("200") })
		slow := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			n := inFlight.Add(1)
			defer inFlight.Add(-1)
			for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
			}
			resp, err := srv.RoundTrip(r)
			time.Sleep(100 * time.Millisecond)
			return resp, err
		})
		var all sync.WaitGroup
		for range 5 {
			rt := transport(limiter(t,
				stint.Rate(50, time.Second, stint.WithBurst(1), stint.WithName("api-calls")),
				stint.Concurrency(8, stint.WithName("api-slots")),
				stint.WithStore(shared)), slow)
			for range 40 {
				all.Go(func() {
					resp, err := rt.RoundTrip(get("http://a.test/"))
					_ = mustRead(t, resp, err)
				})
			}
		}
		all.Wait()
		at := srv.times()
		for i := 50; i < len(at); i++ {
			if at[i]-at[i-50] < time.Second-time.Millisecond {
				t.Fatalf("51 requests within %v: %v", at[i]-at[i-50], at)
			}
		}
		if len(at) != 200 || at[199] > 5*time.Second || most.Load() > 8 {
			t.Errorf("%d requests in %v, %d at once; want 200 in 4 s, at most 8 at once", len(at), at[len(at)-1], most.Load())
		}
	})
}

// A turn that comes after the deadline is denied without waiting for it.
func TestTransportDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script()
		lim := limiter(t, stint.Rate(1, time.Minute))
		client := &http.Client{Transport: transport(lim, srv), Timeout: time.Second}
		resp, err := client.Get("http://a.test/")
		_ = mustRead(t, resp, err)
		start := time.Now()
		_, err = client.Get("http://a.test/")
		if denied := (*stint.DeniedError)(nil); !errors.As(err, &denied) || denied.Decision.RetryAfter == 0 {
			t.Errorf("got %v, want a *stint.DeniedError with a wait", err)
		}
		if time.Since(start) != 0 || len(srv.times()) != 1 {
			t.Errorf("%d sent, after %v", len(srv.times()), time.Since(start))
		}
	})
}

// Requests that lim lets go while the gate is closed wait for the pause, and don't pile
// up behind it.
func TestTransportPacesAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(func(n int, _ *http.Request) *http.Response {
			if n > 0 {
				return answer("200")
			}
			time.Sleep(time.Second / 2) // the others wait for lim meanwhile
			return answer("429 Retry-After: 10")
		})
		rt := transport(limiter(t, stint.Rate(1, time.Second, stint.WithBurst(1))), srv)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				resp, err := rt.RoundTrip(get("http://a.test/"))
				_ = mustRead(t, resp, err)
			})
		}
		all.Wait()
		if srv.at[1] < 10*time.Second+time.Second/2 {
			t.Errorf("the pause was not kept: %v", srv.at)
		}
		for i := 2; i < len(srv.at); i++ {
			// Turns are counted in microseconds.
			if d := srv.at[i] - srv.at[i-1]; d < time.Second-time.Microsecond {
				t.Errorf("requests %d and %d are %v apart, want the limiter's 1s: %v", i-1, i, d, srv.at)
			}
		}
	})
}

// What lim let go while the gate closed is given back to all its limits, also to those
// without a cost of their own beside one that has it.
func TestTransportGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(func(n int, _ *http.Request) *http.Response {
			if n > 0 {
				return answer("200")
			}
			time.Sleep(time.Second / 2) // another waits for lim meanwhile
			return answer("429 Retry-After: 10")
		})
		one := func(*http.Request) int64 { return 1 }
		lim := limiter(t, stint.Concurrency(2), stint.Quota(100, stint.Daily, stint.WithName("daily")),
			stint.Rate(1, time.Second, stint.WithBurst(1), stint.WithCost(one)))
		rt := transport(lim, srv, retries(0))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				resp, err := rt.RoundTrip(get("http://a.test/"))
				_ = mustRead(t, resp, err)
			})
		}
		all.Wait()
		d, err := lim.Peek(t.Context(), "http://a.test")
		if err != nil || len(srv.at) != 2 || d.Limits[1].Remaining != 98 {
			t.Errorf("%d of the quota left after requests at %v, want 98; %v", d.Limits[1].Remaining, srv.at, err)
		}
	})
}

// A request that has ended meanwhile is given its charge back, too.
func TestTransportGivesBackAfterTheEnd(t *testing.T) {
	lim := limiter(t, stint.Quota(100, stint.Daily, stint.WithName("daily")), stint.WithStore(storefake.New()))
	ctx, cancel := context.WithCancel(t.Context())
	permit, err := lim.Wait(ctx, "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	endUnsent(ctx, permit)
	if d, err := lim.Peek(t.Context(), "k"); err != nil || d.Remaining != 100 {
		t.Errorf("%d left, %v; want 100", d.Remaining, err)
	}
}

func TestTransportDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(func(n int, r *http.Request) *http.Response {
			if n == 0 {
				return answer("429 Retry-After: 5")
			}
			return answer("200")
		})
		account := func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
		lim := limiter(t, stint.Rate(100, time.Second))
		rt := transport(lim, srv, destination(stint.KeyFunc(account)), retries(0))
		call := func(url, account string) time.Duration {
			start := time.Now()
			r := get(url)
			r.Header.Set("X-Account", account)
			resp, err := rt.RoundTrip(r)
			_ = mustRead(t, resp, err)
			return time.Since(start)
		}
		call("http://a.test/", "one")
		if d := call("http://a.test/", "two"); d != 0 {
			t.Errorf("another account waited %v", d)
		}
		if d, err := lim.Peek(context.Background(), "two"); err != nil || d.Remaining != 99 {
			t.Errorf("the account was not charged: %+v, %v", d, err)
		}
		if d := call("http://b.test/", "one"); d != 0 {
			t.Errorf("another host waited %v", d)
		}
		if d := call("http://a.test/", "one"); !within(d, 5*time.Second) {
			t.Errorf("the account waited %v, want 5s", d)
		}
	})
}

func TestSchemeAndHost(t *testing.T) {
	tests := map[string]string{
		"http://a.test/x?y":      "http://a.test",
		"http://A.Test:80/":      "http://a.test",
		"https://a.test:443/":    "https://a.test",
		"https://a.test:80/":     "https://a.test:80",
		"http://a.test:8080/":    "http://a.test:8080",
		"http://[::1]:80/":       "http://[::1]",
		"http://[::1]:8080/":     "http://[::1]:8080",
		"http://user:pw@a.test/": "http://a.test",
		"http://a.test./":        "http://a.test",
		"http://a.test.:80/":     "http://a.test",
		"https://a.test.:8443/":  "https://a.test:8443",
		"http://a.test:/":        "http://a.test",
	}
	for url, want := range tests {
		if got, err := schemeAndHost(get(url)); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", url, got, err, want)
		}
	}
}
