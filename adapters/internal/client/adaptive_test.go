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

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An adaptive limit falls while the server refuses or fails, and rises while it answers. What callers do is
// no sign of the server's load.
func TestTransportAdapts(t *testing.T) {
	const start = 20
	slow := 20 * time.Millisecond
	answers := func(line string) roundTripFunc {
		return func(*http.Request) (*http.Response, error) {
			time.Sleep(slow)
			resp := answer(line)
			resp.Body = io.NopCloser(strings.NewReader("answer"))
			return resp, nil
		}
	}
	answersWithout := func(line string) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			resp, err := answers(line)(r)
			resp.Body = http.NoBody
			return resp, err
		}
	}
	breaksOff := func(after error) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			resp, err := answers("200")(r)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) {
				return 0, after
			})))
			return resp, err
		}
	}
	canceled := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for _, test := range []struct {
		name string
		base roundTripFunc
		want int // -1: the limit falls, 1: it rises, 0: it stays
	}{
		{"it answers", answers("200"), 1},
		{"it answers without a body", answersWithout("200"), 1},
		{"it doesn't know the page", answers("404"), 1},
		{"it forbids", answers("403"), 1},
		{"too many requests", answers("429 Retry-After: 1"), -1},
		{"too many requests, without a body", answersWithout("429"), -1},
		{"too many requests, in the words of some", answers("403 Retry-After: 1"), -1},
		{"unavailable", answers("503"), -1},
		{"it fails", answers("500"), -1},
		{"no connection", func(*http.Request) (*http.Response, error) { time.Sleep(slow); return nil, errors.New("refused") }, -1},
		{"no connection, at once", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, -1},
		{"the base panics", func(*http.Request) (*http.Response, error) { time.Sleep(slow); panic("base") }, -1},
		{"the body breaks off", breaksOff(io.ErrUnexpectedEOF), -1},
		{"callers cancel", canceled, 0},
		{"connections last", func(*http.Request) (*http.Response, error) {
			resp := answer("101")
			resp.Body = struct {
				io.ReadCloser
				io.Writer
			}{io.NopCloser(readerFunc(func([]byte) (int, error) { time.Sleep(slow); return 0, errors.New("reset") })), io.Discard}
			return resp, nil
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := limiter(t, stint.AdaptiveConcurrency(1, 1000, stint.WithInitialLimit(start)))
				rt := transport(lim, test.base, retries(0), maxWait(0))
				var all sync.WaitGroup
				for range start - 5 {
					all.Go(func() {
						for from := time.Now(); time.Since(from) < 2500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
							func() {
								defer func() { _ = recover() }()
								ctx, cancel := context.WithCancel(t.Context())
								defer cancel()
								time.AfterFunc(2*slow, cancel)
								if resp, err := rt.RoundTrip(get("http://a.test/").WithContext(ctx)); err == nil {
									_, _ = io.ReadAll(resp.Body)
									_ = resp.Body.Close()
								}
							}()
						}
					})
				}
				all.Wait()
				d, err := lim.Peek(t.Context(), "http://a.test")
				if err != nil {
					t.Fatal(err)
				}
				switch got := d.Limits[0].Capacity; {
				case test.want < 0 && got >= start, test.want > 0 && got <= start, test.want == 0 && got != start:
					t.Errorf("the limit is %d after %d, want %+d", got, start, test.want)
				}
			})
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
