package failover_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
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

// One of four processes, whose shared store fails, admits a quarter of the limit.
func ExampleWithProcesses() {
	remote := &side{err: errors.New("connection refused")} // such as a store on the network
	s := failover.New(remote, memstore.New(), failover.WithProcesses(4))
	defer s.Close()

	calls, _ := store.NewLimit(store.Spec{Name: "calls", Units: 10, Period: time.Hour})
	charges := []store.Charge{{Key: "user-42", Limit: calls, Cost: 1}}
	results := make([]store.Result, 1)
	for range 4 {
		err := s.Take(context.Background(), charges, results)
		fmt.Println(results[0].OK, results[0].Remaining, "left, as one of", results[0].Processes, err)
	}
	// Output:
	// true 2 left, as one of 4 <nil>
	// true 1 left, as one of 4 <nil>
	// true 0 left, as one of 4 <nil>
	// false 0 left, as one of 4 <nil>
}
