package stintgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// retryDelay is what a RetryInfo says, or -1.
func retryDelay(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return -1
}

// statusError is an error of an application that works with HTTP.
type statusError int

func (e statusError) Error() string   { return "secret" }
func (e statusError) StatusCode() int { return int(e) }

// down is a store that fails.
type down struct{ store.Store }

func (down) Take(context.Context, []store.Charge, []store.Result) error {
	return errors.New("secret: connection refused")
}

func TestRefusals(t *testing.T) {
	keyed := func(err error) []stint.Option {
		return []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", err }))}
	}
	two := stint.WithCost(func(*http.Request) int64 { return 2 })
	failing := []stint.Option{stint.Rate(1, time.Hour, stint.WithName("calls")), byAddress, stint.WithStore(down{memstore.New()})}
	denying := []stint.Option{stint.Rate(1, 1000*time.Hour), byAddress, two}
	for _, tt := range []struct {
		name    string
		opts    []stint.Option
		code    codes.Code
		message string
		retry   time.Duration // -1: there is none
	}{
		{"an empty key", keyed(nil), codes.PermissionDenied, "Forbidden", -1},
		{"a key's error", keyed(errors.New("secret")), codes.Internal, "Internal Server Error", -1},
		{"a key's 401", keyed(statusError(401)), codes.Unauthenticated, "Unauthorized", -1},
		{"a key's 400", keyed(statusError(400)), codes.InvalidArgument, "Bad Request", -1},
		{"a key's 404", keyed(statusError(404)), codes.NotFound, "Not Found", -1},
		{"a key's 409", keyed(statusError(409)), codes.Aborted, "Conflict", -1},
		{"a key's 429", keyed(statusError(429)), codes.ResourceExhausted, "Too Many Requests", -1},
		{"a key's 402", keyed(statusError(402)), codes.FailedPrecondition, "Payment Required", -1},
		{"a key's 499", keyed(statusError(499)), codes.Canceled, "", -1},
		{"a key's 501", keyed(statusError(501)), codes.Unimplemented, "Not Implemented", -1},
		{"a key's 502", keyed(statusError(502)), codes.Internal, "Bad Gateway", -1},
		{"a key's 503", keyed(statusError(503)), codes.Unavailable, "Service Unavailable", time.Second},
		{"a key's 504", keyed(statusError(504)), codes.DeadlineExceeded, "Gateway Timeout", -1},
		{"a key's deadline", keyed(fmt.Errorf("asking: %w", context.DeadlineExceeded)), codes.Unavailable, "Service Unavailable", time.Second},
		{"a key's gRPC status", keyed(fmt.Errorf("wrapped: %w", status.Error(codes.Unauthenticated, "send a token"))), codes.Unauthenticated, "send a token", -1},
		{"blocked", append([]stint.Option{stint.WithBlock(func(*http.Request) bool { return true })}, keyed(nil)...), codes.PermissionDenied, "Forbidden", -1},
		{"a cost that can never pass", denying, codes.ResourceExhausted, "Too Many Requests: limit rate", -1},
		{"the service is full", []stint.Option{stint.Concurrency(1, two), stint.WithKey(stint.Global())}, codes.ResourceExhausted, "Service Unavailable: limit concurrency", -1},
		{"a store that fails, closed", append([]stint.Option{stint.WithFailurePolicy(stint.FailClosed)}, failing...), codes.Unavailable, "Service Unavailable", time.Second},
		{"a store that fails, open", failing, codes.OK, "", -1},
		{"a dry run", append([]stint.Option{stint.WithDryRun(true)}, denying...), codes.OK, "", -1},
		{"handlers of HTTP", append([]stint.Option{
			stint.WithDenyHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a deny handler runs") })),
			stint.WithErrorHandler(func(http.ResponseWriter, *http.Request, error) { t.Error("an error handler runs") }),
		}, denying...), codes.ResourceExhausted, "Too Many Requests: limit rate", -1},
	} {
		c := dial(t, &service{}, limited(tt.opts...))
		header, trailer, unary := c.call(t.Context())
		_, streamTrailer, err := kinds["bidirectional"](t.Context(), c)
		for kind, s := range map[string]*status.Status{"unary": unary, "stream": status.Convert(err)} {
			if s.Code() != tt.code || s.Message() != tt.message || retryDelay(s) != tt.retry {
				t.Errorf("%s, %s: %v, retry %v", tt.name, kind, s, retryDelay(s))
			}
			if strings.Contains(fmt.Sprint(s.Proto(), header, trailer, streamTrailer), "secret") {
				t.Errorf("%s, %s: the client is told %v %v %v", tt.name, kind, s, header, trailer)
			}
		}
		for _, md := range []string{first(trailer, "retry-after"), first(streamTrailer, "retry-after")} {
			if (md != "") != (tt.retry >= 0) {
				t.Errorf("%s: retry-after is %q", tt.name, md)
			}
		}
		if tt.code == codes.OK && header.Get("ratelimit") != nil {
			t.Errorf("%s: it is told %v", tt.name, header)
		}
	}
}

