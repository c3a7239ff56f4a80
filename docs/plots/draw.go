package main

import (
	"image/color"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var (
	blue = color.RGBA{0x1f, 0x5f, 0xbf, 0xff}
	grey = color.RGBA{0xa0, 0xa0, 0xa0, 0xff}
	red  = color.RGBA{0xc8, 0x32, 0x32, 0xff}
)

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
	if last := s.points[len(s.points)-1]; last.x < at.Seconds() {
		s.points = append(s.points, point{at.Seconds(), last.y})
	}
}

// every is an axis with a number at each multiple of a step.
type every float64

func (e every) Ticks(from, to float64) (ticks []plot.Tick) {
	step := float64(e)
	for v := math.Ceil(from/step) * step; v <= to; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

type line struct {
	name   string
	color  color.Color
	points []point
}

type picture struct {
	title, x, y  string
	xStep, yStep float64 // from one number on the axis to the next
	lines        []line
	refused      []time.Duration // marked along the bottom
}

func (p picture) save(dir, name string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	pl := plot.New()
	pl.Title.Text, pl.X.Label.Text, pl.Y.Label.Text = p.title, p.x, p.y
	pl.Title.Padding = vg.Points(8)
	pl.Legend.Top, pl.Legend.Left = true, true
	pl.Add(plotter.NewGrid())
	for _, l := range p.lines {
		xys := make(plotter.XYs, len(l.points))
		for i, pt := range l.points {
			xys[i] = plotter.XY{X: pt.x, Y: pt.y}
		}
		drawn, err := plotter.NewLine(xys)
		if err != nil {
			return err
		}
		drawn.Color, drawn.Width = l.color, vg.Points(1.6)
		pl.Add(drawn)
		if l.name != "" {
			pl.Legend.Add(l.name, drawn)
		}
	}
	if len(p.refused) > 0 {
		xys := make(plotter.XYs, len(p.refused))
		for i, at := range p.refused {
			xys[i] = plotter.XY{X: at.Seconds()}
		}
		marks, err := plotter.NewScatter(xys)
		if err != nil {
			return err
		}
		marks.Shape, marks.Color, marks.Radius = draw.CrossGlyph{}, red, vg.Points(2)
		pl.Add(marks)
		pl.Legend.Add("refused", marks)
	}
	pl.Y.Min, pl.Y.Max = 0, pl.Y.Max*1.15 // the legend stands above the lines
	pl.X.Tick.Marker, pl.Y.Tick.Marker = every(p.xStep), every(p.yStep)
	return pl.Save(18*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, name+".svg"))
}
