package stintgrpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// A call is the request that keys and other functions expect.
func TestRequest(t *testing.T) {
	var got *http.Request
	c := dial(t, &service{}, limited(stint.Rate(9, time.Hour), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
		got = r
		return "k", nil
	}))))
	if _, _, s := c.call(t.Context(), "X-API-Key", "first", "x-api-key", "second", "token-bin", "\x00\xff"); s.Code() != codes.OK {
		t.Fatal(s)
	}
	const path = "/grpc.testing.TestService/UnaryCall"
	if got.Method != "POST" || got.URL.Path != path || got.URL.String() != path || got.RequestURI != path || got.Pattern != path || got.ProtoMajor != 2 || got.Body != http.NoBody {
		t.Errorf("it is %+v", got)
	}
	if all := got.Header.Values("X-API-Key"); len(all) != 2 || all[0] != "first" || got.Header.Get("Token-Bin") != "\x00\xff" ||
		got.Header.Get("Content-Type") != "application/grpc" || !strings.HasPrefix(got.Header.Get("User-Agent"), "grpc-go/") {
		t.Errorf("its header is %v", got.Header)
	}
	if got.Host != c.conn.Target() || !strings.HasPrefix(got.RemoteAddr, "127.0.0.1:") || got.TLS != nil {
		t.Errorf("it is for %s, from %s", got.Host, got.RemoteAddr)
	}
	for name := range got.Header {
		if strings.Contains(name, ":") {
			t.Errorf("%s is a field", name)
		}
	}
	if message, ok := stintgrpc.Message(got); !ok {
		t.Error("it doesn't lead to its message")
	} else if _, ok := message.(*testpb.SimpleRequest); !ok {
		t.Errorf("it leads to the message %v", message)
	}
	if _, _, err := kinds["bidirectional"](t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if message, ok := stintgrpc.Message(got); message != nil || !ok || got.Pattern != "/grpc.testing.TestService/FullDuplexCall" {
		t.Errorf("a stream of %s has the message %v, %v", got.Pattern, message, ok)
	}
	if _, ok := stintgrpc.Message(httptest.NewRequest("GET", "/", nil)); ok {
		t.Error("a request from elsewhere leads to a message")
	}
}

// What calls have in metadata and peer is theirs alone, by keys that know nothing of gRPC.
func TestKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		key                stint.Key
		one, same, another []string // metadata
	}{
		"metadata":  {stint.Header("X-API-Key"), []string{"x-api-key", "a"}, []string{"X-API-Key", "a", "x-api-key", "b"}, []string{"x-api-key", "b"}},
		"forwarded": {stint.ForwardedIP(loopback), []string{"x-forwarded-for", "192.0.2.1"}, []string{"x-forwarded-for", "203.0.113.5", "x-forwarded-for", "192.0.2.1"}, []string{"x-forwarded-for", "192.0.2.2"}},
		"first of":  {stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP()), []string{}, []string{"other", "field"}, []string{"x-api-key", "127.0.0.1"}},
		"bearer":    {stint.Hash(make([]byte, 16), stint.Header("Authorization")), []string{"authorization", "Bearer a"}, []string{"authorization", "Bearer a"}, []string{"authorization", "Bearer b"}},
		"cookie":    {stint.Cookie("session"), []string{"cookie", "session=a"}, []string{"cookie", "x=y; session=a"}, []string{"cookie", "session=b"}},
	} {
		c := dial(t, &service{}, limited(stint.Rate(1, time.Hour), stint.WithKey(tt.key)))
		if got := []codes.Code{c.code(t, tt.one...), c.code(t, tt.same...), c.code(t, tt.another...)}; got[0] != codes.OK || got[1] != codes.ResourceExhausted || got[2] != codes.OK {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The message of a unary call is a key, and a cost.
func TestMessage(t *testing.T) {
	byMessage := stintgrpc.Key(func(ctx context.Context, message any) (string, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		m, ok := message.(*testpb.SimpleRequest)
		if !ok || len(md) == 0 {
			return "", status.Error(codes.InvalidArgument, "no payload")
		}
		return string(m.Payload.GetBody()), nil
	})
	lim := limited(stint.Rate(3, time.Hour), stint.WithKey(byMessage), stint.WithCost(func(r *http.Request) int64 {
		m, _ := stintgrpc.Message(r)
		return int64(m.(*testpb.SimpleRequest).ResponseSize)
	}))
	c := dial(t, &service{}, lim)
	for i, tt := range []struct {
		key  string
		cost int32
		want codes.Code
	}{{"a", 2, codes.OK}, {"a", 2, codes.ResourceExhausted}, {"a", 1, codes.OK}, {"b", 3, codes.OK}, {"", 1, codes.PermissionDenied}, {"c", -1, codes.Internal}} {
		_, err := c.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseSize: tt.cost, Payload: &testpb.Payload{Body: []byte(tt.key)}})
		if status.Code(err) != tt.want {
			t.Errorf("call %d: %v, want %v", i, err, tt.want)
		}
	}
	if _, _, err := kinds["bidirectional"](t.Context(), c); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "no payload" {
		t.Errorf("a stream: %v", err)
	}
	// Outside a call, it charges the key it is given; in another request there is none.
	if err := lim.Allow(t.Context(), "d", 3); err != nil {
		t.Error(err)
	}
	if _, err := byMessage.Of(httptest.NewRequest("POST", "/", nil)); err == nil || !strings.Contains(err.Error(), "mount the limiter with stintgrpc") {
		t.Error(err)
	}
}

