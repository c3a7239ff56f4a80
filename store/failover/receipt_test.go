package failover_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

func TestSettleGoesHome(t *testing.T) {
	p, q := &side{}, &side{}
	s := failover.New(p, q, failover.WithThreshold(1), failover.WithProbe(time.Hour, 250*time.Millisecond))
	defer s.Close()
	first, _ := take(s)
	p.fail(errDown)
	second, _ := take(s)
	if s.State() != failover.Open || first.Path != 0 || second.Path != 1 {
		t.Fatal(first, second)
	}

	got, err := settle(s, second)
	if err != nil || len(q.settles) != 1 || q.settles[0].Receipt.Path != 0 || got[0].Path != 1 {
		t.Fatalf("%v %v %+v", got, err, q.settles)
	}
	if _, err := settle(s, first); !errors.Is(err, failover.ErrOpen) || !errors.Is(err, errDown) {
		t.Fatalf("%v, want ErrOpen", err)
	}
	_, err = settle(s, first, second)
	if !errors.Is(err, failover.ErrOpen) {
		t.Fatalf("%v, want ErrOpen", err)
	}
	if len(p.settles) != 0 || len(q.settles) != 2 {
		t.Errorf("primary settled %d, secondary %d", len(p.settles), len(q.settles))
	}
	// What was not charged goes where everything goes.
	if _, err := settle(s, store.Receipt{}); err != nil || len(q.settles) != 3 {
		t.Errorf("%v, %d", err, len(q.settles))
	}
}

func TestSettleOfBothSides(t *testing.T) {
	p, q := &side{}, &side{}
	s := failover.New(p, q)
	first, _ := take(s)
	p.fail(errDown)
	second, _ := take(s)
	p.fail(nil)
	first.Instant, second.Instant = 10, 20
	got, err := settle(s, second, first, second, store.Receipt{})
	if err != nil || len(p.settles) != 2 || len(q.settles) != 2 {
		t.Fatalf("%v: primary settled %d, secondary %d", err, len(p.settles), len(q.settles))
	}
	for i, want := range []store.Receipt{{Instant: 20, Path: 1}, {Instant: 10}, {Instant: 20, Path: 1}, {}} {
		if got[i] != want {
			t.Errorf("result %d: %+v, want %+v", i, got[i], want)
		}
	}
	if err := s.Settle(t.Context(), charge(), nil); err != store.ErrResults {
		t.Error(err)
	}
}

func TestSettleFailureIsNotTakenElsewhere(t *testing.T) {
	p, q := &side{}, &side{}
	s := failover.New(p, q, failover.WithThreshold(2))
	defer s.Close()
	r, _ := take(s)
	p.fail(errDown)
	for range 2 {
		if _, err := settle(s, r); err != errDown {
			t.Fatal(err)
		}
	}
	if len(q.settles) != 0 || s.State() != failover.Open {
		t.Errorf("secondary settled %d, %v", len(q.settles), s.State())
	}
	if _, err := settle(failover.New(p, nil), store.Receipt{Cost: 1, Path: 1}); err == nil {
		t.Error("settled a receipt of nobody")
	}
}

// Four stores in three failovers: each receipt finds the store that issued it.
func TestFailoverOfFailovers(t *testing.T) {
	leaves := []*side{{path: 1}, {path: 2}, {path: 3}, {path: 4}} // 4 sides with paths of their own
	down := failover.WithThreshold(1000)
	left := failover.New(leaves[0], leaves[1], down)
	right := failover.New(leaves[2], leaves[3], down)
	s := failover.New(left, right, down)
	receipts := make([]store.Receipt, len(leaves))
	for i := range leaves {
		for j, l := range leaves {
			l.fail(nil)
			if j < i {
				l.fail(errDown)
			}
		}
		var err error
		if receipts[i], err = take(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range leaves {
		l.fail(nil)
	}
	got, err := settle(s, receipts...)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range leaves {
		if len(l.settles) != 1 || l.settles[0].Receipt.Path != uint8(i+1) {
			t.Errorf("leaf %d settled %+v", i, l.settles)
		}
		if got[i].Path != receipts[i].Path {
			t.Errorf("leaf %d: receipt %+v became %+v", i, receipts[i], got[i])
		}
	}

	deep := store.Store(&side{})
	for range 8 {
		deep = failover.New(&side{err: errDown}, deep)
	}
	r, err := take(deep)
	if err != nil || r.Path != 0xff {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := settle(deep, r); err != nil {
		t.Error(err)
	}
	if _, err := take(failover.New(&side{err: errDown}, deep)); err == nil {
		t.Error("nine stores inside each other: no error")
	}
	for path, fits := range map[uint8]bool{0x7f: true, 0x80: false} {
		if r, err := take(failover.New(&side{path: path}, nil)); (err == nil) != fits || fits && r.Path != path<<1 {
			t.Errorf("path %#x: %+v, %v", path, r, err)
		}
	}
}

// What wasn't charged has no receipt, whichever side decided.
func TestNoReceiptOfADenial(t *testing.T) {
	for _, p := range []*side{{denies: true}, {err: errDown}} {
		if r, err := take(failover.New(p, &side{denies: true})); err != nil || r != (store.Receipt{}) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
