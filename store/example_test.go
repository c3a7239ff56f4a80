package store_test

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// Two dates that make the same window give it the same name, so limits with them share their counts.
func ExampleWindow_From() {
	since := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	fmt.Println(store.Monthly.From(since))
	fmt.Println(store.Yearly.From(since))
	fmt.Println(store.Weekly.From(since))
	fmt.Println(store.Daily.From(since), store.Daily.From(since.AddDate(0, 5, 7)))
	fmt.Println(store.Every(6 * time.Hour).From(since))
	// Output:
	// monthly from day 31 09:00
	// yearly from 31 January 09:00
	// weekly from Saturday 09:00
	// daily from 09:00 daily from 09:00
	// every 6h0m0s from 1970-01-01T03:00:00Z
}
