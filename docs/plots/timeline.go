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

// Rows are a chart's, of a span of seconds.
const (
	rowHeight = 34
	span      = 20
	second    = 34
)

// chart is a picture of rows that share an axis of seconds.
type chart struct {
	*canvas
	left, top float64 // of the rows
}

// newChart has names of some width before its rows, and something after them.
func newChart(title string, names, after, rows int) chart {
	const above = titleHeight + legendHeight + 14
	c := chart{newCanvas(names+span*second+after, above+rows+44, title), float64(names), above}
	bottom := c.top + float64(rows)
	for s := 0; s <= span; s += 5 {
		x := c.x(time.Duration(s) * time.Second)
		c.path("grid", fmt.Sprintf("M%s %sv%d", number(x), number(c.top), rows))
		c.text(x, bottom+17, "", "middle", fmt.Sprint(s))
	}
	c.text(c.left+span*second/2, bottom+35, "", "middle", "seconds")
	return c
}

func (c chart) x(at time.Duration) float64 { return c.left + at.Seconds()*second }

// row draws the line above a row.
func (c chart) row(y float64) {
	c.path("row", fmt.Sprintf("M%s %sh%d", number(c.left), number(y), span*second))
}

// entry is a mark and what it stands for.
type entry struct {
	name string
	mark func(x, y float64)
}

func (c chart) legend(entries ...entry) {
	x, y := float64(left)+8, c.top-22
	for _, e := range entries {
		e.mark(x, y-4)
		c.text(x+14, y, "", "start", e.name)
		x += 14 + 28 + 8*float64(len(e.name))
	}
}

// drawTimeline shows each algorithm's answers to the same requests in a row: what passes, and when.
// Denials are marked above what passes. Requests that wait have a line of their own between these, far enough
// above what passes that the way from one to the other crosses no mark.
func drawTimeline(dir string) error {
	const waiting = 30 // more height of a row in which requests wait
	height := (len(rows) + 1) * rowHeight
	for _, r := range rows {
		if r.spec.Queue > 0 {
			height += waiting
		}
	}
	const counts = 80
	c := newChart("The same requests under each algorithm, at 5 per 5 s", 190, counts, height)
	c.legend(entry{"passes", c.spot("passes")}, entry{"waits until it passes", c.spot("waits")}, entry{"denied", c.cross})
	y := c.top
	c.text(c.left-14, y+rowHeight/2+4, "", "end", "requests")
	c.text(c.left+span*second+counts-14, y+rowHeight/2+4, "", "end", "passed")
	for _, at := range arrivals() {
		c.dot(c.x(at), y+rowHeight/2, "asked")
	}
	next := y + rowHeight
	for _, r := range rows {
		y, next = next, next+rowHeight
		if r.spec.Queue > 0 {
			next += waiting
		}
		denied, waits, passes := y+10, y+24, next-11
		c.row(y)
		c.text(c.left-14, (y+next)/2+4, "", "end", r.title)
		all, err := r.answers()
		if err != nil {
			return fmt.Errorf("%s: %w", r.title, err)
		}
		passed := 0
		for _, a := range all {
			if a.denied {
				c.cross(c.x(a.asked), denied)
				continue
			}
			passed++
			if a.passes > a.asked {
				c.dot(c.x(a.asked), waits, "waits")
				c.path("wait", fmt.Sprintf("M%s %sL%s %s",
					number(c.x(a.asked)), number(waits+radius), number(c.x(a.passes)), number(passes-radius)))
			}
			c.dot(c.x(a.passes), passes, "passes")
		}
		c.text(c.left+span*second+counts-14, (y+next)/2+4, "", "end", fmt.Sprintf("%d of %d", passed, len(all)))
	}
	return c.save(dir, "timeline")
}
