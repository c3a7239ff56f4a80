package compile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// describe describes a limit by everything that its counting depends on.
func describe(s store.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d", s.Algorithm, s.Units)
	if s.Window != (store.Window{}) {
		fmt.Fprintf(&b, " %v", s.Window)
	}
	if s.Algorithm == store.Ban {
		b.WriteString(" denials")
	}
	for _, d := range []struct {
		words string
		d     time.Duration
	}{{" per", s.Period}, {", banned for", s.Ban}, {", warm-up", s.WarmUp}} {
		if d.d != 0 {
			fmt.Fprintf(&b, "%s %v", d.words, d.d)
		}
	}
	for _, n := range []struct {
		word string
		n    int64
	}{{"burst", s.Burst}, {"queue", s.Queue}, {"buckets", s.Buckets}} {
		if n.n != 0 {
			fmt.Fprintf(&b, ", %s %d", n.word, max(n.n, 0))
		}
	}
	if s.Debt {
		b.WriteString(", debt")
	}
	return b.String()
}

// Order describes in which order the requests of an entry wait for slots: ", fair queue by Header("X-Tenant")" or
// ", 25% for class 9". It is "" if they wait by class alone.
func Order(e *read.Entry) string {
	if e.Tenant != nil {
		return ", fair queue by " + e.Tenant.Name
	}
	if e.Wait.Shares == nil {
		return ""
	}
	var b strings.Builder
	if shares := e.Wait.Shares(); shares != nil {
		for class, percent := range slices.Backward(shares[:]) {
			if percent > 0 {
				fmt.Fprintf(&b, ", %d%% for class %d", percent, class)
			}
		}
	}
	return b.String()
}
