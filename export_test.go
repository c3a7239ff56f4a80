package stint

import (
	"context"
	"math"
	"net/http"
	"slices"
	"unsafe"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// The tests make thousands of limiters, and aren't warned of it.
func init() { mistakes.Made.Store(math.MinInt64) }

// CountNew has the calls of New counted from now on, for a warning.
func CountNew() { mistakes.Made.Store(0) }

// CarriedSize is what a request's permit and the request that carries it take.
const CarriedSize = unsafe.Sizeof(carried{})

// Own returns the event as one observer among several gets it.
func (e Event) Own() Event { return e.clone() }

// Lines is how many calls wait in the limiter's lines, and how many lines there are, for tests that want them empty.
func (l *Limiter) Lines() (waiting, lines int) {
	waiting, lines, _ = l.lines().Counts()
	return waiting, lines
}

// Held is of how many limits and keys slots are counted as held.
func (l *Limiter) Held() (n int) {
	_, _, n = l.lines().Counts()
	return n
}

// BandwidthLeft is how many bytes of the limiter's Bandwidth key may pass now.
func (l *Limiter) BandwidthLeft(ctx context.Context, key string) (int64, error) {
	v := l.current.Load()
	encoded, err := keytext.Encode(key)
	for _, e := range v.plans.Base.Entries {
		if e.Bytes != nil && err == nil {
			results := make([]store.Result, 1)
			err = v.backend.Store.Take(ctx, []store.Charge{{Key: encoded, Limit: e.StoreLimit}}, results)
			return results[0].Remaining * e.Bytes.Block, err
		}
	}
	return 0, err
}

// Adaptive is how many keys of limits of this process are remembered.
func (l *Limiter) Adaptive() int {
	return l.family.registry.Adaptive.Len()
}

func (l *Limiter) lines() *lines.Lines { return l.current.Load().backend.Lines }

// Watched reports whether requests are looked at for warnings.
func (l *Limiter) Watched() bool {
	for e := range l.current.Load().plans.Entries {
		if e.Sample.Open() {
			return true
		}
	}
	return slices.ContainsFunc(l.current.Load().plans.Base.Funcs, func(f *read.Func) bool { return f.SourceSample != nil && f.SourceSample.Open() })
}

// Warnings is how many warnings are kept, also of those that no longer apply.
func (l *Limiter) Warnings() int { return l.family.findings.Len() }

// Open is Admit for tests that hold a request open: p.Done ends it.
func (l *Limiter) Open(w http.ResponseWriter, r *http.Request) (p *Permit, err error) {
	p, _, err = admit(l.current.Load(), w, r, false)
	if err != nil {
		setFailedFields(w.Header(), err)
	}
	return p, err
}

// SetNearRoom sets for how many keys the limiter remembers what they have reached of limits with WithNearLimit.
func (l *Limiter) SetNearRoom(keys int) { l.family.near.Room = keys }
