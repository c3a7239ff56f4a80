package warn

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

// Builds counts the limiters of a family that are built while requests are served. It is
// safe for concurrent use. The zero Builds has counted none.
type Builds struct {
	derived  atomic.Int64 // how many were derived from others
	lifetime *lifetime    // nil unless the first was built in a request
}

// Add counts a limiter if a request's handler builds it now: derived from another of the
// family, or as the first of it. It reports, once, that this happens again and again.
func (b *Builds) Add(derived bool) (often bool) {
	switch {
	case !serving():
		return false
	case derived:
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

// begin begins the lifetime of what holds it. It reports, once per process, that
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
