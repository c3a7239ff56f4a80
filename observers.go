package stint

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// BriefObserver observes a limiter at a third of what a function costs that gets
// everything as events, since no event is built for a plain request that passes. A
// request is plain if only rates, quotas and bans apply to it, none of which lets it wait
// or reports a denial in a dry run, and if nothing is settled by its response.
//
// Its methods are called as a function of Limiter.Observe is, but before those.
type BriefObserver interface {
	// Observe gets all events but EventAdmitted and EventEnded of plain requests.
	Observe(Event)
	// Passed is called instead of EventAdmitted for a plain request. route is the
	// Route of that event, charges are those asked of the limits, results are their
	// answers, and storeTook is how long the store took. The slices are valid until
	// Passed returns and must not be changed. Charges have keys, which may be addresses
	// or credentials.
	Passed(route string, charges []store.Charge, results []store.Result, storeTook time.Duration)
	// Ended is called instead of EventEnded for a plain request.
	Ended()
}

// observer is one observer.
type observer struct {
	number uint32 // from 1; an observer of a family has a higher one than those before
	notify func(Event)
	brief  BriefObserver // gets plain requests in brief; nil if notify gets them too
}

var observersMade atomic.Uint32

// observers are the observers that a limiter itself has. They aren't safe for concurrent
// use.
type observers struct {
	given []observer
	added []*observer // each at an address of its own
}

// give replaces the observers that were given before. Those added stay.
func (o *observers) give(all []func(Event)) {
	o.given = nil
	for _, f := range all {
		o.given = append(o.given, observer{number: observersMade.Add(1), notify: f})
	}
}

// add adds the last observer. It returns the function that removes it.
func (o *observers) add(last observer) (remove func()) {
	last.number = observersMade.Add(1)
	at := &last
	o.added = append(o.added, at)
	return func() { o.added = slices.DeleteFunc(o.added, func(other *observer) bool { return other == at }) }
}

// after returns others, the observers that were given and those added, in this order.
func (o *observers) after(others []observer) []observer {
	all := slices.Concat(others, o.given)
	for _, added := range o.added {
		all = append(all, *added)
	}
	return all
}

// audience is all that observe a limiter. It is immutable and replaced as a whole; a nil
// audience has no observers.
type audience struct{ all []observer }

// next returns a number above those of all observers in the audience. A request keeps it
// from its beginning: only observers with lower numbers get its events, so that each gets
// all of them or none.
func (a *audience) next() uint32 {
	next := uint32(1)
	if a != nil {
		for i := range a.all {
			next = max(next, a.all[i].number+1)
		}
	}
	return next
}

// each calls f for the observers before a number, or for all if that is 0. If f panics for one,
// it is called for the others all the same: who counts requests in flight must get both the
// beginning and the end of each.
func (a *audience) each(before uint32, f func(*observer)) { a.eachFrom(0, before, f) }

func (a *audience) eachFrom(i int, before uint32, f func(*observer)) {
	defer func() {
		if i < len(a.all) { // f panics
			a.eachFrom(i+1, before, f)
		}
	}()
	for ; i < len(a.all); i++ {
		if o := &a.all[i]; before == 0 || o.number < before {
			f(o)
		}
	}
}

// whole reports whether there are observers before a number that get plain requests as events,
// too.
func (a *audience) whole(before uint32) bool {
	return slices.ContainsFunc(a.all, func(o observer) bool { return o.number < before && o.brief == nil })
}

// sendPassed notifies the brief observers before a number of a plain request that passes.
func (a *audience) sendPassed(before uint32, route string, charges []store.Charge, results []store.Result, storeTook time.Duration) {
	a.each(before, func(o *observer) {
		if o.brief != nil {
			o.brief.Passed(route, charges, results, storeTook)
		}
	})
}

// sendEnded notifies the brief observers before a number that a plain request has ended.
func (a *audience) sendEnded(before uint32) {
	a.each(before, func(o *observer) {
		if o.brief != nil {
			o.brief.Ended()
		}
	})
}

// recipients get a limiter's events and lines. Its versions share them.
type recipients struct {
	audience atomic.Pointer[audience] // its observers, or nil if there are none; set under family.mu
	failing  atomic.Bool              // the store has failed, so its next answers are checked
	log      atomic.Pointer[logs.Log] // of failures, denials and warnings
	dryRuns  dryRuns                  // to be logged
}

// notification is how observers were notified that a request is admitted. They are notified of
// its end likewise.
type notification uint8

const (
	notNotified notification = iota
	byEvent
	inBrief // brief ones by Passed, all others by an event
)
