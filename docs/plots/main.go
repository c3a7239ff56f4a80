// Command plots draws the pictures of the documents from the algorithms
// themselves: traffic with instants of its own goes through store.Decide, and
// what passes is drawn. It reads no clock, so the same code draws the same
// files. AdaptiveConcurrency under real load and fair queues are drawn from the
// tables that examples/adaptive and examples/fairqueue wrote in one run. It is a module of its own, so that its
// dependencies never reach a user's go.sum.
package main

import (
	"flag"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

func main() {
	out := flag.String("out", "../img", "directory to write to")
	flag.Parse()
	if err := drawAll(*out); err != nil {
		log.Fatal(err)
	}
}

func drawAll(dir string) error {
	for _, r := range rates {
		p, err := r.picture()
		if err == nil {
			err = p.save(dir, r.file)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.file, err)
		}
	}
	for _, draw := range []func(dir string) error{drawTimeline, drawWarmUp, drawConcurrency, drawAdaptive, drawFairQueue} {
		if err := draw(dir); err != nil {
			return err
		}
	}
	return nil
}

// rates all see the same traffic, so that the pictures can be compared.
var rates = []rate{
	{"tokenbucket", "TokenBucket, 10 per 10 s", store.Spec{Algorithm: store.TokenBucket}},
	{"intervalbucket", "IntervalBucket, 10 per 10 s, burst 15", store.Spec{Algorithm: store.IntervalBucket, Burst: 15}},
	{"leakybucket", "LeakyBucket, 10 per 10 s, queue 5", store.Spec{Algorithm: store.LeakyBucket, Queue: 5}},
	{"fixedwindow", "FixedWindow, 10 per 10 s", store.Spec{Algorithm: store.FixedWindow}},
	{"slidingwindow", "SlidingWindow, 10 per 10 s in 4 buckets", store.Spec{Algorithm: store.SlidingWindow, Buckets: 4}},
	{"slidingcounter", "SlidingCounter, 10 per 10 s", store.Spec{Algorithm: store.SlidingCounter}},
	{"slidinglog", "SlidingLog, 10 per 10 s", store.Spec{Algorithm: store.SlidingLog}},
}

type rate struct {
	file, title string
	spec        store.Spec
}

// traffic is one request, then a rush just before and after the first window
// of 10 s ends, silence, and a second rush: 4 a second while it rushes.
func traffic() (at []time.Duration) {
	at = append(at, 0)
	for _, rush := range [][2]time.Duration{{8 * time.Second, 14 * time.Second}, {26 * time.Second, 38 * time.Second}} {
		for t := rush[0]; t < rush[1]; t += 250 * time.Millisecond {
			at = append(at, t)
		}
	}
	return at
}

// key is one key's state under one limit, decided by explicit instants.
type key struct {
	limit *store.Limit
	state [1]store.State
	lease uint64
}

func newKey(s store.Spec) (*key, error) {
	s.Name = "plot"
	l, err := store.NewLimit(s)
	return &key{limit: l}, err
}

func (k *key) now(at time.Duration) store.Now {
	k.lease++
	us := at.Microseconds()
	return store.Now{Steady: us, Wall: us, Lease: store.Lease(k.lease)}
}

func (k *key) take(at, maxWait time.Duration) store.Result {
	charges := []store.Charge{{Key: "k", Limit: k.limit, Cost: 1, MaxWait: maxWait}}
	var results [1]store.Result
	store.Decide(k.now(at), charges, k.state[:], results[:])
	return results[0]
}

func (k *key) release(at time.Duration, receipt store.Receipt) {
	var result store.Result
	charge := store.Charge{Key: "k", Limit: k.limit, Receipt: receipt}
	store.Amend(k.now(at), &charge, &k.state[0], &result)
}

func (r rate) picture() (picture, error) {
	r.spec.Units, r.spec.Period = 10, 10*time.Second
	k, err := newKey(r.spec)
	if err != nil {
		return picture{}, err
	}
	var asked, passed stairs
	var denied []time.Duration
	for _, at := range traffic() {
		asked.step(at)
		if res := k.take(at, 0); res.OK {
			passed.step(at + res.Delay)
		} else {
			denied = append(denied, at)
		}
	}
	return counted(r.title, asked, passed, denied), nil
}

// counted shows what was asked and what was let through.
func counted(title string, asked, passed stairs, denied []time.Duration) picture {
	asked.until(40 * time.Second)
	passed.until(40 * time.Second)
	passed.points = slices.DeleteFunc(passed.points, func(p point) bool { return p.x > 40 }) // turns still to come
	return picture{
		title: title, x: "seconds", y: "requests since the start", xStep: 5, yStep: 20,
		lines: []line{
			{"requested", grey, asked.points},
			{"admitted", blue, passed.points},
		},
		denied: denied,
	}
}

// drawWarmUp shows the rate that one caller gets who asks again as soon as it
// had its turn: from cold, and after a pause of three seconds.
func drawWarmUp(dir string) error {
	k, err := newKey(store.Spec{
		Algorithm: store.WarmUp, Units: 5, Period: time.Second, WarmUp: 4 * time.Second,
	})
	if err != nil {
		return err
	}
	// A turn is paid for by the next, so the wait for it is the rate of now.
	busy := func(from, to time.Duration) (points []point) {
		at := from + k.take(from, time.Hour).Delay
		for at < to {
			wait := k.take(at, time.Hour).Delay
			points = append(points, point{at.Seconds(), 1 / wait.Seconds()})
			at += wait
		}
		return points
	}
	return picture{
		title: "WarmUp, 5 per second, warm after 4 s; a pause from 6 s to 9 s",
		x:     "seconds", y: "requests per second", xStep: 1, yStep: 1,
		lines: []line{
			{"admitted", blue, busy(0, 6*time.Second)},
			{"", blue, busy(9*time.Second, 12*time.Second)},
		},
	}.save(dir, "warmup")
}

// drawConcurrency lets requests come every 250 ms and hold one of four slots
// for a time that grows and shrinks again.
func drawConcurrency(dir string) error {
	k, err := newKey(store.Spec{Algorithm: store.Concurrency, Units: 4})
	if err != nil {
		return err
	}
	type held struct {
		until   time.Duration
		receipt store.Receipt
	}
	var holders []held
	inFlight := stairs{points: []point{{0, 0}}}
	var denied []time.Duration
	for at := time.Duration(0); at < 20*time.Second; at += 50 * time.Millisecond {
		for i := 0; i < len(holders); i++ {
			if h := holders[i]; h.until <= at {
				k.release(at, h.receipt)
				inFlight.by(at, -1)
				holders = append(holders[:i], holders[i+1:]...)
				i--
			}
		}
		if at%(250*time.Millisecond) != 0 {
			continue
		}
		length := 500 * time.Millisecond
		if at > 6*time.Second && at < 13*time.Second {
			length = 1600 * time.Millisecond // what stands behind is slow for a while
		}
		if res := k.take(at, 0); res.OK {
			inFlight.by(at, 1)
			holders = append(holders, held{at + length, res.Receipt})
		} else {
			denied = append(denied, at)
		}
	}
	inFlight.until(20 * time.Second)
	return picture{
		title: "Concurrency, 4 slots; 0.5 s each, 1.6 s from 6 s to 13 s",
		x:     "seconds", y: "requests in flight", xStep: 1, yStep: 1,
		lines:  []line{{"in flight", blue, inFlight.points}},
		denied: denied,
	}.save(dir, "concurrency")
}
