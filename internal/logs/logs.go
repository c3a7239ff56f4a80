// Package logs writes what happens to a limiter to a slog.Logger: each message at most
// once a minute, with the number suppressed, so that a failing store fills no disk. The
// last line about a store or a policy file still says how it is: a message that is
// suppressed and isn't repeated is written when the minute is over. The package writes
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

// state is what some messages are about: each says how it is from then on.
type state uint8

// The zero state is none.
const (
	ofStore state = iota + 1
	ofPrimary
	ofPolicy
	states
)

var said = [messages]struct {
	level slog.Level
	text  string
	each  bool    // written whenever it comes: somebody asked for it, or it comes once
	ends  Message // written once after each time that this one was
	state state
	// kept: nothing repeats it, so if it is suppressed and nothing newer is said of the
	// state, it is written when the Interval is over.
	kept bool
}{
	Refused:        {level: slog.LevelDebug, text: "a request was refused", each: true},
	EmptyKey:       {level: slog.LevelWarn, text: "a request with an empty key was refused"},
	KeyFailed:      {level: slog.LevelWarn, text: "a key function failed, and the request was refused"},
	LimitsFailed:   {level: slog.LevelError, text: "the limits of a request, or its cost, could not be determined"},
	StoreFailed:    {level: slog.LevelError, text: "the store failed to decide a request", state: ofStore},
	StoreAnswers:   {level: slog.LevelInfo, text: "the store answers again", ends: StoreFailed, state: ofStore, kept: true},
	SettleFailed:   {level: slog.LevelWarn, text: "a charge could not be settled, or a slot not released"},
	Banned:         {level: slog.LevelInfo, text: "a key is banned"},
	PrimaryFailed:  {level: slog.LevelWarn, text: "the primary store fails", state: ofPrimary},
	PrimaryAnswers: {level: slog.LevelInfo, text: "the primary store answers again", ends: PrimaryFailed, state: ofPrimary, kept: true},
	LeaseLost:      {level: slog.LevelError, text: "the lease of a slot that is held was lost"},
	PolicyInForce:  {level: slog.LevelInfo, text: "the policy is in force", state: ofPolicy, kept: true},
	PolicyRefused:  {level: slog.LevelError, text: "the policy could not be reloaded, and the last good one stays in force", state: ofPolicy, kept: true},
	Namesakes: {level: slog.LevelWarn, each: true, text: "limiters on one store give a limit's name different numbers: " +
		"write another stint.WithName in one of them"},
	Warning: {level: slog.LevelWarn, text: "a likely mistake", each: true},
}

// Log is where the messages of one or more limiters go. It is safe for concurrent use.
type Log struct {
	logger *slog.Logger // nil: what slog.Default is at the time
	keys   bool

	mu    sync.Mutex
	lines [messages]line
	kept  [states]*pending // or nil
}

// pending is a message that is to be written unless something newer is said of its state.
type pending struct {
	message Message
	ctx     context.Context
	record  slog.Record
	timer   *time.Timer // nil until the record is complete
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
	suppressed, kept, due := l.due(m, now)
	if !due || !l.Shows(ctx, m) {
		return
	}
	r := slog.NewRecord(now, said[m].level, "stint: "+cmp.Or(text, said[m].text), 0)
	r.AddAttrs(attrs(l.keys)...)
	if kept != nil {
		l.keep(kept, ctx, r)
		return
	}
	l.write(ctx, r, suppressed)
}

func (l *Log) write(ctx context.Context, r slog.Record, suppressed int64) {
	if suppressed > 0 {
		r.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	_ = l.handler().Handle(ctx, r) // as slog.Logger does
}

// due records that a message came, and reports whether there is something to do: to
// keep it, or, if kept is nil, to write it.
func (l *Log) due(m Message, now time.Time) (suppressed int64, kept *pending, due bool) {
	s := &said[m]
	if s.each {
		return 0, nil, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := &l.lines[m]
	at.last = now
	if s.ends != 0 {
		begun := &l.lines[s.ends]
		if !begun.open {
			return 0, nil, false
		}
		begun.open = false
	}
	l.supersede(s.state)
	if !now.Before(at.next) {
		return l.begin(m, now), nil, true
	}
	at.suppressed++
	if !s.kept {
		return 0, nil, false
	}
	l.kept[s.state] = &pending{message: m}
	return 0, l.kept[s.state], true
}

// supersede forgets what is kept of a state, since something newer came.
func (l *Log) supersede(s state) {
	k := l.kept[s]
	if k == nil {
		return
	}
	l.kept[s] = nil
	if k.timer != nil {
		k.timer.Stop()
	}
	if begun := said[k.message].ends; begun != 0 {
		l.lines[begun].open = true
	}
}

// begin records that a message is written, and returns how many were suppressed.
func (l *Log) begin(m Message, now time.Time) (suppressed int64) {
	of := &l.lines[m]
	of.next, of.open = now.Add(Interval), true
	if begun := said[m].ends; begun != 0 {
		of.suppressed = 0
		of = &l.lines[begun] // what was left out of it belongs to this line
	}
	suppressed, of.suppressed = of.suppressed, 0
	return suppressed
}

// keep has a message written when its Interval is over, unless it is superseded.
func (l *Log) keep(k *pending, ctx context.Context, r slog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept[said[k.message].state] != k {
		return
	}
	k.ctx, k.record = context.WithoutCancel(ctx), r
	k.timer = time.AfterFunc(time.Until(l.lines[k.message].next), func() {
		background.Do("logging", func() { l.flush(k) })
	})
}

func (l *Log) flush(k *pending) {
	now := time.Now()
	l.mu.Lock()
	due := l.kept[said[k.message].state] == k
	var suppressed int64
	if due {
		l.kept[said[k.message].state] = nil
		l.lines[k.message].suppressed-- // k itself
		suppressed = l.begin(k.message, now)
	}
	l.mu.Unlock()
	if due {
		k.record.Time = now
		l.write(k.ctx, k.record, suppressed)
	}
}

// Quiet returns how long a message hasn't come.
func (l *Log) Quiet(m Message) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lines[m].last)
}
