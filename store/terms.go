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
	// units of Scale for TokenBucket and LeakyBucket, else in tokens.
	Capacity, Queue int64
	// Largest is the largest cost that can ever pass.
	Largest int64
	// Period is in microseconds, 0 for calendar windows.
	Period int64
	// Warm is a WarmUp's whole warm-up in units of Scale.
	Warm int64
	// Longest is the furthest that anything is reserved or owed, in units of
	// Scale.
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
	if l.scale.PerTick > 0 {
		t.Longest = l.scale.within(longest)
	}
	return t
}

// Around returns the bounds of the calendar window that wall is in, in
// microseconds since Epoch, and those of windows before and after it: where
// each begins, ascending, and where the last one ends.
func (w Window) Around(wall int64, before, after int) []int64 {
	at, _ := w.bounds(wall)
	for range before {
		at, _ = w.bounds(at - 1)
	}
	bounds := make([]int64, 0, before+after+2)
	for range before + after + 2 {
		bounds = append(bounds, at)
		_, at = w.bounds(at)
	}
	return bounds
}

// Fixed reports the length of a window made by Every, in microseconds; others
// have to be looked up (Around).
func (w Window) Fixed() (length int64, ok bool) {
	return w.every.Microseconds(), w.kind == everyWindow
}
