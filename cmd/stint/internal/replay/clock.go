package replay

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// clock notices times of a file that can't be right. A request whose time differs from those before it by more
// than the window is held until later ones show whether the clock has jumped or the time is wrong.
type clock struct {
	window   time.Duration
	offset   time.Duration // added to times, after the clock was set back
	newest   time.Time     // with the offset; zero before the first request
	suspects []suspect
	ready    []Request // before the requests that are still to be read
	err      error     // of the end
	jumps    []Jump
}

// suspect is a request with a doubtful time, and its line.
type suspect struct {
	Request
	number int64
	line   string
}

// Jump is a lasting step back of a log's clock. The times behind it are taken as that much later.
type Jump struct {
	// At is the file and the line.
	At string `json:"at"`
	// Back is how far the clock went back, in seconds.
	Back float64 `json:"back"`
}

// How many requests in a row make a jump a lasting one: ahead, a log was just silent. Servers that buffer their
// lines write some late.
const (
	lastingAhead = 3
	lastingBack  = 100
	lastingAtEnd = 3
	// silentAtEnd is how long a log may be silent before its last requests.
	silentAtEnd = 24 * time.Hour
)

// readInTime reads the next request whose time is right.
func (r *reader) readInTime(to *Request) error {
	c := &r.clock
	for {
		if len(c.ready) > 0 {
			*to = c.ready[0]
			c.ready = c.ready[1:]
			return nil
		}
		if c.err != nil {
			return c.err
		}
		if err := r.read(to); err != nil {
			c.err = err
			r.settleSuspects()
			continue
		}
		if r.zone != nil && to.End.Location() == r.zone {
			to.End = c.resolve(to.End)
		}
		if c.fits(to.End) {
			r.dropSuspects(func(*suspect) bool { return true })
			to.End = to.End.Add(c.offset)
			if to.End.After(c.newest) {
				c.newest = to.End
			}
			return nil
		}
		r.suspect(to)
	}
}

// resolve returns a local time. If it is one of the hour that comes twice at the end of summer time, it is the first,
// unless the log is already beyond that.
func (c *clock) resolve(at time.Time) time.Time {
	offset := func(t time.Time) int { _, seconds := t.Zone(); return seconds }
	first, second := at, at.Add(time.Hour)
	if offset(first)-offset(second) != 3600 {
		first, second = at.Add(-time.Hour), at
	}
	switch {
	case offset(first)-offset(second) != 3600:
		return at
	case c.newest.IsZero() || c.newest.Sub(first.Add(c.offset)) <= c.window:
		return first
	}
	return second
}

// fits reports whether a time is within the window of those before. If it is so by the clock before it was set
// back, the clock is right again.
func (c *clock) fits(at time.Time) bool {
	if c.newest.IsZero() {
		return false
	}
	near := func(offset time.Duration) bool { return at.Add(offset).Sub(c.newest).Abs() <= c.window }
	if near(c.offset) {
		return true
	}
	if c.offset != 0 && near(0) {
		c.offset = 0
		return true
	}
	return false
}

// suspect holds a request until it is clear whether its time is wrong.
func (r *reader) suspect(request *Request) {
	c := &r.clock
	at := request.End
	back := !c.newest.IsZero() && at.Add(c.offset).Before(c.newest)
	r.dropSuspects(func(s *suspect) bool {
		return s.End.After(at.Add(c.window)) || back && s.End.Before(at.Add(-c.window))
	})
	one := suspect{*request, r.number, string(r.last[:min(len(r.last), 200)])}
	one.Fields = slices.Clone(request.Fields)
	c.suspects = append(c.suspects, one)
	if n := len(c.suspects); back && n >= lastingBack || !back && n >= lastingAhead {
		r.acceptSuspects(back)
	}
}

// acceptSuspects takes the times of the suspects for right.
func (r *reader) acceptSuspects(back bool) {
	c := &r.clock
	if back {
		s := &c.suspects[0]
		step := c.newest.Sub(s.End.Add(c.offset))
		c.offset += step
		c.jumps = append(c.jumps, Jump{fmt.Sprintf("%s:%d", r.name, s.number), step.Seconds()})
	}
	for i := range c.suspects {
		s := &c.suspects[i]
		s.End = s.End.Add(c.offset)
		if s.End.After(c.newest) {
			c.newest = s.End
		}
		c.ready = append(c.ready, s.Request)
	}
	c.suspects = c.suspects[:0]
}

// settleSuspects decides about the suspects at the end of a log.
func (r *reader) settleSuspects() {
	c := &r.clock
	if len(c.suspects) == 0 {
		return
	}
	ahead := c.suspects[0].End.Add(c.offset).Sub(c.newest)
	if c.newest.IsZero() || len(c.suspects) >= lastingAtEnd || ahead > 0 && ahead <= silentAtEnd {
		r.acceptSuspects(!c.newest.IsZero() && ahead < 0)
		return
	}
	r.dropSuspects(func(*suspect) bool { return true })
}

// dropSuspects counts suspects as broken lines.
func (r *reader) dropSuspects(wrong func(*suspect) bool) {
	c := &r.clock
	if len(c.suspects) == 0 {
		return
	}
	kept := c.suspects[:0]
	for i := range c.suspects {
		s := &c.suspects[i]
		if !wrong(s) {
			kept = append(kept, *s)
			continue
		}
		r.countBrokenAt(s.number, []byte(s.line), "the time "+s.End.UTC().Format(time.RFC3339)+
			" is far from the times of the lines before and after it")
	}
	c.suspects = kept
}

func (r *reader) clockJumps() []Jump { return r.clock.jumps }

// cutOff returns where the file has ended early, or nil.
func (r *reader) cutOff() []string {
	if r.cut == nil {
		return nil
	}
	return []string{r.cut.Error()}
}

// faultsOf returns the jumps of a log's clocks, and the ends of files that are cut off.
func faultsOf(l Log) (jumps []Jump, cut []string) {
	if f, ok := l.(interface {
		clockJumps() []Jump
		cutOff() []string
	}); ok {
		return f.clockJumps(), f.cutOff()
	}
	return nil, nil
}

func (m *merged) clockJumps() (all []Jump) {
	for _, p := range m.parts {
		jumps, _ := faultsOf(p.log)
		all = append(all, jumps...)
	}
	return all
}

func (m *merged) cutOff() (all []string) {
	for _, p := range m.parts {
		_, cut := faultsOf(p.log)
		all = append(all, cut...)
	}
	return all
}

func (p *behindProxy) clockJumps() []Jump { jumps, _ := faultsOf(p.log); return jumps }

func (p *behindProxy) cutOff() []string { _, cut := faultsOf(p.log); return cut }

// WithReadWindow sets how far a time may be from those before it: a request beyond is skipped, unless those
// behind it show that the clock was set. The default is five minutes.
func WithReadWindow(d time.Duration) ReadOption {
	return readOption(func(c *readConfig) { c.window = d })
}

// WithZone sets the zone of times that are logged without one. The default is UTC.
func WithZone(zone *time.Location) ReadOption {
	return readOption(func(c *readConfig) { c.zone = zone })
}

func (c *readConfig) readWindow() time.Duration { return cmp.Or(c.window, 5*time.Minute) }

// endEarly makes a read error the end of the file, if it has lines before: of a compressed file that was cut
// off, as of a full disk, those are right.
func (l *lineReader) endEarly(err error) error {
	err = fmt.Errorf("%s:%d: %w", l.name, l.number+1, err)
	if l.number == 0 {
		return err
	}
	l.cut = err
	return io.EOF
}
