package stintgrpc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
)

// refusal is an error of the limiter with the status of the call.
type refusal struct {
	status *status.Status
	err    error
}

func (r *refusal) Error() string              { return r.status.Err().Error() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }
func (r *refusal) Unwrap() error              { return r.err }

// refuse returns the limiter's error as that of the call.
func (c *call) refuse(ctx context.Context, err error) error {
	s := statusOf(ctx, err)
	// Retry-After has the jitter, too, and isn't there if no retry can pass.
	if n, bad := strconv.ParseInt(c.header.Get("Retry-After"), 10, 64); bad == nil {
		delay := durationpb.New(time.Duration(n) * time.Second)
		if with, bad := s.WithDetails(&errdetails.RetryInfo{RetryDelay: delay}); bad == nil {
			s = with
		}
	}
	return &refusal{s, err}
}

// statusOf returns what the package's doc says of an error.
func statusOf(ctx context.Context, err error) *status.Status {
	var (
		denied *stint.DeniedError
		own    interface{ GRPCStatus() *status.Status }
		asks   interface{ StatusCode() int }
	)
	switch {
	case errors.As(err, &denied):
		return status.New(codes.ResourceExhausted, http.StatusText(denied.StatusCode())+": limit "+denied.Decision.Limit)
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err())
	case errors.As(err, &own) && own.GRPCStatus().Code() != codes.OK:
		return own.GRPCStatus()
	}
	code := http.StatusInternalServerError
	if errors.As(err, &asks) {
		code = asks.StatusCode()
	}
	return status.New(codeOf(code), http.StatusText(code))
}

// codeOf returns the code that an HTTP status of an error stands for, as google.rpc.Code
// says.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusConflict:
		return codes.Aborted
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case 499: // as nginx logs a client that has left
		return codes.Canceled
	case http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	}
	if httpStatus < http.StatusInternalServerError {
		return codes.FailedPrecondition
	}
	return codes.Internal
}
