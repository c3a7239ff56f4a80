package stint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

const megabyte = 1_000_000

// send writes n bytes, size at a time.
func send(n, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := n; n > 0; n -= size {
			if _, err := w.Write(make([]byte, min(n, size))); err != nil {
				return
			}
		}
	}
}

// downloads runs a handler for several requests at once and returns how long
// each took.
func downloads(l *stint.Limiter, do http.HandlerFunc, keys ...string) []time.Duration {
	took := make([]time.Duration, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			r := get("/")
			r.Header.Set("X-Key", key)
			start := time.Now()
			through(l, r, do)
			took[i] = time.Since(start)
		})
	}
	all.Wait()
	return took
}

func left(t *testing.T, l *stint.Limiter, key string) int64 {
	t.Helper()
	n, err := l.BandwidthLeft(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A quarter of a megabyte passes at once; the rest passes at a megabyte per second,
// however it is written.
func TestBandwidth(t *testing.T) {
	ms := time.Millisecond
	declared := func(n int, do http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(n))
			do(w, r)
		}
	}
	tests := []struct {
		name string
		do   http.HandlerFunc
		keys []string
		want []time.Duration
	}{
		{"10 MB", send(10*megabyte, 32<<10), []string{"a"}, []time.Duration{9750 * ms}},
		{"two of one key", send(10*megabyte, 32<<10), []string{"a", "a"}, []time.Duration{19750 * ms, 19750 * ms}},
		{"two keys", send(10*megabyte, 32<<10), []string{"a", "b"}, []time.Duration{9750 * ms, 9750 * ms}},
		{"one write", send(10*megabyte, 10*megabyte), []string{"a"}, []time.Duration{9750 * ms}},
		{"small writes", send(megabyte, 100), []string{"a"}, []time.Duration{750 * ms}},
		{"of declared length", declared(megabyte, send(megabyte, 1000)), []string{"a"}, []time.Duration{750 * ms}},
		{"within the burst", send(250_000, 1000), []string{"a"}, []time.Duration{0}},
		{"a copy", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, megabyte))
		}, []string{"a"}, []time.Duration{750 * ms}},
		{"text", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", megabyte))
		}, []string{"a"}, []time.Duration{750 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, byKey, stint.Bandwidth(megabyte))
				for i, took := range downloads(l, tt.do, tt.keys...) {
					// The last piece is waited for as a whole. Of two that share, one
					// has had what was free.
					least, most := -ms, 63*ms
					if len(tt.keys) == 2 && tt.keys[0] == tt.keys[1] {
						least, most = -400*ms, 126*ms
					}
					if off := took - tt.want[i]; off < least || off > most {
						t.Errorf("download %d took %v, want %v", i, took, tt.want[i])
					}
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// piped is a listener of connections in memory.
type piped chan net.Conn

func (p piped) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p piped) Close() error   { return nil }
func (p piped) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// inMemory returns a client of a handler, over connections in memory.
func inMemory(t *testing.T, h http.Handler, http2 bool) *http.Client {
	p := make(piped)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	srv := &http.Server{Handler: h, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(p) })
	tr := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p <- there
		return here, nil
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		close(p)
		_ = srv.Close()
		serving.Wait()
		time.Sleep(time.Minute) // connections linger
	})
	return &http.Client{Transport: tr}
}

// Streams of one key that always have data get equal parts, within a tenth, whatever they write at a
// time: the first 100 bytes, one all at once.
func TestBandwidthIsShared(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, n := range []int{2, 3, 8, 50} {
			t.Run(fmt.Sprintf("%d streams, HTTP/2 %t", n, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					span := 20 * time.Second * time.Duration(1+n/8)
					l := limiter(t, theKey, stint.Bandwidth(100_000))
					client := inMemory(t, mount(l, func(w http.ResponseWriter, r *http.Request) {
						i, _ := strconv.Atoi(r.URL.Path[1:])
						size := []int{100, 1000, 10_000, 1 << 20}[min(i, 3)]
						for {
							if _, err := w.Write(make([]byte, size)); err != nil {
								return
							}
						}
					}), http2)
					through(l, get("/"), send(25_000, 25_000)) // what passes at once
					ctx, stop := context.WithTimeout(t.Context(), span)
					defer stop()
					got := make([]int64, n)
					var all sync.WaitGroup
					for i := range n {
						all.Go(func() {
							r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://memory/%d", i), nil)
							if err != nil {
								t.Error(err)
								return
							}
							resp, err := client.Do(r)
							if err != nil {
								t.Error(err)
								return
							}
							defer resp.Body.Close()
							got[i], _ = io.Copy(io.Discard, resp.Body)
						})
					}
					all.Wait()
					part := int64(span.Seconds()) * 100_000 / int64(n)
					for i, b := range got {
						if b < part*9/10 || b > part*11/10 {
							t.Errorf("stream %d got %d bytes, want %d: %d", i, b, part, got)
							break
						}
					}
				})
			})
		}
	}
}

// However many connections are opened, no more than the rate passes: of 1,000 patient clients a
// second that each ask for 16 KB, at a megabyte per second.
func TestBandwidthOfManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(megabyte))
		const seconds = 5
		ctx, end := context.WithTimeout(t.Context(), seconds*time.Second)
		defer end()
		var in [10 * seconds]atomic.Int64 // a tenth of a second each
		start := time.Now()
		var all sync.WaitGroup
		for time.Since(start) < seconds*time.Second {
			all.Go(func() {
				through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
					n, _ := w.Write(make([]byte, 16_000))
					in[min(time.Since(start)*10/time.Second, time.Duration(len(in)-1))].Add(int64(n))
				})
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		total := int64(0)
		for i := range in {
			second := int64(0)
			for j := i; j < min(i+10, len(in)); j++ {
				second += in[j].Load()
			}
			if total += in[i].Load(); second > 3*megabyte {
				t.Errorf("%d bytes pass in the second after %d00 ms", second, i)
			}
		}
		if most := int64(seconds*megabyte + 250_000); total > most || total < most*9/10 {
			t.Errorf("%d bytes pass in %d s, want up to %d", total, seconds, most)
		}
	})
}

