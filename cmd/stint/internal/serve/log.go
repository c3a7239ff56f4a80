package serve

import (
	"log/slog"
	"sync"
	"time"
)

// occasionally logs each message at most once a minute: what proxies and clients send causes them.
type occasionally struct {
	logger *slog.Logger

	mu   sync.Mutex
	last map[string]*said // by message
}

type said struct {
	at         time.Time
	suppressed int
}

func newOccasionally(logger *slog.Logger) *occasionally {
	return &occasionally{logger: logger, last: map[string]*said{}}
}

// warn logs a message, which is one of a few texts, with the number of those suppressed before it.
func (o *occasionally) warn(message string, args ...any) {
	if suppressed, ok := o.next(message, time.Now()); ok {
		o.logger.Warn(message, append(args, "suppressed", suppressed)...)
	}
}

// next reports whether a message is logged at a time, and how many were suppressed before it.
func (o *occasionally) next(message string, now time.Time) (suppressed int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.last[message]
	if s != nil && now.Sub(s.at) < time.Minute {
		s.suppressed++
		return 0, false
	}
	if s != nil {
		suppressed = s.suppressed
	}
	o.last[message] = &said{at: now}
	return suppressed, true
}
