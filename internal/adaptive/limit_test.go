package adaptive

import (
	"fmt"
	"testing"
	"time"
)

const ms = time.Millisecond

// windows feeds a limit windows of ten equal samples each, a window apart.
type windows struct {
	*Limit
	at time.Duration
}

func (w *windows) add(n int, s Sample) {
	for range n {
		w.Add(w.at, s)
	}
}

// pass lets a window's time pass.
func (w *windows) pass() { w.at += w.cfg.Window }

func (w *windows) window(rtt time.Duration, inFlight int64) {
	w.add(9, Sample{RTT: rtt, InFlight: inFlight})
	w.pass()
	w.add(1, Sample{RTT: rtt, InFlight: inFlight})
}

func limitOf(cfg Config) *windows {
	if cfg.Algorithm == nil {
		cfg.Algorithm = Gradient2
	}
	if cfg.Max == 0 {
		cfg.Min, cfg.Max, cfg.Start = 1, 200, DefaultStart
	}
	if cfg.Tolerance == 0 {
		cfg.Tolerance = DefaultTolerance
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	cfg.Window = DefaultWindow
	return &windows{Limit: New(cfg, 1)}
}

// The estimates below were computed by hand from the published formulas.
func TestPublishedSteps(t *testing.T) {
	type step struct {
		rtt      time.Duration
		inFlight int64
		want     string
		reason   Reason
	}
	for _, tt := range []struct {
		name  string
		cfg   Config
		steps []step
	}{
		{"gradient: usual latency gives a fifth of the queue's four", Config{}, []step{
			{100 * ms, 20, "20.8000", Growing},
			{100 * ms, 20, "21.6000", Growing},
		}},
		{"gradient: half of it in use is enough, less is not", Config{}, []step{
			{100 * ms, 10, "20.8000", Growing},
			{100 * ms, 10, "20.8000", Unused},
			{500 * ms, 10, "20.8000", Unused},
		}},
		// long = (100+300)/2 = 200; 200/300 of 20.8, and 4: 17.867
		{"gradient: slower than usual", Config{Tolerance: 1}, []step{
			{100 * ms, 20, "20.8000", Growing},
			{300 * ms, 20, "20.2133", Queueing},
		}},
		{"gradient: within the tolerance", Config{}, []step{
			{100 * ms, 20, "20.8000", Growing},
			{300 * ms, 20, "21.6000", Growing},
		}},
		// long = 1002/3 = 334: the gradient is held at a half, so 21.6/2 + 4 = 14.8
		{"gradient: never less than half at once", Config{Tolerance: 1}, []step{
			{1 * ms, 20, "20.8000", Growing},
			{1 * ms, 20, "21.6000", Growing},
			{1000 * ms, 20, "20.2400", Queueing},
		}},
		{"gradient: no further than its bounds", Config{Min: 19, Max: 21, Start: 20, Tolerance: 1}, []step{
			{100 * ms, 20, "20.8000", Growing},
			{100 * ms, 20, "21.0000", Growing},
			{100 * ms, 20, "21.0000", Steady},
		}},
		{"vegas: no queue gives six, a short one one, a long one takes one", Config{Algorithm: Vegas}, []step{
			{100 * ms, 20, "20.0000", Steady}, // the smallest so far
			{100 * ms, 20, "26.0000", Growing},
			{105 * ms, 26, "27.0000", Growing},  // ceil(26*(1-100/105)) = 2
			{115 * ms, 27, "27.0000", Steady},   // 4
			{150 * ms, 27, "26.0000", Queueing}, // 9
			{90 * ms, 26, "26.0000", Steady},    // a new smallest
			{100 * ms, 26, "26.0000", Steady},   // 3 is neither
			{100 * ms, 12, "26.0000", Unused},
		}},
		// of the order of a hundred all numbers are twice as large
		{"vegas: by the order of magnitude", Config{Algorithm: Vegas, Min: 1, Max: 1000, Start: 100}, []step{
			{100 * ms, 100, "100.0000", Steady},
			{102 * ms, 100, "112.0000", Growing},  // 2
			{104 * ms, 112, "114.0000", Growing},  // 5
			{108 * ms, 114, "114.0000", Steady},   // 9
			{115 * ms, 114, "112.0000", Queueing}, // 15
		}},
		{"aimd: one more within the timeout, a tenth less beyond it", Config{Algorithm: AIMD}, []step{
			{5000 * ms, 20, "21.0000", Growing},
			{5001 * ms, 20, "18.0000", Queueing}, // 18.9, in whole requests
			{5001 * ms, 1, "16.0000", Queueing},  // 16.2: however few are in use
			{100 * ms, 8, "17.0000", Growing},
			{100 * ms, 8, "17.0000", Unused},
		}},
		{"aimd: at least one less, but no further than its bounds", Config{Algorithm: AIMD, Timeout: 10 * ms, Min: 3, Max: 5, Start: 5}, []step{
			{10 * ms, 5, "5.0000", Steady},
			{11 * ms, 5, "4.0000", Queueing},
			{11 * ms, 4, "3.0000", Queueing},
			{11 * ms, 3, "3.0000", Steady},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limitOf(tt.cfg)
			for i, s := range tt.steps {
				l.window(s.rtt, s.inFlight)
				if got := fmt.Sprintf("%.4f", l.estimate); got != s.want || l.Reason() != s.reason {
					t.Errorf("window %d: %s for reason %d, want %s for %d", i+1, got, l.Reason(), s.want, s.reason)
				}
			}
		})
	}
}

func TestWindows(t *testing.T) {
	for _, tt := range []struct {
		name string
		feed func(*windows)
		want int64
		why  Reason
	}{
		{"nothing happens before a window ends", func(l *windows) {
			l.add(1000, Sample{RTT: 100 * ms, InFlight: 100})
		}, 100, Start},
		{"a window waits for ten samples", func(l *windows) {
			for range 9 {
				l.add(1, Sample{Dropped: true, InFlight: 100})
				l.pass()
			}
		}, 100, Start},
		{"and keeps those it has", func(l *windows) {
			for range 10 {
				l.add(1, Sample{Dropped: true, InFlight: 100})
				l.pass()
			}
		}, 50, Drops},
		{"many drops in a window halve it once", func(l *windows) {
			l.add(500, Sample{Dropped: true, InFlight: 100})
			l.pass()
			l.add(1, Sample{Dropped: true, InFlight: 100})
		}, 50, Drops},
		{"one drop in twenty does too", func(l *windows) {
			l.add(18, Sample{RTT: 100 * ms, InFlight: 100})
			l.add(1, Sample{Dropped: true, InFlight: 100})
			l.pass()
			l.add(1, Sample{RTT: 100 * ms, InFlight: 100})
		}, 50, Drops},
		{"one in twenty-one does not", func(l *windows) {
			l.add(19, Sample{RTT: 100 * ms, InFlight: 100})
			l.add(1, Sample{Dropped: true, InFlight: 100})
			l.pass()
			l.add(1, Sample{RTT: 100 * ms, InFlight: 100})
		}, 100, Growing},
		{"halving ends at the smallest limit", func(l *windows) {
			for range 10 {
				l.add(10, Sample{Dropped: true})
				l.pass()
				l.add(1, Sample{Dropped: true})
			}
		}, 10, Steady},
		{"what takes no time says nothing", func(l *windows) {
			l.add(1000, Sample{RTT: 99 * time.Microsecond, InFlight: 100})
			l.pass()
			l.add(1000, Sample{RTT: 0, InFlight: 100})
		}, 100, Start},
		{"nor does what fails in no time", func(l *windows) {
			l.add(1000, Sample{RTT: 99 * time.Microsecond, Failed: true, InFlight: 100})
			l.pass()
			l.add(1000, Sample{Failed: true, InFlight: 100})
		}, 100, Start},
		{"what fails later is a drop", func(l *windows) {
			l.add(18, Sample{RTT: 100 * ms, InFlight: 100})
			l.add(1, Sample{RTT: 100 * time.Microsecond, Failed: true, InFlight: 100})
			l.pass()
			l.add(1, Sample{RTT: 100 * ms, InFlight: 100})
		}, 50, Drops},
		{"the most in flight of a window counts", func(l *windows) {
			l.add(1, Sample{RTT: 100 * ms, InFlight: 90})
			l.add(8, Sample{RTT: 100 * ms, InFlight: 1})
			l.pass()
			l.add(1, Sample{RTT: 100 * ms, InFlight: 1})
		}, 100, Growing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limitOf(Config{Min: 10, Max: 200, Start: 100})
			tt.feed(l)
			if l.Current() != tt.want || l.Reason() != tt.why {
				t.Errorf("%d for reason %d, want %d for %d", l.Current(), l.Reason(), tt.want, tt.why)
			}
		})
	}
}

