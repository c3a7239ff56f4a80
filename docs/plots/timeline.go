package main

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// rows are the algorithms of the timeline, at 5 per 5 s.
var rows = []rate{
	{title: "TokenBucket", spec: store.Spec{Algorithm: store.TokenBucket}},
	{title: "IntervalBucket", spec: store.Spec{Algorithm: store.IntervalBucket}},
	{title: "LeakyBucket, queue 3", spec: store.Spec{Algorithm: store.LeakyBucket, Queue: 3}},
	{title: "FixedWindow", spec: store.Spec{Algorithm: store.FixedWindow}},
	{title: "SlidingWindow, 5 parts", spec: store.Spec{Algorithm: store.SlidingWindow, Buckets: 5}},
	{title: "SlidingCounter", spec: store.Spec{Algorithm: store.SlidingCounter}},
	{title: "SlidingLog", spec: store.Spec{Algorithm: store.SlidingLog}},
	{title: "WarmUp, over 5 s", spec: store.Spec{Algorithm: store.WarmUp, WarmUp: 5 * time.Second}},
	{title: "Concurrency, 2 slots", spec: store.Spec{Algorithm: store.Concurrency, Units: 2}},
}

// arrivals are one request, a rush shortly before and after 5 s, silence, and a longer rush.
func arrivals() (at []time.Duration) {
	at = append(at, 0)
	for _, rush := range [][2]time.Duration{{4 * time.Second, 7 * time.Second}, {14 * time.Second, 18 * time.Second}} {
		for t := rush[0]; t < rush[1]; t += 250 * time.Millisecond {
			at = append(at, t)
		}
	}
	return at
}

// answer is what becomes of a request: it passes at an instant, or is denied.
type answer struct {
	asked, passes time.Duration
	denied        bool
}

// answers decides the arrivals by an algorithm.
func (r rate) answers() (all []answer, err error) {
	if r.spec.Algorithm != store.Concurrency {
		r.spec.Units, r.spec.Period = 5, 5*time.Second
	}
	k, err := newKey(r.spec)
	if err != nil {
		return nil, err
	}
	type slot struct {
		until   time.Duration
		receipt store.Receipt
	}
	var held []slot
	for _, at := range arrivals() {
		for len(held) > 0 && held[0].until <= at {
			k.release(held[0].until, held[0].receipt)
			held = held[1:]
		}
		res := k.take(at, 0)
		all = append(all, answer{at, at + res.Delay, !res.OK})
		if res.OK && r.spec.Algorithm == store.Concurrency {
			held = append(held, slot{at + time.Second, res.Receipt})
		}
	}
	return all, nil
}

// drawTimeline shows each algorithm's answers to the same requests in a row: what passes, and when.
func drawTimeline(dir string) error {
	const (
		names, counts = 190, 80 // beside the rows
		second        = 34
		rowHeight     = 34
		span          = 20
		above         = titleHeight + legendHeight + 14
		wide          = names + span*second + counts
	)
	height := above + (len(rows)+1)*rowHeight + 44
	c := newCanvas(wide, height, "The same requests under each algorithm, at 5 per 5 s")
	legend := float64(above) - 22
	c.dot(left+8, legend-4, "passes")
	c.text(left+22, legend, "", "start", "passes")
	c.dot(left+108, legend-4, "waits")
	c.text(left+122, legend, "", "start", "waits until it passes")
	c.cross(left+308, legend-4)
	c.text(left+322, legend, "", "start", "denied")

	x := func(at time.Duration) float64 { return names + at.Seconds()*second }
	bottom := float64(above + (len(rows)+1)*rowHeight)
	for s := 0; s <= span; s += 5 {
		at := time.Duration(s) * time.Second
		c.path("grid", fmt.Sprintf("M%s %dv%s", number(x(at)), above, number(bottom-float64(above))))
		c.text(x(at), bottom+17, "", "middle", fmt.Sprint(s))
	}
	c.text(names+span*second/2, bottom+35, "", "middle", "seconds")

	y := float64(above) + rowHeight/2
	c.text(names-14, y+4, "", "end", "requests")
	for _, at := range arrivals() {
		c.dot(x(at), y, "asked")
	}
	for _, r := range rows {
		y += rowHeight
		c.path("row", fmt.Sprintf("M%d %sh%d", names, number(y-rowHeight/2), span*second))
		c.text(names-14, y+4, "", "end", r.title)
		all, err := r.answers()
		if err != nil {
			return fmt.Errorf("%s: %w", r.title, err)
		}
		passed := 0
		for _, a := range all {
			if a.denied {
				c.cross(x(a.asked), y-7)
				continue
			}
			passed++
			if a.passes > a.asked {
				c.dot(x(a.asked), y-7, "waits")
				c.path("wait", fmt.Sprintf("M%s %sL%s %s", number(x(a.asked)), number(y-7), number(x(a.passes)), number(y+6)))
			}
			c.dot(x(a.passes), y+6, "passes")
		}
		c.text(wide-14, y+4, "", "end", fmt.Sprintf("%d of %d", passed, len(all)))
	}
	return c.save(dir, "timeline")
}

func (c *canvas) dot(x, y float64, class string) {
	fmt.Fprintf(c, `<circle class="%s" cx="%s" cy="%s" r="3.6"/>`+"\n", class, number(x), number(y))
}