// An interceptor further out gets the limiter's error, as that of the call.
func TestOutsideTheLimiter(t *testing.T) {
	c := dial(t, &service{}, limited(stint.Rate(1, time.Hour), byAddress))
	for range 2 {
		_ = c.code(t)
	}
	if err := c.settled(t); err != nil {
		t.Errorf("admitted: %v", err)
	}
	err := c.settled(t)
	denied := (*stint.DeniedError)(nil)
	if !errors.As(err, &denied) || denied.Decision.Limit != "rate" || status.Code(err) != codes.ResourceExhausted ||
		err.Error() != "rpc error: code = ResourceExhausted desc = Too Many Requests: limit rate" {
		t.Errorf("denied: %v", err)
	}
}

// A call whose deadline has passed when it is decided ends with that.
func TestDeadlineHasPassed(t *testing.T) {
	intercept := stintgrpc.UnaryServerInterceptor(limited(stint.Rate(1, time.Hour, stint.WithMaxWait(time.Minute)), byAddress))
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
	if status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A call whose client leaves while it waits for a slot ends with that.
func TestLeavesWaiting(t *testing.T) {
	holds, waits := make(chan bool), make(chan bool, 2)
	lim := limited(stint.Concurrency(1, stint.WithQueue(2), stint.WithMaxWait(time.Hour)), byAddress,
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waits <- true
			}
		}))
	c := dial(t, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) error {
		holds <- true
		<-holds
		return nil
	}}, lim)
	done := make(chan codes.Code)
	go func() { done <- c.code(t) }()
	<-holds

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _, s := c.call(ctx)
		done <- s.Code()
	}()
	<-waits
	cancel()
	if got := <-done; got != codes.Canceled {
		t.Errorf("the client that has left gets %v", got)
	}
	if err := c.settled(t); status.Code(err) != codes.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("the client has left: %v", err)
	}

	holds <- true
	if got := <-done; got != codes.OK {
		t.Errorf("the one that ran gets %v", got)
	}
}

// A denial that a handler returns ends the call like one of the limiter's. A status of the handler's own stays.
func TestDenialOfHandler(t *testing.T) {
	end := func(err error) error { return err }
	extend := func(ctx context.Context) error {
		err := stint.FromContext(ctx).Extend(ctx, 10)
		if !errors.Is(err, stint.ErrDenied) {
			t.Errorf("%v", err)
		}
		return end(err)
	}
	c := dial(t, &service{
		unary: func(ctx context.Context, _ *testpb.SimpleRequest) error { return extend(ctx) },
		stream: func(to testpb.TestService_FullDuplexCallServer) error {
			_ = to.Send(&testpb.StreamingOutputCallResponse{})
			return extend(to.Context())
		},
	}, limited(stint.Rate(9, 9000*time.Second), byAddress))
	for _, tt := range []struct {
		end   func(error) error
		code  codes.Code
		retry bool
	}{
		{end, codes.ResourceExhausted, true},
		{func(err error) error { return fmt.Errorf("secret: %w", err) }, codes.ResourceExhausted, true},
		{func(err error) error { return status.Error(codes.Aborted, "secret "+err.Error()) }, codes.Aborted, false},
		{func(error) error { return errors.New("other") }, codes.Unknown, false},
	} {
		end = tt.end
		_, trailer, unary := c.call(t.Context())
		_, streamTrailer, err := kinds["bidirectional"](t.Context(), c)
		for kind, s := range map[string]*status.Status{"unary": unary, "stream": status.Convert(err)} {
			if s.Code() != tt.code || (retryDelay(s) > 0) != tt.retry ||
				tt.code == codes.ResourceExhausted && s.Message() != "Too Many Requests: limit rate" {
				t.Errorf("%s: %v, retry %v", kind, s, retryDelay(s))
			}
		}
		for _, md := range []metadata.MD{trailer, streamTrailer} {
			if (first(md, "retry-after") != "") != tt.retry || (first(md, "grpc-retry-pushback-ms") != "") != tt.retry {
				t.Errorf("%v ends with %v", tt.code, md)
			}
		}
	}
}
