package stintgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

func ample() *stint.Limiter { return limited(stint.Rate(10_000_000, time.Second), byAddress) }

// A call to a server with a limit beside one to a bare server, over loopback. They take
// turns, so that what slows the machine down slows both.
func BenchmarkBeside(b *testing.B) {
	bare, with := dial(b, &service{}), dial(b, &service{}, ample())
	for _, bench := range []struct {
		name string
		call func(*client) error
	}{
		{"unary", func(c *client) error {
			_, err := c.EmptyCall(b.Context(), &testpb.Empty{})
			return err
		}},
		{"stream", func(c *client) error {
			_, _, err := kinds["client"](b.Context(), c)
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var took [2]time.Duration
			for b.Loop() {
				for i, c := range []*client{bare, with} {
					start := time.Now()
					if err := bench.call(c); err != nil {
						b.Fatal(err)
					}
					took[i] += time.Since(start)
					<-c.ended
				}
			}
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N), "bare-ns/op")
			b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N), "limited-ns/op")
			b.ReportMetric(float64(took[1])/float64(took[0]), "limited/bare")
		})
	}
}

// What the interceptor itself costs: without a server.
func BenchmarkInterceptor(b *testing.B) {
	ctx := incoming()
	info := &grpc.UnaryServerInfo{FullMethod: "/grpc.testing.TestService/EmptyCall"}
	next := func(context.Context, any) (any, error) { return nil, nil }
	for name, lim := range map[string]*stint.Limiter{
		"allowed": ample(),
		"denied":  limited(stint.Rate(1, 1000*time.Hour), byAddress),
	} {
		intercept := stintgrpc.UnaryServerInterceptor(lim)
		_, _ = intercept(ctx, nil, info, next)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := intercept(ctx, nil, info, next); (err == nil) != (name == "allowed") {
					b.Fatal(err)
				}
			}
		})
	}
}

// incoming is the context of a call, as the server makes it.
func incoming() context.Context {
	ctx := grpc.NewContextWithServerTransportStream(context.Background(), metadataTaker{})
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4242}})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(":authority", "a.test", "content-type", "application/grpc", "user-agent", "grpc-go/1.79.3"))
}

// metadataTaker is a server's stream that drops metadata.
type metadataTaker struct{ grpc.ServerTransportStream }

func (metadataTaker) SetHeader(metadata.MD) error  { return nil }
func (metadataTaker) SetTrailer(metadata.MD) error { return nil }
