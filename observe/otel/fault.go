package stintotel

import (
	"context"
	"errors"
	"fmt"
	"net"

	"go.opentelemetry.io/otel/attribute"

	"github.com/stint-go/stint/store/failover"
)

// faults holds the attribute sets of calls of the store that failed.
type faults = table[fault, attributes]

// fault distinguishes failed calls.
type fault struct{ limiter, operation, kind string }

func (f fault) attributes() []attribute.KeyValue {
	return append(id{limiter: f.limiter}.attributes(), operationKey.String(f.operation),
		outcomeKey.String(outcomeError), errorKey.String(f.kind))
}

// errorType returns the value of error.type, from a small set that neither requests nor servers can
// extend. It is the name of the error's type if the error is no usual one.
func errorType(err error) string {
	if err == nil {
		return otherError
	}
	var network net.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, failover.ErrOpen):
		return "breaker_open"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &dial):
		return "connection"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	switch name := fmt.Sprintf("%T", err); name {
	case "*errors.errorString", "*errors.joinError", "*fmt.wrapError", "*fmt.wrapErrors":
		return otherError
	default:
		return name
	}
}

// otherError is OpenTelemetry's value for errors that have no type of their own.
const otherError = "_OTHER"
