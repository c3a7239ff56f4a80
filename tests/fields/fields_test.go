// Package fields_test reads the rate limit fields with an implementation of RFC 9651 that
// isn't ours.
package fields_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// Every answer, admitted or denied, has fields of the draft's grammar: Strings with the
// parameters that it has, as Integers in its ranges.
func TestFieldsAreRFC9651(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limits  []stint.Option
		members int
	}{
		{"a rate", []stint.Option{stint.Rate(2, time.Second)}, 1},
		{"a period of no whole seconds", []stint.Option{stint.Rate(2, 1500*time.Millisecond, stint.WithName("a.b_c-9"))}, 1},
		{"the largest numbers", []stint.Option{stint.Rate(1<<40, 365*24*time.Hour, stint.WithName("Z"))}, 1},
		{"a burst beside a slow rate", []stint.Option{stint.Rate(1, time.Hour, stint.WithBurst(3))}, 1},
		{"slots", []stint.Option{stint.Concurrency(1)}, 1},
		{"several", []stint.Option{stint.Rate(2, time.Second), stint.Quota(3, stint.Daily), stint.Concurrency(3)}, 3},
		{"a long name", []stint.Option{stint.Rate(2, time.Second, stint.WithName("a"+strings.Repeat("9", 63)))}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := stinthttp.New(append(tt.limits, stint.WithKey(stint.Global()))...)(http.NotFoundHandler())
			for range 4 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				check(t, w.Header(), "RateLimit-Policy", "q", "q qu w", tt.members)
				check(t, w.Header(), "RateLimit", "r", "r t", tt.members)
			}
		})
	}
}

func check(t *testing.T, h http.Header, field, required, known string, members int) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(field))
	if err != nil || len(list) != members {
		t.Fatalf("%s: %v: %d members in %q", field, err, len(list), h.Values(field))
	}
	for _, member := range list {
		item := member.(httpsfv.Item)
		if _, ok := item.Value.(string); !ok {
			t.Errorf("%s: %T is not a String", field, item.Value)
		}
		if _, ok := item.Params.Get(required); !ok {
			t.Errorf("%s lacks %q: %q", field, required, h.Values(field))
		}
		for _, name := range item.Params.Names() {
			v, _ := item.Params.Get(name)
			n, isInt := v.(int64)
			switch {
			case !strings.Contains(known, name):
				t.Errorf("%s: parameter %q is not the draft's", field, name)
			case name == "qu":
			case !isInt || n < 0 || name == "w" && n < 1:
				t.Errorf("%s: %s=%v", field, name, v)
			}
		}
	}
}
