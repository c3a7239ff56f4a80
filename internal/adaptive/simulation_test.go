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
// there. That number is the knee.
type server struct {
	limit    *Limit
	rand     *rand.Rand
	workers  int
	now      time.Duration
	inFlight int64
	queue    []request
	busy     working // ends of what is being worked on

	refused, served int
	took            time.Duration // by those served, in all
}

type request struct {
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
// and returns the mean of the limit over the last tenth of it.
func (s *server) run(perSecond float64, d time.Duration) float64 {
	end := s.now + d
	tail := end - d/10
	var sum, n float64
	next := s.now
	for {
		for len(s.busy) > 0 && s.busy[0].end <= next {
			r := heap.Pop(&s.busy).(request)
			s.now = r.end
			s.inFlight--
			s.served++
			s.took += s.now - r.start
			s.limit.Add(s.now, Sample{RTT: s.now - r.start, InFlight: r.inFlight})
			s.work()
		}
		if s.now = next; s.now >= end {
			return sum / n
		}
		if s.now >= tail {
			sum += float64(s.limit.Current())
			n++
		}
		if s.inFlight < s.limit.Current() {
			s.inFlight++
			s.queue = append(s.queue, request{start: s.now, inFlight: s.inFlight})
			s.work()
		} else {
			s.refused++
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
				s := &server{limit: New(cfg, seed), rand: rand.New(rand.NewPCG(seed, 1))}
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
	cfg := Config{Tolerance: DefaultTolerance, Min: 5, Max: 500, Start: 100, Window: DefaultWindow}
	s := &server{limit: New(cfg, 1), rand: rand.New(rand.NewPCG(1, 1)), workers: 100}
	s.run(0.2*1000, 300*time.Second) // so that usual is the work itself
	s.run(1.5*1000, 75*time.Second)
	if got := s.limit.Current(); got < 140 || got > 160 {
		t.Errorf("the limit is %d at 100 workers, want 1.5 times as many", got)
	}
}

// TestMixedWorkIsNotAQueue: without any bottleneck, durations that differ by
// chance (exponentially, about half a second) are no reason to refuse, once the
// limit has grown to what is asked for. That is what the tolerance is for: with
// 1, or by Vegas, it is one.
func TestMixedWorkIsNotAQueue(t *testing.T) {
	const perSecond = 100
	for seed := range uint64(2) {
		l := New(Config{Tolerance: DefaultTolerance, Min: 5, Max: 5000, Start: DefaultStart, Window: DefaultWindow}, seed)
		random := rand.New(rand.NewPCG(seed, 2))
		var busy working
		var inFlight int64
		asked, refused := 0, 0
		for now := time.Duration(0); now < time.Hour; now += time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)) {
			for len(busy) > 0 && busy[0].end <= now {
				r := heap.Pop(&busy).(request)
				inFlight--
				l.Add(r.end, Sample{RTT: r.end - r.start, InFlight: r.inFlight})
			}
			if now < 10*time.Minute {
				asked, refused = 0, 0
			}
			asked++
			if inFlight >= l.Current() {
				refused++
				continue
			}
			inFlight++
			took := time.Duration(random.ExpFloat64() * float64(time.Second) / 2)
			heap.Push(&busy, request{start: now, inFlight: inFlight, end: now + took})
		}
		if refused*1000 > asked {
			t.Errorf("seed %d: %d of %d refused by a limit of %d", seed, refused, asked, l.Current())
		}
	}
}

// The same seed gives the same limits.
func TestDeterministic(t *testing.T) {
	for _, a := range []Algorithm{Gradient2, Vegas} {
		run := func() (refused, served int, mean float64) {
			cfg := Config{Algorithm: a, Min: 1, Max: 100, Start: 10, Tolerance: 1.1, Window: 100 * time.Millisecond}
			s := &server{limit: New(cfg, 7), rand: rand.New(rand.NewPCG(7, 7)), workers: 10}
			mean = s.run(150, 100*time.Second)
			return s.refused, s.served, mean
		}
		r1, s1, m1 := run()
		r2, s2, m2 := run()
		if r1 != r2 || s1 != s2 || m1 != m2 || r1 == 0 {
			t.Errorf("%d: %d %d %v, then %d %d %v", a, r1, s1, m1, r2, s2, m2)
		}
	}
}