// The processes of a fleet share one bandwidth: each has its own store on one Redis.
func TestBandwidthOfAFleet(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix(t)
	var all sync.WaitGroup
	start := time.Now()
	for range 3 {
		s := redisstore.New(server.Client(), patient, redisstore.WithPrefix(prefix))
		l := limiter(t, theKey, stint.Bandwidth(500_000, stint.WithBurst(20_000), stint.WithName("bandwidth")), stint.WithStore(s))
		all.Go(func() { through(l, get("/"), send(70_000, 1000)) })
	}
	all.Wait()
	if took := time.Since(start); took < 370*time.Millisecond || took > 20*time.Second {
		t.Errorf("210 kB took %v, want 380ms", took)
	}
}

// How many calls of the store a stream costs.
func TestBandwidthCalls(t *testing.T) {
	oneGoroutine(t)
	tests := []struct {
		name           string
		do             http.HandlerFunc
		takes, settles int
	}{
		{"one write", answering(200, "small"), 1, 0},
		{"nothing", answering(204, ""), 0, 0},
		{"many small ones", send(3000, 30), 2, 1}, // and the rest of the second given back
		{"10 MB", send(10*megabyte, 100), 166, 0},
		{"10 MB, declared", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(10*megabyte))
			send(10*megabyte, 100)(w, r)
		}, 160, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithName("bandwidth")), stint.WithStore(s))
			through(l, get("/"), tt.do)
			if takes, settles := s.Counts(); takes > tt.takes || settles != tt.settles {
				t.Errorf("%s: %d takes and %d settlements, want %d and %d", tt.name, takes, settles, tt.takes, tt.settles)
			}
		})
	}
}

// What isn't sent is given back, whatever ends the response.
func TestBandwidthGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(megabyte))
		through(l, get("/"), send(3000, 30))
		if got := left(t, l, "k"); got != 247_000 {
			t.Errorf("%d bytes free after 3000 of 250000 were sent", got)
		}
		time.Sleep(time.Second)

		// The client leaves while a piece waits for its turn.
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond+time.Microsecond, leave)
		var sent int
		var err error
		start := time.Now()
		through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
			for err == nil {
				var n int
				n, err = w.Write(make([]byte, 1<<20))
				sent += n
			}
			if _, again := w.Write([]byte("x")); again == nil {
				t.Error("writes go on after one has failed")
			}
		})
		if took := time.Since(start); !errors.Is(err, context.Canceled) || took != 500*time.Millisecond+time.Microsecond {
			t.Errorf("error %v after %v", err, took)
		}
		if got, want := left(t, l, "k"), int64(250_000+500_001-sent); sent < 680_000 || got != min(want, 250_000) && got != want-1 {
			t.Errorf("%d sent, %d free, want %d", sent, got, want)
		}
		time.Sleep(time.Second)

		through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }()
			_, _ = w.Write(make([]byte, 10))
			_, _ = w.Write(make([]byte, 10)) // pays for 4096
			panic(http.ErrAbortHandler)
		})
		if got := left(t, l, "k"); got != 249_980 {
			t.Errorf("%d free after a panic, want 249980", got)
		}
	})
}

// A turn after the request's deadline isn't waited for.
func TestBandwidthDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(1024, stint.WithBurst(4096)))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		start := time.Now()
		through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
			if n, err := w.Write(make([]byte, 8192)); n != 4096 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
		if took := time.Since(start); took != 0 || left(t, l, "k") != 0 {
			t.Errorf("took %v, %d free", took, left(t, l, "k"))
		}
	})
}

func TestBandwidthOfNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(megabyte))
		start := time.Now()
		through(l, httptest.NewRequest("HEAD", "/", nil), send(10*megabyte, 1000))
		through(l, get("/"), answering(304, ""))
		if took := time.Since(start); took != 0 || left(t, l, "k") != 250_000 {
			t.Errorf("took %v, %d free", took, left(t, l, "k"))
		}
	})
}

func TestBandwidthOfRequests(t *testing.T) {
	tests := []struct {
		name string
		opts []stint.BandwidthOption
		size int64 // of the body; -1 for one that doesn't say
		want time.Duration
	}{
		{"not opted in", nil, megabyte, 0},
		{"of known length", []stint.BandwidthOption{stint.WithDirection(stint.Both)}, megabyte, 750 * time.Millisecond},
		{"of unknown length", []stint.BandwidthOption{stint.WithDirection(stint.Both)}, -1, 750 * time.Millisecond},
		{"alone", []stint.BandwidthOption{stint.WithDirection(stint.Requests)}, megabyte, 750 * time.Millisecond},
		{"none", []stint.BandwidthOption{stint.WithDirection(stint.Both)}, 0, 0},
	}
	for _, tt := range tests {
		for _, without := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				opts := []stint.Option{theKey, stint.Bandwidth(megabyte, tt.opts...)}
				if without {
					opts = append(opts, stint.WithoutPermit())
				}
				seen := &events{}
				l := limiter(t, append(opts, seen.Option())...)
				body := make([]byte, megabyte)
				r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
				if r.ContentLength = tt.size; tt.size == 0 {
					r.Body = http.NoBody
				}
				start := time.Now()
				through(l, r, func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					if err != nil || n != megabyte && tt.size != 0 {
						t.Errorf("%s: read %d, %v", tt.name, n, err)
					}
				})
				if got := time.Since(start); got < tt.want || got > tt.want+63*time.Millisecond {
					t.Errorf("%s: took %v, want %v", tt.name, got, tt.want)
				}
				e := seen.Last()
				if e.Kind != stint.EventPaced || e.Pacing.RequestBytes != megabyte && tt.want > 0 || e.Pacing.Waited < tt.want {
					t.Errorf("%s: %v %+v", tt.name, e.Kind, e.Pacing)
				}
			})
		}
	}
}

