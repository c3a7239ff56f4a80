package stint

import (
	"errors"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
)

// The errors that a request or a call gets, for errors.Is. Those with more to tell are types:
// DeniedError, StoreError, SourceError and OptionError.
var (
	// ErrDenied matches every *DeniedError: errors.Is(err, ErrDenied) reports whether
	// limits have denied a request.
	ErrDenied = errors.New("stint: denied")
	// ErrBlocked is the error of a request that a WithBlock predicate denies. It is
	// answered with 403.
	ErrBlocked = errors.New("stint: blocked by a WithBlock predicate")
	// ErrEmptyKey is the error of a request whose key is empty, unless WithEmptyKey
	// exempts such requests.
	ErrEmptyKey = keytext.ErrEmpty
	// ErrKeyTooLong is the error of a request whose key is longer than 4 KiB.
	ErrKeyTooLong = keytext.ErrTooLong
	// ErrNoLimits is the error of a request for which a WithLimitFunc returns neither limits nor
	// an error, and which no other limit holds. It is answered with 500, and logged.
	ErrNoLimits = read.ErrNoLimits
	// ErrHolds is the error of Allow on a limiter with a Concurrency or an
	// AdaptiveConcurrency. Their slots are held until they are released, and Allow returns
	// nothing to release them with. Use Take, and call Done on its permit.
	ErrHolds = errors.New("stint: Allow: the limiter has a limit with slots: use Take, and call Done")
)
