package store_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// A limit keeps each field of its Spec.
func TestSpecIsKept(t *testing.T) {
	kept := map[string]bool{}
	for _, s := range append(versionstest.Kinds(t),
		store.Spec{Units: 2, Period: time.Second, Burst: 5, Queue: 3, Debt: true},
		store.Spec{Algorithm: store.SlidingWindow, Units: 7, Period: time.Hour, Buckets: 5}) {
		s.Name = "a"
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		given, got := reflect.ValueOf(s), reflect.ValueOf(l.Spec())
		for i := range given.NumField() {
			name := given.Type().Field(i).Name
			if given.Field(i).IsZero() {
				continue
			}
			if kept[name] = true; !reflect.DeepEqual(given.Field(i).Interface(), got.Field(i).Interface()) {
				t.Errorf("%v: %s was %v and is %v", s.Algorithm, name, given.Field(i), got.Field(i))
			}
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[store.Spec]()) {
		if f.Name != "Algorithm" && !kept[f.Name] {
			t.Errorf("no limit here has %s", f.Name)
		}
	}
}

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
		for _, alg := range versionstest.Algorithms() {
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