func TestBandwidthWithoutItsStore(t *testing.T) {
	for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			s, seen := newSpy(), &events{}
			l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithFailurePolicy(policy), stint.WithName("bandwidth")), stint.WithStore(s), seen.Option())
			start := time.Now()
			through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 500_000))
				s.FailWith(errDown)
				n, err := w.Write(make([]byte, 20*megabyte))
				if policy == stint.FailClosed {
					if se := (*stint.StoreError)(nil); n >= 62_500 || !errors.As(err, &se) || !errors.Is(err, errDown) {
						t.Errorf("wrote %d, %v", n, err)
					}
					return
				}
				before, _ := s.Counts()
				if n != 20*megabyte || err != nil || time.Since(start) > 300*time.Millisecond {
					t.Errorf("wrote %d, %v", n, err)
				}
				s.FailWith(nil)
				time.Sleep(time.Second) // it is asked again
				_, _ = w.Write(make([]byte, megabyte))
				if after, _ := s.Counts(); after <= before {
					t.Error("the store isn't asked any more")
				}
				if took := time.Since(start); took < 1900*time.Millisecond {
					t.Errorf("took %v, unpaced to its end", took)
				}
			})
			if kinds := seen.Kinds(); !strings.HasPrefix(kinds, "Admitted StoreFailed") || !strings.HasSuffix(kinds, "Paced") {
				t.Errorf("observed %s", kinds)
			}
			if e := seen.Last(); (e.Pacing.Err != nil) != (policy == stint.FailClosed) {
				t.Errorf("cut off for %v", e.Pacing.Err)
			}
		})
	}
}

// The store fails when the request is admitted, and later works: the bytes have a
// failure policy of their own.
func TestBandwidthOfAnUndecidedRequest(t *testing.T) {
	for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
		for _, back := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				s.FailWith(errDown)
				l := limiter(t, theKey, stint.WithStore(s), stint.Rate(9, time.Minute, stint.WithName("rate")), stint.Bandwidth(megabyte, stint.WithFailurePolicy(policy), stint.WithName("bandwidth")))
				start, reached := time.Now(), false
				w := through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
					reached = true
					if back {
						s.FailWith(nil)
					}
					n, err := w.Write(make([]byte, megabyte))
					if cut := !back && policy == stint.FailClosed; cut != (err != nil) || cut && n > 0 {
						t.Errorf("%v, store back %v: wrote %d, %v", policy, back, n, err)
					}
				})
				want := 750 * time.Millisecond
				if !back {
					want = 0
				}
				if took := time.Since(start); !reached || w.Code != 200 || took < want || took > want+63*time.Millisecond {
					t.Errorf("%v, store back %v: %d after %v, want %v", policy, back, w.Code, took, want)
				}
			})
		}
	}
}

func TestBandwidthDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithDryRun(true)), seen.Option())
		start := time.Now()
		through(l, get("/"), send(10*megabyte, 32<<10))
		e := seen.Last()
		if took := time.Since(start); took != 0 || e.Kind != stint.EventPaced || !e.Pacing.DryRun || e.Pacing.Bytes != 10*megabyte ||
			e.Pacing.Waited < 8*time.Second || e.Pacing.Waited > 11*time.Second {
			t.Errorf("took %v; %v %+v", took, e.Kind, e.Pacing)
		}
	})
}

// A stream keeps the limit it began with; a later one has the new limit.
func TestBandwidthUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, byKey, stint.Bandwidth(megabyte))
		time.AfterFunc(time.Second, func() {
			if err := l.Update(byKey, stint.Bandwidth(2*megabyte)); err != nil {
				t.Error(err)
			}
		})
		if took := downloads(l, send(4*megabyte, 32<<10), "a"); took[0] < 3750*time.Millisecond || took[0] > 3813*time.Millisecond {
			t.Errorf("took %v, want 3.75s", took[0])
		}
		time.Sleep(time.Minute)
		if took := downloads(l, send(4*megabyte, 32<<10), "a"); took[0] < 1750*time.Millisecond || took[0] > 1813*time.Millisecond {
			t.Errorf("took %v after the update, want 1.75s", took[0])
		}
	})
}

// Beside other limits, and mounted inside a limiter that has it already.
func TestBandwidthBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		outer := limiter(t, theKey, stint.Bandwidth(megabyte), stint.Rate(2, time.Hour), stint.Concurrency(1), seen.Option())
		inner, err := outer.With(stint.Bandwidth(megabyte/2, stint.WithName("inner")))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w := httptest.NewRecorder()
		mount(outer, mount(inner, send(megabyte, 10_000)).ServeHTTP).ServeHTTP(w, get("/"))
		if took := time.Since(start); took < 1750*time.Millisecond || took > 1813*time.Millisecond { // of the slower, once
			t.Errorf("took %v, want 1.75s", took)
		}
		if got := w.Header().Get("RateLimit-Policy"); got != `"rate";q=2;w=3600, "concurrency";q=1;qu="concurrent-requests"` {
			t.Errorf("fields of %s", got)
		}
		if got := seen.Kinds(); got != "Admitted Admitted Paced Paced" {
			t.Errorf("observed %s", got)
		}
		if got := left(t, outer, "k"); got != 250_000 {
			t.Errorf("%d of the outer free, want all: it was waiting for the inner", got)
		}
		through(outer, get("/"), nil)
		if w := through(outer, get("/"), nil); w.Code != 429 {
			t.Errorf("got %d, want the rate's denial", w.Code)
		}
		if _, err := outer.Take(t.Context(), "k", 1); err == nil {
			t.Error("the rate has not been charged")
		}
		only := limiter(t, theKey, stint.Bandwidth(megabyte))
		if _, err := only.Take(t.Context(), "k", 1); err == nil || !strings.Contains(err.Error(), "bandwidths") {
			t.Errorf("Take on a Bandwidth: %v", err)
		}
		through(only, get("/"), send(200_000, 1000))
		if _, err := only.Reset(t.Context(), "k"); err != nil || left(t, only, "k") != 250_000 {
			t.Errorf("reset: %v, %d free", err, left(t, only, "k"))
		}
	})
}

