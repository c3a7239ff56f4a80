package stint

// Lines says what is in the limiter's lines, for tests that want them empty.
func (l *Limiter) Lines() (waiting int64, slots, turns int) {
	f := l.family
	f.slots.mu.Lock()
	defer f.slots.mu.Unlock()
	f.turns.mu.Lock()
	defer f.turns.mu.Unlock()
	return f.slots.waiting.Load(), len(f.slots.lines), len(f.turns.lines)
}

// Held is of how many keys the shares are counted.
func (l *Limiter) Held() int {
	l.family.slots.mu.Lock()
	defer l.family.slots.mu.Unlock()
	return len(l.family.slots.held)
}