// What authentication has stored in the context is a key.
func TestUser(t *testing.T) {
	type user struct{}
	lim := limited(stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
		name, _ := r.Context().Value(user{}).(string)
		return name, nil
	})))
	intercept := stintgrpc.UnaryServerInterceptor(lim)
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		ctx := context.WithValue(t.Context(), user{}, "ada")
		_, err := intercept(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
			if ctx.Value(user{}) != "ada" {
				t.Error("the handler has lost the user")
			}
			return nil, nil
		})
		if status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// Names that the server doesn't know share a key of stint.Pattern: clients can make them up.
func TestPattern(t *testing.T) {
	c := dial(t, &service{}, limited(stint.Rate(1, time.Hour), stint.WithKey(stint.Pattern())))
	if got := c.code(t); got != codes.OK {
		t.Error(got)
	}
	if _, err := c.EmptyCall(t.Context(), &testpb.Empty{}); err != nil {
		t.Errorf("another method: %v", err)
	}
	if got := c.code(t); got != codes.ResourceExhausted {
		t.Errorf("the same method: %v", got)
	}
	for i, want := range []codes.Code{codes.Unimplemented, codes.ResourceExhausted} {
		err := c.conn.Invoke(t.Context(), []string{"/made.Up/One", "/made.Up/Two"}[i], &testpb.Empty{}, &testpb.Empty{})
		if status.Code(err) != want {
			t.Errorf("a name that nobody has: %v, want %v", err, want)
		}
	}
}

// The request has the state of TLS, with the client's certificate.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it has a certificate to borrow
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	name := make(chan string, 1)
	lim := limited(stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
		name <- r.TLS.PeerCertificates[0].Subject.Organization[0]
		return "k", nil
	})))
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates, ClientAuth: tls.RequireAnyClientCert})),
		grpc.UnaryInterceptor(stintgrpc.UnaryServerInterceptor(lim)))
	testpb.RegisterTestServiceServer(srv, &service{})
	l := listen(t)
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()
	conn := connect(t, l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: web.TLS.Certificates})))
	if _, err := testpb.NewTestServiceClient(conn).EmptyCall(t.Context(), &testpb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if got := <-name; got != "Acme Co" {
		t.Errorf("the client's certificate is of %q", got)
	}
}