func TestBandwidthSaysWhatToWrite(t *testing.T) {
	tests := []struct {
		limit stint.Limit
		want  string
	}{
		{stint.Bandwidth(0), "Bandwidth(0): use 1024 to 68719476736 bytes per second"},
		{stint.Bandwidth(1 << 40), "use 1024 to 68719476736 bytes per second"},
		{stint.Bandwidth(megabyte, stint.WithBurst(0)), "WithBurst(0): a burst this small splits a body into many chunks"},
		{stint.Bandwidth(megabyte, stint.WithBurst(1<<41)), "WithBurst(2199023255552): use 4096 to 1099511627776"},
		{stint.Bandwidth(megabyte, stint.WithBurst(100)), "WithBurst(100): a burst this small splits a body into many chunks"},
		{stint.Bandwidth(megabyte, stint.WithKey(stint.GivenKey())), `limit "bandwidth": WithKey(GivenKey()): requests have no such key, only calls of Take have one, and Take ignores a Bandwidth: use another key`},
	}
	for _, tt := range tests {
		if _, err := stint.New(everybody, tt.limit); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %s alone", err, tt.want)
		}
	}
	if _, err := stint.New(everybody, stint.Bandwidth(megabyte), stint.Rate(9, time.Second), cost(3), stint.WithMaxWait(time.Second), settleTo(1)); err != nil {
		t.Errorf("options of the limiter: %v", err)
	}
	given := stint.WithKey(stint.GivenKey())
	if _, err := stint.New(given, stint.Rate(9, time.Second), stint.WithRoute("/files/", stint.Bandwidth(megabyte))); err == nil ||
		!strings.Contains(err.Error(), `WithRoute("/files/"): limit "bandwidth": WithKey(GivenKey())`) {
		t.Errorf("the limiter's key: %v", err)
	}
}

// Two processes, one bandwidth.
func TestBandwidthOverStores(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var all sync.WaitGroup
		start := time.Now()
		for range 2 {
			l := limiter(t, theKey, stint.Bandwidth(500_000, stint.WithBurst(20_000), stint.WithName("bandwidth")), stint.WithStore(s))
			all.Go(func() { through(l, get("/"), send(110_000, 1000)) })
		}
		all.Wait()
		// 220 kB less the burst, at 500 kB/s. Nothing makes it faster, and a slow
		// machine no more than so much slower.
		if took := time.Since(start); took < 390*time.Millisecond || took > 20*time.Second {
			t.Errorf("took %v, want 400ms", took)
		}
		l := limiter(t, theKey, stint.Bandwidth(500_000, stint.WithBurst(20_000), stint.WithName("bandwidth")), stint.WithStore(s))
		eventually(t, func() bool { return left(t, l, "k") == 20_000 })
		through(l, get("/"), send(10_100, 101)) // what it pays for and doesn't send comes back
		if got := left(t, l, "k"); got < 9_900 {
			t.Errorf("%d free after 10100 of 20000", got)
		}
	})
}

// kernel is a ResponseWriter that copies as net/http's does: it notes what it is
// given to copy.
type kernel struct {
	*httptest.ResponseRecorder
	pieces []string
}

func (k *kernel) ReadFrom(src io.Reader) (int64, error) {
	l, limited := src.(*io.LimitedReader)
	what := fmt.Sprintf("%T", src)
	if limited {
		what = fmt.Sprintf("%T of %d", l.R, l.N)
	}
	k.pieces = append(k.pieces, what)
	return io.Copy(writerOnly{k.ResponseRecorder}, src)
}

type writerOnly struct{ io.Writer }

// A file of declared length is passed on as a file, one piece at a time, so that the
// kernel can send it; without a Bandwidth, in one piece.
func TestBandwidthLeavesFilesToTheKernel(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 60_000), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		limit stint.Limit
		want  string
	}{
		{"paced", stint.Bandwidth(1<<20, stint.WithBurst(20<<10)), "*os.File of 20480 *os.File of 20480 *os.File of 19040"},
		{"settled", stint.Rate(9, time.Minute, settleTo(0)), "*os.File of 60000"},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, tt.limit)
			w := &kernel{ResponseRecorder: httptest.NewRecorder()}
			mount(l, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }).ServeHTTP(w, get("/"))
			if got := strings.Join(w.pieces, " "); got != tt.want || w.Body.Len() != 60_000 {
				t.Errorf("%s: %d bytes, copied %s, want %s", tt.name, w.Body.Len(), got, tt.want)
			}
		})
	}
}

// A source that is longer or shorter than declared ends as it does without a limit.
func TestBandwidthReadsFromAnything(t *testing.T) {
	tests := []struct {
		name     string
		declared string
		src      io.Reader
		want     int
	}{
		{"declared", "30000", strings.NewReader(strings.Repeat("x", 30_000)), 30_000},
		{"longer", "30000", strings.NewReader(strings.Repeat("x", 30_001)), 30_001}, // the server says no
		{"shorter", "30000", strings.NewReader(strings.Repeat("x", 29_999)), 29_999},
		{"limited", "30000", io.LimitReader(zeros{}, 30_000), 30_000},
		{"limited to less", "30000", io.LimitReader(zeros{}, 20_000), 20_000},
		{"not declared", "", io.LimitReader(zeros{}, 30_000), 30_000},
		{"nothing", "0", strings.NewReader(""), 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Bandwidth(100_000, stint.WithBurst(4096)))
			w := &kernel{ResponseRecorder: httptest.NewRecorder()}
			mount(l, func(w http.ResponseWriter, _ *http.Request) {
				if tt.declared != "" {
					w.Header().Set("Content-Length", tt.declared)
				}
				n, err := w.(io.ReaderFrom).ReadFrom(tt.src)
				if n != int64(tt.want) || err != nil {
					t.Errorf("%s: read %d, %v", tt.name, n, err)
				}
			}).ServeHTTP(w, get("/"))
			if w.Body.Len() != tt.want {
				t.Errorf("%s: wrote %d, want %d", tt.name, w.Body.Len(), tt.want)
			}
		})
	}
}

