package stintgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

var byAddress = stint.WithKey(stint.RemoteIP())

// A unary call has the permit, and the fields as header metadata.
func TestUnary(t *testing.T) {
	c := dial(t, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) error {
		if got := stint.FromContext(ctx).Decision().Limit; got != "rate" {
			t.Errorf("the permit is of %q", got)
		}
		return nil
	}}, limited(stint.Rate(2, time.Hour), byAddress))
	for i, left := range []string{`"rate";r=1;t=1800`, `"rate";r=0;t=1800`} {
		header, trailer, s := c.call(t.Context())
		if s.Code() != codes.OK || first(header, "RateLimit") != left || first(header, "RateLimit-Policy") != `"rate";q=2;w=3600` || trailer.Len() != 0 {
			t.Errorf("call %d: %v, header %v, trailer %v", i, s, header, trailer)
		}
	}
	header, trailer, s := c.call(t.Context())
	if s.Code() != codes.ResourceExhausted || s.Message() != "Too Many Requests: limit rate" {
		t.Errorf("denied with %v", s)
	}
	if header.Len() != 0 {
		t.Errorf("denied with the header %v: clients retry only what has none", header)
	}
	if first(trailer, "grpc-retry-pushback-ms") != "1800000" {
		t.Errorf("denied with the trailer %v", trailer)
	}
	if first(trailer, "retry-after") != "1800" || first(trailer, "ratelimit") != `"rate";r=0;t=1800` || trailer.Get("cache-control") != nil {
		t.Errorf("denied with the trailer %v", trailer)
	}
	if d := retryDelay(s); d != 1800*time.Second {
		t.Errorf("RetryInfo says %v", d)
	}
}

// kinds are the kinds of streams, each with two messages.
var kinds = map[string]func(context.Context, *client) (header, trailer metadata.MD, err error){
	"client": func(ctx context.Context, c *client) (metadata.MD, metadata.MD, error) {
		s, err := c.StreamingInputCall(ctx)
		if err != nil {
			return nil, nil, err
		}
		for range 2 {
			_ = s.Send(&testpb.StreamingInputCallRequest{}) // CloseAndRecv has the error
		}
		m, err := s.CloseAndRecv()
		if err == nil && m.AggregatedPayloadSize != 2 {
			err = errors.New("messages are missing")
		}
		h, _ := s.Header()
		return h, s.Trailer(), err
	},
	"server": func(ctx context.Context, c *client) (metadata.MD, metadata.MD, error) {
		s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{ResponseParameters: make([]*testpb.ResponseParameters, 2)})
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for ; err == nil; n++ {
			_, err = s.Recv()
		}
		if err == io.EOF && n == 3 {
			err = nil
		}
		h, _ := s.Header()
		return h, s.Trailer(), err
	},
	"bidirectional": func(ctx context.Context, c *client) (metadata.MD, metadata.MD, error) {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			return nil, nil, err
		}
		for range 2 {
			_ = s.Send(&testpb.StreamingOutputCallRequest{})
			if _, err = s.Recv(); err != nil {
				break
			}
		}
		if err == nil {
			_ = s.CloseSend()
			if _, err = s.Recv(); err == io.EOF {
				err = nil
			}
		}
		h, _ := s.Header()
		return h, s.Trailer(), err
	},
}

// A stream is one call, of whatever kind.
func TestStreams(t *testing.T) {
	for name, run := range kinds {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &service{}, limited(stint.Rate(1, time.Hour), byAddress))
			header, _, err := run(t.Context(), c)
			if err != nil || first(header, "ratelimit") != `"rate";r=0;t=3600` {
				t.Errorf("%v, header %v", err, header)
			}
			header, trailer, err := run(t.Context(), c)
			s := status.Convert(err)
			if s.Code() != codes.ResourceExhausted || retryDelay(s) != time.Hour || first(trailer, "retry-after") != "3600" || header.Len() != 0 {
				t.Errorf("denied with %v, header %v, trailer %v", s, header, trailer)
			}
		})
	}
}

// The handler of a stream has the permit, and can settle its charge.
func TestStreamSettles(t *testing.T) {
	lim := limited(stint.Rate(9, time.Hour), byAddress)
	c := dial(t, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
		return stint.FromContext(s.Context()).Settle(s.Context(), 4)
	}}, lim)
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	if d, err := lim.Peek(t.Context(), "127.0.0.1"); err != nil || d.Remaining != 5 {
		t.Errorf("%d left, %v, want 5", d.Remaining, err)
	}
}

