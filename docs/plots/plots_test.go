package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The pictures in the documents are those that this code draws.
func TestPicturesAreUpToDate(t *testing.T) {
	for file, text := range drawn(t) {
		kept, err := os.ReadFile(filepath.Join("../img", file))
		if err != nil || string(kept) != text {
			t.Errorf("docs/img/%s isn't what this code draws (%v): make plots", file, err)
		}
	}
	kept, _ := filepath.Glob("../img/*.svg")
	if n := len(drawn(t)); len(kept) != n {
		t.Errorf("%d pictures in docs/img, %d are drawn", len(kept), n)
	}
}

// A document shows each picture.
func TestPicturesAreShown(t *testing.T) {
	var documents strings.Builder
	files, _ := filepath.Glob("../*.md")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents.Write(text)
	}
	kept, _ := filepath.Glob("../img/*")
	if len(kept) == 0 {
		t.Error("no pictures")
	}
	for _, file := range kept {
		if name := filepath.Base(file); !strings.Contains(documents.String(), "img/"+name) {
			t.Errorf("no document shows docs/img/%s", name)
		}
	}
}

// Pictures can be read everywhere: text stands within the picture and apart from
// other text and from the data, and so do the marks of denials. No mark covers another, or the way of a request
// that waits. The font is one that
// every machine has, and pages may be light or dark.
func TestPicturesAreLegible(t *testing.T) {
	for file, text := range drawn(t) {
		s := parse(t, file, text)
		for i, b := range s.texts {
			if b.left < 0 || b.right > s.width || b.top < 0 || b.bottom > s.height {
				t.Errorf("%s: %q leaves the picture", file, b.text)
			}
			for _, o := range s.texts[:i] {
				if b.overlaps(o) {
					t.Errorf("%s: %q and %q overlap", file, b.text, o.text)
				}
			}
			for _, f := range s.fields {
				if b.overlaps(f) {
					t.Errorf("%s: %q stands in the field of the data", file, b.text)
				}
			}
		}
		for _, m := range s.marks {
			for _, f := range s.fields {
				if m.overlaps(f) {
					t.Errorf("%s: a denial is marked over the data", file)
				}
			}
		}
		all := slices.Concat(s.marks, s.dots, s.bars)
		for i, m := range all {
			for _, o := range all[:i] {
				if m.overlaps(o) {
					t.Errorf("%s: the marks at %v,%v and %v,%v overlap", file, m.left, m.top, o.left, o.top)
				}
			}
			for _, w := range s.ways {
				if w.crosses(m) {
					t.Errorf("%s: the way from %v to %v crosses the mark at %v,%v", file, w.from, w.to, m.left, m.top)
				}
			}
		}
		if len(s.fields) == 0 && s.rows == 0 || len(s.texts) < 10 {
			t.Errorf("%s: %d fields, %d rows, %d texts", file, len(s.fields), s.rows, len(s.texts))
		}
		fonts := regexp.MustCompile(`font-family: [^;]*`).FindAllString(text, -1)
		if !slices.Equal(fonts, []string{"font-family: sans-serif"}) {
			t.Errorf("%s: fonts %q", file, fonts)
		}
		if !strings.Contains(text, "prefers-color-scheme: dark") {
			t.Errorf("%s: no colors for dark pages", file)
		}
	}
}

func drawn(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := drawAll(dir); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(text)
	}
	if len(all) < 7 {
		t.Fatalf("%d pictures", len(all))
	}
	return all
}

type box struct {
	text                     string
	left, right, top, bottom float64
}

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// way is a straight line.
type way struct{ from, to point }

// crosses says whether the way comes into a box, at a tenth of a pixel.
func (w way) crosses(b box) bool {
	steps := math.Ceil(10 * math.Hypot(w.to.x-w.from.x, w.to.y-w.from.y))
	for i := range int(steps) {
		at := (float64(i) + 0.5) / steps
		x, y := w.from.x+at*(w.to.x-w.from.x), w.from.y+at*(w.to.y-w.from.y)
		if b.left < x && x < b.right && b.top < y && y < b.bottom {
			return true
		}
	}
	return false
}

type picked struct {
	width, height float64
	texts         []box
	fields        []box // of the data, as far as grids go
	marks         []box // of denials
	dots, bars    []box
	ways          []way // of requests that wait
	rows          int   // in which data is marked
}

// parse finds what is written, and where. Letters are taken to be as wide as those of a
// wide font; what is turned is left out.
func parse(t *testing.T, file, text string) (s picked) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		num := func(name string) (n float64) { _, _ = fmt.Sscan(at[name], &n); return n }
		switch {
		case e.Name.Local == "svg":
			s.width, s.height = num("width"), num("height")
		case e.Name.Local == "text" && at["transform"] == "":
			var content string
			if err := d.DecodeElement(&content, &e); err != nil {
				t.Fatal(err)
			}
			size := map[bool]float64{true: 16 * 0.64, false: 13 * 0.6}[at["class"] == "title"]
			w := size * float64(len([]rune(content)))
			left := num("x") - w*map[string]float64{"start": 0, "middle": 0.5, "end": 1}[at["text-anchor"]]
			s.texts = append(s.texts, box{content, left, left + w, num("y") - 12, num("y") + 3})
		case at["class"] == "denied":
			var x, y float64
			_, _ = fmt.Sscanf(at["d"], "M%g %g", &x, &y)
			s.marks = append(s.marks, box{"", x, x + 6, y, y + 6})
		case e.Name.Local == "circle":
			r := num("r")
			s.dots = append(s.dots, box{"", num("cx") - r, num("cx") + r, num("cy") - r, num("cy") + r})
		case at["class"] == "bar":
			x, y := num("x"), num("y")
			s.bars = append(s.bars, box{"", x, x + num("width"), y, y + num("height")})
		case at["class"] == "wait":
			var w way
			if _, err := fmt.Sscanf(at["d"], "M%g %gL%g %g", &w.from.x, &w.from.y, &w.to.x, &w.to.y); err != nil {
				t.Fatalf("%s: %q: %v", file, at["d"], err)
			}
			s.ways = append(s.ways, w)
		case at["class"] == "row":
			s.rows++
		case at["class"] == "grid":
			var x, y, h float64
			if n, _ := fmt.Sscanf(at["d"], "M%g %gh%g", &x, &y, &h); n == 3 {
				k := len(s.fields) - 1
				if k >= 0 && s.fields[k].left == x && s.fields[k].top > y &&
					s.fields[k].bottom-y < float64(alone.height)+1 {
					s.fields[k].top = y
				} else {
					s.fields = append(s.fields, box{"", x, x + h, y, y})
				}
			}
		}
	}
}
