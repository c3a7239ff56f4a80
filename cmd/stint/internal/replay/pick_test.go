package replay

import (
	"fmt"
	"testing"
	"time"
)

// Of a curve, the point is suggested that a person would choose.
func TestPick(t *testing.T) {
	for _, tt := range []struct {
		name    string
		horizon time.Duration
		curve   []Rate
		want    string
	}{
		{"a day's rate gets next to nothing less", time.Minute, []Rate{{180, 86400, 34}, {30, 3600, 33}, {300, 3600, 32}, {10, 60, 25}, {40, 60, 22}}, "10/60 burst 25"},
		{"a minute's rate has a burst that is needlessly larger", time.Minute, []Rate{{10, 3600, 20}, {10, 60, 19}, {60, 60, 18}}, "10/3600 burst 20"},
		{"a burst that a second's rate doesn't need", time.Second, []Rate{{10, 60, 40}, {60, 60, 12}, {10, 1, 2}}, "10/1 burst 2"},
		{"sixty a minute are one a second", time.Second, []Rate{{10, 60, 40}, {50, 60, 12}, {60, 60, 11}}, "1/1 burst 11"},
		{"of one unit, the least", time.Minute, []Rate{{10, 60, 57}, {20, 60, 49}, {30, 60, 43}}, "10/60 burst 57"},
		{"no odd number beside a round one", time.Minute, []Rate{{540, 3600, 58}, {560, 3600, 58}, {11, 60, 56}, {20, 60, 49}}, "20/60 burst 49"},
		{"odd numbers alone", time.Minute, []Rate{{11, 86400, 9}, {13, 86400, 8}}, "13/86400 burst 8"},
		{"what comes once", time.Minute, []Rate{{10, 86400, 1}, {24, 86400, 1}}, "1/3600 burst 1"},
	} {
		r := inShortestUnit(tt.curve[pickPoint(tt.curve, tt.horizon)])
		if got := fmt.Sprintf("%d/%d burst %d", r.Units, r.Seconds, r.Burst); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