// A stream holds its slot until it ends, in whatever way.
func TestSlotOfAStream(t *testing.T) {
	for name, end := range map[string]func(*client, grpc.ClientStream, context.CancelFunc){
		"it is closed":       func(_ *client, s grpc.ClientStream, _ context.CancelFunc) { _ = s.CloseSend() },
		"it is canceled":     func(_ *client, _ grpc.ClientStream, cancel context.CancelFunc) { cancel() },
		"the client is gone": func(c *client, _ grpc.ClientStream, _ context.CancelFunc) { _ = c.conn.Close() },
		"its handler panics": func(_ *client, s grpc.ClientStream, _ context.CancelFunc) {
			_ = s.SendMsg(&testpb.StreamingOutputCallRequest{ResponseStatus: &testpb.EchoStatus{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			lim := limited(stint.Concurrency(1), byAddress)
			c := dial(t, &service{stream: func(s testpb.TestService_FullDuplexCallServer) error {
				for {
					m, err := s.Recv()
					if err != nil {
						return nil
					}
					if m.ResponseStatus != nil {
						panic("asked for")
					}
					if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
			}}, lim)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := c.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := s.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}
				if got := c.code(t); got != codes.ResourceExhausted {
					t.Errorf("while it runs, another call gets %v", got)
				}
				_ = c.settled(t)
			}
			end(c, s, cancel)
			err = c.settled(t)
			if panics := strings.Contains(name, "panics"); panics != (status.Code(err) == codes.Internal) {
				t.Errorf("it has ended with %v", err)
			}
			if d, err := lim.Peek(t.Context(), "127.0.0.1"); err != nil || d.Remaining != 1 {
				t.Errorf("%d slots are left, %v", d.Remaining, err)
			}
		})
	}
}

// A unary call gives its slot back when its handler panics.
func TestPanic(t *testing.T) {
	lim := limited(stint.Concurrency(1), stint.Rate(9, time.Hour, stint.WithSettle(stint.RefundOn(500))), byAddress)
	c := dial(t, &service{unary: func(context.Context, *testpb.SimpleRequest) error { panic("boom") }}, lim)
	for range 3 {
		if got := c.code(t); got != codes.Internal {
			t.Errorf("got %v", got)
		}
	}
	if d, err := lim.Peek(t.Context(), "127.0.0.1"); err != nil || d.Limits[0].Remaining != 1 || d.Limits[1].Remaining != 9 {
		t.Errorf("left are %+v, %v", d.Limits, err)
	}
}

// Several limits are decided together: a denied call is charged by none.
func TestAllOrNone(t *testing.T) {
	lim := limited(stint.Rate(9, time.Hour), stint.Concurrency(5), stint.Quota(2, stint.Hourly), byAddress)
	c := dial(t, &service{}, lim)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
		if got := c.code(t); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	d, err := lim.Peek(t.Context(), "127.0.0.1")
	if err != nil || d.Limits[0].Remaining != 7 || d.Limits[1].Remaining != 5 {
		t.Errorf("left are %+v, %v", d.Limits, err)
	}
}

// Interceptors of one family charge a limit once, and each adds its fields.
func TestNested(t *testing.T) {
	outer := limited(stint.Rate(3, time.Hour), byAddress)
	inner := stint.Must(outer.With(stint.Rate(1, time.Hour, stint.WithName("more"))))
	c := dial(t, &service{}, outer, outer, inner)
	header, _, s := c.call(t.Context())
	if got := strings.Join(header.Get("ratelimit"), ", "); s.Code() != codes.OK || got != `"more";r=0;t=3600, "rate";r=2;t=1200` {
		t.Errorf("%v, %s", s, got)
	}
	_, trailer, s := c.call(t.Context())
	if got := strings.Join(trailer.Get("ratelimit"), ", "); s.Code() != codes.ResourceExhausted || got != `"more";r=0;t=3600, "rate";r=1;t=1200` {
		t.Errorf("%v, %s", s, got)
	}
}

// A route has the name of a method or a service.
func TestRoutes(t *testing.T) {
	const all = "/grpc.testing.TestService/"
	c := dial(t, &service{}, limited(
		stint.Rate(9, time.Hour, stint.WithName("calls")),
		stint.WithRoute("POST "+all+"UnaryCall", stint.Rate(1, time.Hour, stint.WithName("unary"))),
		stint.WithRoute(all+"StreamingInputCall", stint.Only(stint.Rate(5, time.Hour, stint.WithName("uploads")))),
		stint.WithRoute(all+"EmptyCall", stint.Exempt()),
		byAddress))
	header, _, _ := c.call(t.Context())
	if got := first(header, "ratelimit"); got != `"calls";r=8;t=400, "unary";r=0;t=3600` {
		t.Errorf("a method with a limit more: %s", got)
	}
	if _, trailer, s := c.call(t.Context()); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "limit unary") {
		t.Errorf("%v, %v", s, trailer)
	}
	if header, _, err := kinds["client"](t.Context(), c); err != nil || first(header, "ratelimit") != `"uploads";r=4;t=720` {
		t.Errorf("a method with other limits: %v, %v", err, header)
	}
	if _, err := c.EmptyCall(t.Context(), &testpb.Empty{}, grpc.Header(&header)); err != nil || header.Get("ratelimit") != nil {
		t.Errorf("an exempt method: %v, %v", err, header)
	}
	if header, _, err := kinds["server"](t.Context(), c); err != nil || first(header, "ratelimit") != `"calls";r=7;t=400` {
		t.Errorf("another method: %v, %v", err, header)
	}

	whole := dial(t, &service{}, limited(
		stint.WithRoute(all, stint.Rate(1, time.Hour)), byAddress))
	if got := []codes.Code{whole.code(t), whole.code(t)}; got[0] != codes.OK || got[1] != codes.ResourceExhausted {
		t.Errorf("a route of a service: %v", got)
	}
}

