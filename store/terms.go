package store

// Terms are a Limit's numbers as its steps use them, for a store that runs the steps
// elsewhere, such as in a server's script.
type Terms struct {
	// Numbers are the numbers that the limit's states are written under.
	Numbers Numbers
	// Scale is the unit of a rate's instants, or of a SlidingWindow's buckets.
	Scale Scale
	// Token is the units of one token of a rate, or of one bucket of a SlidingWindow.
	Token int64
	// Capacity is the units that pass at once; Queue those that may be reserved beyond it. They
	// are in units of Scale for a TokenBucket or LeakyBucket whose scale isn't wide,
	// otherwise in tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds; 0 for calendar windows.
	Period int64
	// Warm is the whole warm-up of a WarmUp, in units of Scale or in ticks of a wide
	// one.
	Warm int64
	// Longest is the furthest into the future that a turn is reserved or a debt
	// reaches, in units of Scale or in ticks of a wide one.
	Longest int64
	// Patience is the longest MaxWait that counts, in microseconds. Longer ones are
	// treated as this.
	Patience int64
}

// Terms returns the numbers that the limit's steps use.
func (l *Limit) Terms() Terms {
	t := Terms{
		Numbers: l.numbers, Scale: l.scale, Token: l.token,
		Capacity: l.capacity, Queue: l.queue, Largest: l.largest,
		Period: l.period, Warm: l.warm, Patience: l.patience,
	}
	if t.Longest = l.most.int(); l.scale.Wide {
		t.Longest = longest.Microseconds()
	}
	return t
}

// Span is one window of the calendar, from Start up to but not including End, in
// microseconds since Epoch. The windows of a calendar are numbered in order. A number
// is skipped where a time zone has skipped a day.
type Span struct{ Number, Start, End int64 }

// Around returns the calendar window that contains wall, in microseconds since Epoch,
// with the given numbers of windows before and after it.
func (w Window) Around(wall int64, before, after int) []Span {
	at, _ := w.bounds(wall)
	for range before {
		at, _ = w.bounds(at - 1)
	}
	spans := make([]Span, before+after+1)
	for i := range spans {
		n, _ := w.number(at)
		_, end := w.bounds(at)
		spans[i] = Span{Number: n, Start: at, End: end}
		at = end
	}
	return spans
}

// Fixed returns the length, in microseconds, of a window made by Every. For all others
// ok is false: their lengths vary (see Around).
func (w Window) Fixed() (length int64, ok bool) {
	return w.every.Microseconds(), w.kind == everyWindow
}

// Nominal returns the approximate length of a window in microseconds: that of the
// longest window in a location whose clocks never change.
func (w Window) Nominal() int64 { return w.nominal() }
