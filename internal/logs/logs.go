// Package logs writes what happens to a limiter to a slog.Logger: each message at most
// once a minute, with the number suppressed, so that a failing store fills no disk. It
// writes keys only if told to.
package logs

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// Interval is the shortest time between two lines of the same message.
const Interval = time.Minute

// Message is one of the messages that exist.
type Message uint8

// The zero Message is none.
const (
	Refused Message = iota + 1
	EmptyKey
	KeyFailed
	LimitsFailed
	StoreFailed
	StoreAnswers
	SettleFailed
	Banned
	PrimaryFailed
	PrimaryAnswers
	LeaseLost
	PolicyInForce
	PolicyRefused
	Namesakes
	Warning
	messages
)

var said = [messages]struct {
	level slog.Level
	text  string
	each  bool    // written whenever it comes: somebody asked for it, or did it by hand
	ends  Message // written once after each time that this one was
}{
	Refused:        {slog.LevelDebug, "a request was refused", true, 0},
	EmptyKey:       {slog.LevelWarn, "a request with an empty key was refused", false, 0},
	KeyFailed:      {slog.LevelWarn, "a key function failed, and the request was refused", false, 0},
	LimitsFailed:   {slog.LevelError, "the limits of a request, or its cost, could not be determined", false, 0},
	StoreFailed:    {slog.LevelError, "the store failed to decide a request", false, 0},
	StoreAnswers:   {slog.LevelInfo, "the store answers again", false, StoreFailed},
	SettleFailed:   {slog.LevelWarn, "a charge could not be settled, or a slot not released", false, 0},
	Banned:         {slog.LevelInfo, "a key is banned", false, 0},
	PrimaryFailed:  {slog.LevelWarn, "the primary store fails", false, 0},
	PrimaryAnswers: {slog.LevelInfo, "the primary store answers again", false, PrimaryFailed},
	LeaseLost:      {slog.LevelError, "the lease of a slot that is held was lost", false, 0},
	PolicyInForce:  {slog.LevelInfo, "the policy is in force", true, 0},
	PolicyRefused:  {slog.LevelError, "the policy could not be reloaded, and the last good one stays in force", true, 0},
	Namesakes: {slog.LevelWarn, "limiters on one store give a limit's name different numbers: " +
		"write another stint.WithName in one of them", true, 0},
	Warning: {slog.LevelWarn, "a likely mistake", true, 0},
}

// Log is where the messages of one or more limiters go. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger // nil: what slog.Default is at the time
	keys   bool

	mu    sync.Mutex
	lines [messages]line
}

// line is what has become of a message.
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

// Write writes a message with attrs, which is told whether to include keys. attrs is
// called only if the message is written.
func (l *Log) Write(ctx context.Context, m Message, attrs func(keys bool) []slog.Attr) {
	l.Say(ctx, m, "", attrs)
}

// Say is Write of a message that has a text of its own.
func (l *Log) Say(ctx context.Context, m Message, text string, attrs func(keys bool) []slog.Attr) {
	now := time.Now()
	suppressed, due := l.due(m, now)
	if !due || !l.Shows(ctx, m) {
		return
	}
	r := slog.NewRecord(now, said[m].level, "stint: "+cmp.Or(text, said[m].text), 0)
	r.AddAttrs(attrs(l.keys)...)
	if suppressed > 0 {
		r.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	_ = l.handler().Handle(ctx, r) // as slog.Logger does
}

// due records that a message came, and reports whether it should be written.
func (l *Log) due(m Message, now time.Time) (suppressed int64, due bool) {
	if said[m].each {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if begun := said[m].ends; begun != 0 {
		at := &l.lines[begun]
		if due = at.open; due { // what was left out of it belongs to this line
			suppressed, at.suppressed, at.open = at.suppressed, 0, false
		}
		return suppressed, due
	}
	at := &l.lines[m]
	at.last = now
	if now.Before(at.next) {
		at.suppressed++
		return 0, false
	}
	suppressed, at.suppressed = at.suppressed, 0
	at.next, at.open = now.Add(Interval), true
	return suppressed, true
}

// Quiet returns how long a message hasn't come.
func (l *Log) Quiet(m Message) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lines[m].last)
}
