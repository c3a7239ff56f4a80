package compile

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint/store"
)

// describe describes a limit by everything that its counting depends on.
func describe(s store.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d", s.Algorithm, s.Units)
	if s.Window != (store.Window{}) {
		fmt.Fprintf(&b, " %v", s.Window)
	}
	for _, d := range []struct {
		word string
		d    time.Duration
	}{{"per", s.Period}, {"for", s.Ban}, {"warm-up", s.WarmUp}} {
		if d.d != 0 {
			fmt.Fprintf(&b, " %s %v", d.word, d.d)
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
