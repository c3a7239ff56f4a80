package stintotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint"
)

// Names of span events.
const (
	spanDenied       = "stint.denied"
	spanDryRunDenied = "stint.dry_run_denied"
	spanWaiting      = "stint.waiting"
	spanWaited       = "stint.waited"
)

const (
	retryAfterKey = attribute.Key("stint.retry_after")
	waitKey       = attribute.Key("stint.wait.duration")
	queuedKey     = attribute.Key("stint.queued")
)

// annotate adds denials and waits to the request's span. It leaves out an error's
// text, where a key function of the program may have put anything.
func annotate(ctx context.Context, e *stint.Event) {
	name := spanEvent(e)
	if name == "" && !e.EndsWait {
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	where := id{e.Limiter, e.Route, e.Decision.Limit}.attributes()
	if i := outcomeOf(e); i < len(outcomes) && outcomes[i] != "" {
		where = append(where, outcomeKey.String(outcomes[i]))
	}
	if e.EndsWait {
		span.AddEvent(spanWaited,
			trace.WithAttributes(append(where[:len(where):len(where)], waitKey.Float64(e.Waited.Seconds()))...))
	}
	if name == "" {
		return
	}
	if after := e.Decision.RetryAfter; after > 0 && after < stint.Never {
		where = append(where, retryAfterKey.Float64(after.Seconds()))
	}
	if e.Kind == stint.EventStoreFailed {
		where = append(where, errorKey.String(errorType(e.Err)))
	}
	if e.Decision.Queued > 0 {
		where = append(where, queuedKey.Int64(e.Decision.Queued))
	}
	span.AddEvent(name, trace.WithAttributes(where...))
}

// spanEvent returns the name of the span's event, or "".
func spanEvent(e *stint.Event) string {
	switch e.Kind {
	case stint.EventEmptyKey:
		if e.Err == nil {
			return spanDryRunDenied
		}
		return spanDenied
	case stint.EventDenied, stint.EventBlocked, stint.EventKeyFailed, stint.EventLimitsFailed:
		return spanDenied
	case stint.EventStoreFailed:
		// A StoreError means that the request was denied, under FailClosed. Under FailOpen it went on.
		if denied := (*stint.StoreError)(nil); errors.As(e.Err, &denied) {
			return spanDenied
		}
	case stint.EventDryRunDenied:
		return spanDryRunDenied
	case stint.EventWaiting:
		return spanWaiting
	}
	return ""
}
