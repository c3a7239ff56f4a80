//go:build !race

package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

const racy = "reads and then writes"

var mutants = map[string]func() mutant{
	"one after the other": func() mutant { // and what was charged stays charged
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			if err := check(charges, results); err != nil {
				return err
			}
			for i := range charges {
				if err := take(p, charges[i:i+1], results[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}}
	},
	"one after the other, given back": func() mutant { // what a limit remembers is not what it had
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			if err := check(charges, results); err != nil {
				return err
			}
			for i := range charges {
				if err := take(p, charges[i:i+1], results[i:i+1]); err != nil {
					return err
				}
				if results[i].OK || charges[i].DryRun {
					continue
				}
				for k := range i {
					c := charges[k]
					c.Cost, c.Receipt = 0, results[k].Receipt
					settle(p, []store.Charge{c}, results[k:k+1])
					results[k].Receipt = store.Receipt{}
				}
				for k := i + 1; k < len(charges); k++ {
					c := charges[k]
					c.Cost = 0
					take(p, []store.Charge{c}, results[k:k+1])
				}
				return nil
			}
			return nil
		}}
	},
	"refunded twice after a reset": func() mutant {
		reset := map[string]bool{}
		return mutant{
			reset: func(p *plain, key string, limits []*store.Limit) {
				reset[key] = true
				_, _ = p.Reset(context.Background(), key, limits...)
			},
			settle: func(p *plain, charges []store.Charge, results []store.Result) error {
				if len(charges) == 1 && reset[charges[0].Key] {
					_ = settle(p, charges, results)
				}
				return settle(p, charges, results)
			},
		}
	},
	"a ban by hand that wipes the count": func() mutant { // and shortens a longer ban
		return mutant{ban: func(p *plain, key string, d time.Duration, limits []*store.Limit) ([]store.Result, error) {
			if store.CheckBan(d, limits...) == nil {
				_, _ = p.Reset(context.Background(), key, limits...)
			}
			return p.Ban(context.Background(), key, d, limits...)
		}}
	},
	"a ban by hand of the first limit": func() mutant {
		return mutant{ban: func(p *plain, key string, d time.Duration, limits []*store.Limit) ([]store.Result, error) {
			results, err := p.Ban(context.Background(), key, d, limits[:min(len(limits), 1)]...)
			return append(results, make([]store.Result, max(len(limits)-len(results), 0))...), err
		}}
	},
	"a ban by hand that is added": func() mutant {
		return mutant{ban: func(p *plain, key string, d time.Duration, limits []*store.Limit) ([]store.Result, error) {
			if results, err := p.Ban(context.Background(), key, d, limits...); err != nil || len(limits) != 1 || results[0].Begun {
				return results, err
			}
			r, err := p.Ban(context.Background(), key, time.Millisecond, limits...)
			if err == nil && r[0].RetryAfter < 24*time.Hour {
				return p.Ban(context.Background(), key, r[0].RetryAfter+d, limits...)
			}
			return r, err
		}}
	},
	"no look at duplicates": func() mutant {
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			err := take(p, charges, results)
			if err == store.ErrDuplicate {
				return take(p, charges[:1], results[:1])
			}
			return err
		}}
	},
	"no check":             func() mutant { return mutant{take: lenient(take)} },
	"no check of Settle":   func() mutant { return mutant{settle: lenient(settle)} },
	"results of bad calls": func() mutant { return mutant{take: touching(take), settle: touching(settle)} },
	"peeks charge":         func() mutant { return charged(func(c *store.Charge) { c.Cost = max(c.Cost, min(1, c.Cost+1)) }) },
	"no dry runs":          func() mutant { return charged(func(c *store.Charge) { c.DryRun = false }) },
	"dry runs only":        func() mutant { return charged(func(c *store.Charge) { c.DryRun = true }) },
	"no waiting":           func() mutant { return charged(func(c *store.Charge) { c.MaxWait = 0 }) },
	"waiting rounded": func() mutant {
		return charged(func(c *store.Charge) { c.MaxWait = c.MaxWait.Truncate(time.Millisecond) })
	},
	"retry rounded": func() mutant { return answered(rounded) },
	"no Never": func() mutant {
		return answered(func(_ *store.Charge, r *store.Result) { r.RetryAfter = min(r.RetryAfter, time.Hour*24*365) })
	},
	"never says Never": func() mutant { return answered(never) },
	"held forgotten":   func() mutant { return answered(func(_ *store.Charge, r *store.Result) { r.Held = 0 }) },
	"held without the charge": func() mutant {
		return answered(func(c *store.Charge, r *store.Result) {
			if c.Limit.Algorithm() == store.Concurrency {
				r.Held -= r.Receipt.Cost
			}
		})
	},
	"held up to the number": func() mutant {
		return answered(func(c *store.Charge, r *store.Result) { r.Held = min(r.Held, c.Limit.Spec().Units) })
	},
	"rates hold what is used": func() mutant {
		return answered(func(c *store.Charge, r *store.Result) { r.Held = max(0, c.Limit.Spec().Units-r.Remaining) })
	},
	"held forgotten by Settle": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			err := settle(p, charges, results)
			if err == nil {
				for i := range results {
					results[i].Held = 0
				}
			}
			return err
		}}
	},
	"delay forgotten": func() mutant { return answered(func(_ *store.Charge, r *store.Result) { r.Delay = 0 }) },
	"reset in seconds": func() mutant {
		return answered(func(_ *store.Charge, r *store.Result) { r.ResetAfter = r.ResetAfter.Truncate(time.Second) })
	},
	"numbers rounded": func() mutant {
		return numbered(func(s *store.Spec) {
			for zeros := int64(1); s.Units/zeros >= 1000; zeros *= 10 {
				s.Units -= s.Units % (10 * zeros)
			}
		})
	},
	"key and limit joined": func() mutant { return keyed(func(l, k string) (string, string) { return "x", l + ":" + k }) },
	"joined by a dash":     func() mutant { return keyed(func(l, k string) (string, string) { return "x", l + "-" + k }) },
	"keys cut":             func() mutant { return keyed(func(l, k string) (string, string) { return l, k[:min(len(k), 250)] }) },
	"keys trimmed":         func() mutant { return keyed(func(l, k string) (string, string) { return l, strings.TrimSpace(k) }) },
	"keys in lower case":   func() mutant { return keyed(func(l, k string) (string, string) { return l, strings.ToLower(k) }) },
	"keys until a zero": func() mutant {
		return keyed(func(l, k string) (string, string) { k, _, _ = strings.Cut(k, "\x00"); return l, k })
	},
	"keys by their tag":     func() mutant { return keyed(func(l, k string) (string, string) { return l, tag(k) }) },
	"limits don't matter":   func() mutant { return keyed(func(l, k string) (string, string) { return "x", k }) },
	"limits in lower case":  func() mutant { return keyed(func(l, k string) (string, string) { return strings.ToLower(l), k }) },
	"limits are registered": func() mutant { return registered() },
	"periods together": func() mutant { // and algorithms apart
		return named(func(l *store.Limit) string { return fmt.Sprint(l.Name(), l.Algorithm()) })
	},
	"a state for each number of units": func() mutant {
		return named(func(l *store.Limit) string { return fmt.Sprint(l.StateName(), l.Spec().Units) })
	},
	"a state for each burst": func() mutant {
		return named(func(l *store.Limit) string { return fmt.Sprint(l.StateName(), l.Spec().Burst) })
	},
	"more forgotten": func() mutant { return answered(func(_ *store.Charge, r *store.Result) { r.MoreAfter = 0 }) },
	"more at the reset": func() mutant {
		return answered(func(_ *store.Charge, r *store.Result) { r.MoreAfter = r.ResetAfter })
	},
	"a clock of milliseconds": func() mutant {
		return ticking(func(n store.Now) store.Now { n.Steady -= n.Steady % 1000; return n })
	},
	"a clock that drifts": func() mutant {
		return ticking(func(n store.Now) store.Now { n.Steady += n.Steady / 1_000_000; return n })
	},
	"a wall clock off by a minute": func() mutant {
		return ticking(func(n store.Now) store.Now { n.Wall += 60_000_000; return n })
	},
	"one lease for all": func() mutant {
		return ticking(func(n store.Now) store.Now { n.Lease = store.Lease(1); return n })
	},
	"forgets in half the time": func() mutant { return forgetful(2) },
	"forgets at the reset":     func() mutant { return forgetful(1) }, // not after the Lifetime
	"forgets a little early":   func() mutant { return forgetful(1.000001) },
	"forgets the oldest": func() mutant {
		var order []place
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			for _, c := range charges {
				if c.Limit == nil {
					continue
				}
				if at := p.placeOf(c); !slices.Contains(order, at) {
					order = append(order, at)
				}
			}
			for ; len(order) > 1000; order = order[1:] {
				delete(p.states, order[0])
			}
			return take(p, charges, results)
		}}
	},
	"settles nothing": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i := range charges {
				charges[i].Cost = charges[i].Receipt.Cost
			}
			return settle(p, charges, results)
		}}
	},
	"settles the first": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			if err := store.Check(charges, results); err != nil || len(charges) == 0 {
				return err
			}
			return settle(p, charges[:1], results[:1])
		}}
	},
	"a denial writes nothing": func() mutant { // as was true before there were bans
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			before := make([]store.State, len(charges))
			p.mu.Lock()
			for i, c := range charges {
				if c.Limit != nil {
					before[i] = p.states[p.placeOf(c)]
				}
			}
			p.mu.Unlock()
			err := take(p, charges, results)
			if err == nil && slices.ContainsFunc(results, func(r store.Result) bool { return !r.OK }) {
				p.mu.Lock()
				defer p.mu.Unlock()
				for i, c := range charges {
					p.keep(p.placeOf(c), before[i])
				}
			}
			return err
		}}
	},
	"every denial is final": func() mutant { // the first of a caller that waits, too
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i := range charges {
				charges[i].Final = true
			}
			return take(p, charges, results)
		}}
	},
	"a ban settles nothing": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i := range charges {
				if l := charges[i].Limit; l != nil && l.Algorithm() == store.Ban {
					charges[i].Cost = 0
				}
			}
			return settle(p, charges, results)
		}}
	},
	"a ban counts by itself": func() mutant { // one of each instant, and not with the others
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			others, ban := slices.Clone(charges), -1
			for i := range others {
				if others[i].Limit != nil && others[i].Limit.Algorithm() == store.Ban && len(others) > 1 {
					ban, others[i].DryRun = i, true // looked at, and too late
				}
			}
			err := take(p, others, results)
			if err == nil && ban >= 0 && !results[ban].OK && !charges[ban].DryRun {
				for i := range results {
					if results[i].Receipt.Cost > 0 {
						others[i].Cost, others[i].Receipt = 0, results[i].Receipt
						settle(p, others[i:i+1], results[i:i+1])
						results[i].Receipt = store.Receipt{}
					}
				}
			}
			return err
		}}
	},
	"refunds by cost": func() mutant { // whatever time has given back meanwhile
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i := range charges {
				charges[i].Receipt.Mark = 1 << 50
				charges[i].Receipt.Instant = 0
			}
			return settle(p, charges, results)
		}}
	},
	"no debt": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i := range charges {
				if charges[i].Cost <= store.MaxCost {
					charges[i].Cost = min(charges[i].Cost, charges[i].Receipt.Cost)
				}
			}
			return settle(p, charges, results)
		}}
	},
	"releases by count": func() mutant {
		return mutant{settle: func(p *plain, charges []store.Charge, results []store.Result) error {
			for _, c := range charges {
				at := place{}
				if c.Limit != nil && c.Limit.Algorithm() == store.Concurrency {
					at = p.placeOf(c)
				}
				if s := p.states[at]; at != (place{}) && len(inside.State(&s).Log) > 0 && c.Receipt.Cost > 0 {
					inside.State(&s).W[algorithm.Held] = max(0, inside.State(&s).W[algorithm.Held]-c.Receipt.Cost)
					p.states[at] = s
				}
			}
			return settle(p, charges, results)
		}}
	},
	"resets the key": func() mutant {
		return mutant{reset: func(p *plain, key string, _ []*store.Limit) {
			maps.DeleteFunc(p.states, func(at place, _ store.State) bool { return at.key == key })
		}}
	},
	"resets the limit": func() mutant {
		return mutant{reset: func(p *plain, _ string, limits []*store.Limit) {
			maps.DeleteFunc(p.states, func(at place, _ store.State) bool {
				return slices.ContainsFunc(limits, func(l *store.Limit) bool { return p.name(l) == at.limit })
			})
		}}
	},
	"resets nothing": func() mutant { return mutant{reset: func(*plain, string, []*store.Limit) {}} },
	racy: func() mutant { // two callers can see the same state
		return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
			if err := check(charges, results); err != nil {
				return err
			}
			p.mu.Lock()
			now := p.now()
			states := make([]store.State, len(charges))
			for i, c := range charges {
				states[i] = p.states[p.placeOf(c)]
				inside.State(&states[i]).Log = slices.Clone(inside.State(&states[i]).Log)
			}
			p.mu.Unlock()
			store.Decide(now, charges, states, results)
			time.Sleep(time.Nanosecond) // others run
			p.mu.Lock()
			defer p.mu.Unlock()
			for i, c := range charges {
				p.keep(p.placeOf(c), states[i])
			}
			return nil
		}}
	},
}

