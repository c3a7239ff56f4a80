package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// Every algorithm of package store has a case in whyIdle.
func TestEveryAlgorithmMayBeIdle(t *testing.T) {
	entry := func(s store.Spec) *read.Entry {
		s.Name = "a"
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return &read.Entry{Limit: limit.Limit{Kind: limit.Charged, StoreLimit: l}, Key: keys.Global}
	}
	by := entry(store.Spec{Units: 1, Period: time.Hour})
	tried := map[store.Algorithm]bool{}
	var missing []string
	for _, s := range versionstest.Kinds(t) {
		tried[s.Algorithm] = true
		func() {
			defer func() {
				if recover() != nil {
					missing = append(missing, s.Algorithm.String())
				}
			}()
			whyIdle(entry(s), by)
		}()
	}
	for a := store.Algorithm(0); !strings.HasPrefix(a.String(), "Algorithm("); a++ {
		if !tried[a] {
			missing = append(missing, a.String())
		}
	}
	if missing != nil {
		t.Errorf("%s: add a case to whyIdle", strings.Join(missing, ", "))
	}
}
