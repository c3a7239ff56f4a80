package stint

import (
	"fmt"
)

// WithoutWarnings turns off warnings of these kinds, for the limiter and those derived
// from it. Without arguments it turns off all.
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists it. To find mistakes the limiter looks at the first 10,000 requests
// of each WithKey, and keeps no key. It looks at none if all warnings that need it are turned
// off (WarnPortInKey, WarnUntrustedProxy, WarnKeysNeverRepeat, WarnOneKey).
func WithoutWarnings(kinds ...WarningKind) Option {
	return option("WithoutWarnings", func(c *config) {
		if len(kinds) == 0 {
			c.silent = ^silence(0)
		}
		for _, k := range kinds {
			if !k.known() {
				c.Errs.Bad(fmt.Sprintf("WithoutWarnings(%d)", k), "", "write constants such as stint.WarnOneKey")
				continue
			}
			c.silent |= 1 << k
		}
	})
}
