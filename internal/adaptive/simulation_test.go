package adaptive

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// server is a service of a number of workers behind a limit, in time of its
// own: requests that are let in and find no worker free stand in a queue, so
// latency is flat up to as many in flight as there are workers, and rises from
// there. That number is the knee. Several limits are as many processes in front
// of one service; each request comes to any of them.
type server struct {
	limits   []*Limit
	inFlight []int64 // of each
	rand     *rand.Rand
	workers  int
	now      time.Duration
	queue    []request
	busy     working // ends of what is being worked on

	denied, served int
	took           time.Duration // by those served, in all
}

func newServer(seed uint64, limits ...*Limit) *server {
	return &server{limits: limits, inFlight: make([]int64, len(limits)), rand: rand.New(rand.NewPCG(seed, 1))}
}

type request struct {
	by       int // which limit let it in
	start    time.Duration
	inFlight int64
	end      time.Duration
}

type working []request

func (w working) Len() int           { return len(w) }
func (w working) Less(i, j int) bool { return w[i].end < w[j].end }
func (w working) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *working) Push(x any)        { *w = append(*w, x.(request)) }
func (w *working) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

const service = 100 * time.Millisecond

// work hands queued requests to free workers. A request takes from 0.7 to 1.3
// of the service time.
func (s *server) work() {
	for len(s.busy) < s.workers && len(s.queue) > 0 {
		r := s.queue[0]
		s.queue = s.queue[1:]
		r.end = s.now + time.Duration(float64(service)*(0.7+0.6*s.rand.Float64()))
		heap.Push(&s.busy, r)
	}
}

// run lets requests come at random, perSecond of them on average, for a time,
// and returns the mean of the first limit over the last tenth of it.
func (s *server) run(perSecond float64, d time.Duration) float64 {
	end := s.now + d
	tail := end - d/10
	var sum, n float64
	next := s.now
	for {
		for len(s.busy) > 0 && s.busy[0].end <= next {
			r := heap.Pop(&s.busy).(request)
			s.now = r.end
			s.inFlight[r.by]--
			s.served++
			s.took += s.now - r.start
			s.limits[r.by].Add(s.now, Sample{RTT: s.now - r.start, InFlight: r.inFlight})
			s.work()
		}
		if s.now = next; s.now >= end {
			return sum / n
		}
		if s.now >= tail {
			sum += float64(s.limits[0].Current())
			n++
		}
		by := 0
		if len(s.limits) > 1 {
			by = s.rand.IntN(len(s.limits))
		}
		if s.inFlight[by] < s.limits[by].Current() {
			s.inFlight[by]++
			s.queue = append(s.queue, request{by: by, start: s.now, inFlight: s.inFlight[by]})
			s.work()
		} else {
			s.denied++
		}
		next += time.Duration(s.rand.ExpFloat64() / perSecond * float64(time.Second))
	}
}

// TestSettlesAtTheKnee: under half more load than the workers can do, the
// limit is within a fifth of their number after 150 s, and again after they
// have become fewer and more. What is let through keeps them busy, and takes
// little longer than the work itself.
func TestSettlesAtTheKnee(t *testing.T) {
	const phase = 150 * time.Second
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		// The published tolerance lets latency grow by half by design: see
		// TestToleranceIsRoom.
		{"Gradient2", Config{Algorithm: Gradient2, Tolerance: 1}},
		{"Vegas", Config{Algorithm: Vegas}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(3) {
				cfg := tt.cfg
				cfg.Min, cfg.Max, cfg.Start, cfg.Window = 5, 500, DefaultStart, DefaultWindow
				s := newServer(seed, New(cfg, seed))
				for _, workers := range []int{100, 60, 120, 80} {
					s.workers = workers
					capacity := float64(workers) / service.Seconds()
					got := s.run(1.5*capacity, phase)
					if far := math.Abs(got/float64(workers) - 1); far > 0.2 {
						t.Errorf("seed %d: the limit is %.1f at %d workers", seed, got, workers)
					}
					s.served, s.took = 0, 0
					s.run(1.5*capacity, phase/10)
					if done := float64(s.served) / (phase / 10).Seconds(); done < 0.95*capacity {
						t.Errorf("seed %d: %.0f served a second by %d workers, who can do %.0f", seed, done, workers, capacity)
					}
					if took := s.took / time.Duration(s.served); took > service*5/4 {
						t.Errorf("seed %d: requests took %v at %d workers, the work %v", seed, took, workers, service)
					}
				}
			}
		})
	}
}

// TestToleranceIsRoom: with the published tolerance Gradient2 doesn't look for
// the knee but for where latency has grown by half; the queue's four come on
// top. It says so when it gets there, before a load that never lets up has
// become usual.
func TestToleranceIsRoom(t *testing.T) {
	cfg := Config{Algorithm: Gradient2, Tolerance: DefaultTolerance, Min: 5, Max: 500, Start: 100, Window: DefaultWindow}
	s := newServer(1, New(cfg, 1))
	s.workers = 100
	s.run(0.2*1000, 300*time.Second) // so that usual is the work itself
	s.run(1.5*1000, 75*time.Second)
	if got := s.limits[0].Current(); got < 140 || got > 160 {
		t.Errorf("the limit is %d at 100 workers, want 1.5 times as many", got)
	}
}

// aimdOf is a configuration of AIMD with a floor that a few workers can't bear.
func aimdOf(timeout time.Duration, start int64) Config {
	return Config{Algorithm: AIMD, Timeout: timeout, Min: 5, Max: 500, Start: start, Window: DefaultWindow}
}

