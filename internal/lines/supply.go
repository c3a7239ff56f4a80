package lines

import (
	"time"

	"github.com/stint-go/stint/store"
)

// Supply is how the units come that calls of a line wait for. The zero Supply is that of slots: other
// calls release them, nobody knows when.
type Supply struct {
	// Every is the time in which a rate gives one unit.
	Every time.Duration
	// Window is the period in which Units come, perhaps all at once, or 0 if they come one by one. AtOnce: they do.
	Window time.Duration
	Units  int64
	AtOnce bool
	// Prepaid: a call waits for those before it, and not for its own units.
	Prepaid bool
}

// SupplyOf returns the supply of a limit's units.
func SupplyOf(l *store.Limit, now time.Time) Supply {
	spec := l.Spec()
	s := Supply{Units: spec.Units, Prepaid: spec.Debt || spec.Algorithm == store.WarmUp}
	period := spec.Period
	switch spec.Algorithm {
	case store.Concurrency, store.Ban:
		return Supply{}
	case store.TokenBucket, store.LeakyBucket, store.WarmUp:
	case store.FixedWindow, store.IntervalBucket, store.SlidingWindow, store.SlidingCounter, store.SlidingLog:
		if spec.Window != (store.Window{}) {
			period = spec.Window.Length(now)
		}
		s.Window, s.AtOnce = period, spec.Algorithm == store.FixedWindow || spec.Algorithm == store.IntervalBucket
	default:
		panic("no supply of " + spec.Algorithm.String())
	}
	s.Every = max(period/time.Duration(spec.Units), 1)
	return s
}

// ofSlots reports whether the units are slots.
func (s *Supply) ofSlots() bool { return s.Every == 0 }

// spacing returns how long a line leaves between two asks after a window has begun: the calls of all
// processes together would otherwise ask at once.
func (s *Supply) spacing(cost int64) time.Duration {
	if !s.AtOnce {
		return 0
	}
	return s.Every / windowPace * time.Duration(cost)
}

// passes remembers the last passes of a line.
type passes struct {
	last [measured]pass
	n    int
}

// pass is one pass of a line: when, and how many units had passed before.
type pass struct {
	at    time.Time
	units int64 // in all, with this one
}

// add records that a call of a cost has passed.
func (p *passes) add(now time.Time, cost int64) {
	units := cost
	if p.n > 0 {
		units += p.last[(p.n-1)%measured].units
	}
	p.last[p.n%measured] = pass{now, units}
	p.n++
}

// pace returns the time in which the line has got one unit, or 0 if too few calls have passed.
func (p *passes) pace() time.Duration {
	if p.n < 2 {
		return 0
	}
	first, last := p.last[max(p.n-measured, 0)%measured], p.last[(p.n-1)%measured]
	return last.at.Sub(first.at) / time.Duration(last.units-first.units)
}
