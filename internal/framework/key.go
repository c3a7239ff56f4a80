package framework

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
)

// Key returns a key function of an adapter: fn of the framework's context, a C. If a
// request leads to no C, its error is a [*MissingError].
func Key[C any](adapter string, fn func(C) (string, error)) func(*http.Request) (string, error) {
	missing := &MissingError{adapter}
	return func(r *http.Request) (string, error) {
		switch own := r.Context().Value(ownKey{}).(type) {
		case C:
			return fn(own)
		case *Probe:
			own.adapters = append(own.adapters, adapter)
		}
		return "", missing
	}
}

// Of returns the framework's context that ctx leads to, if it is a C.
func Of[C any](ctx context.Context) (C, bool) {
	own, ok := ctx.Value(ownKey{}).(C)
	return own, ok
}

// Probe takes the place of a framework's context and records which adapters' key
// functions ask for it.
type Probe struct{ adapters []string }

// MissingError is the error of a key function whose request hasn't come through its
// adapter.
type MissingError struct{ adapter string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s.Key: the request has not come through %[1]s: %s", e.adapter, e.instead())
}

func (e *MissingError) instead() string {
	return "mount the limiter with " + e.adapter + ", or write a KeyFunc of the request"
}

// Asks records whose framework's context a key function asks for, as far as that is
// known: what a probe shows, and what later turns out to be missing for one that
// doesn't always ask. The zero Asks is empty. It is safe for concurrent use.
type Asks struct{ adapters atomic.Pointer[[]string] }

// Known reports whether the key function is known to ask for any.
func (a *Asks) Known() bool { return a.adapters.Load() != nil }

// Note records what a probe has shown.
func (a *Asks) Note(p *Probe) {
	if adapters := p.adapters; len(adapters) > 0 {
		a.adapters.CompareAndSwap(nil, &adapters)
	}
}

// Missed reports whether err comes from a key function that asked for a context the
// request doesn't lead to, and records it.
func (a *Asks) Missed(err error) bool {
	missing := (*MissingError)(nil)
	if !errors.As(err, &missing) {
		return false
	}
	a.adapters.CompareAndSwap(nil, &[]string{missing.adapter})
	return true
}

// Unfit returns why requests through an adapter can't have the key, or nil.
func (a *Asks) Unfit(adapter string) error {
	known := a.adapters.Load()
	if known == nil {
		return nil
	}
	for _, other := range *known {
		if other != adapter {
			missing := MissingError{other}
			return fmt.Errorf("%s.Key, which requests through %s don't have: %s", other, adapter, missing.instead())
		}
	}
	return nil
}
