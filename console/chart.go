package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// chart is lines over the last five minutes.
type chart struct {
	Label string // for screen readers
	Unit  string
	Top   string
	Lines []chartLine
}

type chartLine struct{ Name, Class, Points, Now string }

type series struct {
	name, class string
	values      [span]float64
}

const chartHeight = 60

func newChart(unit string, all ...series) chart {
	top := 1.0
	for _, s := range all {
		top = max(top, slices.Max(s.values[:]))
	}
	c := chart{Unit: unit, Top: number(top)}
	var texts []string
	for _, s := range all {
		var points strings.Builder
		last := math.NaN()
		for i, v := range s.values {
			// Only the ends of a level stretch are drawn.
			if v == last && i+1 < span && s.values[i+1] == v {
				continue
			}
			last = v
			fmt.Fprintf(&points, "%d,%s ", i, strconv.FormatFloat(chartHeight*(1-v/top), 'f', 1, 64))
		}
		now := number(s.values[span-1])
		c.Lines = append(c.Lines, chartLine{s.name, s.class, strings.TrimSpace(points.String()), now})
		texts = append(texts, fmt.Sprintf("%s now %s, at most %s", s.name, now, number(slices.Max(s.values[:]))))
	}
	c.Label = unit + " over five minutes: " + strings.Join(texts, "; ")
	return c
}

func number(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// spark shows how near a limit was to denying, over the last five minutes: a bar for every five
// seconds, whose height is the share of the limit that the fullest key had used.
type spark struct {
	Label       string
	Used, Full  string // paths of bars: below the limit, and where it denied
	Unit        string
	Most, Now   string // in units
	Share       string // now, of the limit
	Seen, Bound bool   // now: something was decided, something was denied
	Nearest     usage  // now
}

// A spark is sparkWidth by sparkHeight; a bar is for barred seconds.
const (
	sparkWidth, sparkHeight = 180, 22
	barSeconds              = 5
)

func newSpark(name, unit string, most int64, near *[span]usage, denied *[span]float64) spark {
	s := spark{Unit: unit}
	var used, full strings.Builder
	const bars, width = span / barSeconds, float64(sparkWidth) / (span / barSeconds)
	highest := 0.0
	for i := range bars {
		var nearest usage
		denies := false
		for k := i * barSeconds; k < (i+1)*barSeconds; k++ {
			if near[k].nearer(nearest) {
				nearest = near[k]
			}
			denies = denies || denied[k] > 0
		}
		if nearest.capacity == 0 {
			continue
		}
		if most == 0 || i >= bars-2 { // a key has its own number
			most = nearest.capacity
		}
		share := nearest.used()
		path := &used
		if denies {
			path, share = &full, 1
		}
		highest = max(highest, share)
		fmt.Fprintf(path, "M%s %dV%sh%sV%dz", tenths(float64(i)*width), sparkHeight, tenths(sparkHeight*(1-max(share, 0.04))),
			tenths(width-0.6), sparkHeight)
		if i >= bars-2 { // ten seconds are now
			s.Seen, s.Bound, s.Nearest = true, denies, nearest
			s.Now, s.Share = shortNumber(nearest.capacity-min(nearest.left, nearest.capacity)), percent(share)
		}
	}
	s.Used, s.Full, s.Most = used.String(), full.String(), shortNumber(most)
	s.Label = fmt.Sprintf("%s, how much of its %d %s the fullest key had used, over five minutes: at most %s, now %s",
		name, most, unit, percent(highest), cmp.Or(s.Share, "no decision"))
	return s
}

func tenths(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }

// shortNumber writes a number with at most four digits and a letter.
func shortNumber(n int64) string {
	v, letter := float64(n), ""
	for _, l := range []string{"k", "M", "G", "T", "P"} {
		if v < 10_000 {
			break
		}
		v, letter = v/1000, l
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + letter
}
