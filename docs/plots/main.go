// Command plots draws the pictures of the documents from the algorithms
// themselves: traffic with instants of its own goes through store.Decide, and
// what passes is drawn. It reads no clock, so the same code draws the same
// files. AdaptiveConcurrency under real load and fair queues are drawn from the
// tables that examples/adaptive and examples/fairqueue wrote. It is a module of its own, so that its
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
	for _, draw := range []func(dir string) error{
		drawTimeline, drawRates, drawWarmUp, drawConcurrency, drawAdaptive, drawFairQueue,
	} {
		if err := draw(dir); err != nil {
			return err
		}
	}
	return nil
}

// rates all see the same traffic, so that they can be compared.
var rates = []rate{
	{"TokenBucket", store.Spec{Algorithm: store.TokenBucket}},
	{"IntervalBucket, burst 15", store.Spec{Algorithm: store.IntervalBucket, Burst: 15}},
	{"LeakyBucket, queue 5", store.Spec{Algorithm: store.LeakyBucket, Queue: 5}},
	{"FixedWindow", store.Spec{Algorithm: store.FixedWindow}},
	{"SlidingWindow, 4 buckets", store.Spec{Algorithm: store.SlidingWindow, Buckets: 4}},
	{"SlidingCounter", store.Spec{Algorithm: store.SlidingCounter}},
	{"SlidingLog", store.Spec{Algorithm: store.SlidingLog}},
	{"WarmUp, over 5 s", store.Spec{Algorithm: store.WarmUp, WarmUp: 5 * time.Second}},
}

type rate struct {
	title string
	spec  store.Spec
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

// drawRates shows what each rate lets through of the same traffic.
func drawRates(dir string) error {
	var panels []picture
	for _, r := range rates {
		p, err := r.picture()
		if err != nil {
			return fmt.Errorf("%s: %w", r.title, err)
		}
		panels = append(panels, p)
	}
	return grid{"Requests since the start under each algorithm, at 10 per 10 s", panels}.save(dir, "rates")
}

// picture counts what was asked and what was let through.
func (r rate) picture() (picture, error) {
	r.spec.Units, r.spec.Period = 10, 10*time.Second
	k, err := newKey(r.spec)
	if err != nil {
		return picture{}, err
	}
	var asked, passed stairs
	for _, at := range traffic() {
		asked.step(at)
		if res := k.take(at, 0); res.OK {
			passed.step(at + res.Delay)
		}
	}
	asked.until(40 * time.Second)
	passed.until(40 * time.Second)
	passed.points = slices.DeleteFunc(passed.points, func(p point) bool { return p.x > 40 }) // turns still to come
	return picture{
		title: r.title, x: "seconds", y: "requests", xStep: 10, yStep: 20,
		lines: []line{
			{"requested", grey, asked.points},
			{"admitted", blue, passed.points},
		},
	}, nil
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

// drawConcurrency shows which slot each request holds, while what stands behind is fast, slow, and fast again.
func drawConcurrency(dir string) error {
	const slots = 4
	k, err := newKey(store.Spec{Algorithm: store.Concurrency, Units: slots})
	if err != nil {
		return err
	}
	c := newChart("Concurrency, 4 slots; 0.9 s each, 2.7 s from 5 s to 12 s", 64, 26, (slots+1)*rowHeight)
	c.legend(entry{"admitted", c.spot("asked")}, entry{"denied", c.cross}, entry{"holds a slot", func(x, y float64) {
		c.bar(x-8, x+8, y)
	}})
	row := func(n int) float64 { return c.top + rowHeight/2 + float64(n)*rowHeight }
	c.text(c.left-14, row(0)+4, "", "end", "asks")
	for slot := range slots {
		c.row(c.top + float64(slot+1)*rowHeight)
		c.text(c.left-14, row(slot+1)+4, "", "end", fmt.Sprintf("slot %d", slot+1))
	}
	type request struct {
		until   time.Duration
		receipt store.Receipt
	}
	var holds [slots]request
	for at := time.Duration(0); at < span*time.Second; at += 500 * time.Millisecond {
		free := -1
		for slot := slots - 1; slot >= 0; slot-- {
			if h := &holds[slot]; h.until <= at {
				if h.until > 0 {
					k.release(h.until, h.receipt)
					*h = request{}
				}
				free = slot
			}
		}
		res := k.take(at, 0)
		if res.OK != (free >= 0) {
			return fmt.Errorf("concurrency: at %v: free slot %d, admitted %v", at, free, res.OK)
		}
		if !res.OK {
			c.cross(c.x(at), row(0))
			continue
		}
		length := 900 * time.Millisecond
		if at >= 5*time.Second && at < 12*time.Second {
			length = 2700 * time.Millisecond
		}
		holds[free] = request{at + length, res.Receipt}
		c.dot(c.x(at), row(0), "asked")
		c.bar(c.x(at), c.x(min(at+length, span*time.Second)), row(free+1))
	}
	return c.save(dir, "concurrency")
}
