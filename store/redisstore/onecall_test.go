package redisstore

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// A decision of several limits is one call of a script, as the server counts its calls.
func TestOneCallPerDecision(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	s := manyStore(t, server.Client())
	charges := []store.Charge{
		{Key: "k", Limit: denyLimit(t, store.Spec{Name: "rate", Units: 100, Period: time.Hour}), Cost: 1},
		{Key: "k", Limit: denyLimit(t, store.Spec{Name: "quota", Units: 5, Algorithm: store.FixedWindow, Period: 24 * time.Hour}), Cost: 1},
		{Key: "k", Limit: denyLimit(t, store.Spec{Name: "slots", Units: 100, Algorithm: store.Concurrency}), Cost: 1},
	}
	take := func() (granted bool) {
		results := make([]store.Result, len(charges))
		if err := s.Take(ctx, charges, results); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(results, func(r store.Result) bool { return !r.OK })
	}
	take() // loads the script
	server.Do("CONFIG", "RESETSTAT")
	const decisions, fit = 8, 4 // 1 of 5 has been charged
	granted := 0
	for range decisions {
		if take() {
			granted++
		}
	}
	calls := regexp.MustCompile(`cmdstat_(?:eval|evalsha|fcall):calls=(\d+),`).FindAllStringSubmatch(server.Do("INFO", "commandstats").(string), -1)
	if len(calls) != 1 || calls[0][1] != "8" || granted != fit {
		t.Errorf("%d decisions of three limits are calls of %v; %d are granted, want %d", decisions, calls, granted, fit)
	}
}
