package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While bulk sends from forty callers, the fair queue leaves the slots of app to app, and divides the others.
func TestShares(t *testing.T) {
	for _, fair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			run(&out, fair, time.Second)
			var app, shop, bulk float64
			for line := range strings.Lines(out.String()) {
				var second int
				var a, s, b float64
				_, values, _ := strings.Cut(line, ",")
				if _, err := fmt.Sscanf(values, "%d,%f,%f,%f", &second, &a, &s, &b); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if second > 7 && second <= 25 { // bulk has come
					app, shop, bulk = app+a/18, shop+s/18, bulk+b/18
				}
			}
			if fair && (app < 1.7 || shop < 2.7 || bulk > 3.6) || !fair && bulk < 5 {
				t.Errorf("fair %t: app held %.1f slots, shop %.1f, bulk %.1f", fair, app, shop, bulk)
			}
		})
	}
}
