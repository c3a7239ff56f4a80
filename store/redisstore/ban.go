package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

// Ban implements store.Banner. The ban applies in all processes at once. A process with
// WithDenyCache may first answer from an earlier denial of the key, for up to a second.
func (s *Store) Ban(ctx context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	if err := store.CheckBan(d, limits...); err != nil {
		return nil, store.NotMade(fmt.Errorf("redisstore: %w", err))
	}
	call := batch.NewCall[settleRequest]()
	call.Body.banFor = int64((d + time.Microsecond - 1) / time.Microsecond)
	for i, l := range limits {
		c := store.Charge{Key: key, Limit: l, Cost: 1}
		call.Body.add(c, s.keyOf(&c), i)
	}
	w := &call.Body
	if err := s.check(ctx, w.charges, w.results); err != nil || len(limits) == 0 {
		return nil, err
	}
	w.site = s.layout.siteOf(w.keys[0]) // all in one slot: they share a tag
	if _, err := s.settles.Do(ctx, call); err != nil {
		return nil, err
	}
	return w.results, nil
}
