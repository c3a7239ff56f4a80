package optionerror

import (
	"fmt"
	"time"
)

// CheckDuration returns whether an option's duration d is valid and what to write instead,
// given what the option says of durations that have a unit. One above 0 and below a
// millisecond lacks its unit, as 100 for 100*time.Millisecond.
func CheckDuration(d time.Duration, valid bool, write string) (bool, string) {
	if 0 < d && d < time.Millisecond {
		return false, fmt.Sprintf("use %d*time.Millisecond", int64(d))
	}
	return valid, write
}
