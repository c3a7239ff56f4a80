package store

// Terms are a Limit's numbers as its steps count in them: what a store needs
// that runs the steps elsewhere, such as a script in a server.
type Terms struct {
	// Numbers are what the limit's states are written under.
	Numbers Numbers
	// Scale is the unit of a rate's instants and of a SlidingWindow's buckets.
	Scale Scale
	// Token is, of rates, the units of one token; of a SlidingWindow of one
	// bucket.
	Token int64
	// Capacity is what passes at once, Queue what may be reserved beyond it: in
	// units of Scale for TokenBucket and LeakyBucket, unless it is wide, else in
	// tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds, 0 for calendar windows.
	Period int64
	// Warm is a WarmUp's whole warm-up in units of Scale, or ticks of a wide one.
	Warm int64
	// Longest is the furthest that anything is reserved or owed, in units of
	// Scale, or ticks of a wide one.
	Longest int64
	// Patience is the longest MaxWait that counts, in microseconds.
	Patience int64
}

// Terms returns the limit's numbers worked out.
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

// Span is one window of the calendar: it begins at Start and is over at End, in
// microseconds since Epoch. The windows of a calendar are numbered in their order;
// some number may be left out, where a zone has left out a day.
type Span struct{ Number, Start, End int64 }

// Around returns the calendar window that wall is in, in microseconds since Epoch,
// and windows before and after it.
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

// Fixed reports the length of a window made by Every, in microseconds; others
// have to be looked up (Around).
func (w Window) Fixed() (length int64, ok bool) {
	return w.every.Microseconds(), w.kind == everyWindow
}

// Nominal is about the length of a window, in microseconds: that of the longest where
// the clocks are never changed.
func (w Window) Nominal() int64 { return w.nominal() }
