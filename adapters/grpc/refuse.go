package stintgrpc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
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
	delay, retry := c.retryDelay()
	c.header.Del("Retry-After") // or RPCError would encode a RetryInfo, too
	s := c.statusOf(ctx, err)
	if retry {
		if with, bad := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); bad == nil {
			s = with
		}
	}
	return &refusal{s, err}
}

// ended returns the error that ends the call if its handler returns err, and the metadata that says when to retry. A
// denial is refused like one of the limiter, unless err is a gRPC status. Other errors are returned unchanged.
func ended(ctx context.Context, err error) (wait metadata.MD, ends error) {
	if err == nil {
		return nil, nil
	}
	var denied *stint.DeniedError
	if _, ok := status.FromError(err); ok || !errors.As(err, &denied) {
		return nil, err
	}
	own := &call{header: http.Header{}} // the fields of the call's admission don't describe this denial
	if after, ok := denied.Decision.Retry(); ok {
		own.header.Set("Retry-After", strconv.FormatInt(int64((after-1)/time.Second)+1, 10))
	}
	return own.metadata(), own.refuse(ctx, err)
}

// statusOf returns what the package's doc says of an error.
func (c *call) statusOf(ctx context.Context, err error) *status.Status {
	if !errors.Is(err, stint.ErrDenied) {
		if ended := ctx.Err(); ended != nil {
			return status.FromContextError(ended)
		}
		if own := (interface{ GRPCStatus() *status.Status })(nil); errors.As(err, &own) &&
			own.GRPCStatus().Code() != codes.OK {
			return own.GRPCStatus()
		}
	}
	// As stint answers gRPC in front of net/http.
	stint.RPCError(c, &http.Request{Header: http.Header{"Content-Type": {contentType}}}, err)
	code, _ := strconv.Atoi(c.header.Get("Grpc-Status"))
	return status.New(codes.Code(code), c.header.Get("Grpc-Message"))
}
