package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/benchmarks/internal/figures"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// What a decision costs a server, and from that how many servers carry how many decisions.
// A master computes with one thread: it carries as many decisions as their time fits into a
// second. What a decision takes depends on how many travel in a call, so both ends are
// measured: a call each, as when a process has little to do, and batches of 128 callers.

// site is one server, or a cluster of masters.
type site struct {
	name    string
	masters []*server
	client  redis.UniversalClient
}

func newSites(program string) (sites []site, end func(), err error) {
	var servers []*server
	end = func() {
		for _, s := range sites {
			_ = s.client.Close()
		}
		for _, s := range servers {
			s.stop()
		}
	}
	for _, masters := range []int{0, 1, 3} {
		if masters == 0 {
			s, err := startServer(program)
			if err != nil {
				return sites, end, err
			}
			servers = append(servers, s)
			sites = append(sites, site{"one server", []*server{s}, s.client()})
			continue
		}
		all, err := startCluster(program, masters)
		servers = append(servers, all...)
		if err != nil {
			return sites, end, err
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{all[0].addr}, ContextTimeoutEnabled: true, PoolSize: 128})
		sites = append(sites, site{"a cluster of " + figures.Many(masters, "master"), all, client})
	}
	return sites, end, nil
}

// startCluster starts masters that share the hash slots evenly.
func startCluster(program string, n int) (masters []*server, err error) {
	ctx := context.Background()
	const slots = 16384
	for i := range n {
		s, err := startServer(program, "--cluster-enabled", "yes")
		if err != nil {
			return masters, err
		}
		masters = append(masters, s)
		if err := s.admin.ClusterAddSlotsRange(ctx, slots*i/n, slots*(i+1)/n-1).Err(); err != nil {
			return masters, err
		}
		host, port, _ := strings.Cut(s.addr, ":")
		if err := masters[0].admin.ClusterMeet(ctx, host, port).Err(); err != nil {
			return masters, err
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ready := true
		for _, s := range masters {
			text, err := s.admin.ClusterInfo(ctx).Result()
			ready = ready && err == nil && strings.Contains(text, "cluster_state:ok") && strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d", n))
		}
		if ready {
			return masters, nil
		}
		if time.Now().After(end) {
			return masters, errors.New("the cluster doesn't form")
		}
	}
}

// work is one kind of call.
type work struct {
	name   string
	limits []*store.Limit
	slot   bool // the last limit is a slot, which is given back
}

func works() []work {
	rate := limit(store.Spec{Name: "rate", Units: 100, Period: time.Second, Burst: 1_000_000})
	quota := limit(store.Spec{Name: "daily", Algorithm: store.FixedWindow, Units: burst, Window: store.Daily})
	slots := limit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 10_000})
	return []work{
		{"a rate", []*store.Limit{rate}, false},
		{"a rate and a daily quota", []*store.Limit{rate, quota}, false},
		{"a rate, a daily quota and a slot (taken and released)", []*store.Limit{rate, quota, slots}, true},
	}
}

// cost is the time that a decision took.
type cost struct {
	server  time.Duration // of all masters' main threads
	process time.Duration // of this process, callers included
	inCall  float64       // decisions a script call
	most    float64       // the busiest master's part of the servers' time
}

// sizing is the median cost of each measurement, by its name.
type sizing struct {
	costs map[string][]cost
	names []string
}

func (z *sizing) add(name string, c cost) {
	if z.costs[name] == nil {
		z.names = append(z.names, name)
	}
	z.costs[name] = append(z.costs[name], c)
}

func (z *sizing) of(name string, figure func(cost) float64) float64 {
	var all []float64
	for _, c := range z.costs[name] {
		all = append(all, figure(c))
	}
	return figures.Of(all).Median
}

func (z *sizing) server(name string) time.Duration {
	return time.Duration(z.of(name, func(c cost) float64 { return float64(c.server) }))
}

// called names a measurement.
func called(at string, w work, how string, keys int) string {
	return fmt.Sprintf("%s | %s | %s | %s", w.name, at, how, figures.Many(keys, "key"))
}

const (
	eachACall = "each in its own call"
	inBatches = "in batches"
)

func measureSizing(w io.Writer, c config) error {
	sites, end, err := newSites(c.program)
	defer end()
	if err != nil {
		return err
	}
	z := &sizing{costs: map[string][]cost{}}
	for round := range c.rounds {
		for i := range sites {
			at := sites[(i+round)%len(sites)]
			for _, what := range works() {
				for _, keys := range []int{c.keys, 1} {
					for _, how := range []string{eachACall, inBatches} {
						one, err := at.measure(what, how == inBatches, keys, c.each)
						if err != nil {
							return fmt.Errorf("%s: %w", called(at.name, what, how, keys), err)
						}
						z.add(called(at.name, what, how, keys), one)
					}
				}
			}
		}
	}
	z.write(w, c, sites)
	return nil
}

