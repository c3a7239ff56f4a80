package warn

import "sync/atomic"

const (
	// exemptLooks is how many requests an Exempts looks at.
	exemptLooks = 1000
	// exemptMost is how many of them a limiter isn't taken to be meant to exempt.
	exemptMost = 950
)

// Exempts counts requests that a limiter exempts for the address of a proxy, which has passed
// them on. It is safe for concurrent use.
type Exempts struct {
	ask            func()
	looked, passed atomic.Int64
}

// NewExempts returns an Exempts. ask is called, on a goroutine of its own, if almost all of the
// first requests are passed on and exempt.
func NewExempts(ask func()) *Exempts { return &Exempts{ask: ask} }

// Over reports whether the Exempts counts no more.
func (w *Exempts) Over() bool { return w.looked.Load() >= exemptLooks }

// Count counts a request.
func (w *Exempts) Count(passedOn bool) {
	if passedOn {
		w.passed.Add(1)
	}
	if w.looked.Add(1) == exemptLooks && w.passed.Load() >= exemptMost {
		go w.ask()
	}
}
