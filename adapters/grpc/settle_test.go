package stintgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// What a limit that looks at the response sees is the HTTP status of the code.
func TestSettleSeesTheCode(t *testing.T) {
	outcome := make(chan int, 1)
	var ends error
	c := dial(t, &service{
		unary:  func(context.Context, *testpb.SimpleRequest) error { return ends },
		stream: func(testpb.TestService_FullDuplexCallServer) error { return ends },
	}, limited(stint.Rate(1000, time.Hour, stint.WithSettle(func(r *http.Request, status int, written int64) int64 {
		if written != 0 || stint.FromContext(r.Context()) == nil {
			t.Errorf("written %d, permit %v", written, stint.FromContext(r.Context()))
		}
		outcome <- status
		return stint.AsCharged
	})), byAddress))
	for _, tt := range []struct {
		err    error
		status int
	}{
		{nil, 200},
		{status.Error(codes.Canceled, ""), 499},
		{status.Error(codes.Unknown, ""), 500},
		{status.Error(codes.InvalidArgument, ""), 400},
		{status.Error(codes.DeadlineExceeded, ""), 504},
		{status.Error(codes.NotFound, ""), 404},
		{status.Error(codes.AlreadyExists, ""), 409},
		{status.Error(codes.PermissionDenied, ""), 403},
		{status.Error(codes.ResourceExhausted, ""), 429},
		{status.Error(codes.FailedPrecondition, ""), 400},
		{status.Error(codes.Aborted, ""), 409},
		{status.Error(codes.OutOfRange, ""), 400},
		{status.Error(codes.Unimplemented, ""), 501},
		{status.Error(codes.Internal, ""), 500},
		{status.Error(codes.Unavailable, ""), 503},
		{status.Error(codes.DataLoss, ""), 500},
		{status.Error(codes.Unauthenticated, ""), 401},
		{status.Error(99, ""), 500},
		{errors.New("an error without a code"), 500},
		{&stint.DeniedError{}, 429}, // of a Take or an Extend of the handler
		{fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "")), 404},
		{context.Canceled, 499},
		{context.DeadlineExceeded, 504},
	} {
		ends = tt.err
		_ = c.code(t)
		if got := <-outcome; got != tt.status {
			t.Errorf("a unary call that ends with %v: %d, want %d", tt.err, got, tt.status)
		}
		_, _, _ = kinds["bidirectional"](t.Context(), c)
		if got := <-outcome; got != tt.status {
			t.Errorf("a stream that ends with %v: %d, want %d", tt.err, got, tt.status)
		}
	}
}

// Only failed logins count, until they are too many.
func TestFailedOnly(t *testing.T) {
	var right bool
	c := dial(t, &service{unary: func(context.Context, *testpb.SimpleRequest) error {
		if !right {
			return status.Error(codes.Unauthenticated, "wrong password")
		}
		return nil
	}}, limited(stint.WithRoute("POST /grpc.testing.TestService/UnaryCall", stint.Rate(2, time.Hour, stint.WithSettle(stint.FailedOnly))), byAddress))
	for i, tt := range []struct {
		right bool
		want  codes.Code
	}{
		{true, codes.OK}, {true, codes.OK}, {true, codes.OK},
		{false, codes.Unauthenticated}, {true, codes.OK}, {false, codes.Unauthenticated},
		{true, codes.ResourceExhausted},
	} {
		if right = tt.right; c.code(t) != tt.want {
			t.Errorf("login %d isn't %v", i, tt.want)
		}
		_ = c.settled(t)
	}
}

// A handler may settle the cost of a call itself.
func TestSettleInTheHandler(t *testing.T) {
	lim := limited(stint.Rate(100, time.Hour), byAddress)
	c := dial(t, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) error {
		return stint.FromContext(ctx).Settle(ctx, 30)
	}}, lim)
	for range 2 {
		if got := c.code(t); got != codes.OK {
			t.Error(got)
		}
	}
	if d, err := lim.Peek(t.Context(), "127.0.0.1"); err != nil || d.Remaining != 40 {
		t.Errorf("%d left, %v", d.Remaining, err)
	}
}
