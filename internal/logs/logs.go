// Package logs writes what happens to a limiter to a slog.Logger. A message at level Info or
// above is written at most once a minute about one limit or store, so that a failing store
// fills no disk. The package writes keys only if told to.
package logs

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
)

// Interval is the shortest time between two lines of one message about one subject.
const Interval = time.Minute

// Message is one of the messages that exist.
type Message uint8

// The zero Message is none.
const (
	Denied Message = iota + 1
	EmptyKey
	KeyFailed
	KeyDenied
	LimitsFailed
	LimitsDenied
	SourceFailed
	SourceAnswers
	StoreFailed
	StoreAnswers
	SettleFailed
	Banned
	CallFailed
	CallMisconfigured
	PrimaryFailed
	PrimaryMisconfigured
	PrimaryAnswers
	LeaseLost
	PolicyInForce
	PolicyRejected
	Warning
	NearLimitLeftOut
	Made
	LimitsChanged
	DryRun
	messages
)

// messageInfos has a row for each message.
var messageInfos = [messages]struct {
	level  slog.Level
	text   string
	begins bool      // a state that another message ends
	after  Message   // it is about the same state as that message
	ends   bool      // it is written only after that message
	within Message   // it isn't written while the state that that message begins lasts
	over   []Message // when it changes the state, what was suppressed of these is dropped
}{
	Denied:    {level: slog.LevelDebug, text: "a request was denied"},
	EmptyKey:  {level: slog.LevelDebug, text: "a request with an empty key was denied"},
	KeyFailed: {level: slog.LevelWarn, text: "a key function failed, and the request was denied"},
	KeyDenied: {level: slog.LevelDebug, text: "a request was denied because of its key"},
	LimitsFailed: {level: slog.LevelError,
		text: "a request was denied, because its limits or its cost could not be determined"},
	LimitsDenied: {level: slog.LevelDebug, text: "a request was denied by the function that returns its limits"},
	SourceFailed: {level: slog.LevelError, text: "limits can't be loaded", begins: true},
	SourceAnswers: {level: slog.LevelInfo, text: "limits can be loaded again", after: SourceFailed,
		ends: true},
	StoreFailed: {level: slog.LevelError, text: "the store failed to decide a request", begins: true},
	StoreAnswers: {level: slog.LevelInfo, text: "the store answers again", after: StoreFailed, ends: true,
		over: []Message{SettleFailed}},
	SettleFailed: {level: slog.LevelWarn,
		text: "a request's final cost could not be recorded, so its earlier cost stays charged"},
	Banned:     {level: slog.LevelDebug, text: "a ban has begun"},
	CallFailed: {level: slog.LevelWarn, text: "a call of the primary store failed", within: PrimaryFailed},
	CallMisconfigured: {level: slog.LevelError,
		text: "a call of the primary store failed, because the store is misconfigured", within: PrimaryFailed},
	PrimaryFailed: {level: slog.LevelWarn,
		text: "calls no longer go to the primary store, because it fails", begins: true,
		over: []Message{CallFailed, CallMisconfigured}},
	PrimaryMisconfigured: {level: slog.LevelError,
		text: "calls no longer go to the primary store, because it is misconfigured", after: PrimaryFailed, begins: true,
		over: []Message{CallFailed, CallMisconfigured}},
	PrimaryAnswers: {level: slog.LevelInfo, text: "the primary store answers again", after: PrimaryFailed, ends: true,
		over: []Message{CallFailed, CallMisconfigured, SettleFailed}},
	LeaseLost: {level: slog.LevelError,
		text: "the store lost a slot that is still held, so another request may have it, too"},
	PolicyInForce: {level: slog.LevelInfo, text: "the policy is in force", after: PolicyRejected},
	PolicyRejected: {level: slog.LevelError,
		text: "the policy could not be reloaded, and the last good one stays in force", begins: true},
	Warning: {level: slog.LevelWarn, text: "a likely mistake in how the limiter is used"},
	NearLimitLeftOut: {level: slog.LevelWarn,
		text: "an EventNearLimit wasn't sent, because 100,000 keys are near their limits already; limits aren't affected"},
	Made:          {level: slog.LevelDebug, text: "a limiter is made"},
	LimitsChanged: {level: slog.LevelInfo, text: "the limits have changed"},
	DryRun:        {level: slog.LevelDebug, text: "a limit in a dry run would have denied a request"},
}

// Log is where the messages of one or more limiters go. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger // nil: what slog.Default is at the time
	keys   bool
}

// New returns a Log to logger, or to slog.Default if that is nil. If keys is true, it
// writes keys in clear.
func New(logger *slog.Logger, keys bool) *Log { return &Log{logger, keys} }

// Derive returns the Log of a limiter with its own logger and keys if it sets any, otherwise with those of
// parent, the Log of the limiter that it extends. It returns parent, or the limiter's previous Log, if
// that has the same settings.
func Derive(parent, previous *Log, logger *slog.Logger, keys bool) *Log {
	if parent != nil {
		logger, keys = cmp.Or(logger, parent.logger), keys || parent.keys
	}
	made := New(logger, keys)
	for _, same := range [...]*Log{parent, previous} {
		if same != nil && *same == *made {
			return same
		}
	}
	return made
}

// handler returns the handler that gets the lines now.
func (l *Log) handler() slog.Handler {
	if l.logger != nil {
		return l.logger.Handler()
	}
	return slog.Default().Handler()
}

