// Package logs writes what happens to a limiter to a slog.Logger: each message at most
// once a minute, with the number suppressed, so that a failing store fills no disk. What
// changes a state, of a store, a policy file or the limits, is written at once, at most
// three times a minute. The last line about a state still says how it is: a message that
// is suppressed and isn't repeated is written when the minute is over. The package writes
// keys only if told to.
package logs

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
)

// Interval is the shortest time between two lines of the same message, unless it changes
// a state.
const Interval = time.Minute

// changes is how many lines about a state there may be in an Interval: an outage that begins,
// ends and begins again is seen when it happens.
const changes = 3

// Message is one of the messages that exist.
type Message uint8

// The zero Message is none.
const (
	Denied Message = iota + 1
	EmptyKey
	KeyFailed
	LimitsFailed
	LimitsDenied
	StoreFailed
	StoreAnswers
	SettleFailed
	Banned
	PrimaryFailed
	PrimaryAnswers
	LeaseLost
	PolicyInForce
	PolicyRejected
	Warning
	Introduced
	LimitsChanged
	DryRun
	messages
)

// state is the subject of some messages: each reports its value from then on.
type state uint8

// The zero state is none.
const (
	ofStore state = iota + 1
	ofPrimary
	ofPolicy
	ofLimits
	states
)

var said = [messages]struct {
	level slog.Level
	text  string
	each  bool    // written whenever it comes: it was asked for, or it comes once
	ends  Message // written once after each time that this one was
	state state
	// kept: nothing repeats it, so if it is suppressed and nothing newer is said of the
	// state, it is written when the Interval is over.
	kept bool
}{
	Denied:         {level: slog.LevelDebug, text: "a request was denied", each: true},
	EmptyKey:       {level: slog.LevelWarn, text: "a request with an empty key was denied"},
	KeyFailed:      {level: slog.LevelWarn, text: "a key function failed, and the request was denied"},
	LimitsFailed:   {level: slog.LevelError, text: "the limits of a request, or its cost, could not be determined"},
	LimitsDenied:   {level: slog.LevelWarn, text: "a limit function denied a request"},
	StoreFailed:    {level: slog.LevelError, text: "the store failed to decide a request", state: ofStore},
	StoreAnswers:   {level: slog.LevelInfo, text: "the store answers again", ends: StoreFailed, state: ofStore, kept: true},
	SettleFailed:   {level: slog.LevelWarn, text: "a charge could not be settled, or a slot not released"},
	Banned:         {level: slog.LevelInfo, text: "a key is banned"},
	PrimaryFailed:  {level: slog.LevelWarn, text: "the primary store fails, and limits in memory are per process", state: ofPrimary},
	PrimaryAnswers: {level: slog.LevelInfo, text: "the primary store answers again", ends: PrimaryFailed, state: ofPrimary, kept: true},
	LeaseLost:      {level: slog.LevelError, text: "the lease of a slot that is held was lost"},
	PolicyInForce:  {level: slog.LevelInfo, text: "the policy is in force", state: ofPolicy, kept: true},
	PolicyRejected: {level: slog.LevelError, text: "the policy could not be reloaded, and the last good one stays in force", state: ofPolicy, kept: true},
	Warning:        {level: slog.LevelWarn, text: "a likely mistake", each: true},
	Introduced:     {level: slog.LevelInfo, text: "the limiter decides its first request", each: true},
	LimitsChanged:  {level: slog.LevelInfo, text: "the limits have changed", state: ofLimits, kept: true},
	DryRun:         {level: slog.LevelInfo, text: "limits in a dry run would have denied requests", each: true},
}

// Log is where the messages of one or more limiters go. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger // nil: what slog.Default is at the time
	keys   bool

	mu      sync.Mutex
	lines   [messages]line
	news    [states]news
	kept    [states]*pending // or nil
	due     []*pending       // to be written, in this order
	writing bool             // a goroutine writes the lines due
}

// pending is a message that is to be written: at once, or later unless something newer is
// said of its state.
type pending struct {
	message    Message
	ctx        context.Context
	record     slog.Record
	attrs      func() []slog.Attr // asked for when it is written; or nil
	suppressed int64              // messages before it
	timer      *time.Timer        // of one that is kept
}

// news is the record of a state.
type news struct {
	latest  Message            // of the latest line
	written [changes]time.Time // when the latest lines were written, in a ring
	next    int                // the oldest of them
}

// line is the record of a message.
type line struct {
	next       time.Time // when it may be written again
	last       time.Time // when it came, written or not
	suppressed int64     // since it was written
	open       bool      // it was written, and not yet what ends it
}

// New returns a Log to logger, or to slog.Default if that is nil. If keys is true, it
// writes keys in clear.
func New(logger *slog.Logger, keys bool) *Log { return &Log{logger: logger, keys: keys} }

// Derive returns the Log of a limiter: with its own logger and keys if it sets any,
// otherwise with those of the limiter it extends, if it extends one. It reuses the Log
// of that limiter, or the limiter's previous Log, if that has the same settings.
func Derive(above, was *Log, logger *slog.Logger, keys bool) *Log {
	if above != nil {
		logger, keys = cmp.Or(logger, above.logger), keys || above.keys
	}
	for _, same := range [...]*Log{above, was} {
		if same != nil && same.logger == logger && same.keys == keys {
			return same
		}
	}
	return New(logger, keys)
}

func (l *Log) handler() slog.Handler {
	if l.logger != nil {
		return l.logger.Handler()
	}
	return slog.Default().Handler()
}

