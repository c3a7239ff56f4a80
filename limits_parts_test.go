package stint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// While the secondary decides for one of several processes, decisions and fields show its part.
func TestFieldsShowThePart(t *testing.T) {
	for _, n := range []int{1, 8} {
		s := failover.New(storefake.Down(), memstore.New(), failover.WithProcesses(n))
		defer s.Close()
		var decided, ended, held stint.Decision
		l := limiter(t, theKey, stint.Rate(80, time.Minute, stint.WithBurst(16), stint.WithName("calls")), stint.WithStore(s),
			stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders),
			stint.WithObserver(func(e stint.Event) {
				switch e.Kind {
				case stint.EventAdmitted:
					decided = e.Decision
				case stint.EventEnded:
					ended = e.Decision
				}
			}))
		policy, capacity, left := `"calls";q=80;w=60`, "16", "15"
		if n == 8 {
			policy, capacity, left = `"calls";q=10;w=60`, "2", "1"
		}
		for denied := range 2 {
			w := httptest.NewRecorder()
			for range 1 + 16*denied {
				w = httptest.NewRecorder()
				l.Serve(w, httptest.NewRequest("GET", "/", nil), func(_ http.ResponseWriter, r *http.Request) {
					held = stint.FromContext(r.Context()).Decision()
				})
			}
			if denied > 0 {
				left = "0"
			}
			h := w.Header()
			if h.Get("RateLimit-Policy") != policy || h.Get("X-RateLimit-Limit") != capacity || h.Get("X-RateLimit-Remaining") != left {
				t.Errorf("%d processes, %d: %v", n, w.Code, h)
			}
		}
		for name, d := range map[string]stint.Decision{"when admitted": decided, "of the permit": held, "at the end": ended} {
			if got := d.Limits[0].Capacity; d.Limits[0].Name != "calls" || got != map[int]int64{1: 16, 8: 2}[n] {
				t.Errorf("%d processes: a capacity of %d %s", n, got, name)
			}
		}
	}
}

// The use of a part is a percentage of the part, also if its bucket has a queue. So it is of the whole limit.
func TestNearLimitOfAPart(t *testing.T) {
	for _, n := range []int{1, 8} {
		s := failover.New(storefake.Down(), memstore.New(), failover.WithProcesses(n))
		defer s.Close()
		units, capacity := int64(80/n), ""
		var reached []string
		l := limiter(t, theKey, stint.WithStore(s), stint.WithNearLimit(50),
			stint.Rate(80, time.Hour, stint.WithName("bucket")),
			stint.Rate(80, time.Hour, stint.WithName("queue"), stint.WithQueue(8)),
			stint.WithObserver(func(e stint.Event) {
				switch e.Kind {
				case stint.EventNearLimit:
					reached = append(reached, e.Decision.Limit)
				case stint.EventAdmitted:
					queue := e.Decision.Limits[1]
					capacity = fmt.Sprint(queue.Remaining, " of ", queue.Capacity)
				}
			}))
		for used := int64(1); used <= units/2; used++ {
			if len(reached) > 0 {
				t.Errorf("%d processes: after %d of %d units: %q", n, used-1, units, reached)
			}
			if err := l.Allow(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint(units+8-used, " of ", units+8); capacity != want {
				t.Errorf("%d processes: %s are left, want %s", n, capacity, want)
			}
		}
		if !slices.Equal(reached, []string{"bucket", "queue"}) {
			t.Errorf("%d processes: half of %d units: %q", n, units, reached)
		}
	}
}

// A raise above the part is charged as the whole part, and raises the cost to its total all the same.
func TestExtendAboveThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failover.New(storefake.Down(), memstore.New(), failover.WithProcesses(2))
		defer s.Close()
		l := limiter(t, theKey, stint.Rate(100, time.Second, stint.WithName("tokens")), stint.WithStore(s))
		p := take(t, l, 1)
		time.Sleep(time.Second)
		for _, step := range []int64{81, 81, 51} {
			extend(t, p, step)
			unitsLeft(t, l, fmt.Sprint("after a raise to ", step), 0)
			if got := p.Decision().Limits[0].Cost; got != 81 {
				t.Errorf("after a raise to %d, the permit costs %d, want 81", step, got)
			}
		}
		settle(t, p, 81) // changes nothing
		unitsLeft(t, l, "after Settle", 0)
		time.Sleep(time.Second / 2)
		settle(t, p, 91)
		unitsLeft(t, l, "after Settle to 91", 15)

	})
}

// A part of a Bandwidth has room for its chunks, so each byte is paid for.
func TestBandwidthInParts(t *testing.T) {
	s := failover.New(storefake.Down(), memstore.New(), failover.WithProcesses(8))
	defer s.Close()
	l := limiter(t, theKey, stint.Bandwidth(1<<20, stint.WithName("bytes")), stint.WithStore(s))
	body := strings.Repeat("x", 128<<10)
	began := time.Now()
	w := httptest.NewRecorder()
	l.Serve(w, httptest.NewRequest("GET", "/", nil), func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(body))
	})
	if w.Body.Len() != len(body) {
		t.Errorf("%d of %d bytes", w.Body.Len(), len(body))
	}
	// 64 KiB are the burst, and the others come at 128 KiB a second.
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("took %v at an eighth of the rate", took)
	}
}