// TestTimeoutIsTheQueue: AIMD doesn't look for the knee but for where the slow
// work, which takes 0.3 of the service time longer, takes as long as the
// timeout. It stays there, within 15 %, however long the overload.
func TestTimeoutIsTheQueue(t *testing.T) {
	for _, timeout := range []time.Duration{service * 3 / 2, service * 2, service * 3} {
		s := newServer(1, New(aimdOf(timeout, 100), 1))
		for _, workers := range []int{80, 40, 60} {
			s.workers = workers
			capacity := float64(workers) / service.Seconds()
			s.run(1.5*capacity, 150*time.Second)
			s.served, s.took = 0, 0
			want := float64(workers) * (float64(timeout)/float64(service) - 0.3)
			for range 60 {
				s.run(1.5*capacity, time.Second)
				if got := float64(s.limits[0].Current()); math.Abs(got/want-1) > 0.15 {
					t.Errorf("the limit is %.0f at %d workers for %v, want about %.0f", got, workers, timeout, want)
				}
			}
			if done := float64(s.served) / 60; done < 0.98*capacity {
				t.Errorf("%.0f served a second by %d workers, who can do %.0f", done, workers, capacity)
			}
			if took := s.took / time.Duration(s.served); took > timeout {
				t.Errorf("requests took %v at %d workers, want no more than %v", took, workers, timeout)
			}
		}
	}
}

// TestRecovery: where even the smallest limit is too slow, AIMD stays at it and
// goes on serving; when the workers are back, it climbs one each window.
func TestRecovery(t *testing.T) {
	s := newServer(1, New(aimdOf(2*service, 100), 1))
	s.workers = 2
	s.run(30, 100*time.Second)
	s.served = 0
	if got := s.run(30, 100*time.Second); got != 5 || s.served < 195 {
		t.Errorf("the limit is %.1f and %d were served by 2 workers, want 5 and 200", got, s.served)
	}
	s.workers = 60
	for range 4 {
		before := s.limits[0].Current()
		s.run(900, 20*time.Second)
		if got := s.limits[0].Current() - before; got < 19 || got > 20 {
			t.Errorf("from %d by %d in 20 windows", before, got)
		}
	}
}

// TestProcessesShare: processes in front of one service end up with equal
// limits, wherever they have started, and none is left with the smallest: a
// step down takes more from a larger limit. Chance decides which of them steps
// down, so the means of ten minutes are compared, to 15 %.
func TestProcessesShare(t *testing.T) {
	const workers, minutes = 60, 10
	s := newServer(4, New(aimdOf(2*service, 5), 0), New(aimdOf(2*service, 150), 0), New(aimdOf(2*service, 20), 0))
	s.workers = workers
	s.run(1.5*workers/service.Seconds(), 5*time.Minute)
	sums := make([]float64, len(s.limits))
	for range minutes * 60 {
		s.run(1.5*workers/service.Seconds(), time.Second)
		for i, l := range s.limits {
			sums[i] += float64(l.Current())
		}
	}
	for i, sum := range sums {
		if got, want := sum/minutes/60, (sums[0]+sums[1]+sums[2])/3/minutes/60; math.Abs(got/want-1) > 0.15 {
			t.Errorf("limit %d is %.1f on average, want a third of all, %.1f", i, got, want)
		}
	}
}

// TestMixedWorkIsNotAQueue: without any bottleneck, durations that differ by
// chance (exponentially, about half a second) are no reason to deny, once the
// limit has grown to the demand. The tolerance is there for this: with
// 1, or by Vegas, it is one.
func TestMixedWorkIsNotAQueue(t *testing.T) {
	const perSecond = 100
	for seed := range uint64(2) {
		l := New(Config{Algorithm: Gradient2, Tolerance: DefaultTolerance, Min: 5, Max: 5000, Start: DefaultStart, Window: DefaultWindow}, seed)
		random := rand.New(rand.NewPCG(seed, 2))
		var busy working
		var inFlight int64
		asked, denied := 0, 0
		for now := time.Duration(0); now < time.Hour; now += time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)) {
			for len(busy) > 0 && busy[0].end <= now {
				r := heap.Pop(&busy).(request)
				inFlight--
				l.Add(r.end, Sample{RTT: r.end - r.start, InFlight: r.inFlight})
			}
			if now < 10*time.Minute {
				asked, denied = 0, 0
			}
			asked++
			if inFlight >= l.Current() {
				denied++
				continue
			}
			inFlight++
			took := time.Duration(random.ExpFloat64() * float64(time.Second) / 2)
			heap.Push(&busy, request{start: now, inFlight: inFlight, end: now + took})
		}
		if denied*1000 > asked {
			t.Errorf("seed %d: %d of %d denied by a limit of %d", seed, denied, asked, l.Current())
		}
	}
}

// The same seed gives the same limits.
func TestDeterministic(t *testing.T) {
	for _, a := range []*Algorithm{Gradient2, Vegas, AIMD} {
		run := func() (denied, served int, mean float64) {
			cfg := Config{Algorithm: a, Min: 1, Max: 100, Start: 10, Tolerance: 1.1, Timeout: 2 * service, Window: 100 * time.Millisecond}
			s := newServer(7, New(cfg, 7))
			s.workers = 10
			mean = s.run(150, 100*time.Second)
			return s.denied, s.served, mean
		}
		r1, s1, m1 := run()
		r2, s2, m2 := run()
		if r1 != r2 || s1 != s2 || m1 != m2 || r1 == 0 {
			t.Errorf("%v: %d %d %v, then %d %d %v", a, r1, s1, m1, r2, s2, m2)
		}
	}
}
