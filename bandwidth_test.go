package stint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
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

// Streams of one key get equal shares all the time, not only at the end.
func TestBandwidthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, byKey, stint.Bandwidth(megabyte))
		var mu sync.Mutex
		sent := map[int]int{}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				r := get("/")
				r.Header.Set("X-Key", "a")
				ctx, stop := context.WithTimeout(r.Context(), 5*time.Second)
				defer stop()
				through(l, r.WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
					for {
						n, err := w.Write(make([]byte, 1000*(i+1))) // whoever writes more at a time gets no more
						mu.Lock()
						sent[i] += n
						mu.Unlock()
						if err != nil {
							return
						}
					}
				})
			})
		}
		all.Wait()
		for i, n := range sent {
			if n < 1_180_000 || n > 1_600_000 { // one has the free burst
				t.Errorf("stream %d got %d of 5.25 MB", i, n)
			}
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
			if takes, settles := s.counts(); takes > tt.takes || settles != tt.settles {
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
		{"of known length", []stint.BandwidthOption{stint.WithRequestBytes()}, megabyte, 750 * time.Millisecond},
		{"of unknown length", []stint.BandwidthOption{stint.WithRequestBytes()}, -1, 750 * time.Millisecond},
		{"none", []stint.BandwidthOption{stint.WithRequestBytes()}, 0, 0},
	}
	for _, tt := range tests {
		for _, without := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				opts := []stint.Option{theKey, stint.Bandwidth(megabyte, tt.opts...)}
				if without {
					opts = append(opts, stint.WithoutPermit())
				}
				seen := &events{}
				l := limiter(t, append(opts, seen.option())...)
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
				e := seen.last()
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
			l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithFailurePolicy(policy), stint.WithName("bandwidth")), stint.WithStore(s), seen.option())
			start := time.Now()
			through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, 500_000))
				s.failWith(errDown)
				n, err := w.Write(make([]byte, 20*megabyte))
				if policy == stint.FailClosed {
					if se := (*stint.StoreError)(nil); n >= 62_500 || !errors.As(err, &se) || !errors.Is(err, errDown) {
						t.Errorf("wrote %d, %v", n, err)
					}
					return
				}
				before, _ := s.counts()
				if n != 20*megabyte || err != nil || time.Since(start) > 300*time.Millisecond {
					t.Errorf("wrote %d, %v", n, err)
				}
				s.failWith(nil)
				time.Sleep(time.Second) // it is asked again
				_, _ = w.Write(make([]byte, megabyte))
				if after, _ := s.counts(); after <= before {
					t.Error("the store isn't asked any more")
				}
				if took := time.Since(start); took < 1900*time.Millisecond {
					t.Errorf("took %v, unpaced to its end", took)
				}
			})
			if kinds := seen.kinds(); !strings.HasPrefix(kinds, "Admitted StoreFailed") || !strings.HasSuffix(kinds, "Paced") {
				t.Errorf("observed %s", kinds)
			}
			if e := seen.last(); (e.Pacing.Err != nil) != (policy == stint.FailClosed) {
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
				s.failWith(errDown)
				l := limiter(t, theKey, stint.WithStore(s), stint.Rate(9, time.Minute, stint.WithName("rate")), stint.Bandwidth(megabyte, stint.WithFailurePolicy(policy), stint.WithName("bandwidth")))
				start, reached := time.Now(), false
				w := through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
					reached = true
					if back {
						s.failWith(nil)
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
		l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithDryRun()), seen.option())
		start := time.Now()
		through(l, get("/"), send(10*megabyte, 32<<10))
		e := seen.last()
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
		outer := limiter(t, theKey, stint.Bandwidth(megabyte), stint.Rate(2, time.Hour), stint.Concurrency(1), seen.option())
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
		if got := seen.kinds(); got != "Admitted Admitted Paced Paced" {
			t.Errorf("observed %s", got)
		}
		if got := left(t, outer, "k"); got != 250_000 {
			t.Errorf("%d of the outer free, want all: it was waiting for the inner", got)
		}
		through(outer, get("/"), nil)
		if w := through(outer, get("/"), nil); w.Code != 429 {
			t.Errorf("got %d, want the rate's refusal", w.Code)
		}
		if _, err := outer.Take(t.Context(), "k", 1); err == nil {
			t.Error("the rate has not been charged")
		}
		only := limiter(t, theKey, stint.Bandwidth(megabyte))
		if _, err := only.Take(t.Context(), "k", 1); err == nil || !strings.Contains(err.Error(), "Bandwidth") {
			t.Errorf("Take on a Bandwidth: %v", err)
		}
		through(only, get("/"), send(200_000, 1000))
		if err := only.Reset(t.Context(), "k"); err != nil || left(t, only, "k") != 250_000 {
			t.Errorf("reset: %v, %d free", err, left(t, only, "k"))
		}
	})
}

func TestBandwidthSaysWhatToWrite(t *testing.T) {
	tests := []struct {
		limit stint.Limit
		want  string
	}{
		{stint.Bandwidth(0), "Bandwidth(0): write bytes per second"},
		{stint.Bandwidth(1 << 40), "write bytes per second"},
		{stint.Bandwidth(megabyte, stint.WithBurst(0)), "WithBurst(0): smaller pieces of a response would each cost"},
		{stint.Bandwidth(megabyte, stint.WithBurst(100)), "WithBurst(100): smaller pieces of a response would each cost"},
	}
	for _, tt := range tests {
		if _, err := stint.New(everybody, tt.limit); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want %s alone", err, tt.want)
		}
	}
	if _, err := stint.New(everybody, stint.Bandwidth(megabyte), cost(3), stint.WithMaxWait(time.Second), settleTo(1)); err != nil {
		t.Errorf("options of the limiter: %v", err)
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
			stint.Bandwidth(1024, stint.WithBurst(100_000), stint.WithRequestBytes(), stint.WithName("bandwidth")))
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
		if _, settles := calls.counts(); settles != 1 {
			t.Errorf("%d calls to settle, want 1", settles)
		}
	})
}