// Both directions pay into one bucket, and both give back to it in one call, together
// with the slot.
func TestBandwidthBothWaysGiveBack(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		calls := &spy{Store: s}
		l := limiter(t, theKey, stint.WithStore(calls), stint.Concurrency(1, stint.WithName("concurrency")),
			stint.Bandwidth(1024, stint.WithBurst(100_000), stint.WithDirection(stint.Both), stint.WithName("bandwidth")))
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 30_000)))
		through(l, r, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 10))
			for range 5 {
				_, _ = w.Write(make([]byte, 10))
			}
		})
		// A body of known length is paid for by the piece: 4096, and 10 were read.
		if got := left(t, l, "k"); got < 99_940 || got > 100_000 {
			t.Errorf("%d free after 60 of 100000", got)
		}
		if got := remaining(t, l); got != 1 {
			t.Errorf("%d slots free", got)
		}
		if _, settles := calls.Counts(); settles != 1 {
			t.Errorf("%d calls to settle, want 1", settles)
		}
	})
}

// reached is how many bytes have arrived in all, and when.
type reached struct {
	at    time.Duration
	bytes int64
}

// farEnd is a client: it notes when bytes arrive.
type farEnd struct {
	*httptest.ResponseRecorder
	start time.Time
	log   []reached
}

func newFarEnd() *farEnd {
	return &farEnd{ResponseRecorder: httptest.NewRecorder(), start: time.Now()}
}

func (f *farEnd) Write(b []byte) (int, error) {
	at, sum := time.Since(f.start), int64(len(b))
	if n := len(f.log); n > 0 {
		sum += f.log[n-1].bytes
		if f.log[n-1].at == at {
			f.log = f.log[:n-1]
		}
	}
	f.log = append(f.log, reached{at, sum})
	return len(b), nil
}

func (f *farEnd) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// tollkeeper is a store that notes costs that can never pass.
type tollkeeper struct {
	spy
	mu    sync.Mutex
	above []string // costs above a burst
	never string   // the limit that lets nothing pass
}

func newTollkeeper() *tollkeeper {
	k := &tollkeeper{spy: spy{Store: memstore.New()}}
	k.OnTake = func(c *asks) error {
		k.mu.Lock()
		for _, c := range c.Charges {
			if burst := c.Limit.Spec().Burst; c.Cost > burst {
				k.above = append(k.above, fmt.Sprintf("%s: cost %d above the burst of %d", c.Limit.Name(), c.Cost, burst))
			}
		}
		k.mu.Unlock()
		err := c.Pass()
		for i := range c.Charges {
			if c.Charges[i].Limit.Name() == k.never {
				c.Results[i] = store.Result{RetryAfter: stint.Never}
			}
		}
		return err
	}
	return k
}

// band is a Bandwidth of a test.
type band struct {
	rate, burst int64
	dry         bool
}

func (b band) limit(i int, opts ...stint.BandwidthOption) stint.Limit {
	opts = append(opts, stint.WithName("band"+strconv.Itoa(i)), stint.WithBurst(b.burst))
	if b.dry {
		opts = append(opts, stint.WithDryRun(true))
	}
	return stint.Bandwidth(b.rate, opts...)
}

// due is when the first n bytes may have arrived. Instants are in microseconds.
func (b band) due(n int64) time.Duration {
	if b.dry || n <= b.burst || b.rate >= 1<<30 { // those are never what holds up
		return 0
	}
	return (time.Duration(float64(n-b.burst)/float64(b.rate)*1e6+0.999) * time.Microsecond).Truncate(time.Microsecond)
}

