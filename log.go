package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/logs"
)

// WithLogger sets the logger for what goes wrong: failures of the store and its
// recovery, of key functions and limit functions, empty keys, charges and slots that
// could not be settled or released, lost leases, bans, and reloaded policies; and for the
// limits at the first decision, what Updates change of them, and what dry runs would have
// denied. Each message is logged at most once a minute, with the number suppressed since.
// What changes a state is logged at once, at most three times a minute, and the last line
// about a store or a policy says how it is, if need be when the minute is over. Denials
// are logged at debug level, every one, if the handler is enabled for it.
// docs/observing.md lists the messages.
//
// The default is slog.Default(), and for a limiter made by With the logger of the one
// it extends. An Update without WithLogger and WithLogKeys keeps both. To log nothing,
// write slog.New(slog.DiscardHandler); New rejects nil.
func WithLogger(logger *slog.Logger) Option {
	return checkedOption(logger != nil, "WithLogger(nil)", "write slog.New(slog.DiscardHandler) for no log, or leave it out",
		func(c *config) { c.logger = logger })
}

// WithLogKeys makes the log show the keys of denials, bans, lost leases and failures of
// the store, in the form that stores see. They may be addresses or credentials. By default
// no key is logged, but the text of an error of your own KeyFunc is logged as it is.
func WithLogKeys() Option {
	return limiterOption(func(c *config) { c.logKeys = true })
}

// write writes an event's line to the log.
func (s *sender) write(m logs.Message, e Event) {
	text := ""
	if e.Warning != nil {
		text = e.Warning.Text
	}
	s.to.log.Load().Say(contextOf(e.Request), m, text, func(keys bool) []slog.Attr {
		attrs := e.LogValue().Group()
		if e.Kind == EventStoreFailed {
			became := "passed"
			if errors.As(e.Err, new(*StoreError)) {
				became = "denied"
			}
			attrs = append(attrs, slog.String("request", became))
		}
		if r := e.Request; e.Kind == EventEmptyKey && r != nil && r.URL != nil {
			attrs = append(attrs, slog.String("method", r.Method), slog.String("url_path", fmt.Sprintf("%.200s", r.URL.Path)))
		}
		if keys {
			for i := range e.Decision.Limits {
				if key := e.Key(i); key != "" && e.Decision.Limits[i].Name == e.Decision.Limit {
					attrs = append(attrs, slog.String("key", key))
				}
			}
		}
		return attrs
	})
}

func contextOf(r *http.Request) context.Context {
	if r == nil {
		return context.Background()
	}
	return r.Context()
}

// recovered is how long a store must not have failed before it counts as answering again.
// If only a part of a store fails, some calls succeed all the time.
const recovered = 10 * time.Second

// writeRecovery writes that a store that had failed answers again, once it has decided a request.
func (s *sender) writeRecovery() {
	log := s.to.log.Load()
	if log.Quiet(logs.StoreFailed) < recovered {
		return
	}
	if !s.to.failing.CompareAndSwap(true, false) {
		return
	}
	log.Write(context.Background(), logs.StoreAnswers, func(bool) []slog.Attr { return s.attrs() })
}

// attrs returns a line's attributes, after the limiter's name if it has one.
func (s *sender) attrs(all ...slog.Attr) []slog.Attr {
	if s.name != "" {
		all = append([]slog.Attr{slog.String("limiter", s.name)}, all...)
	}
	return all
}

// mostListed bounds the length of a line.
const mostListed = 50

// enumerate lists things in a line.
func enumerate(all []string) string {
	if more := len(all) - mostListed; more > 0 {
		all = append(all[:mostListed:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
