package permit

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/internal/decide"
)

// Extend raises the cost of the limits that Settle with the same arguments would settle, or charges nothing. The error
// is about the arguments, wraps the reason why the raise was canceled, or comes from the Reporter.
func (p *Core) Extend(ctx context.Context, cost int64, names []string) error {
	if p == nil || p.Issuer == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return extendError(err)
	}
	amends, err := p.amendsFor("Extend", cost, names)
	if err != nil {
		return err
	}
	if len(amends) > 1 {
		return errors.New("stint: Extend: the limits belong to several limiters: " +
			"call Extend once for each limiter, with the names of its limits")
	}
	for q, as := range amends {
		err = q.extend(ctx, as)
	}
	return err
}

// extend raises the cost of grants of p.
func (p *Core) extend(ctx context.Context, amends []decide.Amend) error {
	c := decide.Borrow()
	defer c.Free()
	c.By(p.Issuer.Backend)
	c.Timed = p.Observers != nil
	done := p.Grants.Raise(ctx, c, amends)
	canceled, _ := done.Err.(*decide.Canceled)
	if canceled != nil {
		done.Err = extendError(canceled.Err)
	}
	switch {
	case done.Asked:
		return p.Issuer.Reporter.Extended(p, c, done)
	case done.Err != nil && canceled == nil:
		return p.Issuer.Reporter.Unsettled(p, decide.Settlement{Err: done.Err})
	}
	return done.Err
}

func extendError(err error) error { return fmt.Errorf("stint: Extend: %w", err) }
