package wire

import (
	"slices"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// ResetKeys returns the keys of the script that forgets keys, which are those of the first limits:
// these, and behind them those that remember the reset.
func ResetKeys(keys []string, limits []*store.Limit) (all []string) {
	all = slices.Clone(keys)
	for i, key := range keys {
		if resetLifetime(limits[i]) != "" {
			all = append(all, ResetKey(key))
		}
	}
	return all
}

// ResetArgs returns the script that forgets keys, which are those of the first limits, and its
// arguments, with room before them.
func ResetArgs(keys []string, limits []*store.Limit, t Times, room int) (*scripts.Script, []any) {
	args := append(make([]any, room), t.Clock, len(keys))
	for i := range keys {
		if lifetime := resetLifetime(limits[i]); lifetime != "" {
			args = append(args, lifetime)
		}
	}
	return scripts.Reset(), args
}

// resetLifetime returns for how many milliseconds the reset of a limit is remembered, or "": for
// twice as long as what was taken before may be settled or renewed after it (reset.lua).
func resetLifetime(l *store.Limit) string {
	switch traits := TraitsOf(l); {
	case traits.Prefetchable: // any store may have taken some ahead
		return "60000"
	case traits.Leases: // any store may hold some
		return "86400000"
	}
	return ""
}

// Scripts returns the scripts that limits may need.
func Scripts(limits []*store.Limit) (all []*scripts.Script) {
	var sets []scripts.Set
	for _, l := range limits {
		a := argsOf(l)
		if slices.Contains(sets, a.set) {
			continue
		}
		sets = append(sets, a.set)
		all = append(all, scripts.Take(a.set), scripts.Take(a.set|scripts.Several), scripts.Settle(a.set), scripts.Reset())
		if a.Leases {
			all = append(all, scripts.Renew())
		}
	}
	return all
}
