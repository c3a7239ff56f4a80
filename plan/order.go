package plan

import (
	"fmt"
	"io"
	"sort"
	"time"
)

// arrival is a request, and when it arrived.
type arrival struct {
	at time.Time
	Request
}

// order puts the requests of a log, which come in the order of their ends and not quite, into
// the order in which they arrived. It holds those of the last window.
type order struct {
	log    Log
	window time.Duration
	took   bool // the log says how long requests took

	held   []*arrival // by at; those of one instant in the order of the log
	free   []*arrival
	newest time.Time // end
	last   time.Time // arrival of the request that was returned last
	over   bool

	sorted, moved int64
	read          int64
	begin, end    time.Time // of the requests: the first arrival, the last end
}

// next returns the next arrival, or io.EOF. It is valid until free has it.
func (o *order) next() (*arrival, error) {
	for !o.over && (len(o.held) == 0 || o.newest.Sub(o.held[0].at) <= o.window) {
		a := o.room()
		err := o.log.Next(&a.Request)
		if err == io.EOF {
			o.over = true
			break
		}
		if err != nil {
			return nil, err
		}
		o.read++
		if err := o.put(a); err != nil {
			return nil, err
		}
	}
	if len(o.held) == 0 {
		return nil, io.EOF
	}
	a := o.held[0]
	o.held = o.held[1:]
	o.last = a.at
	return a, nil
}

func (o *order) room() *arrival {
	if n := len(o.free); n > 0 {
		a := o.free[n-1]
		o.free = o.free[:n-1]
		return a
	}
	return new(arrival)
}

// put holds a request.
func (o *order) put(a *arrival) error {
	if o.newest.Sub(a.End) > o.window && o.read > 1 {
		return fmt.Errorf("plan: the log's times run backwards: request %d ended at %s, %v before one that came before it: "+
			"give each rotated file as a log of its own, or a longer window", o.read, a.End.Format(time.RFC3339Nano), o.newest.Sub(a.End).Round(time.Millisecond))
	}
	if a.End.After(o.newest) {
		o.newest = a.End
	} else if a.End.Before(o.newest) {
		o.sorted++
	}
	a.at = a.End
	if o.took {
		a.at = a.End.Add(-max(a.Took, 0))
	}
	if a.at.Before(o.last) { // it took longer than the window
		a.at = o.last
		o.moved++
	}
	if o.begin.IsZero() || a.at.Before(o.begin) {
		o.begin = a.at
	}
	o.end = o.newest
	n := len(o.held)
	if n == 0 || !a.at.Before(o.held[n-1].at) { // as most are
		o.held = append(o.held, a)
		return nil
	}
	i := sort.Search(n, func(i int) bool { return a.at.Before(o.held[i].at) })
	o.held = append(o.held, nil)
	copy(o.held[i+1:], o.held[i:])
	o.held[i] = a
	return nil
}
