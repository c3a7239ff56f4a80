package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// CheckStore tries what the limits in force need of the store's server, and charges nothing. Call
// it at the start of a program, so that a deploy fails if the password is wrong or a right is
// missing, rather than requests later. A nil error means that the limits can be decided.
//
// With redisstore it tries each command that their scripts may use, and the scripts, on keys of
// its own, on each master. The error wraps redisstore.ErrConfiguration if a right is missing, which it
// names, or if the password is wrong, and redisstore.ErrUnavailable if the server can't be reached. With
// failover it checks the primary. A store in memory has nothing to check.
//
// The limits are those of the limiter and its routes; what limit functions return isn't known
// before a request. After an Update with other algorithms, call it again. A call of the server
// may take 5 seconds, so give ctx a deadline if that is too long. A store that is neither in memory nor implements
// store.Verifier can't be checked: the error wraps errors.ErrUnsupported.
func (l *Limiter) CheckStore(ctx context.Context) error {
	v := l.inForce()
	var limits []*store.Limit
	for e := range v.plans.Entries {
		if e.Needs&limit.Local == 0 && !slices.Contains(limits, e.Limit.Limit) {
			limits = append(limits, e.Limit.Limit)
		}
	}
	in := v.backend.Store
	if of, ok := in.(store.Verifier); ok && len(limits) > 0 {
		if err := of.Verify(ctx, limits...); err != nil {
			return &StoreError{err}
		}
		return nil
	}
	if len(limits) == 0 || store.AnswersAtOnce(in) {
		return nil
	}
	return &StoreError{fmt.Errorf("%T can't be checked, as it doesn't implement store.Verifier: %w", in, errors.ErrUnsupported)}
}
