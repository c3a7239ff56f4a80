package main

import (
	"log"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// subject is one limiter at one job. start makes what one goroutine repeats; i
// counts its calls.
type subject struct {
	name  string
	start func(worker int) func(i int)
}

// group is subjects that do the same job.
type group struct {
	name       string
	goroutines int
	cpu        bool // its time is CPU time, with that of the collector
	aims       []aim
	subjects   []subject
	samples    map[string][]sample
}

// aim is a multiple of the fastest peer that one of stint's subjects may take.
type aim struct {
	of   string
	most float64
}

// sample is a subject's result in a round, per call.
type sample struct {
	time          float64 // ns
	allocs, bytes float64
}

// round measures each subject, in each round another first: who comes after another group
// finds caches and a heap that are another's.
func (g *group) round(n int, each time.Duration) {
	if g.samples == nil {
		g.samples = map[string][]sample{}
	}
	for i := range g.subjects {
		s := g.subjects[(n+i)%len(g.subjects)]
		g.samples[s.name] = append(g.samples[s.name], g.measure(s, each))
	}
}

// measure calls a subject for about as long as each says.
func (g *group) measure(s subject, each time.Duration) sample {
	calls := make([]func(int), g.goroutines)
	for w := range calls {
		calls[w] = s.start(w)
	}
	const trial = 2000
	g.repeat(calls, trial)
	n := trial
	if took := g.repeat(calls, trial); took < each {
		n = int(float64(trial) * float64(each) / float64(took))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	took := g.repeat(calls, n)
	runtime.ReadMemStats(&after)
	all := float64(n * g.goroutines)
	return sample{
		time:   float64(took.Nanoseconds()) / all,
		allocs: float64(after.Mallocs-before.Mallocs) / all,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / all,
	}
}

// repeat runs each of calls n times, side by side.
func (g *group) repeat(calls []func(int), n int) time.Duration {
	if len(calls) == 1 {
		call, began, start := calls[0], cpuTime(), time.Now()
		for i := range n {
			call(i)
		}
		if g.cpu {
			return cpuTime() - began
		}
		return time.Since(start)
	}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for _, call := range calls {
		wg.Go(func() {
			<-gate
			for i := range n {
				call(i)
			}
		})
	}
	start := time.Now()
	close(gate)
	wg.Wait()
	return time.Since(start)
}

// cpuTime returns the CPU time that the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (g *group) median(name string, of func(sample) float64) float64 {
	values := make([]float64, len(g.samples[name]))
	for i, s := range g.samples[name] {
		values[i] = of(s)
	}
	return figures.Of(values).Median
}

// fastest is the peer with the least median time.
func (g *group) fastest() (name string) {
	for _, s := range g.subjects {
		if isStint(s.name) || s.name == valueAlone {
			continue
		}
		if name == "" || g.median(s.name, timeOf) < g.median(name, timeOf) {
			name = s.name
		}
	}
	return name
}

// ratio is made within each round.
func (g *group) ratio(of, to string) figures.Spread {
	values := make([]float64, len(g.samples[of]))
	for i, s := range g.samples[of] {
		values[i] = s.time / g.samples[to][i].time
	}
	return figures.Of(values)
}

func timeOf(s sample) float64   { return s.time }
func allocsOf(s sample) float64 { return s.allocs }
func bytesOf(s sample) float64  { return s.bytes }
