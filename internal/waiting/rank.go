package waiting

import "time"

// Classes is the number of priority classes, from 0 on.
const Classes = 10

// Rank is what a waiter is among others: see Slots.rank.
type Rank struct {
	Class uint8
	// Came is when the waiter began to wait, for whatever it was.
	Came time.Time
}
