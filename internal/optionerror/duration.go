package optionerror

import (
	"fmt"
	"math"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
)

// CheckDuration returns whether an option's duration d is valid, and otherwise what to write instead: write, unless d
// lacks its unit. Valid durations are from least to most, which 0 doesn't bound. None is above 0 and below a
// millisecond.
func CheckDuration(d, least, most time.Duration, write string) (valid bool, instead string) {
	if most == 0 {
		most = math.MaxInt64
	}
	if format, names := algorithm.MissingUnit(d, least, most); format != "" {
		return false, fmt.Sprintf(format, names...)
	}
	return least <= d && d <= most && (d <= 0 || d >= time.Millisecond), write
}
