package wire

import (
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// limitArgs is a limit as the scripts read it.
type limitArgs struct {
	*codec
	limit
	args []any // of a charge of one
}

// argsOf returns the arguments of a limit. At most a few thousand are kept, because a
// program may make new limits all the time.
func argsOf(l *store.Limit) *limitArgs {
	if known, ok := limits.Load(l); ok {
		return known.(*limitArgs)
	}
	if limitCount.Add(1) > mostLimits {
		limits.Clear()
		limitCount.Store(1)
	}
	kept, _ := limits.LoadOrStore(l, newLimitArgs(l))
	return kept.(*limitArgs)
}

const mostLimits = 4096

var (
	limits     sync.Map // *store.Limit to *limitArgs
	limitCount atomic.Int64
)

func newLimitArgs(l *store.Limit) *limitArgs {
	a := &limitArgs{codec: &codecs[l.Algorithm()], limit: limit{terms: inside.Terms(l), spec: l.Spec()}}
	a.args = a.arguments(&a.limit)
	return a
}
