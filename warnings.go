package stint

import (
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/warn"
)

// look sends warnings about what the requests with a key have shown so far.
func (f *family) look(s *warn.Source) {
	f.mu.Lock()
	all, to := f.warn(s, s.Found()), f.members[0]
	f.mu.Unlock()
	to.notify(notices{warnings: all})
}

// warn returns notices of what was found about a key and is new. The caller holds f.mu.
func (f *family) warn(s *warn.Source, found warn.Set) []warn.Notice {
	users := make([]warn.User, len(f.members))
	for i, m := range f.members {
		users[i] = m.now.Load()
	}
	return f.warnings.Find(users, s, found)
}

// Silent implements warn.User.
func (v *version) Silent() warn.Set { return v.silent }

// Uses implements warn.User.
func (v *version) Uses(s *warn.Source) (limits []string, uses bool) {
	for e := range v.entries() {
		if e.source == s {
			limits, uses = append(limits, e.limit.Name()), true
		}
	}
	return limits, uses || slices.ContainsFunc(v.funcs, func(f *limitFunc) bool { return f.source == s })
}

// Warn implements warn.User.
func (v *version) Warn(w *warn.Warning) {
	told := warningOf(w)
	v.limiter.tell(Event{Kind: EventWarning, Warning: &told})
}

// WarningKind is a kind of likely mistake that a limiter warns about. docs/warnings.md
// says for each what it means, when it is found and how to fix it.
type WarningKind uint8

const (
	// WarnForwardingHeader: the key is a forwarding header, which any client can
	// write. New finds a Header; that a KeyFunc returns one, the first requests show.
	WarnForwardingHeader = WarningKind(warn.ForwardingHeader)
	// WarnPortInKey: the key contains the caller's port.
	WarnPortInKey = WarningKind(warn.PortInKey)
	// WarnUntrustedProxy: requests come through a proxy, and their key is the proxy's
	// address.
	WarnUntrustedProxy = WarningKind(warn.UntrustedProxy)
	// WarnNoPattern: the key contains Pattern, and no request has a pattern.
	WarnNoPattern = WarningKind(warn.NoPattern)
	// WarnKeysNeverRepeat: no key came twice in the first 10,000 requests.
	WarnKeysNeverRepeat = WarningKind(warn.KeysNeverRepeat)
	// WarnOneKey: almost all of the first 10,000 requests have the same key.
	WarnOneKey = WarningKind(warn.OneKey)
	// WarnRebuilt: limiters are built again and again while requests are served.
	WarnRebuilt = WarningKind(warn.Rebuilt)
)

// String returns the kind as logs and links have it: "one-key".
func (k WarningKind) String() string {
	if !warn.Kind(k).Known() {
		return fmt.Sprintf("WarningKind(%d)", k)
	}
	return warn.Kind(k).Name()
}

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	Kind WarningKind
	// Limits are the names of the limits whose key the warning is about. It is empty
	// if the warning isn't about a key, or about one of a WithLimitFunc.
	Limits []string
	// Text says what was found and what to write instead. Link leads to the section
	// on it in docs/warnings.md.
	Text, Link string
}

func warningOf(w *warn.Warning) Warning {
	return Warning{WarningKind(w.Kind), w.Limits, w.Kind.Text(), w.Kind.Link()}
}

// WithoutWarnings turns off warnings of these kinds, for the limiter and those derived
// from it. Without arguments it turns off all.
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists it. To find mistakes the limiter looks at half of about the
// first 10,000 requests of each WithKey, and keeps no key. It looks at none if all
// warnings that need it are turned off.
func WithoutWarnings(kinds ...WarningKind) Option {
	return limiterOption(func(c *config) {
		if len(kinds) == 0 {
			c.silent = warn.All
		}
		for _, k := range kinds {
			if !warn.Kind(k).Known() {
				c.errs.Bad(fmt.Sprintf("WithoutWarnings(%d)", k), "", "write constants such as stint.WarnOneKey")
				continue
			}
			c.silent |= 1 << k
		}
	})
}