// How much a window of drops, of slow requests or of both takes off.
func TestBackingOff(t *testing.T) {
	served := Sample{RTT: 100 * ms, InFlight: 100}
	late := Sample{RTT: 1001 * ms, InFlight: 100}
	drop := Sample{Dropped: true, InFlight: 100}
	for _, tt := range []struct {
		name        string
		algorithm   *Algorithm
		late, drops int // of 40
		want        int64
		why         Reason
	}{
		{"drops halve", Gradient2, 0, 2, 50, Drops},
		{"drops halve", Vegas, 0, 2, 50, Drops},
		{"drops take a tenth", AIMD, 0, 2, 90, Drops},
		{"the slow do too", AIMD, 2, 0, 90, Queueing},
		{"both are one", AIMD, 1, 1, 90, Queueing},
		{"once, however many", AIMD, 19, 20, 90, Drops},
		{"one in forty is too few", AIMD, 1, 0, 101, Growing},
		{"or dropped", AIMD, 0, 1, 101, Growing},
	} {
		l := limitOf(Config{Algorithm: tt.algorithm, Timeout: time.Second, Min: 10, Max: 200, Start: 100})
		l.add(tt.late, late)
		l.add(tt.drops, drop)
		l.add(39-tt.late-tt.drops, served)
		l.pass()
		l.add(1, served)
		if l.Current() != tt.want || l.Reason() != tt.why {
			t.Errorf("%v: %s: %d for reason %d, want %d for %d", tt.algorithm, tt.name, l.Current(), l.Reason(), tt.want, tt.why)
		}
	}
}

