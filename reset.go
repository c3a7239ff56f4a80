package stint

import (
	"context"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Reset forgets what key has used of the limits named, and the slots it holds. If no
// limit is named, it resets all of the limiter's limits, including those of its routes and those
// that a WithLimitSource has for key. A Ban ends, and forgets its denials. An AdaptiveConcurrency
// starts anew for key. Limits with a constant key are left alone, and naming one is an error; see
// ResetLimit. The limits of a WithLimitFunc aren't known by a key: if the limiter has no others,
// that is an error. Errors of the source are those of Peek.
//
// If requests admitted before the Reset are refunded after it, the key can use what they
// give back on top of its limit.
//
// The store must implement store.Resetter, as those of memstore and redisstore do, and
// one of failover if both of its sides do. With any other store Reset returns an error.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...string) error {
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	v := l.inForce()
	entries, sourced, known, err := v.entriesOf(ctx, key)
	if err != nil {
		return err
	}
	if entries = append(entries, sourced...); len(entries) == 0 && !known {
		return errUncharged
	}
	for _, name := range limits {
		switch known, keyed, _ := keyKinds(entries, name); {
		case !known:
			return fmt.Errorf("stint: Reset: the limiter has no limit %q", name)
		case !keyed:
			return fmt.Errorf("stint: Reset: the key of %q is constant: write ResetLimit", name)
		}
	}
	return reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Key.Constant != "" || len(limits) > 0 && !slices.Contains(limits, e.Name()) {
			return ""
		}
		return encoded
	})
}

// keyKinds reports whether there is a limit of a name, whether some request has a key of
// its own there, and whether some have a constant one.
func keyKinds(entries []*read.Entry, name string) (known, keyed, constant bool) {
	for _, e := range entries {
		if e.Name() == name {
			known, keyed, constant = true, keyed || e.Key.Constant == "", constant || e.Key.Constant != ""
		}
	}
	return known, keyed, constant
}

// ResetLimit resets one limit that has a constant key, such as Global: what everybody
// together has used of it is forgotten. The name of any other limit is an error.
func (l *Limiter) ResetLimit(ctx context.Context, name string) error {
	v := l.inForce()
	entries := slices.Collect(v.plans.Entries)
	switch known, _, constant := keyKinds(entries, name); {
	case !known:
		return fmt.Errorf("stint: ResetLimit: the limiter has no limit %q", name)
	case !constant:
		return fmt.Errorf("stint: ResetLimit: the key of %q isn't constant: write Reset with the key to forget", name)
	}
	return reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Name() != name {
			return ""
		}
		return e.Key.Constant
	})
}

// reset makes each of the limits of entries forget the key that keyOf returns, unless
// that is "".
func reset(ctx context.Context, v *version, entries []*read.Entry, keyOf func(*read.Entry) string) error {
	limits, stored := map[string][]*store.Limit{}, false
	for _, e := range entries {
		if key := keyOf(e); key != "" && !slices.Contains(limits[key], e.Limit.Limit) {
			limits[key] = append(limits[key], e.Limit.Limit)
			stored = stored || e.Needs&limit.Local == 0
		}
	}
	if _, can := v.backend.Store.(store.Resetter); stored && !can {
		return fmt.Errorf("stint: Reset: %T doesn't implement store.Resetter: write a store that does, such as those of memstore and redisstore", v.backend.Store)
	}
	for key, limits := range limits {
		if err := v.backend.Local.Reset(ctx, key, limits...); err != nil {
			return &StoreError{err}
		}
		for _, l := range limits { // slots of it may be free now
			v.backend.Lines.Wake(waiting.KeyIn(l, key))
		}
	}
	return nil
}
