// Package boltstore keeps what callers have used in a bbolt database, so that quotas
// survive a restart without a server beside the program. It shows how to write a store: the
// algorithms are those of package store; here is only where their states are kept.
//
// A call is one transaction. So a Take makes all of its charges or none, whatever fails, and
// takes as long as the disk needs to sync, once. bbolt runs one writing transaction at a time.
//
// A database belongs to one process, which bbolt ensures by a lock on the file, and to one
// Store. Processes that share limits need package redisstore, or a store like this one in a
// database that they share.
package boltstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
	bolt "go.etcd.io/bbolt"
)

// Store is a store.Store, a store.Resetter and a store.Banner in a database. It is safe for concurrent use.
// Make one with New.
type Store struct {
	db *bolt.DB
	// The clock is the machine's when New was called, and monotonic from then on.
	opened time.Time
	next   []byte // where the sweep goes on; for transactions that write, which are one at a time
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Banner    = (*Store)(nil)
	_ store.Immediate = (*Store)(nil)
)

// bucket holds a record for each Limit.StateName and key: when it expires, and a store.State.
var bucket = []byte("stint")

// New returns a store in db, which it doesn't close. Slots of concurrency limits are free
// again: the process that held them has ended. All else is as it was.
func New(db *bolt.DB) (*Store, error) {
	s := &Store{db: db, opened: time.Now()}
	err := db.Update(func(tx *bolt.Tx) error {
		states, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		var held [][]byte
		err = states.ForEach(func(k, v []byte) error {
			if expiry(v) == never {
				held = append(held, slices.Clone(k))
			}
			return nil
		})
		for _, k := range held {
			err = errors.Join(err, states.Delete(k))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	return s, nil
}

// AnswersAtOnce implements store.Immediate: a call waits for the disk, but for no other call, and
// can't be canceled, so a deadline is of no use to it.
func (s *Store) AnswersAtOnce() bool { return true }

// Take decides all charges at one instant; see store.Store.
func (s *Store) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return fmt.Errorf("boltstore: %w", err)
	}
	return s.update(func(t *transaction) error {
		keys, states := make([][]byte, len(charges)), make([]store.State, len(charges))
		for i := range charges {
			keys[i] = recordKey(charges[i].Limit, charges[i].Key)
			if slices.ContainsFunc(keys[:i], func(k []byte) bool { return string(k) == string(keys[i]) }) {
				return store.ErrDuplicate
			}
			if err := t.load(keys[i], &states[i]); err != nil {
				return err
			}
		}
		store.Decide(t.now, charges, states, results)
		// After a denial too, which may begin a ban.
		for i := range charges {
			if err := t.save(keys[i], charges[i].Limit, &states[i], &results[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle replaces the cost of each earlier charge; see store.Store.
func (s *Store) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return fmt.Errorf("boltstore: %w", err)
	}
	return s.update(func(t *transaction) error {
		for i := range charges { // a call may settle several charges of one key
			c := &charges[i]
			key := recordKey(c.Limit, c.Key)
			var state store.State
			if err := t.load(key, &state); err != nil {
				return err
			}
			store.Amend(t.now, c, &state, &results[i])
			if err := t.save(key, c.Limit, &state, &results[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reset makes the limits forget key; see store.Resetter.
func (s *Store) Reset(_ context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	if err := store.Check(charging(key, limits), make([]store.Result, len(limits))); err != nil {
		return false, fmt.Errorf("boltstore: %w", err)
	}
	err = s.update(func(t *transaction) error {
		for _, l := range limits {
			record := recordKey(l, key)
			found = found || t.states.Get(record) != nil
			if err := t.states.Delete(record); err != nil {
				return err
			}
		}
		return nil
	})
	return found && err == nil, err
}

// Ban bans key for d under each of the limits; see store.Banner.
func (s *Store) Ban(_ context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	if err := store.CheckBan(d, limits...); err != nil {
		return nil, store.NotMade(fmt.Errorf("boltstore: %w", err))
	}
	results := make([]store.Result, len(limits))
	err := s.update(func(t *transaction) error {
		for i, l := range limits {
			record := recordKey(l, key)
			var state store.State
			if err := t.load(record, &state); err != nil {
				return err
			}
			store.BanFor(t.now, l, d, &state, &results[i])
			if err := t.save(record, l, &state, &results[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func charging(key string, limits []*store.Limit) []store.Charge {
	charges := make([]store.Charge, len(limits))
	for i, l := range limits {
		charges[i] = store.Charge{Key: key, Limit: l}
	}
	return charges
}

// transaction is one call: it holds all states exclusively.
type transaction struct {
	states *bolt.Bucket
	now    store.Now
}

// update runs f in a transaction that writes. If f fails, nothing has been written, and the
// error says so: the caller may try again. If the commit fails, that isn't known.
func (s *Store) update(f func(*transaction) error) error {
	var failed error
	err := s.db.Update(func(tx *bolt.Tx) error {
		t := &transaction{states: tx.Bucket(bucket)}
		lease, err := t.states.NextSequence()
		if err == nil {
			t.now = s.now(lease) // now that no other call is under way, so it is the latest
			err = f(t)
		}
		if err == nil {
			err = s.sweep(t)
		}
		failed = err
		return err
	})
	switch {
	case failed != nil:
		return store.NotMade(fmt.Errorf("boltstore: %w", failed))
	case err != nil:
		return fmt.Errorf("boltstore: %w", err)
	}
	return nil
}

// now reads the clocks. Both count from store.Epoch, since states outlive the process; the
// first isn't set while the process runs.
func (s *Store) now(lease uint64) store.Now {
	now := time.Now()
	return store.Now{
		Steady: sinceEpoch(s.opened) + now.Sub(s.opened).Microseconds(),
		Wall:   sinceEpoch(now),
		Lease:  store.Lease(lease),
	}
}

func sinceEpoch(t time.Time) int64 { return t.UnixMicro() - store.Epoch*1_000_000 }

// recordKey returns the key of a record. The caller's key may be of any length, while bbolt's
// have at most 32 KB.
func recordKey(l *store.Limit, key string) []byte {
	hash := sha256.Sum256([]byte(key))
	return append([]byte(l.StateName()+"/"), hash[:]...)
}

// load reads the state of a record. Of one that doesn't exist it is the zero State.
func (t *transaction) load(key []byte, state *store.State) error {
	record := t.states.Get(key)
	if record == nil {
		return nil
	}
	return state.UnmarshalBinary(record[expiryBytes:])
}

// save writes a state, or deletes the record of one that need not be kept.
func (t *transaction) save(key []byte, l *store.Limit, state *store.State, r *store.Result) error {
	lifetime := l.Lifetime(t.now, state, r)
	if lifetime == 0 {
		return t.states.Delete(key)
	}
	until := int64(never)
	if lifetime != store.Never {
		until = t.now.Steady + (lifetime + setBack).Microseconds()
	}
	record, err := state.AppendBinary(binary.BigEndian.AppendUint64(nil, uint64(until)))
	if err != nil {
		return err
	}
	return t.states.Put(key, record)
}

const (
	expiryBytes = 8
	// never is the expiry of a record that holds slots.
	never = 1<<63 - 1
	// setBack is how far the wall clock may be set back without a window of the calendar
	// being forgotten before its end.
	setBack = time.Minute
)

func expiry(record []byte) int64 { return int64(binary.BigEndian.Uint64(record)) }

// sweep deletes a few records that have expired. Until then a record says the same as none,
// so no decision depends on when.
func (s *Store) sweep(t *transaction) error {
	const few = 8 // a call adds fewer records than it looks at
	cursor := t.states.Cursor()
	var expired [][]byte
	key, record := cursor.Seek(s.next)
	for range few {
		if key == nil {
			break
		}
		if expiry(record) <= t.now.Steady {
			expired = append(expired, slices.Clone(key))
		}
		key, record = cursor.Next()
	}
	s.next = slices.Clone(key) // from the beginning, after the last
	for _, key := range expired {
		if err := t.states.Delete(key); err != nil {
			return err
		}
	}
	return nil
}
