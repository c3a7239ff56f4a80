package keys

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// description describes a key: two keys are equal if their descriptions are. Parts are described by their ids: an
// address may be another key's when its own has been freed.
type description struct {
	name, args string
	mux        *http.ServeMux
}

var (
	lastID atomic.Uint64
	// table has a weak.Pointer[Key] for each description in use.
	table sync.Map
)

// unique returns the key of a description: the one that is in use, or the one that build
// makes.
func unique(d description, build func() *Key) *Key {
	for {
		if w, ok := table.Load(d); ok {
			if k := w.(weak.Pointer[Key]).Value(); k != nil {
				return k
			}
			table.CompareAndDelete(d, w)
		}
		k := build()
		k.id = lastID.Add(1)
		w := weak.Make(k)
		if _, taken := table.LoadOrStore(d, w); !taken {
			runtime.AddCleanup(k, func(d description) { table.CompareAndDelete(d, w) }, d)
			return k
		}
	}
}
