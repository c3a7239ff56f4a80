package topkeys

import "time"

// Recent counts the keys of the recent part of a stream: those of the last span at
// most, and of the last half of it at least. It isn't safe for concurrent use.
type Recent struct {
	half        time.Duration
	now, before *Sketch
	since       time.Duration // when now began
}

// NewRecent returns a Recent of two sketches of a size each.
func NewRecent(size int, span time.Duration) *Recent {
	return &Recent{half: span / 2, now: New(size), before: New(size)}
}

// Add counts a key at an instant, which never goes back by more than rounding.
func (r *Recent) Add(key []byte, at time.Duration) {
	r.turn(at)
	r.now.Add(key)
}

// Sketches are those that count at an instant, for Top. They are the Recent's own,
// and change when keys are added.
func (r *Recent) Sketches(at time.Duration) []*Sketch {
	r.turn(at)
	return []*Sketch{r.now, r.before}
}

// turn begins a new sketch where the half of span is over.
func (r *Recent) turn(at time.Duration) {
	past := at - r.since
	if past < r.half {
		return
	}
	r.now, r.before = r.before, r.now
	r.now.Reset()
	if past >= 2*r.half {
		r.before.Reset() // nothing came in the half before this one
	}
	r.since = at - at%r.half
}
