package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// CheckStore tries what the limits in force need of the store's server, and charges nothing. Call
// it at the start of a program, so that a deploy fails if the password is wrong or a right is
// missing, rather than requests later. A nil error means that the limits can be decided.
//
// With redisstore, it runs the scripts, and each command that they may use, on every master, on
// keys of its own. If a right is missing, the error names it and wraps
// redisstore.ErrConfiguration, as it does if the password is wrong. If the server can't be
// reached, the error wraps redisstore.ErrUnavailable. With failover, it checks the primary. A
// store in memory has nothing to check.
//
// CheckStore checks the limits of the limiter and of its routes. It can't check those that a
// limit function returns, since they are only known during a request. Call it again after an
// Update that adds an algorithm. Each call to the server may take 5 seconds: give ctx a deadline
// if that is too long. If the store is neither in memory nor a store.Verifier, the error wraps
// errors.ErrUnsupported.
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
	if len(limits) == 0 || inside.AnswersAtOnce(in) {
		return nil
	}
	return &StoreError{fmt.Errorf("%T can't be checked, as it doesn't implement store.Verifier: %w", in, errors.ErrUnsupported)}
}
