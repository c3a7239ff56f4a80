package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// slotsFree is the number of free slots of a Concurrency(2) for a.test.
func slotsFree(t *testing.T, lim *stint.Limiter) int64 {
	t.Helper()
	d, err := lim.Peek(context.Background(), "http://a.test")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// A slot is held until the body is at its end or closed, and not longer.
func TestTransportHoldsSlot(t *testing.T) {
	tests := []struct {
		name   string
		answer func() *http.Response
		held   int64 // free slots once the answer is there
		end    func(*http.Response)
	}{
		{"read to the end", func() *http.Response { return answer("200") }, 1,
			func(r *http.Response) { _, _ = io.ReadAll(r.Body) }},
		{"closed", func() *http.Response { return answer("200") }, 1,
			func(r *http.Response) { _ = r.Body.Close() }},
		{"closed twice", func() *http.Response { return answer("200") }, 1,
			func(r *http.Response) { _ = r.Body.Close(); _ = r.Body.Close() }},
		{"read and closed", func() *http.Response { return answer("200") }, 1,
			func(r *http.Response) { _, _ = io.ReadAll(r.Body); _ = r.Body.Close() }},
		{"broken off", func() *http.Response {
			resp := answer("200")
			resp.Body = &body{Reader: io.MultiReader(strings.NewReader("x"), failingReader{})}
			return resp
		}, 1, func(r *http.Response) { _, _ = io.ReadAll(r.Body) }},
		{"no body", func() *http.Response {
			resp := answer("200")
			resp.Body = http.NoBody
			return resp
		}, 2, func(*http.Response) {}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := limiter(t, stint.Concurrency(2))
				rt := transport(lim, newServer(func(int, *http.Request) *http.Response { return test.answer() }))
				resp, err := rt.RoundTrip(get("http://a.test/"))
				if err != nil {
					t.Fatal(err)
				}
				if free := slotsFree(t, lim); free != test.held {
					t.Errorf("%d slots free with the answer open, want %d", free, test.held)
				}
				test.end(resp)
				if free := slotsFree(t, lim); free != 2 {
					t.Errorf("%d slots free in the end, want 2", free)
				}
			})
		})
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("reset by peer") }

func TestTransportReleasesSlotOnErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := limiter(t, stint.Concurrency(2))
		rt := transport(lim, newServer(func(int, *http.Request) *http.Response { return nil }))
		if _, err := rt.RoundTrip(get("http://a.test/")); err == nil {
			t.Error("want base's error")
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = transport(lim, newServer(func(int, *http.Request) *http.Response { panic("base") })).RoundTrip(get("http://a.test/"))
		}()
		if free := slotsFree(t, lim); free != 2 {
			t.Errorf("%d slots free, want 2", free)
		}
	})
}

// A base that breaks its contract gets an error of its own, and holds nothing.
func TestTransportWithoutAnswer(t *testing.T) {
	for _, lim := range []*stint.Limiter{nil, limiter(t, stint.Concurrency(2))} {
		resp, err := transport(lim, silent{}).RoundTrip(get("http://a.test/"))
		if resp != nil || err == nil || !strings.Contains(err.Error(), "client.silent returned neither") {
			t.Errorf("got %v, %v, want an error that names the RoundTripper", resp, err)
		}
		if lim != nil && slotsFree(t, lim) != 2 {
			t.Errorf("%d slots free, want 2", slotsFree(t, lim))
		}
	}
}

type silent struct{}

func (silent) RoundTrip(*http.Request) (*http.Response, error) { return nil, nil }

// During a pause others may use the slot.
func TestTransportReleasesSlotInPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := limiter(t, stint.Concurrency(2))
		rt := transport(lim, script("429 Retry-After: 5"))
		var caller sync.WaitGroup
		caller.Go(func() {
			resp, err := rt.RoundTrip(get("http://a.test/"))
			_ = mustRead(t, resp, err)
		})
		time.Sleep(time.Second)
		if free := slotsFree(t, lim); free != 2 {
			t.Errorf("%d slots free, want 2", free)
		}
		caller.Wait()
	})
}

func TestTransportDrainsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := &body{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
		srv := newServer(func(n int, _ *http.Request) *http.Response {
			if n > 0 {
				return answer("200")
			}
			resp := answer("429 Retry-After: 1")
			resp.Body = long
			return resp
		})
		resp, err := transport(nil, srv).RoundTrip(get("http://a.test/"))
		_ = mustRead(t, resp, err)
		if long.read > maxDrain || long.closed == 0 {
			t.Errorf("read %d bytes, closed %d times", long.read, long.closed)
		}
	})
}

// The body of a 101 can still be written to.
func TestTransportKeepsWriter(t *testing.T) {
	conn := &struct {
		body
		io.Writer
	}{body{Reader: strings.NewReader("")}, io.Discard}
	rt := transport(limiter(t, stint.Concurrency(1)), newServer(func(int, *http.Request) *http.Response {
		resp := answer("200")
		resp.Body = conn
		return resp
	}))
	resp, err := rt.RoundTrip(get("http://a.test/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := resp.Body.(io.ReadWriteCloser); !ok {
		t.Errorf("%T is no io.ReadWriteCloser", resp.Body)
	}
	_ = resp.Body.Close()
	if conn.closed == 0 {
		t.Error("not closed")
	}
}

// A server that doesn't end the body of a denial delays no request: not the request, nor
// those that wait for its slot, nor the end of its context.
func TestTransportLeavesStalledBodies(t *testing.T) {
	for name, pause := range map[string]time.Duration{"429 Retry-After: 2": 2 * time.Second, "429 Retry-After: 0": firstBackoff} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(func(n int, _ *http.Request) *http.Response {
				if n > 0 {
					return answer("200")
				}
				resp := answer(name)
				resp.Body, _ = io.Pipe() // nothing is ever written
				return resp
			})
			lim := limiter(t, stint.Concurrency(2))
			rt := transport(lim, srv)
			var all sync.WaitGroup
			all.Go(func() {
				resp, err := rt.RoundTrip(get("http://a.test/"))
				_ = mustRead(t, resp, err)
			})
			synctest.Wait()
			if free := slotsFree(t, lim); free != 2 {
				t.Errorf("%s: %d slots are free while the answer's body stalls, want 2", name, free)
			}
			all.Wait()
			if at := srv.times(); len(at) != 2 || !within(at[1], pause) {
				t.Errorf("%s: requests at %v, want the second after %v", name, at, pause)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		rt := transport(nil, newServer(func(int, *http.Request) *http.Response {
			resp := answer("429 Retry-After: 2")
			resp.Body, _ = io.Pipe()
			return resp
		}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := rt.RoundTrip(get("http://a.test/").WithContext(ctx))
		if took := time.Since(start); !errors.Is(err, context.Canceled) || took != time.Second {
			t.Errorf("canceled after a second: %v after %v", err, took)
		}
	})
}

// A function of the user that panics keeps no slot, and leaves no body open.
func TestTransportOfFunctionsThatPanic(t *testing.T) {
	yes := func(*http.Request) bool { return true }
	for name, test := range map[string]struct {
		retryable func(*http.Request) bool
		getBody   func() (io.ReadCloser, error)
	}{
		"WithRetryable": {retryable: func(*http.Request) bool { panic("ours") }},
		"GetBody":       {yes, func() (io.ReadCloser, error) { panic("ours") }},
	} {
		lim, srv := limiter(t, stint.Concurrency(2)), script("429 Retry-After: 1")
		rt := transport(lim, srv, func(t *Transport) { t.Retryable = test.retryable })
		r, _ := http.NewRequest("POST", "http://a.test/", strings.NewReader("x"))
		if test.getBody != nil {
			r.GetBody = test.getBody
		}
		func() {
			defer func() {
				if v := recover(); v != "ours" {
					t.Errorf("%s: recovered %v", name, v)
				}
			}()
			_, _ = rt.RoundTrip(r)
		}()
		if free := slotsFree(t, lim); free != 2 || srv.opened[0].closed == 0 {
			t.Errorf("%s: %d slots free, the body closed %d times; want 2 and one", name, free, srv.opened[0].closed)
		}
	}
}
