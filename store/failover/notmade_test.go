package failover

import (
	"context"
	"errors"
	"testing"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

var errStuck = errors.New("stuck")

// A settlement that one side has made and the other hasn't isn't one that wasn't made.
func TestSettledOnOneSide(t *testing.T) {
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 10, Period: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	settle := func(paths ...uint8) error {
		p := storefake.New()
		p.OnSettle = func(*storefake.Call) error { return store.NotMade(errStuck) }
		s := New(p, memstore.New())
		var charges []store.Charge
		for _, path := range paths {
			charges = append(charges, store.Charge{Key: "k", Limit: l, Receipt: store.Receipt{Cost: 1, Path: path}})
		}
		return s.Settle(context.Background(), charges, make([]store.Result, len(charges)))
	}
	if err := settle(primarySide); !errors.Is(err, errStuck) || !errors.Is(err, store.ErrNotMade) {
		t.Error(err)
	}
	if err := settle(primarySide, secondarySide); !errors.Is(err, errStuck) || errors.Is(err, store.ErrNotMade) {
		t.Error(err)
	}
}