// The bytes of a response follow the slowest of its bandwidths, exactly, whatever
// stands beside it.
func TestBandwidthBesideBandwidths(t *testing.T) {
	const (
		slow = 100_000
		fast = 10 << 30
		size = 400_000
	)
	tests := []struct {
		name  string
		bands []band
	}{
		{"alone", []band{{slow, 25_000, false}}},
		{"beside a fast one", []band{{slow, 25_000, false}, {fast, fast / 4, false}}},
		{"behind a fast one", []band{{fast, fast / 4, false}, {slow, 25_000, false}}},
		{"beside the fastest", []band{{slow, 25_000, false}, {1 << 36, 1 << 34, false}}},
		{"beside a fast one with the least burst", []band{{slow, 25_000, false}, {fast, 4096, false}}},
		{"with the least burst beside a fast one", []band{{slow, 4096, false}, {fast, fast / 4, false}}},
		{"with a huge burst beside a fast one", []band{{slow, size / 2, false}, {fast, 4096, false}}},
		{"of three", []band{{3 * slow, 75_000, false}, {slow, 25_000, false}, {fast, fast / 4, false}}},
		{"of three with odd bursts", []band{{3_000_000, 4097, false}, {slow, 4099, false}, {fast, 100_003, false}}},
		{"one has the rate, another the burst", []band{{slow, 300_000, false}, {2 * slow, 4096, false}}},
		{"equal", []band{{slow, 25_000, false}, {slow, 25_000, false}}},
		{"a dry run is fast", []band{{slow, 25_000, false}, {fast, fast / 4, true}}},
		{"a dry run is slow", []band{{slow, 25_000, false}, {1024, 4096, true}}},
		{"dry runs around it", []band{{1024, 4096, true}, {slow, 25_000, false}, {1 << 36, 4096, true}}},
		{"none but dry runs", []band{{slow, 25_000, true}, {fast, fast / 4, true}}},
	}
	writes := []struct {
		name string
		do   http.HandlerFunc
	}{
		{"one write", send(size, size)},
		{"odd writes", send(size, 4999)},
		{"small writes", send(size, 100)},
		{"declared", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			send(size, 1000)(w, r)
		}},
		{"a copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, size)) }},
	}
	for _, tt := range tests {
		for _, wr := range writes {
			t.Run(tt.name+"/"+wr.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					run := func(bands []band) (log []reached, takes int) {
						k, far := newTollkeeper(), newFarEnd()
						opts := []stint.Option{theKey, stint.WithStore(k)}
						for i, b := range bands {
							opts = append(opts, b.limit(i))
						}
						ctx, stop := context.WithTimeout(t.Context(), time.Hour)
						defer stop()
						mount(limiter(t, opts...), wr.do).ServeHTTP(far, get("/").WithContext(ctx))
						if len(k.above) > 0 {
							t.Error(k.above[0])
						}
						takes, _ = k.Counts()
						return far.log, takes
					}
					log, takes := run(tt.bands)
					if len(log) == 0 || log[len(log)-1].bytes != size {
						t.Fatalf("%v arrived, want %d bytes", log, size)
					}
					due := func(n int64) (d time.Duration) {
						for _, b := range tt.bands {
							d = max(d, b.due(n))
						}
						return d
					}
					for i, a := range log {
						// The last piece of a response of no declared length is paid for
						// as a whole.
						last := i == len(log)-1 && wr.name != "declared"
						if want := due(a.bytes); a.at != want && !(last && a.at > want && a.at <= due(a.bytes+slow/16)) {
							t.Errorf("%d bytes after %v, want %v", a.bytes, a.at, want)
						}
					}
					enforced := slices.DeleteFunc(slices.Clone(tt.bands), func(b band) bool { return b.dry })
					if len(enforced) == len(tt.bands) || len(enforced) == 0 {
						return
					}
					if l, n := run(enforced); !slices.Equal(l, log) || n != takes {
						t.Errorf("%d calls and %v; without dry runs %d and %v", takes, log, n, l)
					}
				})
			})
		}
	}
}

// A burst is never so small that the rate can't be reached.
func TestBandwidthReachesItsRate(t *testing.T) {
	oneGoroutine(t)
	for _, rate := range []int64{100_000, 1_000_003, 10_000_000, 33_333_333, 1 << 28, 1_000_000_000, 10 << 30} {
		synctest.Test(t, func(t *testing.T) {
			n := min(rate, 1<<25)
			start := time.Now()
			through(limiter(t, theKey, stint.Bandwidth(rate, stint.WithBurst(4096))), get("/"), send(int(n), int(n)))
			want := time.Duration(float64(n-max(4096, rate/1000)) / float64(rate) * 1e9)
			if took := time.Since(start); took < want-3*time.Millisecond || took > want+max(3*time.Millisecond, want/20) {
				t.Errorf("%d bytes at %d a second took %v, want %v", n, rate, took, want)
			}
		})
	}
}

// Dry runs report roughly how long they would have delayed a response.
func TestBandwidthDryRunsReport(t *testing.T) {
	paused := func(w http.ResponseWriter, r *http.Request) {
		send(500_000, 1000)(w, r)
		time.Sleep(10 * time.Second)
		send(500_000, 1000)(w, r)
	}
	trickle := func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			send(10_000, 10_000)(w, r)
			time.Sleep(50 * time.Millisecond) // twice the rate
		}
	}
	tests := []struct {
		name   string
		beside []band
		dry    band
		do     http.HandlerFunc
		want   time.Duration
	}{
		{"one write", nil, band{100_000, 25_000, true}, send(megabyte, megabyte), 9750 * time.Millisecond},
		{"small writes", nil, band{100_000, 25_000, true}, send(megabyte, 100), 9750 * time.Millisecond},
		{"within the burst", nil, band{100_000, 25_000, true}, send(25_000, 1000), 0},
		{"a pause between", nil, band{100_000, 25_000, true}, paused, 9500 * time.Millisecond},
		{"twice the rate", nil, band{100_000, 25_000, true}, trickle, 4750 * time.Millisecond},
		{"slower by itself", nil, band{400_000, 25_000, true}, trickle, 0},
		{"held up by another", []band{{200_000, 50_000, false}}, band{100_000, 25_000, true}, send(megabyte, 1000), 4875 * time.Millisecond},
		{"held up by a slower one", []band{{50_000, 25_000, false}}, band{100_000, 25_000, true}, send(megabyte, 1000), 0},
		{"read", nil, band{100_000, 25_000, true}, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, 9750 * time.Millisecond},
		{"in larger pieces", []band{{10_000_000, megabyte, false}}, band{100_000, 4096, true}, send(megabyte, megabyte), 9900 * time.Millisecond},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			seen := &events{}
			opts := []stint.Option{theKey, tt.dry.limit(0, stint.WithDirection(stint.Both)), seen.Option()}
			for i, b := range tt.beside {
				opts = append(opts, b.limit(i+1))
			}
			through(limiter(t, opts...), httptest.NewRequest("POST", "/", io.LimitReader(zeros{}, megabyte)), tt.do)
			i := slices.IndexFunc(seen.All(), func(e stint.Event) bool { return e.Kind == stint.EventPaced && e.Pacing.DryRun })
			if i < 0 {
				t.Fatalf("%s: observed %s", tt.name, seen.Kinds())
			}
			if got, slack := seen.All()[i].Pacing.Waited, 300*time.Millisecond; got < tt.want-slack || got > tt.want+slack {
				t.Errorf("%s: would have waited for %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}

// If only dry runs pace a body, it is written and read as without them.
func TestBandwidthDryRunsLeaveWritesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, band{1024, 4096, true}.limit(0), stint.Bandwidth(2048, stint.WithDryRun(true), stint.WithDirection(stint.Both)))
		w := &kernel{ResponseRecorder: httptest.NewRecorder()}
		body := strings.Repeat("x", 100_000)
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		mount(l, func(w http.ResponseWriter, r *http.Request) {
			if n, err := r.Body.Read(make([]byte, 50_000)); n != 50_000 || err != nil {
				t.Errorf("read %d, %v", n, err)
			}
			if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader(body)); n != 100_000 || err != nil {
				t.Errorf("copied %d, %v", n, err)
			}
			w.Header().Set("Content-Length", "60000")
			if n, err := w.(io.ReaderFrom).ReadFrom(io.LimitReader(zeros{}, 60_000)); n != 60_000 || err != nil {
				t.Errorf("copied %d, %v", n, err)
			}
		}).ServeHTTP(w, r)
		if got := strings.Join(w.pieces, ", "); got != "*strings.Reader, stint_test.zeros of 60000" {
			t.Errorf("copied %s", got)
		}
	})
}

