// Command grpc is a gRPC server with limits, and a client that meets them: three calls in
// two seconds for each address, and one stream at a time. The client waits as long as a denial says.
//
//	go run ./examples/grpc
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	srv := server()
	go func() { log.Fatal(srv.Serve(listener)) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)

	for n := 1; n <= 4; n++ {
		retried(func() error {
			var header metadata.MD
			_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}, grpc.Header(&header))
			fmt.Println("call", n, outcome(err), header.Get("ratelimit"))
			return err
		})
	}
	ctx, leave := context.WithCancel(context.Background())
	for n := 1; n <= 2; n++ {
		retried(func() error {
			stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			fmt.Println("stream", n, outcome(err))
			if err != nil { // the first stream ends, and the second passes
				leave()
				ctx = context.Background()
			}
			return err
		})
	}
}

// server has a service that every grpc module has. Yours is registered the same way.
func server() *grpc.Server {
	lim := stint.Must(stint.New(
		stint.Rate(3, 2*time.Second),
		// A method by its full name, and a service by "/grpc.health.v1.Health/". A stream is
		// one call, and holds its slot until it ends.
		stint.WithRoute("/grpc.health.v1.Health/Watch", stint.Only(stint.Concurrency(1))),
		stint.WithKey(stint.RemoteIP()),
	))
	srv := grpc.NewServer(
		grpc.ChainUnaryInterceptor(stintgrpc.UnaryServerInterceptor(lim)),
		grpc.ChainStreamInterceptor(stintgrpc.StreamServerInterceptor(lim)),
	)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	return srv
}

func outcome(err error) string {
	return fmt.Sprint(status.Code(err), " ", status.Convert(err).Message())
}

// retried makes a call again when a denial says.
func retried(call func() error) {
	for {
		s := status.Convert(call())
		if s.Err() == nil {
			return
		}
		again := false
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				fmt.Println("  waiting for", info.RetryDelay.AsDuration())
				time.Sleep(info.RetryDelay.AsDuration())
				again = true
			}
		}
		if !again {
			log.Fatal(s)
		}
	}
}