// However many requests are dropped, a limit falls to its minimum and no further.
func TestMinimum(t *testing.T) {
	for _, algorithm := range []*Algorithm{Gradient2, Vegas, AIMD} {
		l := limitOf(Config{Algorithm: algorithm, Min: 10, Max: 200, Start: 100})
		for range 100 {
			l.add(40, Sample{Dropped: true, InFlight: 100})
			l.pass()
		}
		if l.Current() != 10 {
			t.Errorf("%v: %d after 100 windows of drops, want 10", algorithm, l.Current())
		}
	}
}

// The duration of a drop isn't part of the latency, and that of an abandoned request
// counts only as far as it says something.
func TestWhatLatencyIsMadeOf(t *testing.T) {
	l := limitOf(Config{})
	l.window(100*ms, 20)
	l.add(380, Sample{RTT: 200 * ms, InFlight: 20})
	l.add(10, Sample{RTT: time.Hour, Dropped: true, InFlight: 20})
	l.add(50, Sample{RTT: 99 * ms, Cut: true, InFlight: 20})
	l.pass()
	l.add(1, Sample{RTT: 200 * ms, InFlight: 20})
	if l.Latency() != 200*ms {
		t.Errorf("latency %v, want 200ms", l.Latency())
	}
	l.pass()
	l.add(10, Sample{RTT: 300 * ms, Cut: true, InFlight: 20})
	if l.Latency() != 300*ms {
		t.Errorf("latency %v: those that gave up after longer count", l.Latency())
	}
}

// A service that has become slower for good is not throttled for ever.
func TestVegasForgets(t *testing.T) {
	l := limitOf(Config{Algorithm: Vegas, Min: 4, Max: 200, Start: 20})
	l.window(10*ms, 20)
	lowest := l.Current()
	for range 2000 {
		l.window(100*ms, l.Current())
		lowest = min(lowest, l.Current())
	}
	if lowest > 6 || l.Current() != 200 {
		t.Errorf("lowest %d, then %d: want what holds a queue of 6, then 200", lowest, l.Current())
	}
}

func TestFollow(t *testing.T) {
	l := limitOf(Config{Min: 1, Max: 100, Start: 50})
	l.window(100*ms, 50)
	for _, tt := range []struct {
		cfg  Config
		want int64
	}{
		{Config{Algorithm: Gradient2, Min: 1, Max: 100, Start: 10, Window: time.Second}, 50},
		{Config{Algorithm: Gradient2, Min: 1, Max: 30, Start: 10, Window: time.Second}, 30},
		{Config{Algorithm: Gradient2, Min: 80, Max: 90, Start: 85, Window: time.Second}, 80},
	} {
		if got := l.Follow(tt.cfg, 1).Current(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.cfg, got, tt.want)
		}
	}
}
