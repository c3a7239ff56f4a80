package boltstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/examples/bolt/boltstore"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/storetest"
	bolt "go.etcd.io/bbolt"
)

// open opens a database without syncs: no test cuts the power.
func open(t *testing.T, file string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newStore(t *testing.T, db *bolt.DB) *boltstore.Store {
	t.Helper()
	s, err := boltstore.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return newStore(t, open(t, filepath.Join(t.TempDir(), "limits.db")))
	})
}

func limit(t *testing.T, spec store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t *testing.T, s store.Store, charges ...store.Charge) []store.Result {
	t.Helper()
	results := make([]store.Result, len(charges))
	if err := s.Take(context.Background(), charges, results); err != nil {
		t.Fatal(err)
	}
	return results
}

// After a restart what has been used is used, what time has given back in between is back,
// a charge can still be settled, and slots are free.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daily := limit(t, store.Spec{Name: "daily", Algorithm: store.FixedWindow, Units: 5, Window: store.Daily})
		rate := limit(t, store.Spec{Name: "rate", Units: 10, Period: 10 * time.Second})
		slots := limit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 1})
		charges := []store.Charge{{Key: "k", Limit: daily, Cost: 4}, {Key: "k", Limit: rate, Cost: 8}, {Key: "k", Limit: slots, Cost: 1}}

		file := filepath.Join(t.TempDir(), "limits.db")
		db := open(t, file)
		made := take(t, newStore(t, db), charges...)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s := newStore(t, open(t, file))

		for i := range charges {
			charges[i].Cost = 0
		}
		for i, want := range []int64{1, 5, 1} {
			if r := take(t, s, charges[i])[0]; r.Remaining != want {
				t.Errorf("%s after the restart: %d left, want %d", charges[i].Limit.Name(), r.Remaining, want)
			}
		}
		refund := []store.Charge{{Key: "k", Limit: daily, Cost: 1, Receipt: made[0].Receipt}}
		results := make([]store.Result, 1)
		if err := s.Settle(context.Background(), refund, results); err != nil || results[0].Remaining != 4 {
			t.Errorf("3 of 4 refunded after the restart: %d left, want 4; %v", results[0].Remaining, err)
		}
	})
}

// Records that have expired are deleted by later calls, whichever keys those charge.
func TestExpiredRecordsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "limits.db"))
		s := newStore(t, db)
		rate := limit(t, store.Spec{Name: "rate", Units: 1, Period: time.Second})
		records := func() (n int) {
			_ = db.View(func(tx *bolt.Tx) error { n = tx.Bucket([]byte("stint")).Stats().KeyN; return nil })
			return n
		}
		for i := range 100 {
			take(t, s, store.Charge{Key: string(rune('a' + i)), Limit: rate, Cost: 1})
		}
		if n := records(); n != 100 {
			t.Fatalf("%d records of 100 keys", n)
		}
		time.Sleep(time.Hour)
		for range 30 {
			take(t, s, store.Charge{Key: "another", Limit: rate, Cost: 1})
		}
		if n := records(); n != 1 {
			t.Errorf("an hour and 30 calls later: %d records, want 1", n)
		}
	})
}

// A call that can't be made changes nothing and says so.
func TestNotMade(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "limits.db"))
	s := newStore(t, db)
	rate := limit(t, store.Spec{Name: "rate", Units: 2, Period: time.Hour})
	spoilt := limit(t, store.Spec{Name: "spoilt", Units: 2, Period: time.Hour})
	take(t, s, store.Charge{Key: "k", Limit: spoilt, Cost: 1})
	err := db.Update(func(tx *bolt.Tx) error {
		states := tx.Bucket([]byte("stint"))
		key, record := states.Cursor().First()
		return states.Put(key, record[:len(record)-1])
	})
	if err != nil {
		t.Fatal(err)
	}
	charges := []store.Charge{{Key: "k", Limit: rate, Cost: 1}, {Key: "k", Limit: spoilt, Cost: 1}}
	if err := s.Take(context.Background(), charges, make([]store.Result, 2)); !errors.Is(err, store.ErrNotMade) {
		t.Errorf("a record that has lost a byte: %v", err)
	}
	if r := take(t, s, store.Charge{Key: "k", Limit: rate})[0]; r.Remaining != 2 {
		t.Errorf("%d left of 2 after a call that was not made", r.Remaining)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Take(context.Background(), charges[:1], make([]store.Result, 1)); err == nil {
		t.Error("a closed database decides")
	}
}