// Shows reports whether a message has to be given to Write: it would be written if it hadn't been written
// recently, or it ends a state.
func (l *Log) Shows(ctx context.Context, m Message) bool {
	return messageInfos[m].after != 0 || l.handler().Enabled(ctx, messageInfos[m].level)
}

// Line is a message about something.
type Line struct {
	Message Message
	// Text replaces the message's own, unless it is "".
	Text string
	// About is the limit or store that the line is about. It is comparable, and lines of other
	// Logs to the same handler may be about the same.
	About any
	// Whole is the store that About is a part of, or nil.
	Whole any
	// Incident identifies what has happened, if several Logs write lines about it; or nil. It is
	// comparable.
	Incident any
	// Attrs returns the attributes. It may be called up to an Interval later, or never.
	Attrs func(keys bool) []slog.Attr
}

// subject is what at most one line is written about in an Interval.
type subject struct {
	to      any // a slog.Handler
	message Message
	about   any
}

// record has the recent lines about a subject.
type record struct {
	next       func(suppressed int64) // writes the latest line that was suppressed; or nil
	suppressed int64                  // lines before that one
	latest     any                    // the Incident of the latest line
	inInterval bool                   // the Interval since a line isn't over
	intervals  int                    // that have begun
	begun      bool                   // the latest message begins a state that another one ends
	level      slog.Level             // the highest in that state
}

// subjects are those of the process, because limiters share stores. A subject stays for an
// Interval after its last line, or until its state has ended.
var subjects = struct {
	mu  sync.Mutex
	all map[subject]*record
}{all: map[subject]*record{}}

// Write writes a line. Within an Interval of a line about the same, it only counts it; when
// the Interval is over, the latest such line is written, with the number of those before it. A
// line that says that a state has begun, has become worse or has ended is written at once, with the number
// of the lines that were suppressed before it and are dropped. A line below Info is always written.
func (l *Log) Write(ctx context.Context, line Line) {
	if messageInfos[line.Message].level < slog.LevelInfo {
		l.write(ctx, line, 0)
	} else if suppressed, ok := l.admits(&line); ok {
		l.write(ctx, line, suppressed)
	}
}

// admits reports whether a line is to be written now, and how many lines were suppressed before it.
// Otherwise it is dropped, or kept for the end of the Interval.
func (l *Log) admits(line *Line) (suppressed int64, ok bool) {
	s, to := &messageInfos[line.Message], identity(l.handler())
	key := subject{to, cmp.Or(s.after, line.Message), line.About}
	subjects.mu.Lock()
	defer subjects.mu.Unlock()
	r := subjects.all[key]
	switch {
	case s.ends && (r == nil || !r.begun), r != nil && line.Incident != nil && r.latest == line.Incident:
		return 0, false
	case s.within != 0:
		if state := subjects.all[subject{to, s.within, line.About}]; state != nil && state.begun {
			return 0, false
		}
	}
	if r == nil {
		r = new(record)
		subjects.all[key] = r
	}
	changed := r.begun != s.begins || r.begun && s.level > r.level
	r.latest, r.begun = line.Incident, s.begins
	if changed {
		if r.level = s.level; r.next != nil {
			suppressed = r.suppressed + 1
		}
		dropSuppressed(to, line, s.over)
	}
	if r.inInterval && !changed {
		if r.next != nil {
			r.suppressed++
		}
		late := *line
		r.next = func(suppressed int64) { l.write(context.Background(), late, suppressed) }
		return 0, false
	}
	r.startInterval(key)
	return suppressed, true
}

// dropSuppressed drops the suppressed lines of some messages about the same as a line. The caller holds
// subjects.mu.
func dropSuppressed(to any, line *Line, of []Message) {
	for _, m := range of {
		for _, about := range [...]any{line.About, line.Whole} {
			if r := subjects.all[subject{to, m, about}]; r != nil {
				r.next, r.suppressed = nil, 0
			}
		}
	}
}

// startInterval starts the time in which no other line about the same state is written. The caller holds
// subjects.mu.
func (r *record) startInterval(key subject) {
	r.next, r.suppressed, r.inInterval = nil, 0, true
	r.intervals++
	n := r.intervals
	time.AfterFunc(Interval, func() { background.Do("logging", func() { r.endInterval(key, n) }) })
}

// endInterval writes the latest line that was suppressed in an Interval. If there is none, the record is
// dropped, unless its state goes on. It does nothing if another Interval than the nth has begun.
func (r *record) endInterval(key subject, n int) {
	subjects.mu.Lock()
	next, suppressed := r.next, r.suppressed
	switch {
	case r.intervals != n:
		next = nil
	case next != nil:
		r.startInterval(key)
	default:
		r.inInterval = false
		if !r.begun {
			delete(subjects.all, key)
		}
	}
	subjects.mu.Unlock()
	if next != nil { // no lock is held, since a handler is the application's
		next(suppressed)
	}
}

// write writes a line, with the number of lines that were suppressed before it.
func (l *Log) write(ctx context.Context, line Line, suppressed int64) {
	h, s := l.handler(), messageInfos[line.Message]
	if !h.Enabled(ctx, s.level) {
		return
	}
	r := slog.NewRecord(time.Now(), s.level, "stint: "+cmp.Or(line.Text, s.text), 0)
	r.AddAttrs(line.Attrs(l.keys)...)
	if suppressed > 0 {
		r.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	_ = h.Handle(ctx, r) // as slog.Logger does
}

// identity returns v, or its type if v can't be compared.
func identity(v any) any {
	if reflect.ValueOf(v).Comparable() {
		return v
	}
	return reflect.TypeOf(v)
}
