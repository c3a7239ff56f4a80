package stint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

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

// tollkeeper is a store that counts, and notes costs that can never pass.
type tollkeeper struct {
	store.Store
	mu    sync.Mutex
	takes int
	above []string // costs above a burst
	never string   // the limit that lets nothing pass
}

func newTollkeeper() *tollkeeper { return &tollkeeper{Store: memstore.New()} }

func (k *tollkeeper) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	k.mu.Lock()
	k.takes++
	for _, c := range charges {
		if burst := c.Limit.Spec().Burst; c.Cost > burst {
			k.above = append(k.above, fmt.Sprintf("%s: cost %d above the burst of %d", c.Limit.Name(), c.Cost, burst))
		}
	}
	k.mu.Unlock()
	if err := k.Store.Take(ctx, charges, results); err != nil {
		return err
	}
	for i := range charges {
		if charges[i].Limit.Name() == k.never {
			results[i] = store.Result{RetryAfter: stint.Never}
		}
	}
	return nil
}

// band is a Bandwidth of a test.
type band struct {
	rate, burst int64
	dry         bool
}

func (b band) limit(i int, opts ...stint.BandwidthOption) stint.Limit {
	opts = append(opts, stint.WithName("band"+strconv.Itoa(i)), stint.WithBurst(b.burst))
	if b.dry {
		opts = append(opts, stint.WithDryRun())
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
						return far.log, k.takes
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
			opts := []stint.Option{theKey, tt.dry.limit(0, stint.WithRequestBytes()), seen.option()}
			for i, b := range tt.beside {
				opts = append(opts, b.limit(i+1))
			}
			through(limiter(t, opts...), httptest.NewRequest("POST", "/", io.LimitReader(zeros{}, megabyte)), tt.do)
			i := slices.IndexFunc(seen.all, func(e stint.Event) bool { return e.Kind == stint.EventPaced && e.Pacing.DryRun })
			if i < 0 {
				t.Fatalf("%s: observed %s", tt.name, seen.kinds())
			}
			if got, slack := seen.all[i].Pacing.Waited, 300*time.Millisecond; got < tt.want-slack || got > tt.want+slack {
				t.Errorf("%s: would have waited for %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}

// If only dry runs pace a body, it is written and read as without them.
func TestBandwidthDryRunsLeaveWritesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, band{1024, 4096, true}.limit(0), stint.Bandwidth(2048, stint.WithDryRun(), stint.WithRequestBytes()))
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

// If bytes can never pass, the response ends; nobody waits.
func TestBandwidthThatNeverPasses(t *testing.T) {
	for _, dry := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k, seen := newTollkeeper(), &events{}
			k.never = "band1"
			l := limiter(t, theKey, stint.WithStore(k), seen.option(), band{100_000, 25_000, false}.limit(0), band{1 << 20, 1 << 20, dry}.limit(1))
			ctx, stop := context.WithTimeout(t.Context(), 24*time.Hour)
			defer stop()
			start := time.Now()
			through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
				n, err := w.Write([]byte("hello"))
				if dry && (n != 5 || err != nil) || !dry && (n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "band1")) {
					t.Errorf("dry run %v: wrote %d, %v", dry, n, err)
				}
			})
			if took := time.Since(start); took != 0 || k.takes != 1 {
				t.Errorf("dry run %v: took %v and %d calls", dry, took, k.takes)
			}
			if e := seen.last(); e.Kind != stint.EventPaced || (e.Pacing.Err == nil) != dry {
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
		{"alone", []stint.Option{stint.Bandwidth(megabyte, stint.WithName("dry"), stint.WithDryRun(), closed)}},
		{"beside an enforced one", []stint.Option{stint.Bandwidth(megabyte, stint.WithName("dry"), stint.WithDryRun(), closed), stint.Bandwidth(megabyte, stint.WithName("b"))}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s, seen := newSpy(), &events{}
			l := limiter(t, append(tt.limits, theKey, stint.WithStore(s), seen.option())...)
			start := time.Now()
			through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				s.failWith(errDown)
				if n, err := w.Write(make([]byte, 10*megabyte)); n != 10*megabyte || err != nil {
					t.Errorf("%s: wrote %d, %v", tt.name, n, err)
				}
			})
			if takes, _ := s.counts(); time.Since(start) != 0 || takes != 1 {
				t.Errorf("%s: took %v and %d calls", tt.name, time.Since(start), takes)
			}
			if e := seen.last(); e.Pacing.Err != nil || !strings.HasPrefix(seen.kinds(), "Admitted StoreFailed Paced") {
				t.Errorf("%s: %s, cut off by %v", tt.name, seen.kinds(), e.Pacing.Err)
			}
		})
	}
}

// What was paid to dry runs only and hasn't moved is given back.
func TestBandwidthDryRunGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithDryRun()))
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
				{stint.Bandwidth(megabyte, stint.WithDryRun())},
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
