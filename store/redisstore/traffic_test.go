package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

const (
	burst       = 1_000_000
	callTimeout = 200 * time.Millisecond
)

// traffic is a load on a few keys while something goes wrong.
type traffic struct {
	store   *redisstore.Store
	charges []store.Charge
	stop    context.CancelFunc
	callers sync.WaitGroup

	granted, failed, unknown atomic.Int64
	pulse                    *redistest.Pulse
	longest                  atomic.Int64 // call, in nanoseconds of the pulse

	mu   sync.Mutex
	seen map[error]string // a text of each class of errors
	last error
}

var classes = []error{redisstore.ErrUnavailable, redisstore.ErrIndeterminate, redisstore.ErrServer, redisstore.ErrConfiguration}

// drive has 16 callers charge a bucket and a window of each key in one Take.
func drive(t *testing.T, s *redisstore.Store, keys ...string) *traffic {
	if len(keys) == 0 {
		keys = []string{"k"}
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &traffic{store: s, stop: stop, pulse: redistest.StartPulse(t), seen: map[error]string{}}
	bucket := limit(t, store.Spec{Name: "a", Units: 1, Period: time.Minute, Burst: burst})
	window := limit(t, store.Spec{Name: "b", Algorithm: store.FixedWindow, Units: burst, Period: 1000 * time.Hour})
	for _, key := range keys {
		f.charges = append(f.charges, store.Charge{Key: key, Limit: bucket, Cost: 1}, store.Charge{Key: key, Limit: window, Cost: 1})
	}
	for range 16 {
		f.callers.Go(func() {
			results := make([]store.Result, len(f.charges))
			for ctx.Err() == nil {
				start := f.pulse.Elapsed()
				err := s.Take(context.Background(), f.charges, results)
				raise(&f.longest, f.pulse.Elapsed()-start)
				denied := func(r store.Result) bool { return !r.OK }
				switch {
				case err != nil:
					f.note(err)
				case slices.ContainsFunc(results, denied):
					t.Error("denied")
				default:
					f.granted.Add(1)
				}
				time.Sleep(time.Millisecond) // a thousand calls a second of each, not as many as the server takes
			}
		})
	}
	t.Cleanup(func() {
		stop()
		f.callers.Wait()
	})
	return f
}

func raise(most *atomic.Int64, d time.Duration) {
	for old := most.Load(); int64(d) > old && !most.CompareAndSwap(old, int64(d)); old = most.Load() {
	}
}

func (f *traffic) note(err error) {
	at := slices.IndexFunc(classes, func(class error) bool { return errors.Is(err, class) })
	var class error
	if at >= 0 {
		class = classes[at]
	}
	f.mu.Lock()
	f.seen[class], f.last = err.Error(), err
	f.mu.Unlock()
	if class == nil || class == redisstore.ErrIndeterminate {
		f.unknown.Add(1)
	}
	f.failed.Add(1)
}

// passes waits until calls are granted again.
func (f *traffic) passes(t *testing.T) {
	t.Helper()
	from := f.granted.Load()
	eventually(t, "calls pass", func() bool { return f.granted.Load() >= from+100 })
}

// fails waits until calls fail with an error of one of the classes, with these words.
func (f *traffic) fails(t *testing.T, words string, classes ...error) {
	t.Helper()
	from := f.failed.Load()
	defer func() {
		if t.Failed() {
			f.mu.Lock()
			defer f.mu.Unlock()
			t.Logf("%d calls failed, the last one: %v", f.failed.Load(), f.last)
		}
	}()
	eventually(t, "calls fail: "+words, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.failed.Load() >= from+20 && slices.ContainsFunc(classes, func(class error) bool { return errors.Is(f.last, class) }) && strings.Contains(f.last.Error(), words)
	})
}

// kept says what a fault leaves of the counts.
type kept bool

const (
	allKept  kept = true
	someLost kept = false // a server that died, or one that had not heard of them yet
)

// end stops the load. It holds the calls to the timeout, their errors to these
// classes, and what was charged to what was granted: nothing twice, and nothing
// that was not asked for but those without an answer.
//
// A call ends when its time has come and the machine gets to it, by up to four
// goroutines: the timer's, the client's, the line's and the caller's. A bubble shows
// that its time is the timeout (TestLineTimeout). Here it is held to three of them,
// while the client by itself would wait for a minute.
func (f *traffic) end(t *testing.T, counts kept, allowed ...error) {
	t.Helper()
	f.stop()
	f.callers.Wait()
	longest := time.Duration(f.longest.Load())
	t.Logf("%d granted, %d failed, %d of them without an answer, the longest took %v %q",
		f.granted.Load(), f.failed.Load(), f.unknown.Load(), longest, f.seen)
	if longest > 3*callTimeout {
		t.Errorf("a call was held for %v of %v", longest, callTimeout)
	}
	for class, text := range f.seen {
		if !slices.Contains(allowed, class) {
			t.Errorf("not of a class expected: %s", text)
		}
	}
	least, most := f.granted.Load(), f.granted.Load()+f.unknown.Load()
	if counts == someLost {
		least = 0
	}
	for _, c := range f.charges {
		var r store.Result
		var err error
		eventually(t, "charged is what was granted", func() bool { // late ones are given back
			r, err = take(f.store, c.Key, c.Limit, 0)
			used := burst - r.Remaining
			return err == nil && used >= least && used <= most
		})
	}
}
