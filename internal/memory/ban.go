package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// errNoRoom is the error of a ban by hand that a full store has no room for. A key that shares its state
// can't be banned: all keys of that state would be.
var errNoRoom = errors.New("the store is full, so no new key can be banned: raise memstore.WithMaxKeys")

// Ban bans key for d under each of the limits, which are Bans; see store.Banner. It returns an error if the store
// is full and has no state of the key.
func (s *Store) Ban(_ context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	if !s.usable {
		return nil, s.unusable()
	}
	if err := store.CheckBan(d, limits...); err != nil {
		return nil, fail(err)
	}
	results := make([]store.Result, len(limits))
	for i, l := range limits {
		if !s.ban(key, d, l, results[i:i+1]) {
			return nil, fmt.Errorf("memstore: %w", errNoRoom)
		}
	}
	if s.tickAt.Load() == noTick {
		s.startTimer(s.steady())
	}
	return results, nil
}

// ban bans key under one limit, and reports whether there was room for that.
func (s *Store) ban(key string, d time.Duration, l *store.Limit, results []store.Result) bool {
	hash := s.hash(key)
	charges := [1]store.Charge{{Key: key, Limit: l, Cost: 1}}
	visits := [1]visit{{key: identity(l, hash), shard: s.shard(hash), where: inTable}}
	var states [1]store.State
	v := &visits[0]
	v.shard.lock()
	defer v.shard.mu.Unlock()
	found := v.takeOut()
	now := s.instant(false, false)
	if found {
		v.shard.load(v.word, &states[0])
	} else {
		s.makeRoom(now.Steady, visits[:], charges[:])
		if !s.reserve() {
			return false
		}
		v.where = reserved
	}
	store.BanFor(now, l, d, &states[0], &results[0])
	s.writeBack(visits[:], charges[:], states[:], results, now)
	return true
}
