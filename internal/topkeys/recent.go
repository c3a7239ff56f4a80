package topkeys

import "time"

// Recent counts the keys of the recent part of a stream: at least those of the last half of a span,
// and at most those of the whole span. It isn't safe for concurrent use.
type Recent struct {
	half              time.Duration
	current, previous *Sketch
	began             time.Duration // when current began
}

// NewRecent returns a Recent of two sketches of a size each.
func NewRecent(size int, span time.Duration) *Recent {
	return &Recent{half: span / 2, current: New(size), previous: New(size)}
}

// Add counts a key at an instant, which never goes back by more than rounding.
func (r *Recent) Add(key []byte, at time.Duration) {
	r.rotate(at)
	r.current.Add(key)
}

// Sketches are those that count at an instant, for Top. They are the Recent's own,
// and change when keys are added.
func (r *Recent) Sketches(at time.Duration) []*Sketch {
	r.rotate(at)
	return []*Sketch{r.current, r.previous}
}

// rotate begins a new sketch if half of the span is over.
func (r *Recent) rotate(at time.Duration) {
	age := at - r.began
	if age < r.half {
		return
	}
	r.current, r.previous = r.previous, r.current
	r.current.Reset()
	if age >= 2*r.half {
		r.previous.Reset() // nothing came in the half before this one
	}
	r.began = at - at%r.half
}
