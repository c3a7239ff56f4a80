package stintgrpc_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// retrying returns a client of c's server that makes a call up to four times if its code is one of these.
func retrying(t *testing.T, c *client, backoff string, retried ...string) *client {
	policy := fmt.Sprintf(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": %q,
		"maxBackoff": %[1]q, "backoffMultiplier": 1, "retryableStatusCodes": %q}}]}`, backoff, retried)
	conn := connect(t, c.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(policy))
	return &client{testpb.NewTestServiceClient(conn), conn, c.ended}
}

// A client's retry policy works as without a limiter: an admitted call whose handler fails has nothing but a trailer.
func TestRetriedAsWithoutALimiter(t *testing.T) {
	ample := func(name string) *stint.Limiter {
		return limited(stint.Rate(1000, time.Hour, stint.WithName(name)), byAddress)
	}
	for name, limits := range map[string][]*stint.Limiter{
		"no limiter":   nil,
		"a limiter":    {ample("a")},
		"two limiters": {ample("a"), ample("b")},
	} {
		var unary, stream atomic.Int64
		c := retrying(t, dial(t, &service{
			unary: func(context.Context, *testpb.SimpleRequest) error {
				if unary.Add(1) < 4 {
					return status.Error(codes.Unavailable, "")
				}
				return nil
			},
			stream: func(s testpb.TestService_FullDuplexCallServer) error {
				if stream.Add(1) < 4 {
					return status.Error(codes.Unavailable, "")
				}
				return s.Send(&testpb.StreamingOutputCallResponse{})
			},
		}, limits...), "0.001s", "UNAVAILABLE")
		header, trailer, s := c.call(t.Context())
		if s.Code() != codes.OK || unary.Load() != 4 {
			t.Errorf("%s: a unary call ends after %d tries with %v", name, unary.Load(), s)
		}
		if len(header.Get("ratelimit")) != len(limits) || trailer.Len() != 0 {
			t.Errorf("%s: the header is %v, the trailer %v", name, header, trailer)
		}
		header, _, err := receive(t.Context(), c)
		if err != io.EOF || stream.Load() != 4 {
			t.Errorf("%s: a stream ends after %d tries with %v", name, stream.Load(), err)
		}
		if len(header.Get("ratelimit")) != len(limits) {
			t.Errorf("%s: the header of a stream is %v", name, header)
		}
	}
}

// receive opens a stream, sends nothing and receives until it ends.
func receive(ctx context.Context, c *client) (header, trailer metadata.MD, err error) {
	s, err := c.FullDuplexCall(ctx)
	for err == nil {
		_, err = s.Recv()
	}
	if s != nil {
		header, _ = s.Header()
		trailer = s.Trailer()
	}
	return header, trailer, err
}

// A client whose retry policy has the code of a denial waits as long as the denial says, and not for its own backoff.
func TestRetriedWhenADenialSays(t *testing.T) {
	outer := limited(stint.Rate(1000, time.Hour, stint.WithName("outer")), byAddress)
	inner := limited(stint.Rate(1, time.Second, stint.WithName("inner")), byAddress)
	c := retrying(t, dial(t, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
		return s.Send(&testpb.StreamingOutputCallResponse{})
	}}, outer, inner), "3600s", "RESOURCE_EXHAUSTED")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 2 {
		if _, _, s := c.call(ctx); s.Code() != codes.OK {
			t.Errorf("call %d: %v", i, s)
		}
	}
	if _, _, err := receive(ctx, c); err != io.EOF {
		t.Errorf("a stream: %v", err)
	}
}

// The fields are in the trailer if the handler sends no message, and if it has sent the header itself.
func TestFieldsInTheTrailer(t *testing.T) {
	sent := metadata.Pairs("own", "field")
	for name, tt := range map[string]struct {
		unary  func(context.Context) error
		stream func(testpb.TestService_FullDuplexCallServer) error
		header [2]bool // they are in the header: of a unary call, of a stream
	}{
		"the handler fails": {
			func(context.Context) error { return status.Error(codes.NotFound, "") },
			func(testpb.TestService_FullDuplexCallServer) error { return status.Error(codes.NotFound, "") },
			[2]bool{},
		},
		"the handler has sent the header": {
			func(ctx context.Context) error { return grpc.SendHeader(ctx, sent) },
			func(s testpb.TestService_FullDuplexCallServer) error { return grpc.SendHeader(s.Context(), sent) },
			[2]bool{},
		},
		"the handler has sent the header of the stream": {
			func(ctx context.Context) error { return nil },
			func(s testpb.TestService_FullDuplexCallServer) error { return s.SendHeader(sent) },
			[2]bool{true, true},
		},
		"the handler has sent the header and a message": {
			func(ctx context.Context) error { return grpc.SendHeader(ctx, sent) },
			func(s testpb.TestService_FullDuplexCallServer) error {
				if err := grpc.SendHeader(s.Context(), sent); err != nil {
					return err
				}
				return s.Send(&testpb.StreamingOutputCallResponse{})
			},
			[2]bool{},
		},
	} {
		c := dial(t, &service{
			unary:  func(ctx context.Context, _ *testpb.SimpleRequest) error { return tt.unary(ctx) },
			stream: tt.stream,
		}, limited(stint.Rate(9, time.Hour), byAddress))
		var got [2][2]metadata.MD
		got[0][0], got[0][1], _ = c.call(t.Context())
		got[1][0], got[1][1], _ = receive(t.Context(), c)
		for i, kind := range []string{"unary", "stream"} {
			header, trailer := first(got[i][0], "ratelimit"), first(got[i][1], "ratelimit")
			if (header != "") != tt.header[i] || (trailer != "") == tt.header[i] {
				t.Errorf("%s, %s: the header has %q, the trailer %q", name, kind, header, trailer)
			}
		}
	}
}
