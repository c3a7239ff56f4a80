package wire

import (
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// limit is the numbers of a limit, which its algorithm encodes.
type limit struct {
	terms    algorithm.Terms
	spec     store.Spec
	calendar atomic.Pointer[calendar] // used last
}

// calendar holds a script's arguments about the windows around one of them.
type calendar struct {
	start, end int64 // of the one
	limit      any   // the list of windows that lua/window.lua reads
	starts     [3]any
	head       any // of the one (headOf)
}

// setCostAndWait sets the adjacent arguments cost and how of a charge. Before, they are those of a
// charge of 1 that doesn't wait.
func setCostAndWait(costAndHow []any, l *limit, c *store.Charge) {
	if c.Cost != 1 {
		costAndHow[0] = text(c.Cost)
	}
	if c.MaxWait > 0 {
		costAndHow[1] = maxWait(c, l.terms.Patience)
	}
}

// varyCostAndWait is vary for the codecs whose second and third arguments are cost and how.
func varyCostAndWait(l *limit, args []any, c *store.Charge, _ *Times) {
	if c != nil {
		setCostAndWait(args[1:], l, c)
	}
}

// maxWait returns the longest a charge may wait, in microseconds, as store counts it.
// Less than one microsecond is no wait, but differs from none, with which a queue keeps
// its own.
func maxWait(c *store.Charge, patience int64) string {
	if us := c.MaxWait.Microseconds(); us > 0 || c.MaxWait <= 0 {
		return strconv.FormatInt(min(max(us, 0), patience), 10)
	}
	return "0.5"
}
