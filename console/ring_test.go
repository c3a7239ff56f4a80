package console

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestRing(t *testing.T) {
	var r ring
	for _, second := range []uint32{1, 5, 5, 400, 699} {
		r.add(second, [2]int32{denied: 1})
	}
	r.add(99, [2]int32{denied: 1}) // too late: 400 has its slot
	for _, step := range []struct {
		now  uint32
		want map[int]float64 // by seconds ago
	}{
		{700, map[int]float64{1: 1, 300: 1}},
		{699, map[int]float64{299: 1}}, // the second that isn't over isn't shown
		{701, map[int]float64{2: 1}},
		{1000, map[int]float64{}},
	} {
		var sums, want [2][span]float64
		var late [2]float64
		r.addTo(&sums, &late, step.now)
		for ago, n := range step.want {
			want[denied][span-ago] = n
		}
		if sums != want {
			t.Errorf("in second %d: %v, want %v", step.now, sums, want)
		}
	}
}

// A past level is the present one less the changes since.
func TestLevels(t *testing.T) {
	var r ring
	for _, c := range []struct {
		second uint32
		by     int32
	}{{102, -1}, {100, 3}, {104, -2}, {106, 5}} { // in whatever order they are counted
		r.add(c.second, [2]int32{running: c.by})
	}
	var changed [2][span]float64
	var late [2]float64
	r.addTo(&changed, &late, 106)
	line := levels(5, &changed[running], late[running])
	if got, want := line[span-7:], []float64{0, 3, 3, 2, 2, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	changed, late = [2][span]float64{}, [2]float64{}
	r.addTo(&changed, &late, 1000)
	if line := levels(5, &changed[running], late[running]); line != [span]float64(slices.Repeat([]float64{5}, span)) {
		t.Errorf("long after the last change the line is %v", line)
	}
}

// What was set stays until it is set anew.
func TestGauge(t *testing.T) {
	var g gauge
	g.set(3, 100)
	g.set(2, 102)
	g.set(0, 104)
	line := g.values(106)
	if got, want := line[span-7:], []float64{0, 3, 3, 2, 2, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	g.set(5, 110)
	if line := g.values(110); line[span-1] != 0 || line[span-7] != 2 {
		t.Errorf("the second that isn't over is shown: %v", line)
	}
	if line := g.values(1000); line != [span]float64(slices.Repeat([]float64{5}, span)) {
		t.Errorf("long after the last change the line is %v", line)
	}
	// A change long before the first one that is shown holds until that one, also if a later change has its
	// place in the ring.
	for _, seconds := range [][]uint32{{100, 500}, {100, 401, 500}, {100, 101, 402, 500}, {100, 510}} {
		g = gauge{}
		level := int64(50)
		var want [span]float64
		for i, second := range seconds {
			for s := second; s < 510; s++ {
				if s >= 510-span {
					want[s-(510-span)] = float64(level)
				}
			}
			g.set(level, second)
			level += int64(5 + i)
		}
		if line := g.values(510); line != want {
			t.Errorf("set in seconds %v: got %v, want %v", seconds, line, want)
		}
	}
}

// A quantile is too long by an eighth at the most, and of the recent past.
func TestQuantiles(t *testing.T) {
	var d durations
	r := rand.New(rand.NewPCG(1, 2))
	var exact []time.Duration
	for range 10_000 {
		took := time.Duration(r.ExpFloat64() * float64(time.Millisecond))
		exact = append(exact, took)
		d.add(10, []uint16{uint16(bucketOf(took))})
	}
	slices.Sort(exact)
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		var sums [64 * 8]uint64
		d.addTo(&sums, 20)
		want := exact[int(q*float64(len(exact)-1))]
		if got := quantile(&sums, q); got < want || got > want+want/8 {
			t.Errorf("of %v: %v, want %v to an eighth more", q, got, want)
		}
	}
	d.add(151, []uint16{uint16(bucketOf(time.Hour))})
	var sums [64 * 8]uint64
	if d.addTo(&sums, 299); quantile(&sums, 1) < time.Hour || quantile(&sums, 0) > time.Millisecond {
		t.Error("both halves should count")
	}
	sums = [64 * 8]uint64{}
	if d.addTo(&sums, 301); quantile(&sums, 0) < time.Hour {
		t.Error("the half before the last should count no more")
	}
	for _, took := range []time.Duration{0, 1, 7, 8, 9, 255, 256, 1<<62 + 12345} {
		if c := bucketCeiling(bucketOf(took)); c < took || c > took+took/8 {
			t.Errorf("%d is in a bucket up to %d", took, c)
		}
	}
}
