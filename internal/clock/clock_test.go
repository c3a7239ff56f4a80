package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

func TestClockIsSet(t *testing.T) {
	c := New(noon)
	if !c.Now().Equal(noon) {
		t.Errorf("a new clock shows %v", c.Now())
	}
	for _, at := range []time.Time{noon.Add(time.Hour + 1500*time.Nanosecond), noon.Add(-time.Hour)} {
		c.Set(at)
		if got := c.Now(); !got.Equal(at) {
			t.Errorf("%v, set to %v", got, at)
		}
		if got, want := c.Micros(noon), at.Sub(noon).Microseconds(); got != want {
			t.Errorf("%d µs since noon at %v, want %d", got, at, want)
		}
	}
}

func TestNilClockIsPackageTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Clock
		start := c.Now()
		time.Sleep(1500 * time.Microsecond)
		if got := c.Micros(start); got != 1500 || !c.Now().Equal(time.Now()) {
			t.Errorf("%d µs after 1500, at %v instead of %v", got, c.Now(), time.Now())
		}
	})
}
