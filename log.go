package stint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// WithLogger sets the logger for what goes wrong (failures of the store and their end, of key
// functions, limit functions and sources of limits, charges that could not be settled, lost leases,
// likely mistakes), and for changes by an Update or a policy file. A message about one limit or
// one store is logged at once, then at most once a minute: when the minute is over, the latest
// of those in between is logged, with the number suppressed before it. Limiters that share a
// store and a handler log the store's failures once.
//
// At debug level, if the handler is enabled for it, the limits of each new limiter are logged,
// and each denial, each ban, and what dry runs would have denied.
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
	return option("WithLogKeys", func(c *config) { c.logKeys = true })
}

// write writes an event's line to the log.
func (s *sender) write(m logs.Message, e *Event) {
	log, ctx := s.to.log.Load(), contextOf(e.Request)
	if !log.Shows(ctx, m) {
		return
	}
	line := logs.Line{Message: m, About: [2]any{log, e.Decision.Limit}, Of: e.told}
	var of store.Store
	switch e.Kind {
	case EventStoreDegraded:
		of = cmp.Or(e.store, s.store)
		line.About = addressOf(of)
	case EventStoreFailed, EventSettleFailed:
		of = s.store
		line.About = addressOf(of)
	case EventPolicy:
		line.About = [2]any{log, e.Path}
	case EventWarning:
		line.Text, line.About = e.Warning.Text, [3]any{log, e.Warning.Kind, strings.Join(e.Warning.Limits, "\x00")}
	}
	var request []slog.Attr
	if r := e.Request; (m == logs.Denied || m == logs.EmptyKey || m == logs.KeyDenied || m == logs.LimitsDenied) && r != nil && r.URL != nil {
		request = []slog.Attr{slog.String("method", r.Method), slog.String("url_path", fmt.Sprintf("%.200s", r.URL.Path))}
	}
	said := *e
	said.Request = nil // the line may be written when the request is over
	line.Attrs = func(keys bool) []slog.Attr {
		attrs := append(said.LogValue().Group(), request...)
		if of != nil {
			attrs = append(attrs, slog.String("store", storeName(of)))
		}
		if said.Kind == EventStoreFailed {
			became := "passed"
			if errors.As(said.Err, new(*StoreError)) {
				became = "denied"
			}
			attrs = append(attrs, slog.String("request", became))
		}
		if keys {
			for i := range said.Decision.Limits {
				if key := said.Key(i); key != "" && said.Decision.Limits[i].Name == said.Decision.Limit {
					attrs = append(attrs, slog.String("key", key))
				}
			}
		}
		return attrs
	}
	log.Write(ctx, line)
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
	failed := s.to.failed.Load()
	if failed == 0 || time.Since(time.Unix(0, failed)) < recovered || !s.to.failed.CompareAndSwap(failed, 0) {
		return
	}
	s.to.log.Load().Write(context.Background(), logs.Line{
		Message: logs.StoreAnswers, About: addressOf(s.store),
		Attrs: func(bool) []slog.Attr { return s.attrs(slog.String("store", storeName(s.store))) },
	})
}

// storeName says what a store is.
func storeName(s store.Store) string {
	if named, is := s.(fmt.Stringer); is {
		return named.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// addressOf identifies a store without keeping it in memory.
func addressOf(s store.Store) any {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer {
		return v.Pointer()
	}
	return reflect.TypeOf(s)
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
