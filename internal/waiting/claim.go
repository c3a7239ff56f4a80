package waiting

import (
	"context"
	"time"
)

// Claim is a vacancy that is kept for a call while the store decides the rest of the
// call.
type Claim struct {
	line  *line
	parts []bool
	wait  []time.Duration
}

// Claim looks for vacancies that the call can take instead of charges of its own, and
// returns nil if there are none. The caller must pass the claim to Join or Drop.
func (ts *Turns) Claim(parts []Part) *Claim {
	if len(parts) == 0 {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.buckets[keyOf(&parts[0].Charge)] == nil { // as for most keys: checking its name takes no time
		return nil
	}
	l := ts.lines[kindOf(parts)]
	if l == nil {
		return nil
	}
	now := time.Now()
	c := &Claim{line: l, parts: make([]bool, len(parts)), wait: make([]time.Duration, len(parts))}
	n := 0
	for i := range parts {
		col := &l.columns[i]
		if col.vacancies() == 0 {
			continue
		}
		wait := col.parts[len(l.waiters)+col.claimed].at.Sub(now)
		switch {
		case wait > parts[i].Most:
			return nil
		case wait > 0:
			c.parts[i], c.wait[i] = true, wait
			n++
		}
	}
	if n == 0 {
		return nil
	}
	for i, claimed := range c.parts {
		if claimed {
			l.columns[i].claimed++
		}
	}
	ts.vacant.Add(int64(-n))
	return c
}

func (c *Claim) has(i int) bool { return c != nil && c.parts[i] }

// Wait returns how long the i-th part has to wait, and whether it is claimed.
func (c *Claim) Wait(i int) (time.Duration, bool) { return c.wait[i], c.parts[i] }

// Drop gives up the claim because something else has denied the call.
func (ts *Turns) Drop(ctx context.Context, c *Claim) {
	ts.mu.Lock()
	n, vacant := 0, c.line.vacant()
	for i, claimed := range c.parts {
		if claimed {
			c.line.columns[i].claimed--
			n++
		}
	}
	r := ts.vacate(c.line, n, vacant)
	ts.mu.Unlock()
	if !r.empty() {
		go ts.runAll(context.WithoutCancel(ctx), r)
	}
}
