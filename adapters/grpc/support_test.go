package stintgrpc_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

// service is a server whose methods are functions. Without one, a unary call succeeds, and
// a stream echoes or counts its messages.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(context.Context, *testpb.SimpleRequest) error
	stream func(testpb.TestService_FullDuplexCallServer) error
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (s *service) UnaryCall(ctx context.Context, m *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.unary != nil {
		if err := s.unary(ctx, m); err != nil {
			return nil, err
		}
	}
	return &testpb.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(to testpb.TestService_FullDuplexCallServer) error {
	if s.stream != nil {
		return s.stream(to)
	}
	for {
		if _, err := to.Recv(); err != nil {
			return nil
		}
		if err := to.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

func (s *service) StreamingInputCall(from testpb.TestService_StreamingInputCallServer) error {
	for n := int32(0); ; n++ {
		if _, err := from.Recv(); err != nil {
			return from.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		}
	}
}

func (s *service) StreamingOutputCall(m *testpb.StreamingOutputCallRequest, to testpb.TestService_StreamingOutputCallServer) error {
	for range m.ResponseParameters {
		if err := to.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

// outcomes has the error of each call, as an interceptor outside the limiters gets it.
type outcomes chan error

// recovered makes a panic an error, as interceptors of other packages do.
func (o outcomes) recovered(err *error) {
	if v := recover(); v != nil {
		*err = status.Error(codes.Internal, "panic")
	}
	o <- *err
}

func (o outcomes) unary(ctx context.Context, m any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer o.recovered(&err)
	return next(ctx, m)
}

func (o outcomes) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer o.recovered(&err)
	return next(srv, s)
}

// client is a connection to a server behind limiters, outermost first.
type client struct {
	testpb.TestServiceClient
	conn  *grpc.ClientConn
	ended outcomes
}

func limited(opts ...stint.Option) *stint.Limiter {
	return stint.Must(stint.New(append(opts, stint.WithLogger(slog.New(slog.DiscardHandler)))...))
}

func dial(t testing.TB, s *service, limits ...*stint.Limiter) *client {
	t.Helper()
	return dialTo(t, listen(t), s, limits...)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dialTo(t testing.TB, l net.Listener, s *service, limits ...*stint.Limiter) *client {
	t.Helper()
	ended := make(outcomes, 1000)
	unary := []grpc.UnaryServerInterceptor{ended.unary}
	stream := []grpc.StreamServerInterceptor{ended.stream}
	for _, lim := range limits {
		unary = append(unary, stintgrpc.UnaryServerInterceptor(lim))
		stream = append(stream, stintgrpc.StreamServerInterceptor(lim))
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "nobody") }))
	testpb.RegisterTestServiceServer(srv, s)
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})
	target := l.Addr().String()
	if l.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	conn := connect(t, target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &client{testpb.NewTestServiceClient(conn), conn, ended}
}

func connect(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call makes a unary call with pairs of metadata, and returns what the client has of it.
func (c *client) call(ctx context.Context, pairs ...string) (header, trailer metadata.MD, s *status.Status) {
	ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, status.Convert(err)
}

// code makes a unary call, and returns its code.
func (c *client) code(t testing.TB, pairs ...string) codes.Code {
	_, _, s := c.call(t.Context(), pairs...)
	return s.Code()
}

// settled waits for a call to be over on the server, and returns its error there.
func (c *client) settled(t testing.TB) error {
	select {
	case err := <-c.ended:
		return err
	case <-t.Context().Done():
		return t.Context().Err()
	}
}

// first is the first value of a field, or "".
func first(md metadata.MD, name string) string {
	if all := md.Get(name); len(all) > 0 {
		return all[0]
	}
	return ""
}
