package replay

import (
	"container/heap"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// arrival is a request, and when it arrived.
type arrival struct {
	at time.Time
	n  int64 // its number in the log
	Request
}

func (a *arrival) before(b *arrival) bool {
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return a.n < b.n
}

// order puts the requests of a log, which come in the order of their ends and not quite, into
// the order in which they arrived. It holds those of the last window.
//
// Most come in order, and wait in a queue. The others wait in a heap.
type order struct {
	log       Log
	window    time.Duration
	windowSet bool // by WithWindow: it is held whole
	took      bool // the log says how long requests took

	queue       []*arrival // in order
	late        arrivals
	free        []*arrival
	newestEnd   time.Time // end
	lastArrival time.Time // arrival of the request that was returned last
	atEnd       bool

	sorted, moved int64
	disorder      time.Duration // the most that a request ended before one that came before it
	read          int64
	begin, end    time.Time // of the requests: the first arrival, the last end
	oldestEnd     time.Time
	lasted        [64]int64 // requests that took at least 2^(n-1) ns
}

// Of a window that wasn't given, a busy log is held for less: what leaves the processor's caches
// costs a tenth of the speed, and such a log is seldom out of order by minutes.
const (
	heldFreely = 1 << 14 // requests
	heldAlways = 30 * time.Second
)

// due reports whether a request is no longer held.
func (o *order) due(a *arrival) bool {
	age := o.newestEnd.Sub(a.at)
	return o.atEnd || age > o.window || !o.windowSet && age > heldAlways && len(o.queue)+len(o.late) > heldFreely
}

// next returns the next arrival, or io.EOF. It is valid until free has it.
func (o *order) next() (*arrival, error) {
	for {
		first := o.first()
		if first != nil && o.due(first) {
			if len(o.late) > 0 && first == o.late[0] {
				heap.Pop(&o.late)
			} else {
				o.queue[0] = nil
				o.queue = o.queue[1:]
			}
			o.lastArrival = first.at
			return first, nil
		}
		if o.atEnd {
			return nil, io.EOF
		}
		a := o.newArrival()
		if err := o.log.Next(&a.Request); err == io.EOF {
			o.atEnd = true
			continue
		} else if err != nil {
			return nil, err
		}
		if err := o.hold(a); err != nil {
			return nil, err
		}
	}
}

// first returns the first request that is held, or nil.
func (o *order) first() *arrival {
	switch {
	case len(o.queue) == 0 && len(o.late) == 0:
		return nil
	case len(o.queue) == 0 || len(o.late) > 0 && o.late[0].before(o.queue[0]):
		return o.late[0]
	}
	return o.queue[0]
}

func (o *order) newArrival() *arrival {
	if n := len(o.free); n > 0 {
		a := o.free[n-1]
		o.free = o.free[:n-1]
		return a
	}
	return new(arrival)
}

// hold holds a request.
func (o *order) hold(a *arrival) error {
	o.read++
	a.n = o.read
	back := o.newestEnd.Sub(a.End)
	switch {
	case o.read == 1 || back < 0:
		o.newestEnd = a.End
	case back > o.window:
		return fmt.Errorf("the log's times run backwards: request %d ended at %s, %v before one that came before it: "+
			"give each rotated file as a log of its own, or a longer window", o.read, a.End.Format(time.RFC3339Nano),
			back.Round(time.Millisecond))
	case back > 0:
		o.sorted++
		o.disorder = max(o.disorder, back)
	}
	if o.read == 1 || a.End.Before(o.oldestEnd) {
		o.oldestEnd = a.End
	}
	a.at = a.End
	if o.took {
		o.lasted[bits.Len64(uint64(max(a.Took, 0)))]++
		a.at = a.End.Add(-max(a.Took, 0))
	}
	if a.at.Before(o.lastArrival) { // it took longer than the window, or what came after it is no longer held
		a.at = o.lastArrival
		o.moved++
	}
	if o.begin.IsZero() || a.at.Before(o.begin) {
		o.begin = a.at
	}
	o.end = o.newestEnd
	if n := len(o.queue); n == 0 || !a.at.Before(o.queue[n-1].at) {
		o.queue = append(o.queue, a)
	} else {
		heap.Push(&o.late, a)
	}
	return nil
}

// checkUnit returns an error if a field that was taken for seconds can't be one: most requests took longer than the
// log covers, and more than a second.
func (o *order) checkUnit(field string) error {
	if field == "" {
		return nil
	}
	span := o.newestEnd.Sub(o.oldestEnd)
	longer := int64(0)
	for n := bits.Len64(uint64(max(span, time.Second))) + 1; n < len(o.lasted); n++ {
		longer += o.lasted[n]
	}
	if 2*longer <= o.read {
		return nil
	}
	return fmt.Errorf("the field %[1]s can't be in seconds: most requests would have taken longer than the log covers (%[2]v). "+
		"Write its unit: ms=%[1]s, us=%[1]s or ns=%[1]s; or s=%[1]s if it is in seconds", field, span.Round(time.Millisecond))
}

// arrivals is a heap.
type arrivals []*arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].before(a[j]) }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(*arrival)) }
func (a *arrivals) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return x
}
