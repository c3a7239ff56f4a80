package mistakes

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// mostDropped is how many limiters may be built for a request and dropped shortly
	// after. A program that keeps one for each tenant keeps them longer.
	mostDropped = 100
	shortly     = 10 * time.Second
	// mostDerived is how many limiters of a family may be derived in requests. They
	// live as long as the one that they extend.
	mostDerived = 1000
)

var dropped atomic.Int64

// Builds finds that limiters of a family are built again and again while requests are served. It is
// safe for concurrent use. The zero Builds has counted none.
type Builds struct {
	derived  atomic.Int64 // how many were derived from others
	lifetime *lifetime    // nil unless the first was built in a request
}

// Count counts a limiter if a request's handler builds it now. derived says that With makes it, not New.
// The mistake is found once.
func (b *Builds) Count(derived bool) []Finding {
	if !serving() || !b.often(derived) {
		return nil
	}
	return []Finding{{Kind: Rebuilt, applies: func(*View) bool { return true }}}
}

// often counts a limiter that a request's handler builds. It reports, once, that this happens again and
// again.
func (b *Builds) often(derived bool) bool {
	if derived {
		return b.derived.Add(1) == mostDerived
	}
	b.lifetime = new(lifetime)
	return b.lifetime.begin()
}

// serving reports whether the caller's callers serve a net/http request.
func serving() bool {
	var room [128]uintptr
	for _, pc := range room[:runtime.Callers(3, room[:])] {
		if f := runtime.FuncForPC(pc); f != nil && f.Name() == "net/http.serverHandler.ServeHTTP" {
			return true
		}
	}
	return false
}

// lifetime is the lifetime of a limiter that was built for a request.
type lifetime struct{ from time.Time }

// begin begins the lifetime of the limiter that holds it. It reports, once per process, that
// limiters built for requests are dropped again and again.
func (l *lifetime) begin() bool {
	l.from = time.Now()
	runtime.SetFinalizer(l, func(l *lifetime) {
		if time.Since(l.from) < shortly {
			dropped.Add(1)
		}
	})
	n := dropped.Load()
	return n >= mostDropped && dropped.CompareAndSwap(n, -1<<62)
}
