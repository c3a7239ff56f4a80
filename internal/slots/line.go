package slots

import "slices"

// line is the waiters for the slots of one key: a queue for each class, so that
// finding the head looks at one waiter of each.
type line struct {
	classes [Classes][]*Waiter // in the order in which they arrived
	n       int64
}

// insert puts a waiter where it belongs in its class. A waiter from another line may
// have arrived before some that wait here.
func (l *line) insert(w *Waiter) {
	q := &l.classes[w.Class]
	i := len(*q)
	for i > 0 && (*q)[i-1].Arrived.After(w.Arrived) {
		i--
	}
	*q = slices.Insert(*q, i, w)
	w.inLine = true
	l.n++
}

// remove takes a waiter out of the line.
func (l *line) remove(w *Waiter) {
	q := &l.classes[w.Class]
	i := slices.Index(*q, w)
	*q = slices.Delete(*q, i, i+1)
	w.inLine = false
	l.n--
}

// head returns the waiter that asks next: the first of the highest rank.
func (l *line) head(h *held) (head *Waiter) {
	for _, q := range l.classes {
		if len(q) > 0 && (head == nil || h.rank(q[0]) > h.rank(head)) {
			head = q[0]
		}
	}
	return head
}

// last returns the waiter that is replaced first: the last of the lowest rank, among those
// for which the line is full.
func (l *line) last(h *held) (last *Waiter) {
	for _, q := range l.classes {
		for _, w := range slices.Backward(q) {
			if w.Room > l.n {
				continue
			}
			if last == nil || h.rank(w) < h.rank(last) {
				last = w
			}
			break
		}
	}
	return last
}
