package stint

import (
	"net/http"
	"reflect"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/routing"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// version is a limiter's configuration from one Update to the next. It is immutable. A call
// and its permit keep the version they began with, so a request sees one configuration
// from its plan to its fields, whatever is updated meanwhile.
type version struct {
	limiter *Limiter
	family  *family
	names   *names

	store   store.Store
	lines   *waiting.Lines  // of its waiters
	streams *respond.Queues // of the streams that wait for bytes from it
	allower store.Allower   // the store, if it is one; or nil
	lent    bool            // the store is of WithStore: others may use it
	most    int             // how many keys it holds, where it is the limiter's own
	base    *plan
	routes  []route
	router  *routing.Router // of the routes' patterns; nil without
	funcs   []*limitFunc

	conduct
	shared      settings // defaults of the limits that are added by With
	skip, block []func(*http.Request) bool
	settler     waiting.Settle  // settleTurns
	local       *adaptive.Store // decides limits of this process, and has the store decide the rest
}

// conduct is a limiter's configuration beside its limits. A limiter derived from it has
// the same, unless its options say otherwise.
type conduct struct {
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	name          string // of WithLimiterName
	emptyKey      EmptyKeyPolicy
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	aging         time.Duration
	silent        warn.Set // what it doesn't warn of
}

// usual is the conduct of a limiter without options.
var usual = conduct{styles: field.RateLimit, aging: defaultAging}

// inherited returns what l's options begin with.
func (l *Limiter) inherited() conduct {
	if l.parent == nil {
		return usual
	}
	return l.parent.now.Load().conduct
}

// build makes the version of l from its options and the version of its parent, if it has
// one. The limits are named in naming, which will become that of names. The caller holds
// family.mu.
func (l *Limiter) build(c *config, parent *version, names *names, naming *naming) (*version, mistake.List) {
	v := new(version)
	if parent != nil {
		*v = *parent
	}
	v.limiter, v.family, v.names, v.conduct = l, l.family, names, c.conduct
	v.settler = v.settleTurns

	switch before := l.now.Load(); {
	case before != nil:
		v.store, v.lent, v.most = before.store, before.lent, before.most
		v.lines, v.streams = before.lines, before.streams
	case c.store != nil:
		v.store, v.lent, v.most = c.store, true, 0
		v.lines, v.streams = l.family.linesOf(c.store)
	case c.memorySet || v.store == nil:
		own := memstore.New(c.memory...)
		v.store, v.lent, v.most = own, false, own.Stats().MaxKeys
		v.lines, v.streams = new(waiting.Lines), new(respond.Queues)
	}
	v.allower, _ = v.store.(store.Allower)
	v.shared = c.shared.or(v.shared)
	v.shared.errs = nil
	for _, fn := range c.limitFuncs {
		v.funcs = append(v.funcs[:len(v.funcs):len(v.funcs)], newLimitFunc(fn, v.shared, naming.source(v.shared.key), l.family, names))
	}
	v.skip = append(v.skip[:len(v.skip):len(v.skip)], c.skip...)
	v.block = append(v.block[:len(v.block):len(v.block)], c.block...)
	v.local = l.family.adaptive.Over(v.store)
	return v, v.compile(c, parent, naming)
}

// same reports whether two stores are the same. Stores that can't be compared, such as
// structs with a slice, are taken to be different.
func same(a, b store.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
