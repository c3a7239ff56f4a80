package mistakes

import "sync/atomic"

// mostBuilt is how many limiters a program makes by New, or derives from one by With, before it is
// warned.
const mostBuilt = 1000

// Made is the number of limiters that New has made in this process.
var Made atomic.Int64

// Builds counts the limiters that were derived from one. It is safe for concurrent use. The zero Builds
// has counted none.
type Builds struct{ derived atomic.Int64 }

// Count counts a limiter. derived says that With made it, not New. The mistake is found once in a process
// for New, and once in a family for With.
func (b *Builds) Count(v *View, derived bool) []Finding {
	count := &Made
	if derived {
		count = &b.derived
	}
	if v.Ignored.Has(Rebuilt) || count.Add(1) != mostBuilt {
		return nil
	}
	found := Finding{Kind: Rebuilt, applies: func(*View) bool { return true }}
	if derived {
		found.text = "1,000 limiters were made by With, probably one for each request, and they stay in memory: " +
			"make limiters once, at start-up"
	}
	return []Finding{found}
}
