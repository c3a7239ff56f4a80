package stintgrpc_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-go/stint"
	stintgrpc "github.com/stint-go/stint/adapters/grpc"
)

func server(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) (*grpc.Server, error) {
	lim, err := stint.New(
		stint.Rate(100, time.Minute),
		stint.WithRoute("/shop.Orders/Create", stint.Rate(5, time.Minute, stint.WithName("create"))), // beside the limit above
		stint.WithRoute("/shop.Orders/Watch", stint.Only(stint.Concurrency(2))),                      // open streams, instead of it
		stint.WithRoute("/grpc.health.v1.Health/", stint.Exempt()),                                   // a whole service
		stint.WithKey(stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP())))
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(append(unary, stintgrpc.UnaryServerInterceptor(lim))...),
		grpc.ChainStreamInterceptor(append(stream, stintgrpc.StreamServerInterceptor(lim))...),
	), nil
}

func TestDocumentIsThisCode(t *testing.T) {
	if _, err := server(nil, nil); err != nil {
		t.Error(err)
	}
	document, err := os.ReadFile("../../docs/grpc.md")
	if err != nil {
		t.Skip("the module has no documents:", err)
	}
	code, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(document), "```go adapters/grpc\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed || !strings.Contains(string(code), block) {
		t.Errorf("docs/grpc.md has code that isn't here:\n%s", block)
	}
}