// If bytes can never pass, the response ends; no stream waits.
func TestBandwidthThatNeverPasses(t *testing.T) {
	for _, dry := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k, seen := newTollkeeper(), &events{}
			k.never = "band1"
			l := limiter(t, theKey, stint.WithStore(k), seen.Option(), band{100_000, 25_000, false}.limit(0), band{1 << 20, 1 << 20, dry}.limit(1))
			ctx, stop := context.WithTimeout(t.Context(), 24*time.Hour)
			defer stop()
			start := time.Now()
			through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
				n, err := w.Write([]byte("hello"))
				if dry && (n != 5 || err != nil) || !dry && (n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "band1")) {
					t.Errorf("dry run %v: wrote %d, %v", dry, n, err)
				}
			})
			takes, _ := k.Counts()
			if took := time.Since(start); took != 0 || takes != 1 {
				t.Errorf("dry run %v: took %v and %d calls", dry, took, takes)
			}
			if e := seen.Last(); e.Kind != stint.EventPaced || (e.Pacing.Err == nil) != dry {
				t.Errorf("dry run %v: %v %+v", dry, e.Kind, e.Pacing)
			}
		})
	}
}

// A dry run delays nothing when its store fails, whatever its policy.
func TestBandwidthDryRunWithoutItsStore(t *testing.T) {
	closed := stint.WithFailurePolicy(stint.FailClosed)
	tests := []struct {
		name   string
		limits []stint.Option
	}{
		{"alone", []stint.Option{stint.Bandwidth(megabyte, stint.WithName("dry"), stint.WithDryRun(true), closed)}},
		{"beside an enforced one", []stint.Option{stint.Bandwidth(megabyte, stint.WithName("dry"), stint.WithDryRun(true), closed), stint.Bandwidth(megabyte, stint.WithName("b"))}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s, seen := newSpy(), &events{}
			l := limiter(t, append(tt.limits, theKey, stint.WithStore(s), seen.Option())...)
			start := time.Now()
			through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				s.FailWith(errDown)
				if n, err := w.Write(make([]byte, 10*megabyte)); n != 10*megabyte || err != nil {
					t.Errorf("%s: wrote %d, %v", tt.name, n, err)
				}
			})
			if takes, _ := s.Counts(); time.Since(start) != 0 || takes != 1 {
				t.Errorf("%s: took %v and %d calls", tt.name, time.Since(start), takes)
			}
			if e := seen.Last(); e.Pacing.Err != nil || !strings.HasPrefix(seen.Kinds(), "Admitted StoreFailed Paced") {
				t.Errorf("%s: %s, cut off by %v", tt.name, seen.Kinds(), e.Pacing.Err)
			}
		})
	}
}

// What was paid to dry runs only and hasn't moved is given back.
func TestBandwidthDryRunGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithDryRun(true)))
		through(l, get("/"), send(3000, 30))
		if got := left(t, l, "k"); got != 247_000 {
			t.Errorf("%d bytes free after 3000 of 250000", got)
		}
	})
}

// spinning is a ResponseWriter that ends a copy that doesn't.
type spinning struct {
	*httptest.ResponseRecorder
	t      *testing.T
	copies int
}

func (s *spinning) ReadFrom(src io.Reader) (int64, error) {
	if s.copies++; s.copies > 100 {
		s.t.Error("the copy spins")
		return 0, errors.New("spins")
	}
	return io.Copy(writerOnly{s.ResponseRecorder}, src)
}

// Copying nothing, or less than declared, behaves as without a limit.
func TestBandwidthCopyOfNothing(t *testing.T) {
	for _, declared := range []string{"", "0", "5"} {
		for _, n := range []int64{-1, 0} {
			for _, limits := range [][]stint.Option{
				{stint.Rate(9, time.Minute)},
				{stint.Bandwidth(megabyte)},
				{stint.Bandwidth(megabyte, stint.WithDryRun(true))},
			} {
				l := limiter(t, append(limits, theKey)...)
				w := &spinning{ResponseRecorder: httptest.NewRecorder(), t: t}
				mount(l, func(w http.ResponseWriter, _ *http.Request) {
					if declared != "" {
						w.Header().Set("Content-Length", declared)
					}
					src := &io.LimitedReader{R: strings.NewReader("hello"), N: n}
					if got, err := w.(io.ReaderFrom).ReadFrom(src); got != 0 || err != nil || src.N != n {
						t.Errorf("declared %q: a copy of %d returns %d, %v and leaves %d", declared, n, got, err, src.N)
					}
					if got, err := io.CopyN(w, strings.NewReader("hello"), n); got != 0 || err != nil {
						t.Errorf("declared %q: CopyN of %d returns %d, %v", declared, n, got, err)
					}
				}).ServeHTTP(w, get("/"))
				if w.Body.Len() != 0 {
					t.Errorf("declared %q: a copy of %d wrote %q", declared, n, w.Body)
				}
			}
		}
	}
}

