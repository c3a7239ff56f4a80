package store_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Every name of Go's in the problems that NewLimit reports is a value: whoever has other
// words for them, gets texts without one.
func TestSpecErrorIn(t *testing.T) {
	goName := regexp.MustCompile(`[A-Z]\w*[a-z]|\w\.[A-Z]`)
	year := 366 * 24 * time.Hour
	for _, vary := range []func(*store.Spec){
		func(s *store.Spec) { s.Burst = 5 },
		func(s *store.Spec) { s.Burst = store.None },
		func(s *store.Spec) { s.Burst = -5 },
		func(s *store.Spec) { s.Queue = 5 },
		func(s *store.Spec) { s.Queue = -5 },
		func(s *store.Spec) { s.Debt = true },
		func(s *store.Spec) { s.Ban = time.Hour },
		func(s *store.Spec) { s.Ban = -1 },
		func(s *store.Spec) { s.WarmUp = time.Second },
		func(s *store.Spec) { s.WarmUp = 1 },
		func(s *store.Spec) { s.WarmUp = 3 * year },
		func(s *store.Spec) { s.Buckets = 5 },
		func(s *store.Spec) { s.Buckets = 5000 },
		func(s *store.Spec) { s.Units = 0 },
		func(s *store.Spec) { s.Units = 5000 },
		func(s *store.Spec) { s.Period = 0 },
		func(s *store.Spec) { s.Period = 1 },
		func(s *store.Spec) { s.Period = 3 * year },
		func(s *store.Spec) { s.Window = store.Daily },
		func(s *store.Spec) { s.Period, s.Window = 0, store.Daily },
		func(s *store.Spec) { s.Period, s.Window = 0, store.Every(1) },
		func(s *store.Spec) { s.Period, s.Window = 0, store.Every(3*year) },
		func(s *store.Spec) { s.Period, s.Window = 0, store.Every(time.Hour).In(time.FixedZone("zone", 3600)) },
	} {
		for alg := range store.Ban + 1 {
			s := store.Spec{Name: "a", Algorithm: alg, Units: 1, Period: time.Second}
			vary(&s)
			_, err := store.NewLimit(s)
			if err == nil {
				continue
			}
			for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
				e := err.(*store.SpecError)
				without, rest := "", e.Problem+": "+e.Write
				for _, name := range e.Names {
					before, after, found := strings.Cut(rest, name)
					if !found {
						t.Errorf("%q doesn't have %s there", e, name)
					}
					without, rest = without+before+"it", after
				}
				without += rest
				if name := goName.FindString(without); name != "" && name != "Unix" { // whose epoch it is
					t.Errorf("%q has the name %s, which isn't a value", without, name)
				}
			}
		}
	}
}
