package stint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// slots are what a permit of Take or Wait holds, in an object of their own: if the caller drops
// the permit without Done, they are still known when the garbage collector has taken it. They
// have a finalizer, since a cleanup of the permit would take three allocations and twice the
// time. An object that refers to itself isn't finalized, so nothing in slots refers to them or
// to the permit.
type slots struct {
	version         *version
	warnings        *book // of the limiter's family
	class           uint8
	notified        notification
	observersBefore uint32
	learns          bool
	waited          time.Duration
	since           time.Time
	caller          string // who took them, if that was recorded

	one  [1]decide.Grant // what they were granted, if that is one
	more []decide.Grant  // or several
}

// slotted is a permit that holds slots until its holder calls Done.
type slotted struct {
	Permit
	story story
}

// permitOfSlots is permitOf for a slotted permit.
func permitOfSlots(n int) (p *Permit, room []decide.Grant, s *story) {
	h, of := new(slotted), new(slots)
	h.story.slots = of
	if n == 1 {
		return &h.Permit, of.one[:], &h.story
	}
	of.more = make([]decide.Grant, n)
	return &h.Permit, of.more, &h.story
}

// holdsSlots reports whether a limit of the call has slots, even in a dry run.
func holdsSlots(c *decide.Call) bool {
	for _, l := range c.Limits {
		if l.Kind.Traits().Way == waiting.ForSlot {
			return true
		}
	}
	return false
}

// oneIn is how many calls there are for one that records its caller, once a permit was dropped.
const oneIn = 64

// guard has the slots of a permit given back, and a warning given, if the permit is dropped. It
// owns them already.
func (p *Permit) guard(warnings *book) {
	if p.story == nil || p.story.slots == nil {
		return
	}
	s, of := p.story, p.story.slots
	of.version, of.warnings, of.class, of.notified, of.observersBefore = p.version, warnings, p.class, p.notified, p.observersBefore()
	of.learns, of.waited, of.since = s.learns, s.waited, s.since
	if warnings.clues.leaks.Load() && rand.Uint32()%oneIn == 0 {
		of.caller = caller()
	}
	runtime.SetFinalizer(of, drop)
}

// unguard ends guard.
func (p *Permit) unguard() {
	if p.story != nil && p.story.slots != nil {
		runtime.SetFinalizer(p.story.slots, nil)
	}
}

// caller returns where the code is that called this package.
func caller() string {
	var room [16]uintptr
	frames := runtime.CallersFrames(room[:runtime.Callers(2, room[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "github.com/stint-go/stint.") {
			return fmt.Sprintf("%s (%s:%d)", f.Function, filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// drop warns that the permit of the slots was dropped, and releases them when the lease of a
// process that had died would have ended. Nothing can end them by then: who may call Done or the
// release of Detach has the permit.
func drop(s *slots) {
	ttl := leaseTTL(s.version.backend.Store)
	if news := s.warnings.add(s.version, s.warnings.clues.leaked(s.limits(), s.caller, ttl)); news != nil {
		go give(news)
	}
	time.AfterFunc(ttl, func() { background.Do("releasing slots of a permit that was dropped", func() { releaseDropped(s) }) })
}

func (s *slots) grants() []decide.Grant {
	if s.more != nil {
		return s.more
	}
	return s.one[:]
}

// limits returns the names of the limits with slots.
func (s *slots) limits() (names []string) {
	for _, g := range s.grants() {
		if g.Limit.Kind.Traits().Way == waiting.ForSlot {
			names = append(names, g.Limit.Limit.Name())
		}
	}
	return names
}

// releaseDropped ends the slots as the permit would have.
func releaseDropped(s *slots) {
	p := &Permit{
		ctx: context.Background(), version: s.version, releases: true, class: s.class, notified: s.notified,
		state: over | s.observersBefore<<stateBits,
		story: &story{waited: s.waited, since: s.since, learns: s.learns},
	}
	p.story.outcome.Show(adaptive.Ignored) // when the work ended isn't known
	p.grants.Own(s.grants())
	p.release()
}

// defaultLeaseTTL is that of stores without leases: the default of those with.
const defaultLeaseTTL = 15 * time.Second

func leaseTTL(s store.Store) time.Duration {
	if of, ok := s.(store.Leaser); ok && of.LeaseTTL() > 0 {
		return of.LeaseTTL()
	}
	return defaultLeaseTTL
}
