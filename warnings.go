package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/mistakes"
)

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	// Kind is one of the kinds that WithoutWarnings lists, such as "one-key". docs/warnings.md
	// explains each mistake and its correction.
	Kind string
	// Limits has the names of the limits that the warning is about. If the warning is about a
	// key, Limits has the names of the limits with that key. Limits is empty for warnings about
	// the limiter, and about the key of a WithLimitFunc.
	Limits []string
	// Text describes the mistake and its correction. Link is the address of the mistake's row
	// in docs/warnings.md.
	Text, Link string
}

// WithoutWarnings turns off warnings of the given kinds, for the limiter and limiters derived
// from it. Without arguments it turns off all warnings. docs/warnings.md explains the kinds
// below. New returns an error for any other kind.
//
//	forwarding-header  port-in-key  untrusted-proxy  keys-never-repeat  one-key
//	rebuilt  cost-too-high  nothing-waits  store-forgets  quota-unreachable
//	update-drops  store-full  name-conflict
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists the mistake. To find mistakes, the limiter inspects the first 10,000
// requests of each WithKey, without storing keys. It inspects no requests if port-in-key,
// untrusted-proxy, keys-never-repeat and one-key are all turned off.
func WithoutWarnings(kinds ...string) Option {
	return option("WithoutWarnings", func(c *config) {
		if len(kinds) == 0 {
			c.ignored = mistakes.AllKinds
		}
		for _, name := range kinds {
			if k, known := mistakes.KindOf(name); known {
				c.ignored.Add(k)
			} else {
				c.Errs.Add(fmt.Sprintf("WithoutWarnings(%.80q)", name), "", "write "+mistakes.KindNames())
			}
		}
	})
}

// warningOf returns the warning of a finding.
func warningOf(f *mistakes.Finding) Warning {
	kind := f.Kind.String()
	return Warning{kind, f.Limits, f.Text(), "https://github.com/stint-go/stint/blob/main/docs/warnings.md#" + kind}
}
