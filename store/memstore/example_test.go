package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

func ExampleNew() {
	s := memstore.New(memstore.WithMaxKeys(100_000))
	minute, err := store.NewLimit(store.Spec{Name: "minute", Units: 2, Period: time.Minute})
	if err != nil {
		panic(err)
	}
	charges := []store.Charge{{Key: "tenant-7", Limit: minute, Cost: 1}}
	results := make([]store.Result, 1)
	for range 3 {
		if err := s.Take(context.Background(), charges, results); err != nil {
			panic(err)
		}
		fmt.Println(results[0].OK, results[0].Remaining, results[0].RetryAfter.Round(time.Second))
	}
	fmt.Println(s.Stats().Keys, "key")
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 30s
	// 1 key
}
