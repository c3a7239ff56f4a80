package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// Reset implements store.Resetter. A limit's leases of this store are no longer
// renewed; those of others are reported lost there (WithLost).
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) error {
	if s.wrong != nil {
		return s.wrong
	}
	args := make([]any, 0, 1+len(limits))
	args = append(args, "unlink")
	for _, l := range limits {
		if l == nil || l.Hash() == 0 {
			return fmt.Errorf("redisstore: %w", store.ErrLimit)
		}
		at := storageKey(s.prefix, key, l)
		s.leases.forget(at)
		args = append(args, at) // all in one slot: they have one tag
	}
	if len(limits) == 0 {
		return nil
	}
	defer s.denies.forget(key)
	defer s.stocks.forget(key, limits)
	if ctx.Err() != nil {
		return left(ctx)
	}
	call, end := context.WithTimeout(ctx, s.timeout)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.client.Process(call, once{redis.NewCmd(call, args...)}) }()
	var err error
	select {
	case err = <-done:
	case <-call.Done(): // the client may not have noticed
		err = errLate
	}
	if err != nil && ctx.Err() != nil {
		return left(ctx)
	}
	return classified(err)
}
