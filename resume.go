package stint

import (
	"context"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/permit"
)

func init() {
	permit.Travel.Keep = func(p any) []decide.Kept {
		core := &p.(*Permit).core
		if core.Issuer == nil {
			return nil
		}
		return core.Grants.Keep()
	}
	permit.Travel.Resume = func(ctx context.Context, l any, key string, kept []decide.Kept) (any, error) {
		return resume(ctx, l.(*Limiter).currentVersion(), key, kept)
	}
}

// resume returns the permit of a key that holds what was kept of another.
func resume(ctx context.Context, v *version, key string, kept []decide.Kept) (*Permit, error) {
	encoded, err := keytext.Encode(key)
	p := new(Permit)
	p.core.Context, p.core.Issuer = ctx, &v.issuer
	if to := v.events.observers(); to != nil {
		p.core.Observers = to
	}
	var wrong error
	p.core.Grants.Resume(kept, func(name string) (*limit.Limit, string) {
		for _, e := range v.plans.Base.Entries {
			if e.Name() == name {
				text, keyErr := e.Key.ForGiven(encoded, err)
				if keyErr != nil {
					wrong = keyErr
				}
				return &e.Limit, text
			}
		}
		return nil, ""
	})
	return p, wrong
}
