package limit

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A tally estimates how many keys there are, whatever their number, and what share of them was
// denied.
func TestTally(t *testing.T) {
	for _, n := range []int{0, 95, 1000, 20_000, 300_000} {
		for _, percent := range []int{0, 10, 85, 95, 100} {
			all := new(tally)
			for i := range n {
				h := hash(fmt.Sprintf("%d of %d", i, n))
				all.add(h, i*100 < n*percent)
				all.add(h, false)
			}
			got, denied := all.share(), n*percent/100
			if off := float64(got.Keys-n) / float64(max(n, 100)); math.Abs(off) > 0.1 {
				t.Errorf("%d keys, of which %d %% are denied: %+v", n, percent, got)
			}
			// Both are of the same sample.
			if off := float64(got.Denied)/float64(max(got.Keys, 1)) - float64(denied)/float64(max(n, 1)); math.Abs(off) > 0.04 {
				t.Errorf("%d keys, of which %d %% are denied: %+v", n, percent, got)
			}
		}
	}
}

// However many limits look, those of a process are bounded, and a look that has made room for another
// finds nothing.
func TestLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]Denials, 2*mostLooks)
		for i := range all {
			for k := range 200 {
				all[i].Deny(fmt.Sprint(k))
			}
		}
		if len(looks.all) != mostLooks {
			t.Fatalf("%d looks", len(looks.all))
		}
		for i := range all {
			for k := range 200 {
				all[i].Deny(fmt.Sprint(k))
			}
		}
		time.Sleep(lookTime)
		synctest.Wait()
		for i := range all {
			if got := all[i].Deny("0"); (got != nil) != (i >= mostLooks) {
				t.Errorf("%d: found %+v", i, got)
			}
		}
		if Looking() {
			t.Error("still looking")
		}
	})
}

// A look begins with many denials in an hour, takes an hour, and after one that finds nothing
// there is none for a day. What is found is returned once.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Denials
		deny := func(from, to int) (found []Share) {
			for i := from; i < to; i++ {
				if s := d.Deny(strconv.Itoa(i)); s != nil {
					found = append(found, *s)
				}
			}
			return found
		}
		silent := func(what string, looking bool, found []Share) {
			t.Helper()
			if Looking() != looking || len(found) > 0 {
				t.Errorf("%s: looking %v, found %+v", what, Looking(), found)
			}
		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}

		for hour := range 48 {
			silent("few in an hour", false, deny(hour*50, hour*50+50))
			wait(time.Hour)
		}
		for range 1000 {
			silent("the same again", false, deny(0, 50))
		}
		silent("many", true, deny(50, 150))
		for i := range 300 {
			d.See(strconv.Itoa(i), false)
		}
		wait(lookTime - 1)
		silent("to the end", true, deny(0, 200))
		wait(1)
		silent("half of the keys", false, deny(0, 200))
		wait(restTime - 1)
		silent("a day", false, deny(0, 200))
		wait(1)
		silent("again", true, deny(0, 200))
		silent("at once", true, deny(0, 200))
		wait(lookTime)
		if found := deny(0, 200); len(found) != 1 || found[0].Denied != found[0].Keys || found[0].Keys < 190 || found[0].Keys > 210 {
			t.Errorf("found %+v", found)
		}
		for range 3 {
			wait(24 * time.Hour)
			silent("once", false, deny(0, 200))
		}
	})
}

// Goroutines that see and deny at once find what one would have, and one of them is told.
func TestDenialsConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Denials
		var told []Share
		for range 3 { // before the look and in it, only in it, after it
			var all sync.WaitGroup
			var mu sync.Mutex
			for g := range 8 {
				all.Go(func() {
					for i := range 1000 {
						key := (i + g*100) % 1000
						if key >= 950 {
							d.See(strconv.Itoa(key), false)
						} else if s := d.Deny(strconv.Itoa(key)); s != nil {
							mu.Lock()
							told = append(told, *s)
							mu.Unlock()
						}
					}
				})
			}
			all.Wait()
			time.Sleep(lookTime / 2)
			synctest.Wait()
		}
		if len(told) != 1 || told[0].Keys < 950 || told[0].Keys > 1050 {
			t.Errorf("told %+v", told)
		}
	})
}
