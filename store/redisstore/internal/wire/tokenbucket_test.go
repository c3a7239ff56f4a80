package wire

import (
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// TestTags: each tag names other numbers, and those have that tag. So no state is read by other
// numbers than those that it was written under.
func TestTags(t *testing.T) {
	seen := map[algorithm.Numbers]string{}
	for code := range 10_000 {
		tag := string([]byte{'0' + byte(code/1000), '0' + byte(code/100%10), '0' + byte(code/10%10), '0' + byte(code%10)})
		n := numbersOf(tag)
		if n == (algorithm.Numbers{}) {
			continue
		}
		of := tagOf(n)
		if of == "" { // its capacity takes too long
			continue
		}
		if numbersOf(of) != n {
			t.Errorf("%s is of %+v, whose tag is %s, of %+v", tag, n, of, numbersOf(of))
		}
		if was := seen[n]; was != "" && was != of {
			t.Errorf("%+v has two tags, %s and %s", n, was, of)
		}
		seen[n] = of
	}
	if len(seen) < 3000 {
		t.Errorf("%d numbers have a tag", len(seen))
	}
}

// TestUsualNumbersAreOneInteger: the numbers that people write have a tag. docs/internals/scripts.md shows
// the first.
func TestUsualNumbersAreOneInteger(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 10, Period: time.Second}, {Units: 100, Period: time.Minute}, {Units: 100, Period: time.Minute, Burst: 20},
		{Units: 1000, Period: time.Hour}, {Units: 10_000, Period: 24 * time.Hour}, {Units: 5, Period: time.Minute, Burst: 1},
		{Units: 100, Period: time.Second, Burst: 10_000_000},
	} {
		s.Name = "l"
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		n := inside.Terms(l).Numbers
		tag := tagOf(n)
		if tag == "" || numbersOf(tag) != n {
			t.Errorf("%d per %v, burst %d: tag %q of %+v", s.Units, s.Period, l.Spec().Burst, tag, numbersOf(tag))
		}
		if s.Units == 10 && tag != "1414" {
			t.Errorf("10 per second has the tag %s", tag)
		}
	}
}