// Shows reports whether a message would be written if it hadn't been written recently.
func (l *Log) Shows(ctx context.Context, m Message) bool {
	return l.handler().Enabled(ctx, said[m].level)
}

// Write writes a message with attrs, which is told whether to include keys. attrs isn't
// called for a message that is suppressed.
func (l *Log) Write(ctx context.Context, m Message, attrs func(keys bool) []slog.Attr) {
	l.Say(ctx, m, "", attrs)
}

// Say is Write of a message that has a text of its own.
func (l *Log) Say(ctx context.Context, m Message, text string, attrs func(keys bool) []slog.Attr) {
	now, each := time.Now(), said[m].each
	if each && !l.Shows(ctx, m) || !each && !l.decide(m, now, nil) {
		return
	}
	p := &pending{message: m, ctx: ctx, record: slog.NewRecord(now, said[m].level, "stint: "+cmp.Or(text, said[m].text), 0)}
	p.record.AddAttrs(attrs(l.keys)...)
	if each {
		l.write(p)
		return
	}
	l.decide(m, now, p)
	l.drain()
}

// WriteLate is Write of a message that may be kept: attrs is called when the line is written,
// with no other call of it at a time.
func (l *Log) WriteLate(ctx context.Context, m Message, attrs func() []slog.Attr) {
	now := time.Now()
	l.decide(m, now, &pending{message: m, ctx: ctx, record: slog.NewRecord(now, said[m].level, "stint: "+said[m].text, 0), attrs: attrs})
	l.drain()
}

// decide decides what becomes of a message that comes now: it is suppressed, kept as p, or
// due as p. If p is nil and needed, decide changes nothing and returns true: p takes time
// to make, but must be there when the message gets its place among the others.
func (l *Log) decide(m Message, now time.Time, p *pending) (needed bool) {
	s := &said[m]
	l.mu.Lock()
	defer l.mu.Unlock()
	at := &l.lines[m]
	at.last = now
	if s.ends != 0 && !l.lines[s.ends].open {
		return false
	}
	suppressed := now.Before(l.free(m))
	if needed = !suppressed || s.kept; needed && p == nil {
		return true
	}
	if s.ends != 0 {
		l.lines[s.ends].open = false
	}
	l.supersede(s.state)
	switch {
	case !suppressed:
		l.begin(p, now)
	case s.kept:
		at.suppressed++
		l.keep(p)
	default:
		at.suppressed++
	}
	return needed
}

// free returns when a message may be written. What repeats the latest line about its state
// waits for its Interval; a change of the state may be written while few were.
func (l *Log) free(m Message) time.Time {
	of := &l.news[said[m].state]
	if said[m].state == 0 || of.latest == m && !said[m].kept {
		return l.lines[m].next
	}
	if oldest := of.written[of.next]; !oldest.IsZero() {
		return oldest.Add(Interval)
	}
	return time.Time{}
}

// supersede forgets what is kept of a state, since something newer came.
func (l *Log) supersede(s state) {
	k := l.kept[s]
	if k == nil {
		return
	}
	l.kept[s] = nil
	k.timer.Stop()
	if begun := said[k.message].ends; begun != 0 {
		l.lines[begun].open = true
	}
}

// begin makes a message due.
func (l *Log) begin(p *pending, now time.Time) {
	of := &l.lines[p.message]
	of.next, of.open = now.Add(Interval), true
	if s := said[p.message].state; s != 0 {
		l.news[s].add(p.message, now)
	}
	if begun := said[p.message].ends; begun != 0 {
		of.suppressed = 0
		of = &l.lines[begun] // what was left out of it belongs to this line
	}
	p.suppressed, of.suppressed = of.suppressed, 0
	l.due = append(l.due, p)
}

func (n *news) add(m Message, now time.Time) {
	n.latest, n.written[n.next] = m, now
	n.next = (n.next + 1) % changes
}

// keep has a message written when it may be, unless it is superseded.
func (l *Log) keep(p *pending) {
	p.ctx = context.WithoutCancel(p.ctx)
	l.kept[said[p.message].state] = p
	p.timer = time.AfterFunc(time.Until(l.free(p.message)), func() {
		background.Do("logging", func() { l.flush(p) })
	})
}

func (l *Log) flush(p *pending) {
	now := time.Now()
	l.mu.Lock()
	if l.kept[said[p.message].state] == p {
		l.kept[said[p.message].state] = nil
		l.lines[p.message].suppressed-- // p itself
		p.record.Time = now
		l.begin(p, now)
	}
	l.mu.Unlock()
	l.drain()
}

// drain writes what is due. No lock is held meanwhile, since a handler is the
// application's. So that the lines keep their order, one goroutine writes those of all.
func (l *Log) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.writing && len(l.due) > 0 {
		l.writeNext()
	}
}

func (l *Log) writeNext() {
	p := l.due[0]
	l.due, l.writing = l.due[1:], true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.writing = false
	}()
	if l.Shows(p.ctx, p.message) {
		l.write(p)
	}
}

func (l *Log) write(p *pending) {
	if p.attrs != nil {
		p.record.AddAttrs(p.attrs()...)
	}
	if p.suppressed > 0 {
		p.record.AddAttrs(slog.Int64("suppressed", p.suppressed))
	}
	_ = l.handler().Handle(p.ctx, p.record) // as slog.Logger does
}

// Quiet returns how long a message hasn't come.
func (l *Log) Quiet(m Message) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lines[m].last)
}
