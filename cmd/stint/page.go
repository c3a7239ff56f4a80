package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

//go:embed page.html
var pageText string

//go:embed suggest.html
var suggestText string

//go:embed parts.html
var partsText string

var (
	parts = template.Must(template.New("parts").Funcs(template.FuncMap{
		"percent": percent, "span": durationText, "stamp": timeText, "resolution": resolutionText, "notJudged": notJudgedText,
		"plain": escape, "timeline": drawTimeline, "uses": drawUses, "curves": drawCurves, "sorted": sorted,
		"reasons": sortedReasons,
		"numbers": numbers, "atLeast": atLeast, "busiestNotes": func() []string { return busiestNotes }, "key": keyText,
		"faults": func(l replay.LogReport) []string { return faultTexts(&l) },
		"broken": func(b replay.Broken) string { return brokenText(&b) }, "share": shareName, "factor": factor,
		"utc": func(t time.Time) string { return t.UTC().Format(time.DateTime + " MST") },
		"or":  func(s, none string) string { return map[bool]string{true: none, false: s}[s == ""] },
	}).Parse(partsText))
	page        = template.Must(template.Must(parts.Clone()).Parse(pageText))
	suggestPage = template.Must(template.Must(parts.Clone()).Parse(suggestText))
)

// writePage writes the report as one page of HTML that loads nothing else.
func writePage(w io.Writer, r *replay.Report, gates []gate, title string) error {
	return page.Execute(w, struct {
		*replay.Report
		Gates []gate
		Title string
	}{r, gates, title})
}

// namedCount is a count and its name.
type namedCount struct {
	Name string
	*replay.Count
}

func sorted(all map[string]*replay.Count) (rows []namedCount) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, namedCount{name, all[name]})
	}
	return rows
}

func sortedReasons(all map[string]int64) (rows []string) {
	for _, why := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, fmt.Sprintf("%d: %s", all[why], why))
	}
	return rows
}

// bar is a rectangle of a picture.
type bar struct {
	X, Y, W, H float64
	Class      string
	Title      string
}

// picture is bars, lines and dots with labels.
type picture struct {
	Width, Height float64
	Bars          []bar
	Lines         []polyline
	Dots          []dot
	Labels        []label
	Legend        []legend
}

type label struct {
	X, Y   float64
	Anchor string
	Text   string
}

type polyline struct{ Points, Class string }

type dot struct {
	X, Y, R float64
	Class   string
	Title   string
}

type legend struct{ Class, Text string }

// colors is how many colors limits have. Limits beyond share the last.
const colors = 6

func color(i int) string { return fmt.Sprintf("c%d", min(i, colors-1)) }

// drawTimeline draws traffic over time, with denials stacked by limit.
func drawTimeline(t replay.Timeline) picture {
	const width, height, left, top, bottom = 960, 220, 60, 12, 24
	p := picture{Width: width, Height: height}
	most := int64(1)
	for _, s := range t.Slots {
		most = max(most, s.Requests)
	}
	step := (width - left) / float64(max(len(t.Slots), 1))
	scale := (height - top - bottom) / float64(most)
	used := make([]bool, len(t.Limits))
	for i, s := range t.Slots {
		x, y := left+float64(i)*step, float64(height-bottom)
		at := t.Start.Add(time.Duration(float64(i) * t.Step * float64(time.Second))).UTC().Format("01-02 15:04:05")
		addBar := func(n int64, class, what string) {
			if n == 0 {
				return
			}
			h := float64(n) * scale
			y -= h
			p.Bars = append(p.Bars, bar{x, y, step * 0.92, h, class, fmt.Sprintf("%s: %d %s", at, n, what)})
		}
		passed := s.Requests
		for n, denied := range s.Denied {
			passed -= denied
			used[n] = used[n] || denied > 0
			what := "denied by " + t.Limits[n]
			if t.Limits[n] == "" {
				what = "denied for another reason"
			}
			addBar(denied, color(n), what)
		}
		addBar(passed, "passed", "allowed")
	}
	p.Labels = append(p.Labels, label{left - 6, top + 8, "end", fmt.Sprint(most)},
		label{left - 6, height - bottom, "end", "0"})
	if n := len(t.Slots); n > 0 {
		for _, i := range []int{0, n / 2, n - 1} {
			at := t.Start.Add(time.Duration(float64(i) * t.Step * float64(time.Second)))
			anchor := map[int]string{0: "start", n - 1: "end"}[i]
			if anchor == "" {
				anchor = "middle"
			}
			if i > 0 && n < 3 {
				continue
			}
			p.Labels = append(p.Labels, label{left + (float64(i)+0.5)*step, height - 6, anchor, at.UTC().Format("01-02 15:04")})
		}
	}
	p.Legend = append(p.Legend, legend{"passed", "allowed"})
	for n, name := range t.Limits {
		switch {
		case !used[n]:
		case name == "":
			p.Legend = append(p.Legend, legend{color(n), "denied for another reason"})
		default:
			p.Legend = append(p.Legend, legend{color(n), "denied by " + name})
		}
	}
	return p
}

