package failover_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

func Example() {
	remote, local := &side{}, &side{} // such as a store on the network, and memstore.New()
	s := failover.New(remote, local, failover.WithThreshold(3))
	defer s.Close()

	charges := []store.Charge{{Key: "user-42", Limit: limit, Cost: 1}}
	results := make([]store.Result, 1)
	remote.fail(errors.New("connection refused"))
	for range 5 {
		err := s.Take(context.Background(), charges, results)
		fmt.Println(results[0].OK, err, s.State())
	}
	fmt.Printf("%+v\n", s.Stats())
	// Output:
	// true <nil> closed
	// true <nil> closed
	// true <nil> open
	// true <nil> open
	// true <nil> open
	// {State:open Failures:3 Fallbacks:5 Denials:0 Opened:1 Probes:0}
}
