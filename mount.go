package stint

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"weak"

	"github.com/stint-go/stint/internal/keys"
)

// Mount is for adapters, which call it when they mount the limiter. It returns an error if
// requests through the adapter can't have the key of some limit: GivenKey, or the Key of another
// adapter. The name of an adapter is its package's, such as "stintgin". Adapters panic with the
// error: each request without its key is denied, so the mistake would otherwise show only when
// requests come.
//
// If a limiter isn't mounted, and nothing else uses it within an hour, it is warned about
// (WarnNotMounted).
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
	l.used.Store(true)
	return nil
}

const (
	// mountedWithin is how long after it was made a limiter is mounted at the latest.
	mountedWithin = time.Hour
	// mostAwaited bounds the timers of a program that makes limiters for its requests.
	mostAwaited = 1000
)

// awaited counts the limiters of the process that were made to be mounted.
var awaited atomic.Int64

// awaitMount warns if the limiter isn't in use after a while. It doesn't keep it from being
// collected: what nothing refers to any more isn't missed.
func (l *Limiter) awaitMount() {
	if v := l.now.Load(); v.silent.has(WarnNotMounted) || !v.limitsRequests() || awaited.Add(1) > mostAwaited {
		return
	}
	of := weak.Make(l)
	time.AfterFunc(mountedWithin, func() {
		if l := of.Value(); l != nil {
			l.warnIfUnused()
		}
	})
}

// warnIfUnused warns if the limiter is not in use.
func (l *Limiter) warnIfUnused() {
	unused := func(v *version) bool { return !l.used.Load() && v.limitsRequests() }
	v := l.inForce()
	if !unused(v) {
		return
	}
	f := finding{kind: WarnNotMounted, applies: unused}
	for e := range v.plans.Entries {
		f.limits = append(f.limits, e.Name())
	}
	l.family.warnings.warn(v, f)
}
