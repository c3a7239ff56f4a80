package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ink is a color that differs from the others for everybody, also in grey: the inks
// are those of Okabe and Ito, and differ in their dashes and widths too.
type ink string

const (
	blue   ink = "blue"
	orange ink = "orange"
	grey   ink = "grey"
)

// style has the fonts that every machine has, and colors for light and dark pages.
const style = `<style>
text { font-family: sans-serif; font-size: 13px; fill: #1f2328 }
.title { font-size: 16px; font-weight: bold }
.paper { fill: #ffffff }
.grid, .row { stroke: #d8dee4; fill: none }
.blue, .orange, .grey { fill: none; stroke-linejoin: round }
.blue { stroke: #0072b2; stroke-width: 2.4 }
.orange { stroke: #d55e00; stroke-width: 1.8 }
.grey { stroke: #767676; stroke-width: 1.8; stroke-dasharray: 6 3 }
.denied { stroke: #d55e00; stroke-width: 1.6; fill: none }
.passes, .bar { fill: #0072b2 }
.asked { fill: #767676 }
.waits, .wait { fill: none; stroke: #0072b2; stroke-width: 1.4 }
.wait { stroke-width: 0.7 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.paper { fill: #0d1117 }
.grid, .row { stroke: #30363d }
.blue { stroke: #56b4e9 }
.orange, .denied { stroke: #e69f00 }
.grey { stroke: #a0a8b0 }
.passes, .bar { fill: #56b4e9 }
.asked { fill: #a0a8b0 }
.waits, .wait { stroke: #56b4e9 }
}
</style>
`

type point struct{ x, y float64 }

// stairs is a count that changes at instants and stands still between them.
type stairs struct{ points []point }

func (s *stairs) step(at time.Duration) { s.by(at, 1) }

func (s *stairs) by(at time.Duration, n float64) {
	x, y := at.Seconds(), 0.0
	if len(s.points) > 0 {
		y = s.points[len(s.points)-1].y
	}
	s.points = append(s.points, point{x, y}, point{x, y + n})
}

// until draws the last step out to an instant, if it isn't there yet.
func (s *stairs) until(at time.Duration) {
	if len(s.points) == 0 {
		return
	}
	if last := s.points[len(s.points)-1]; last.x < at.Seconds() {
		s.points = append(s.points, point{at.Seconds(), last.y})
	}
}

type line struct {
	name   string
	ink    ink
	points []point
}

type picture struct {
	title, x, y  string
	xStep, yStep float64 // from one number on the axis to the next
	yMost        float64 // that the axis shows at least
	lines        []line
}

// Sizes are in pixels. Titles and the legend stand above the field that data is drawn in.
const (
	left, right  = 64, 26
	titleHeight  = 34
	legendHeight = 26
	below        = 62
)

// size is a field's.
type size struct{ width, height int }

var alone, inGrid = size{620, 250}, size{185, 110}

// save writes a picture under its title and legend.
func (p picture) save(dir, name string) error {
	const above = titleHeight + legendHeight
	c := newCanvas(left+alone.width+right, above+alone.height+below, p.title)
	c.legend(left, above-8, p.lines)
	c.panel(left, above, alone, p)
	return c.save(dir, name)
}

// grid is small pictures in rows of four, under one title and legend.
type grid struct {
	title  string
	panels []picture
}

func (g grid) save(dir, name string) error {
	const (
		columns    = 4
		above      = titleHeight + legendHeight
		gap        = 40
		head, foot = 22, 24
	)
	rows := (len(g.panels) + columns - 1) / columns
	wide, high := inGrid.width+gap, head+inGrid.height+foot
	c := newCanvas(left+columns*wide-gap+right, above+rows*high+20, g.title)
	var lines []line
	for i, p := range g.panels {
		x, y := left+i%columns*wide, above+i/columns*high
		c.text(float64(x), float64(y+head-8), "", "start", p.title)
		for _, l := range p.lines {
			if !slices.ContainsFunc(lines, func(o line) bool { return o.name == l.name }) {
				lines = append(lines, l)
			}
		}
		p.x = "" // once, below all
		if i%columns > 0 {
			p.y = ""
		}
		c.panel(float64(x), float64(y+head), inGrid, p)
	}
	c.legend(left, above-8, lines)
	c.text(float64(left+(columns*wide-gap)/2), float64(above+rows*high+8), "", "middle", g.panels[0].x)
	return c.save(dir, name)
}

