package stint

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// introduce writes the line about the family, before the first decision of any of its limiters.
// It returns the version that decides. If an Update is under way, it waits for that.
func (l *Limiter) introduce() *version {
	l.inForce()
	f := l.family
	l.used.Store(true)
	f.mu.Lock()
	v, first := l.now.Load(), !f.introduced
	f.introduced = true
	l.ready.Store(v)
	members := make([]*version, len(f.members))
	for i, m := range f.members {
		members[i] = m.now.Load()
	}
	f.mu.Unlock()
	if first {
		writeIntroduction(members)
	}
	return v
}

// introductions counts the limiters of the process that have made their first decision.
var introductions atomic.Int64

// mostIntroductions bounds how many of them have a line about it: a program may make one for each
// tenant or, by mistake, for each request.
const mostIntroductions = 100

// writeIntroduction writes what the members of a family have, without what they have from each other.
func writeIntroduction(members []*version) {
	if introductions.Add(1) > mostIntroductions {
		return
	}
	var limits, stores []string
	for _, v := range members {
		for _, l := range v.inventory() {
			if s := l.String(); !slices.Contains(limits, s) {
				limits = append(limits, s)
			}
		}
		if len(v.compiled.Funcs) > 0 && !slices.Contains(limits, "those of a WithLimitFunc") {
			limits = append(limits, "those of a WithLimitFunc")
		}
		if s := storeName(v.backend.Store); !slices.Contains(stores, s) {
			stores = append(stores, s)
		}
	}
	v := members[0]
	logAside(func() {
		v.events.to.log.Load().Write(context.Background(), logs.Introduced, func(bool) []slog.Attr {
			return v.events.attrs(slog.String("limits", enumerate(limits)), slog.String("store", strings.Join(stores, ", ")))
		})
	})
}

// logAside has a line written that isn't about anything wrong, on another goroutine: what calls a
// limiter may be the logger's own code, which holds its lock then. Otherwise the line is there
// when logAside returns, so that nobody has to wait for it.
func logAside(write func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		background.Do("logging", write)
	}()
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// storeName returns the name of a store's type, or what it is.
func storeName(s store.Store) string {
	if _, is := s.(*memstore.Store); is {
		return "memory of this process"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// logChanges writes what of the limits has changed since the log last showed them.
func (l *Limiter) logChanges() {
	if changesBetween(l.logged.Load(), l.now.Load()) == "" {
		return
	}
	logAside(func() {
		l.recipients.log.Load().WriteLate(context.Background(), logs.LimitsChanged, func() []slog.Attr {
			v := l.now.Load()
			defer l.logged.Store(v)
			return v.events.attrs(slog.String("changes", cmp.Or(changesBetween(l.logged.Load(), v), "none")))
		})
	})
}