// The interceptors panic on what calls can't be held to, and say what to write.
func TestNotMounted(t *testing.T) {
	rate := stint.Rate(1, time.Hour)
	other := stint.KeyFunc(func(*http.Request) (string, error) { return "", nil }).ForAdapter("stintother")
	for want, lim := range map[string]*stint.Limiter{
		`stint: limit "rate": GivenKey, which requests don't have`:                                           limited(rate, stint.WithKey(stint.GivenKey())),
		`stint: limit "rate": stintother.Key, which requests through stintgrpc don't have`:                   limited(rate, stint.WithKey(other)),
		`stint: limit "bytes": a Bandwidth, which can't pace the messages of stintgrpc`:                      limited(stint.Bandwidth(10_000, stint.WithName("bytes")), byAddress),
		`stint: limit "bandwidth": a Bandwidth, which can't pace the messages of stintgrpc: leave it out, o`: limited(stint.WithRoute("/a.B/", rate, stint.Bandwidth(10_000)), byAddress),
		"stint: this Limiter is nil or zero":                                                                 nil,
	} {
		for name, mount := range map[string]func(){
			"unary":  func() { stintgrpc.UnaryServerInterceptor(lim) },
			"stream": func() { stintgrpc.StreamServerInterceptor(lim) },
		} {
			if got := panicOf(mount); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s\nwant %s", name, got, want)
			}
		}
	}
	key := stintgrpc.Key(func(context.Context, any) (string, error) { return "a", nil })
	lim := limited(rate, stint.WithKey(stint.Join(key, stint.RemoteIP())))
	want := `stint: limit "rate": stintgrpc.Key, which requests through stinthttp don't have: mount the limiter with stintgrpc`
	if got := panicOf(func() { stinthttp.Middleware(lim) }); !strings.HasPrefix(got, want) {
		t.Errorf("elsewhere: %s", got)
	}
	if _, err := stint.New(rate, stint.WithKey(stintgrpc.Key(nil))); err == nil || !strings.Contains(err.Error(), "pass a function") {
		t.Errorf("a key of nothing: %v", err)
	}
}

func panicOf(f func()) (text string) {
	defer func() {
		switch v := recover().(type) {
		case error:
			text = v.Error()
		case string:
			text = v
		}
	}()
	f()
	return "no panic"
}

// A limiter in front of grpc.Server.ServeHTTP and its interceptor charge a call once, and
// a Bandwidth there paces it.
func TestBehindHTTP(t *testing.T) {
	lim := limited(stint.Rate(2, time.Hour), stint.Concurrency(3), byAddress)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(stintgrpc.UnaryServerInterceptor(lim)))
	testpb.RegisterTestServiceServer(srv, &service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) error {
		if n := len(stint.FromContext(ctx).Decision().Limits); n != 2 {
			t.Errorf("%d limits", n)
		}
		return nil
	}})
	web := httptest.NewUnstartedServer(stinthttp.Middleware(lim)(srv))
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	defer web.Close()
	conn := connect(t, web.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	c := &client{TestServiceClient: testpb.NewTestServiceClient(conn)}
	for range 2 {
		if _, _, s := c.call(t.Context()); s.Code() != codes.OK {
			t.Error(s)
		}
	}
	if d, err := lim.Peek(t.Context(), "127.0.0.1"); err != nil || d.Limits[0].Remaining != 0 {
		t.Errorf("left are %+v, %v", d.Limits, err)
	}
}

// An interceptor may be called where there is no server, as in unit tests of handlers.
func TestWithoutAServer(t *testing.T) {
	intercept := stintgrpc.UnaryServerInterceptor(limited(stint.Rate(1, time.Hour), byAddress))
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	next := func(ctx context.Context, m any) (any, error) { return m, nil }
	if m, err := intercept(t.Context(), "message", info, next); m != "message" || err != nil {
		t.Error(m, err)
	}
	if m, err := intercept(t.Context(), "message", info, next); m != nil || !errors.Is(err, stint.ErrDenied) {
		t.Error(m, err)
	}
}

// The peer of a Unix socket is a proxy if the limiter is told so.
func TestUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Skip(err)
	}
	var seen string
	k := stint.IP{Header: "X-Forwarded-For", TrustUnix: true}.Key()
	c := dialTo(t, l, &service{}, limited(stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(r *http.Request) (key string, err error) {
		seen, err = k.Of(r)
		return seen, err
	}))))
	if got := c.code(t, "x-forwarded-for", "192.0.2.7"); got != codes.OK || seen != "192.0.2.7" {
		t.Errorf("%v, the key is %q", got, seen)
	}
}
