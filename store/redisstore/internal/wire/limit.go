package wire

import (
	"sync/atomic"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// limit is the numbers of a limit, which its algorithm encodes.
type limit struct {
	terms    engine.Terms
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