// besides runs n clients until stop ends, each of which asks again as soon as it has its
// answer, and returns when all have gone.
func besides(n int, stop context.Context, ask func(client int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for stop.Err() == nil {
				ask(i)
			}
		})
	}
	all.Wait()
}

// leavers are clients that ask for something and leave long before their turn.
var leavers = []struct {
	name  string
	n     int
	whole bool // none of them stays until its turn, so that all of the rate is for others
	do    func(client int) http.HandlerFunc
}{
	{"four", 4, true, func(int) http.HandlerFunc { return send(megabyte, megabyte) }},
	{"sixteen", 16, true, func(int) http.HandlerFunc { return send(megabyte, megabyte) }},
	{"of small answers", 16, false, func(int) http.HandlerFunc { return send(100, 100) }},
	{"of answers that differ", 16, false, func(i int) http.HandlerFunc { return send(1+3000*i, 1+3000*i) }},
	{"of declared answers", 16, false, func(i int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1+10_000*i))
			send(1+10_000*i, 1000)(w, r)
		}
	}},
}

// stay is how long a leaver waits.
const stay = 30 * time.Millisecond

// leave asks through l and leaves after a while.
func leave(l *stint.Limiter, do http.HandlerFunc) (got int) {
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	time.AfterFunc(stay, gone)
	return through(l, get("/").WithContext(ctx), do).Body.Len()
}

// However many clients ask and leave before their turn, whoever stays gets the rate.
func TestBandwidthBesideLeavers(t *testing.T) {
	for _, tt := range leavers {
		synctest.Test(t, func(t *testing.T) {
			const span, stayers = 5 * time.Second, 3
			l := limiter(t, theKey, stint.Bandwidth(megabyte))
			through(l, get("/"), send(250_000, 250_000)) // what passes at once
			stop, end := context.WithCancel(t.Context())
			time.AfterFunc(span, end)
			var sent, taken atomic.Int64
			go besides(stayers, stop, func(int) {
				through(l, get("/").WithContext(stop), func(w http.ResponseWriter, _ *http.Request) {
					for stop.Err() == nil {
						n, err := w.Write(make([]byte, 10_000))
						if sent.Add(int64(n)); err != nil {
							return
						}
					}
				})
			})
			time.Sleep(100 * time.Millisecond)
			besides(tt.n, stop, func(i int) { taken.Add(int64(leave(l, tt.do(i)))) })
			synctest.Wait()
			got, all := sent.Load(), sent.Load()+taken.Load()
			least := all / 2 // some leavers get what they ask for
			if tt.whole {
				least = 45 * megabyte / 10
			}
			if all < 48*megabyte/10 || got < least || all > 5*megabyte+125_000 {
				t.Errorf("%s, %d stay: %d bytes in %v, %d with those of leavers", tt.name, stayers, got, span, all)
			}
		})
	}
}

// stalled is a request's body of which one byte comes, and the rest much later.
type stalled struct {
	first bool
	till  context.Context
}

func (s *stalled) Read(p []byte) (int, error) {
	if !s.first {
		s.first = true
		return copy(p, "x"), nil
	}
	<-s.till.Done()
	return 0, io.ErrUnexpectedEOF
}

// Uploads that stall hold nothing of what others wait for.
func TestBandwidthBesideStalledUploads(t *testing.T) {
	took := func(stalls int) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithDirection(stint.Both)))
			stop, end := context.WithCancel(t.Context())
			upload := func(ctx context.Context, body io.Reader) {
				r := httptest.NewRequest("POST", "/", body).WithContext(ctx)
				r.ContentLength = megabyte
				through(l, r, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			}
			for range stalls {
				go upload(stop, &stalled{till: stop})
			}
			synctest.Wait()
			start := time.Now()
			upload(t.Context(), io.LimitReader(zeros{}, megabyte))
			took = time.Since(start)
			end()
			synctest.Wait()
		})
		return took
	}
	alone, beside := took(0), took(300)
	if more := beside - alone; alone < 700*time.Millisecond || more > time.Millisecond {
		t.Errorf("an upload takes %v alone, and %v beside 300 that stall", alone, beside)
	}
}

// Leavers over connections, on Redis, by its clock: who stays gets a third at least of what
// a stream of another key gets meanwhile that has no leavers beside it. A busy machine slows
// both.
func TestBandwidthBesideLeaversOnRedis(t *testing.T) {
	const rate = 1_000_000
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	l := limiter(t, stint.Bandwidth(rate, stint.WithName("bandwidth")), stint.WithStore(s),
		stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { return r.URL.Path, nil })))
	srv := httptest.NewServer(mount(l, send(1000*rate, 10_000)))
	defer srv.Close()
	stop, end := context.WithCancel(t.Context())
	defer end()
	read := func(ctx context.Context, key string, got func(n int)) {
		r, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/"+key, nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		for buf := make([]byte, 10_000); err == nil; {
			var n int
			n, err = resp.Body.Read(buf)
			got(n)
		}
	}
	var beside, alone atomic.Int64
	var streams sync.WaitGroup
	streams.Go(func() {
		read(stop, "shared", func(n int) {
			if beside.Add(int64(n)) >= 2*rate {
				end()
			}
		})
	})
	streams.Go(func() {
		read(stop, "own", func(n int) {
			if alone.Add(int64(n)) >= 8*rate { // never, but for who keeps waiting
				end()
			}
		})
	})
	besides(16, stop, func(int) {
		ctx, leave := context.WithTimeout(stop, stay)
		defer leave()
		read(ctx, "shared", func(int) {})
	})
	streams.Wait()
	if got, other := beside.Load(), alone.Load(); got < other/3 {
		t.Errorf("%d bytes beside leavers, %d without", got, other)
	}
}

// What a Bandwidth does to requests, through every adapter: in a bubble, over
// connections in memory, so that every byte has its instant.