// canvas is an SVG that is being written.
type canvas struct{ strings.Builder }

func newCanvas(width, height int, title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(c, "<title>%s</title>\n%s", escaped(title), style)
	fmt.Fprintf(c, `<rect class="paper" width="%d" height="%d"/>`+"\n", width, height)
	c.text(left, 23, "title", "start", title)
	return c
}

func (c *canvas) save(dir, name string) error {
	c.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(dir, name+".svg"), []byte(c.String()), 0o644)
}

func escaped(s string) string { return strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(s) }

func number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func (c *canvas) text(x, y float64, class, anchor, s string) {
	fmt.Fprintf(c, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, number(x), number(y), anchor,
		escaped(s))
}

func (c *canvas) path(class, d string) { fmt.Fprintf(c, `<path class="%s" d="%s"/>`+"\n", class, d) }

// legend names lines in a row.
func (c *canvas) legend(x, y float64, lines []line) {
	name := func(s string) {
		c.text(x+34, y, "", "start", s)
		x += 34 + 24 + 8*float64(len(s))
	}
	for _, l := range lines {
		if l.name != "" {
			c.path(string(l.ink), "M"+number(x)+" "+number(y-4)+"h26")
			name(l.name)
		}
	}
}

func (c *canvas) cross(x, y float64) {
	c.path("denied", "M"+number(x-3)+" "+number(y-3)+"l6 6m0 -6l-6 6")
}

const radius = 3.6 // of a dot

func (c *canvas) dot(x, y float64, class string) {
	fmt.Fprintf(c, `<circle class="%s" cx="%s" cy="%s" r="%v"/>`+"\n", class, number(x), number(y), radius)
}

// spot draws a dot of a class.
func (c *canvas) spot(class string) func(x, y float64) {
	return func(x, y float64) { c.dot(x, y, class) }
}

func (c *canvas) bar(from, to, y float64) {
	fmt.Fprintf(c, `<rect class="bar" x="%s" y="%s" width="%s" height="12" rx="2"/>`+"\n",
		number(from), number(y-6), number(to-from))
}

// panel draws a picture's axes and data.
func (c *canvas) panel(x, y float64, s size, p picture) {
	fieldWidth, fieldHeight := float64(s.width), float64(s.height)
	ticks := y + fieldHeight + 17
	most := point{y: p.yMost}
	for _, l := range p.lines {
		for _, pt := range l.points {
			most.x, most.y = math.Max(most.x, pt.x), math.Max(most.y, pt.y)
		}
	}
	most.y = math.Ceil(most.y*1.02/p.yStep) * p.yStep
	at := func(pt point) string {
		return number(x+pt.x/most.x*fieldWidth) + " " + number(y+fieldHeight-pt.y/most.y*fieldHeight)
	}
	for v := 0.0; v <= most.x; v += p.xStep {
		c.path("grid", "M"+at(point{v, 0})+"v-"+number(fieldHeight))
		c.text(x+v/most.x*fieldWidth, ticks, "", "middle", number(v))
	}
	for v := 0.0; v <= most.y; v += p.yStep {
		c.path("grid", "M"+at(point{0, v})+"h"+number(fieldWidth))
		c.text(x-8, y+fieldHeight-v/most.y*fieldHeight+4, "", "end", number(v))
	}
	if p.x != "" {
		c.text(x+fieldWidth/2, ticks+20, "", "middle", p.x)
	}
	if p.y != "" {
		fmt.Fprintf(c, `<text transform="translate(%s %s) rotate(-90)" text-anchor="middle">%s</text>`+"\n",
			number(x-44), number(y+fieldHeight/2), escaped(p.y))
	}
	for _, l := range p.lines {
		var d strings.Builder
		for i, pt := range l.points {
			d.WriteString(map[bool]string{true: "M", false: "L"}[i == 0] + at(pt))
		}
		c.path(string(l.ink), d.String())
	}
}
