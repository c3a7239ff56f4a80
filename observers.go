package stint

import (
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint/internal/logs"
)

// observers are the functions that observe a limiter itself. They aren't safe for concurrent use.
type observers struct {
	given []func(Event)
	added []*func(Event) // each at an address of its own, by which it is removed
}

// add adds the last observer. It returns the function that removes it.
func (o *observers) add(last func(Event)) (remove func()) {
	at := &last
	o.added = append(o.added, at)
	return func() { o.added = slices.DeleteFunc(o.added, func(other *func(Event)) bool { return other == at }) }
}

// after returns others, the observers that were given and those added, in this order.
func (o *observers) after(others []func(Event)) []func(Event) {
	all := slices.Concat(others, o.given)
	for _, added := range o.added {
		all = append(all, *added)
	}
	return all
}

// audience is all that observe a limiter. It is immutable and replaced as a whole; a nil
// audience has no observers. A request keeps the one that it begins with, so each observer gets all
// of its events or none, whatever becomes of the limiter meanwhile.
type audience struct{ all []func(Event) }

// send passes an event to all. If one panics, the others get it all the same: who counts requests
// in flight must get both the beginning and the end of each.
func (a *audience) send(e *Event) {
	if a != nil {
		a.sendFrom(0, e)
	}
}

func (a *audience) sendFrom(i int, e *Event) {
	defer func() {
		if i < len(a.all) { // one panics
			a.sendFrom(i+1, e)
		}
	}()
	for ; i < len(a.all); i++ {
		a.all[i](e.own())
	}
}

// recipients get a limiter's events and lines. Its versions share them.
type recipients struct {
	audience atomic.Pointer[audience] // its observers, or nil if there are none; set under family.mu
	failed   atomic.Int64             // when the store last failed, in Unix nanoseconds; 0: it answers
	log      atomic.Pointer[logs.Log] // of failures, denials and warnings
}
