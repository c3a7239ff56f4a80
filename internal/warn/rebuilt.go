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

// NoteBuilt returns a notice, once, if limiters are built again and again while requests are
// served. u was built now: derived from another of the book's, or as the first of them.
func (b *Book) NoteBuilt(u User, derived bool) []Notice {
	if u.Silent().Has(Rebuilt) || !serving() {
		return nil
	}
	if derived {
		if b.derived.Add(1) != mostDerived {
			return nil
		}
	} else if b.lifetime = new(lifetime); !b.lifetime.begin() {
		return nil
	}
	return b.add([]User{u}, u, Warning{Kind: Rebuilt})
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
