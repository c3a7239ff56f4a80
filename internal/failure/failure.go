// Package failure has the error of a request that is denied for another reason than a limit, and
// the status of its answer.
package failure

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Error is such a denial.
type Error struct {
	Err    error
	Status int
	Limit  string  // the name of the limit it is about, or ""
	By     string  // the option whose function has returned Err, or ""
	Source *Source // of limits, if it has failed; or nil
	// WouldDeny says that the request goes on only because of a dry run. Beside says that it goes on with the limits
	// that a function has returned beside Err. Otherwise Err denies the request, unless a source has failed.
	WouldDeny, Beside bool
}

// Source is what the log says of a source of limits that fails.
type Source struct {
	Holds   string // what holds instead
	Invalid bool   // it has answered, and a limit is invalid
	OfKey   bool   // it fails for one key, and not for others
	Known   bool   // it has answered since
}

func (e *Error) Error() string {
	about := ""
	switch {
	case e.Limit != "":
		about = "limit " + e.Limit + ": "
	case e.By != "":
		about = e.By + ": "
	}
	return "stint: " + about + strings.TrimPrefix(e.Err.Error(), "stint: ")
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// StatusCode returns the Status.
func (e *Error) StatusCode() int { return e.Status }

// Status returns the status that an error asks for, such as 401 from a KeyFunc that finds
// no session. If it asks for none, or for one that isn't an error, the status is 503 if a
// context has ended and 500 otherwise.
func Status(err error) int {
	var s interface{ StatusCode() int }
	if errors.As(err, &s) {
		if status := s.StatusCode(); status >= 400 && status <= 599 {
			return status
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