// check also finds what is named twice.
func check(charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	for i := range charges {
		for k := range i {
			if charges[i].Key == charges[k].Key && charges[i].Limit.StateName() == charges[k].Limit.StateName() {
				return store.ErrDuplicate
			}
		}
	}
	return nil
}

// lenient makes something of what is malformed.
func lenient(call func(*plain, []store.Charge, []store.Result) error) func(*plain, []store.Charge, []store.Result) error {
	return func(p *plain, charges []store.Charge, results []store.Result) error {
		n := min(len(charges), len(results))
		good := slices.Clone(charges[:n])
		for i := range good {
			good[i].Cost = min(max(good[i].Cost, 0), store.MaxCost)
			if good[i].Limit == nil {
				return nil
			}
		}
		return call(p, good, results[:n])
	}
}

func touching(call func(*plain, []store.Charge, []store.Result) error) func(*plain, []store.Charge, []store.Result) error {
	return func(p *plain, charges []store.Charge, results []store.Result) error {
		clear(results)
		return call(p, charges, results)
	}
}

func rounded(_ *store.Charge, r *store.Result) {
	if r.RetryAfter != store.Never {
		r.RetryAfter = (r.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
	}
}

func never(_ *store.Charge, r *store.Result) {
	if r.RetryAfter == store.Never {
		r.RetryAfter = time.Hour
	}
}

func tag(key string) string {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i:], '}'); j > 1 {
			return key[i+1 : i+j]
		}
	}
	return key
}

// registered keeps the first numbers it has seen of a limit.
func registered() mutant {
	limits := map[string]*store.Limit{}
	return charged(func(c *store.Charge) {
		if c.Limit == nil {
			return
		}
		if l, found := limits[c.Limit.Name()]; found && l.Algorithm() == c.Limit.Algorithm() {
			c.Limit = l
		}
		limits[c.Limit.Name()] = c.Limit
	})
}

// named keeps states under other names.
func named(name func(*store.Limit) string) mutant {
	p := newPlain()
	p.name = name
	return mutant{plain: p}
}

// ticking reads another clock.
func ticking(change func(store.Now) store.Now) mutant {
	p := newPlain()
	p.change = change
	return mutant{plain: p}
}

// forgetful drops a key before its time.
func forgetful(by float64) mutant {
	until := map[place]time.Time{}
	return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
		for at, t := range until {
			if !time.Now().Before(t) {
				delete(p.states, at)
				delete(until, at)
			}
		}
		err := take(p, charges, results)
		if err == nil {
			for i, c := range charges {
				if c.Limit.Algorithm() != store.Concurrency {
					until[p.placeOf(c)] = time.Now().Add(time.Duration(float64(results[i].ResetAfter) / by))
				}
			}
		}
		return err
	}}
}