// measure has 128 callers decide for d, after as long a time to warm up.
func (at site) measure(what work, batches bool, keys int, d time.Duration) (cost, error) {
	opts := []redisstore.Option{redisstore.WithTimeout(5 * time.Second)}
	if !batches {
		opts = append(opts, redisstore.WithoutBatching())
	}
	mine := redisstore.New(at.client, opts...)
	defer mine.Close()
	ctx := context.Background()
	for _, m := range at.masters {
		if err := m.admin.FlushAll(ctx).Err(); err != nil {
			return cost{}, err
		}
	}
	deciding, all := taking{mine, what.limits}, names(keys)
	decide := deciding.call
	if what.slot {
		decide = deciding.both
	}
	if _, err := callFor(decide, all, d/2); err != nil {
		return cost{}, err
	}
	runtime.GC()
	before, err := at.infos()
	if err != nil {
		return cost{}, err
	}
	own := computed()
	n, err := callFor(decide, all, d)
	if err != nil {
		return cost{}, err
	}
	own = computed() - own
	after, err := at.infos()
	if err != nil {
		return cost{}, err
	}
	var total, busiest time.Duration
	calls := int64(0)
	for i := range after {
		took := after[i].cpu - before[i].cpu
		total, busiest = total+took, max(busiest, took)
		calls += after[i].calls - before[i].calls
	}
	return cost{total / time.Duration(n), own / time.Duration(n), float64(n) / float64(max(calls, 1)), float64(busiest) / float64(max(total, 1))}, nil
}

func (at site) infos() (all []info, err error) {
	for _, m := range at.masters {
		i, err := m.info()
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// callFor has 128 callers decide for d, and returns how many decisions they had.
func callFor(decide func(context.Context, string) error, keys []string, d time.Duration) (n int, err error) {
	const callers = 128
	var counts [callers]int
	var errs [callers]error
	var running sync.WaitGroup
	began := time.Now()
	for c := range callers {
		running.Go(func() {
			for i := c * 7919 % len(keys); errs[c] == nil && (time.Since(began) < d || counts[c] == 0); i = (i + 104729) % len(keys) {
				errs[c] = decide(context.Background(), keys[i])
				counts[c]++
			}
		})
	}
	running.Wait()
	for _, one := range counts {
		n += one
	}
	return n, errors.Join(errs[:]...)
}

// computed is how long the process has computed.
func computed() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// planned is how busy a master is meant to be.
const planned = 0.5

// masters is how many masters carry so many decisions a second.
func masters(perSecond float64, each time.Duration) int {
	return int(math.Ceil(perSecond * each.Seconds() / planned))
}

func (z *sizing) write(w io.Writer, c config, sites []site) {
	many := figures.Many(c.keys, "key")
	fmt.Fprintf(w, "| decision | where | how | keys | decisions a script call | servers' CPU | this process's CPU | busiest master's part |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, name := range z.names {
		fmt.Fprintf(w, "| %s | %.1f | %s | %s | %.0f %% |\n", name, z.of(name, func(c cost) float64 { return c.inCall }),
			figures.Micros(z.server(name)), figures.Micros(time.Duration(z.of(name, func(c cost) float64 { return float64(c.process) }))),
			100*z.of(name, func(c cost) float64 { return c.most }))
	}
	one, single, three := sites[0].name, sites[1].name, sites[2].name
	fmt.Fprintf(w, "\nThe model assumes that a decision takes as much CPU time in a cluster as on one master, and that each\nmaster has an equal part of the keys. Checked, %s against %s:\n\n| decision | how | CPU time per decision, %s, as a multiple of one master | part of the work on the busiest master |\n| --- | --- | --- | --- |\n", three, single, many)
	for _, what := range works() {
		for _, how := range []string{eachACall, inBatches} {
			name := called(three, what, how, c.keys)
			fmt.Fprintf(w, "| %s | %s | %.2f × | %.0f %% (33 %% of the keys) |\n", what.name, how,
				float64(z.server(name))/float64(z.server(called(single, what, how, c.keys))), 100*z.of(name, func(c cost) float64 { return c.most }))
		}
	}
	fmt.Fprintf(w, "\nThe number of masters that a load needs if each master is busy for %.0f %% of the time. The lower number is for\ndecisions in batches, the higher for decisions that are sent separately.\n\n| decision | decisions a second | one server | cluster |\n| --- | --- | --- | --- |\n", 100*planned)
	for _, what := range works() {
		for _, perSecond := range []float64{1_000, 10_000, 100_000, 1_000_000} {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", what.name, figures.Thousands(int64(perSecond)),
				z.carries(perSecond, one, what, c.keys, true), z.carries(perSecond, single, what, c.keys, false))
		}
	}
	fmt.Fprintf(w, "\nEach key is stored on one master only. The largest number of decisions per second on one key, with\nthis master busy for %.0f %% of the time:\n\n| decision | each in its own call | in batches |\n| --- | --- | --- |\n", 100*planned)
	for _, what := range works() {
		fmt.Fprintf(w, "| %s | %s | %s |\n", what.name,
			rounded(planned/z.server(called(single, what, eachACall, 1)).Seconds()), rounded(planned/z.server(called(single, what, inBatches, 1)).Seconds()))
	}
}

// carries says how many masters are needed, or that the one is enough or isn't.
func (z *sizing) carries(perSecond float64, at string, what work, keys int, alone bool) string {
	from, to := masters(perSecond, z.server(called(at, what, inBatches, keys))), masters(perSecond, z.server(called(at, what, eachACall, keys)))
	switch {
	case alone && to <= 1:
		return "is enough"
	case alone && from <= 1:
		return "is enough for batches"
	case alone:
		return "isn't enough"
	case from == to:
		return figures.Many(from, "master")
	}
	return fmt.Sprintf("%d to %d masters", min(from, to), max(from, to))
}

// rounded writes a number with two digits that count.
func rounded(v float64) string {
	if math.IsInf(v, 0) {
		return "–" // too short for the server's clock
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return figures.Thousands(int64(math.Round(v/unit) * unit))
}
