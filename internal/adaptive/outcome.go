package adaptive

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Outcome is how a request went. It is safe for concurrent use.
type Outcome struct{ value atomic.Uint32 }

// Ending is the known outcome of a request.
type Ending uint32

const (
	Finished Ending = iota // also if the outcome isn't known
	Dropped                // for lack of capacity, as only a handler knows
	Failed
	Ignored // its duration says nothing about the service's load
)

// Report records the ending that the handler reports.
func (o *Outcome) Report(e Ending) { o.value.Store(uint32(e)) }

// Show records the ending that the end of the request shows, unless the handler has reported one.
func (o *Outcome) Show(e Ending) { o.value.CompareAndSwap(uint32(Finished), uint32(e)) }

// Open reports whether nothing is recorded yet.
func (o *Outcome) Open() bool { return o.value.Load() == uint32(Finished) }

// Sample returns what limits learn from the request, or nil if they learn nothing. It
// took that long. err is the error of its context, or nil if that says nothing.
func (o *Outcome) Sample(took time.Duration, err error) *Sample {
	s := &Sample{RTT: took}
	switch e := Ending(o.value.Load()); {
	case e == Ignored:
		return nil
	case e == Failed, errors.Is(err, context.DeadlineExceeded):
		s.Dropped, s.Failed = e == Dropped, true
	default:
		s.Dropped, s.Cut = e == Dropped, err != nil
	}
	return s
}
