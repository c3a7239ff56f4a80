// Package rpc has clients of gRPC, gRPC-Web and connect read what a limiter in front of
// net/http answers. It is a module of its own, so that none of them reaches a user's go.sum.
package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// serve limits a *grpc.Server, or a mux with the handlers of connect and others.
func serve(l net.Listener, service http.Handler) error {
	limit := stinthttp.New(
		stint.Rate(100, time.Minute),
		stint.WithRoute("/shop.Orders/Create", stint.Rate(5, time.Minute, stint.WithName("create"))),
		stint.WithKey(stint.RemoteIP()),
		stint.WithErrorHandler(stint.RPCError))
	server := &http.Server{Handler: limit(service), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // which gRPC needs where there is no TLS
	return server.Serve(l)
}

func TestDocumentIsThisCode(t *testing.T) {
	document, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("rpc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(document), "```go tests/rpc\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed || !strings.Contains(string(code), block) {
		t.Errorf("docs/recipes.md has code that isn't here:\n%s", block)
	}
}

// listen serves until the test ends, and returns the address.
func listen(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	return l.Addr().String()
}

// The recipe's server denies the sixth call of each protocol.
func TestRecipe(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/shop.Orders/Create", connect.NewUnaryHandler("/shop.Orders/Create", answer))
	calls := map[string]func(addr string) func() string{
		"gRPC": func(addr string) func() string {
			conn := dial(t, addr)
			return func() string {
				err := conn.Invoke(t.Context(), "/shop.Orders/Create", &emptypb.Empty{}, &emptypb.Empty{})
				return strings.ToLower(status.Code(err).String())
			}
		},
		"connect": func(addr string) func() string {
			c := connect.NewClient[emptypb.Empty, emptypb.Empty](http.DefaultClient, "http://"+addr+"/shop.Orders/Create")
			return func() string {
				_, err := c.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
				if err == nil {
					return "ok"
				}
				return strings.ReplaceAll(connect.CodeOf(err).String(), "_", "")
			}
		},
	}
	for name, service := range map[string]http.Handler{"gRPC": orders(), "connect": mux} {
		call := calls[name](listen(t, func(l net.Listener) error { return serve(l, service) }))
		for i := range 6 {
			want := "ok"
			if i == 5 {
				want = "resourceexhausted"
			}
			if got := call(); got != want {
				t.Errorf("%s, call %d: %s, want %s", name, i, got, want)
			}
		}
	}
}

// orders is a server without generated code.
func orders() *grpc.Server {
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Orders",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Create", Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			return &emptypb.Empty{}, nil
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, ClientStreams: true, Handler: func(any, grpc.ServerStream) error { return nil }}},
	}, struct{}{})
	return srv
}

func answer(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return connect.NewResponse(&emptypb.Empty{}), nil
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// down is a store that fails.
type down struct{ store.Store }

func (down) Take(context.Context, []store.Charge, []store.Result) error { return errors.New("secret") }

// outcome is what a client has of a call.
type outcome struct {
	code, message, retryAfter, rateLimit string
	retryInfo                            time.Duration // 0: there is none
}

// retryDelay returns what a RetryInfo in the details of an error says, or 0.
func retryDelay(details []any) time.Duration {
	for _, d := range details {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return 0
}

// The outcomes of calls: with a key for the second time, without a key, while the store is
// down, and with a cost that the service never has slots for.
var outcomes = map[string]outcome{
	"denied":  {"resource_exhausted", "Too Many Requests: limit calls", "3600", `"calls";r=0;t=3600`, time.Hour},
	"unnamed": {"permission_denied", "Forbidden", "", "", 0},
	"down":    {"unavailable", "Service Unavailable", "1", "", time.Second},
	"full":    {"resource_exhausted", "Service Unavailable: limit slots", "", `"calls";r=1;t=3600, "slots";r=1`, 0},
}

// limits returns the limiters of outcomes.
func limits(opts ...stint.Option) map[string]*stint.Limiter {
	with := func(more ...stint.Option) *stint.Limiter {
		return stint.Must(stint.New(append(append([]stint.Option{
			stint.Rate(1, time.Hour, stint.WithName("calls")),
			stint.WithKey(stint.Header("X-API-Key")),
			stint.WithoutWarnings(), stint.WithLogger(slog.New(slog.DiscardHandler)),
		}, more...), opts...)...))
	}
	slots := stint.Concurrency(1, stint.WithName("slots"), stint.WithKey(stint.Global()), stint.WithCost(func(*http.Request) int64 { return 2 }))
	return map[string]*stint.Limiter{
		"denied":  with(),
		"unnamed": with(),
		"down":    with(stint.WithStore(down{memstore.New()}), stint.WithFailurePolicy(stint.FailClosed)),
		"full":    with(slots),
	}
}

// site is the address of a service behind a limiter.
func site(t *testing.T, service http.Handler, lim *stint.Limiter) string {
	t.Helper()
	return listen(t, func(l net.Listener) error {
		server := &http.Server{Handler: stinthttp.Middleware(lim)(service), Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		return server.Serve(l)
	})
}

// key is the metadata of calls of an outcome.
func key(name string) string {
	if name == "unnamed" {
		return ""
	}
	return "k"
}

// A call of grpc-go, over HTTP/2.
func TestGRPC(t *testing.T) {
	for name, l := range limits(stint.WithErrorHandler(stint.RPCError)) {
		conn := dial(t, site(t, orders(), l))
		if name == "denied" {
			_, _ = grpcCall(t, conn, "unary", key(name))
		}
		for _, kind := range []string{"unary", "stream"} {
			got, header := grpcCall(t, conn, kind, key(name))
			if got != outcomes[name] || header {
				t.Errorf("%s, %s: %+v, want %+v, with header %v", name, kind, got, outcomes[name], header)
			}
		}
	}
}

// grpcCall returns the outcome of a call, and whether it has a header of its own beside the trailer.
func grpcCall(t *testing.T, conn *grpc.ClientConn, kind, key string) (got outcome, header bool) {
	ctx := t.Context()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-api-key", key)
	}
	var head, trailer metadata.MD
	var err error
	if kind == "unary" {
		err = conn.Invoke(ctx, "/shop.Orders/Create", &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&head), grpc.Trailer(&trailer))
	} else {
		s, open := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/shop.Orders/Watch")
		if open != nil {
			t.Fatal(open)
		}
		if err = s.RecvMsg(&emptypb.Empty{}); err == io.EOF {
			err = nil
		}
		head, _ = s.Header()
		trailer = s.Trailer()
	}
	retry := retryDelay(status.Convert(err).Details())
	pushback := strings.Join(trailer.Get("grpc-retry-pushback-ms"), "")
	if want := strconv.FormatInt(retry.Milliseconds(), 10); pushback != want && retry != 0 || pushback != "" && retry == 0 {
		t.Errorf("%s: grpc-retry-pushback-ms is %q, RetryInfo says %v", kind, pushback, retry)
	}
	return outcome{underscored(status.Code(err)), status.Convert(err).Message(), strings.Join(trailer.Get("retry-after"), ""), strings.Join(trailer.Get("ratelimit"), ""), retry}, head.Len() > 0
}

func underscored(c codes.Code) string {
	return map[codes.Code]string{codes.OK: "ok", codes.ResourceExhausted: "resource_exhausted", codes.PermissionDenied: "permission_denied", codes.Unavailable: "unavailable"}[c]
}

// Without RPCError a denial is UNAVAILABLE, which clients retry: it is why there is RPCError.
func TestGRPCWithout(t *testing.T) {
	conn := dial(t, site(t, orders(), limits()["denied"]))
	_, _ = grpcCall(t, conn, "unary", "k")
	if got, _ := grpcCall(t, conn, "unary", "k"); got.code != "unavailable" {
		t.Errorf("%+v", got)
	}
}

// Each protocol, kind of call and version of HTTP that connect's client has.
func TestConnect(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/shop.Orders/Create", connect.NewUnaryHandler("/shop.Orders/Create", answer, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("/shop.Orders/List", connect.NewServerStreamHandler("/shop.Orders/List",
		func(context.Context, *connect.Request[emptypb.Empty], *connect.ServerStream[emptypb.Empty]) error {
			return nil
		}))
	mux.Handle("/shop.Orders/Upload", connect.NewClientStreamHandler("/shop.Orders/Upload",
		func(_ context.Context, s *connect.ClientStream[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			for s.Receive() {
			}
			return connect.NewResponse(&emptypb.Empty{}), s.Err()
		}))
	mux.Handle("/shop.Orders/Watch", connect.NewBidiStreamHandler("/shop.Orders/Watch",
		func(context.Context, *connect.BidiStream[emptypb.Empty, emptypb.Empty]) error { return nil }))

	only := func(set func(*http.Protocols, bool)) *http.Client {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		set(transport.Protocols, true)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	http1, http2 := only((*http.Protocols).SetHTTP1), only((*http.Protocols).SetUnencryptedHTTP2)
	for _, tt := range []struct {
		name string
		over *http.Client
		opts []connect.ClientOption
	}{
		{"connect, HTTP/1.1", http1, nil},
		{"connect, HTTP/2", http2, nil},
		{"connect, JSON", http1, []connect.ClientOption{connect.WithProtoJSON()}},
		{"connect, GET", http1, []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}},
		{"gRPC", http2, []connect.ClientOption{connect.WithGRPC()}},
		{"gRPC-Web, HTTP/1.1", http1, []connect.ClientOption{connect.WithGRPCWeb()}},
		{"gRPC-Web, HTTP/2", http2, []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		for name, l := range limits(stint.WithErrorHandler(stint.RPCError)) {
			base := "http://" + site(t, mux, l)
			client := func(method string) *connect.Client[emptypb.Empty, emptypb.Empty] {
				return connect.NewClient[emptypb.Empty, emptypb.Empty](tt.over, base+"/shop.Orders/"+method, tt.opts...)
			}
			kinds := []struct {
				name string
				call func() error
			}{
				{"unary", func() error {
					r := connect.NewRequest(&emptypb.Empty{})
					r.Header().Set("X-API-Key", key(name))
					_, err := client("Create").CallUnary(t.Context(), r)
					return err
				}},
				{"server stream", func() error {
					r := connect.NewRequest(&emptypb.Empty{})
					r.Header().Set("X-API-Key", key(name))
					s, err := client("List").CallServerStream(t.Context(), r)
					if err != nil {
						return err
					}
					defer s.Close()
					for s.Receive() {
					}
					return s.Err()
				}},
				{"client stream", func() error {
					s := client("Upload").CallClientStream(t.Context())
					s.RequestHeader().Set("X-API-Key", key(name))
					_ = s.Send(&emptypb.Empty{}) // CloseAndReceive has the error
					_, err := s.CloseAndReceive()
					return err
				}},
				{"bidirectional stream", func() error {
					s := client("Watch").CallBidiStream(t.Context())
					s.RequestHeader().Set("X-API-Key", key(name))
					_ = s.Send(&emptypb.Empty{})
					_, err := s.Receive()
					_ = s.CloseRequest()
					_ = s.CloseResponse()
					return err
				}},
			}
			if tt.over == http1 {
				kinds = kinds[:3] // the last one needs HTTP/2
			}
			if name == "denied" {
				if err := kinds[0].call(); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			for _, kind := range kinds {
				err := (*connect.Error)(nil)
				if !errors.As(kind.call(), &err) {
					t.Errorf("%s, %s, %s: no error", tt.name, name, kind.name)
					continue
				}
				var details []any
				for _, d := range err.Details() {
					value, _ := d.Value()
					details = append(details, value)
				}
				got := outcome{err.Code().String(), err.Message(), err.Meta().Get("Retry-After"), err.Meta().Get("RateLimit"), retryDelay(details)}
				if got != outcomes[name] {
					t.Errorf("%s, %s, %s: %+v, want %+v", tt.name, name, kind.name, got, outcomes[name])
				}
			}
		}
	}
}
