package stintgrpc_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

// Two calls a minute for each API key, and one stream at a time.
func ExampleUnaryServerInterceptor() {
	lim := stint.Must(stint.New(
		stint.Rate(2, time.Minute),
		stint.WithRoute("/grpc.testing.TestService/FullDuplexCall", stint.Only(stint.Concurrency(1))),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(stintgrpc.UnaryServerInterceptor(lim)),
		grpc.ChainStreamInterceptor(stintgrpc.StreamServerInterceptor(lim)),
	)
	testpb.RegisterTestServiceServer(srv, &service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client := testpb.NewTestServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "k")
	for range 3 {
		var header metadata.MD
		_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header))
		s := status.Convert(err)
		fmt.Println(s.Code(), s.Message(), header.Get("ratelimit"))
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				fmt.Println("retry after", info.RetryDelay.AsDuration())
			}
		}
	}
	// Output:
	// OK  ["rate";r=1;t=30]
	// OK  ["rate";r=0;t=30]
	// ResourceExhausted Too Many Requests: limit rate []
	// retry after 30s
}

// The tenant is in the message of a call, not in its metadata.
func ExampleKey() {
	tenant := stintgrpc.Key(func(_ context.Context, message any) (string, error) {
		m, ok := message.(interface{ GetTenant() string }) // as generated code has it
		if !ok {
			return "", nil
		}
		return m.GetTenant(), nil
	})
	lim, err := stint.New(stint.Rate(10, time.Second), stint.WithKey(tenant))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = grpc.NewServer(grpc.ChainUnaryInterceptor(stintgrpc.UnaryServerInterceptor(lim)))
	// Output:
}
