package stint

import (
	"errors"
	"fmt"

	"github.com/stint-go/stint/internal/keys"
)

// Mount is for adapters, which call it when they mount the limiter. It returns an error if
// requests through the adapter can't have the key of some limit: GivenKey, or the Key of another
// adapter. The name of an adapter is its package's, such as "stintgin". Adapters panic with the
// error: each request without its key is denied, so the mistake would otherwise show only when
// requests come.
func (l *Limiter) Mount(adapter string) error {
	v := l.inForce()
	var errs []error
	check := func(what string, k *keys.Key) {
		if k.Given {
			errs = append(errs, fmt.Errorf("stint: %s: GivenKey, which requests don't have: write another WithKey, or use the limiter with Take", what))
		}
		for _, other := range k.Adapters {
			if other != adapter {
				errs = append(errs, fmt.Errorf("stint: %s: %s.Key, which requests through %s don't have: mount the limiter with %[2]s, or write a stint.KeyFunc of the request", what, other, adapter))
			}
		}
	}
	for e := range v.plans.Entries {
		check(fmt.Sprintf("limit %q", e.Name()), e.Key)
	}
	for _, f := range v.compiled.Funcs {
		check("limits of a WithLimitFunc", f.Shared.Key)
		if f.Source != nil {
			check("WithLimitSource", f.Source)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return nil
}
