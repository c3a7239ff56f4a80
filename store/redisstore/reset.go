package redisstore

import (
	"context"
	"fmt"

	"github.com/stint-go/stint/lua"
	"github.com/stint-go/stint/store"
)

// Reset implements store.Resetter. Leases of the limits that this store holds are no
// longer renewed; those of other processes are reported lost there (WithLost). If it
// fails, leases are renewed as before.
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) error {
	if s.wrong != nil {
		return s.wrong
	}
	keys := make([]string, 0, 2*len(limits)) // all in one slot: they share a tag
	for _, l := range limits {
		if l == nil || l.Hash() == 0 {
			return fmt.Errorf("redisstore: %w", store.ErrLimit)
		}
		keys = append(keys, storageKey(s.prefix, key, l))
	}
	if len(limits) == 0 {
		return nil
	}
	for i, l := range limits {
		if algorithms[l.Algorithm()].stocked { // any store may have taken some
			keys = append(keys, resetKey(keys[i]))
		}
	}
	defer s.denies.forget(key)
	defer s.stocks.forget(key, limits)
	if ctx.Err() != nil {
		return left(ctx)
	}
	ended := s.leases.resetting(keys[:len(limits)])
	due, end := context.WithTimeout(ctx, s.timeout)
	defer end()
	args := append(make([]any, s.head(keys)), s.told(nil).clock, len(limits))
	calls := []call{s.call(lua.Reset(), s.siteOf(keys[0]), keys, args)}
	done := make(chan error, 1)
	go func() {
		s.exec(due, calls)
		done <- calls[0].cmd.Err()
	}()
	var err error
	select {
	case err = <-done:
	case <-due.Done(): // the client may not notice
		err = errLate
	}
	ended(err == nil)
	if err != nil && ctx.Err() != nil {
		return left(ctx)
	}
	return classified(err)
}