// drawUses draws the number of keys by peak usage of a limit.
func drawUses(l replay.LimitReport) picture {
	const width, height, top, bottom = 470, 130, 18, 22
	p := picture{Width: width, Height: height}
	most := int64(1)
	for _, n := range l.Use {
		most = max(most, n)
	}
	step := float64(width) / float64(len(l.Use))
	for i, n := range l.Use {
		name := fmt.Sprintf("%d%%", i*10)
		class, what := "passed", fmt.Sprintf("keys used at most %d to %d%%", i*10, i*10+9)
		switch i {
		case 10:
			name, class, what = "all", "full", "keys had nothing left, and weren't denied"
		case 11:
			name, class, what = "denied", "c0", "keys were denied"
		}
		x, h := float64(i)*step, float64(n)/float64(most)*(height-top-bottom)
		if n > 0 {
			h = max(h, 1)
			p.Labels = append(p.Labels, label{x + step/2, height - bottom - h - 4, "middle", fmt.Sprint(n)})
		}
		p.Bars = append(p.Bars, bar{x + step*0.08, height - bottom - h, step * 0.84, h, class, fmt.Sprintf("%d %s", n, what)})
		p.Labels = append(p.Labels, label{x + step/2, height - 6, "middle", name})
	}
	return p
}

// marks are the rates that the axis of a curve may name.
var marks = []replay.Rate{
	{Units: 10, Seconds: 86400}, {Units: 20, Seconds: 86400}, {Units: 50, Seconds: 86400}, {Units: 100, Seconds: 86400},
	{Units: 10, Seconds: 3600}, {Units: 20, Seconds: 3600},
	{Units: 1, Seconds: 60}, {Units: 2, Seconds: 60}, {Units: 5, Seconds: 60}, {Units: 10, Seconds: 60},
	{Units: 20, Seconds: 60},
	{Units: 1, Seconds: 1}, {Units: 2, Seconds: 1}, {Units: 5, Seconds: 1}, {Units: 10, Seconds: 1},
	{Units: 20, Seconds: 1}, {Units: 50, Seconds: 1}, {Units: 100, Seconds: 1}, {Units: 200, Seconds: 1},
	{Units: 500, Seconds: 1}, {Units: 1000, Seconds: 1}, {Units: 10_000, Seconds: 1}, {Units: 100_000, Seconds: 1},
}

// drawCurves draws the burst that each share of keys needs by the rate, both on a logarithmic scale.
func drawCurves(l *replay.LimitSuggestion) picture {
	const width, height, left, top, bottom = 960, 300, 60, 14, 26
	p := picture{Width: width, Height: height}
	rate := func(r replay.Rate) float64 { return float64(r.Units) / float64(r.Seconds) }
	slow, fast, most := math.Inf(1), 0.0, 1.0
	for _, s := range l.Shares {
		for _, r := range slices.Concat(s.Curve, []replay.Rate{s.Suggested}) {
			if s.Unknown == "" {
				slow, fast, most = min(slow, rate(r)), max(fast, rate(r)), max(most, float64(r.Burst))
			}
		}
	}
	slow, fast, most = slow/1.2, fast*1.2, most*1.2
	x := func(perSecond float64) float64 {
		return left + (width-left-12)*math.Log(perSecond/slow)/math.Log(fast/slow)
	}
	y := func(burst float64) float64 {
		return top + (height-top-bottom)*(1-math.Log(burst)/math.Log(most))
	}
	grid := func(x1, y1, x2, y2 float64) {
		p.Lines = append(p.Lines, polyline{fmt.Sprintf("%.1f,%.1f %.1f,%.1f", x1, y1, x2, y2), "axis"})
	}
	before := 0.0
	for _, m := range marks {
		if at := x(rate(m)); rate(m) > slow && rate(m) < fast && at-before > 64 {
			before = at
			grid(at, top, at, height-bottom)
			p.Labels = append(p.Labels, label{at, height - 8, "middle", fmt.Sprintf("%d/%s", m.Units, periods[m.Seconds])})
		}
	}
	for decade := 1.0; decade < most; decade *= 10 {
		for _, burst := range []float64{decade, 2 * decade, 5 * decade} {
			if burst < most {
				grid(left, y(burst), width-12, y(burst))
				p.Labels = append(p.Labels, label{left - 6, y(burst) + 4, "end", strconv.FormatFloat(burst, 'f', -1, 64)})
			}
		}
	}
	for i, s := range l.Shares {
		if s.Unknown != "" {
			continue
		}
		class := color(i + 1)
		var points []string
		for _, r := range s.Curve {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(rate(r)), y(float64(r.Burst))))
		}
		p.Lines = append(p.Lines, polyline{strings.Join(points, " "), "line " + class})
		name := shareName(s.Share)
		p.Dots = append(p.Dots,
			dot{x(rate(s.Least)), y(float64(s.Least.Burst)), 4, class, name + ": " + numbers(s.Least)},
			dot{x(rate(s.Suggested)), y(float64(s.Suggested.Burst)), 7, class, name + " with headroom: " + numbers(s.Suggested)})
		p.Legend = append(p.Legend, legend{class, name + " of the keys: " + numbers(s.Suggested)})
	}
	return p
}
