// Package adaptertest tests what a request gets from a limiter, which is the same
// through every adapter: a table of requests and answers, and flows that are more than
// that. Each adapter runs it on its router.
//
// It is a package because a test that imports gin or echo brings them to the go.sum of
// everybody who imports the tested package. So no test of the root does.
package adaptertest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
)

// An Adapter is a router, limited through its adapter.
type Adapter struct {
	Name  string
	Build func(Site) http.Handler
	// Problems: denials are application/problem+json; else they are what the
	// router's own error handler writes.
	Problems bool
	// Pattern is what a logger in front of the router finds in Request.Pattern after a request to
	// /users/{id}. It is "" if the router gives its handlers a copy of the request: then the logger
	// sees no pattern, and the server no form.
	Pattern string
	// User is the user that the router's own authentication has set, as the adapter's
	// Context finds it in a request; nil if the router has no context of its own.
	User func(*http.Request) (user string, ok bool)
	// Mounting is how many allocations the router itself needs for each request through a
	// middleware.
	Mounting float64
}

// Site is an application with limits, to be built on each of the routers.
type Site struct {
	Limits []*stint.Limiter // in front of all routes, outermost first
	// ByUser are more of them, inside, by the key that the router's own
	// authentication has: X-User, which it leaves where its handlers look for it.
	ByUser func(stint.Key) []*stint.Limiter
	Routes []Route
	// Deny and Fail answer what the limits of Limits deny in the router's own way, where they
	// aren't nil: by a deny handler and an error handler of its kind.
	Deny http.HandlerFunc
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Keyed are the site's limits by the router's own key.
func (s Site) Keyed(k stint.Key) []*stint.Limiter {
	if s.ByUser == nil {
		return nil
	}
	return s.ByUser(k)
}

// Route answers every method on a path. Parameters are written {name}.
type Route struct {
	Path   string
	Limits []*stint.Limiter // in front of this route alone
	Do     http.HandlerFunc // nil: 200 and "served"
}

// Handler answers the requests of the route.
func (r Route) Handler() http.HandlerFunc {
	if r.Do != nil {
		return r.Do
	}
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }
}

// Colons is the path with its parameters written :name.
func (r Route) Colons() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.Path)
}

// Test runs the table and all flows through an adapter.
func Test(t *testing.T, a Adapter) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := a.Build(b.site(t))
				for i, s := range b.steps {
					s.run(t, i, h, a.Problems)
				}
			})
		})
	}
	for _, f := range flows {
		t.Run(f.name, func(t *testing.T) { f.run(t, a) })
	}
}

// flows are the behaviours that are more than a request and its answer.
var flows = []struct {
	name string
	run  func(*testing.T, Adapter)
}{
	{"panics let go of the slot", flowPanics},
	{"slots are held while a handler runs", flowSlots},
	{"adaptive slots", flowAdaptive},
	{"what an adaptive limit makes of responses", flowAdaptiveStatus},
	{"the pattern and the form come back", flowComesBack},
	{"the ResponseWriter is not wrapped", flowNotWrapped},
	{"hijacking", flowHijack},
	{"connections that are taken over", flowTakenOver},
	{"server-sent events", flowEvents},
	{"early hints", flowEarlyHints},
	{"leaving the queue", flowLeavesQueue},
	{"hanging up in the queue", flowHangsUp},
	{"the server ends a wait", flowServerEndsAWait},
	{"an answer to a client that has left", flowHasLeft},
	{"a context that has ended", flowContextHasEnded},
	{"waiting for the turn", flowWaits},
	{"settling by the response", flowSettles},
	{"settling a stream", flowSettlesStream},
	{"settling by grpc-status", flowSettlesRPC},
	{"settling after a hijack", flowSettlesHijack},
	{"a denied raise, before and after the response has begun", flowExtend},
	{"looking at the response hides nothing", flowHidesNothing},
	{"bandwidth", flowBandwidth},
	{"bandwidth of an upload", flowUpload},
	{"bandwidth, hung up on", flowBandwidthLeft},
	{"bandwidth, cut off", flowBandwidthCut},
	{"bandwidth of a hijacked connection", flowBandwidthHijack},
	{"bandwidth of two clients", flowBandwidthShared},
	{"bandwidth over HTTP/2", flowBandwidthHTTP2},
	{"deny handlers answer", flowDenyHandlers},
	{"deny handlers hijack", flowDenyHandlerHijacks},
	{"the writer of deny handlers", flowDenyHandlerWriter},
	{"denials, and requests without a permit, allocate nothing", flowAllocates},
	{"denied files are the server's", flowDeniedFiles},
	{"the framework's context", flowContext},
	{"the framework's key", flowOwnKey},
	{"another framework's key", flowForeignKey},
	{"another framework's key by Update", flowKeyByUpdate},
	{"what can't be mounted", flowNotMounted},
	{"every pair of settings, in two readings of a path", flowReadings},
	{"full load", flowLoad},
}

// one is a site of one route behind a limiter.
func one(l *stint.Limiter, do http.HandlerFunc) Site {
	return Site{Limits: []*stint.Limiter{l}, Routes: []Route{{Path: "/", Do: do}}}
}

// compiled is stint.New for limits that are known to be right. It logs nothing: what is
// logged is another test's subject.
func compiled(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(append([]stint.Option{stint.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var (
	byAll = stint.WithKey(stint.Global())
	byKey = stint.WithKey(stint.Header("X-Key"))
	byK   = stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "k", nil }))
)

// left is how many of the bytes of a Bandwidth's burst may pass now.
func left(t *testing.T, s *storefake.Store, burst int64) int64 {
	t.Helper()
	c := s.Last()
	results := make([]store.Result, 1)
	if err := s.Store.Take(context.Background(), []store.Charge{c}, results); err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining * (burst / c.Limit.Spec().Burst)
}

func get(path string) *http.Request { return httptest.NewRequest("GET", path, nil) }

// discard is a ResponseWriter that costs nothing, with a header that is kept
// between requests as a server's is allocated anew: what is measured is the adapter's.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func (d *discard) reset() {
	for k := range d.h {
		delete(d.h, k)
	}
}

// allocations is how many a request takes, and the status of its answer.
func allocations(h http.Handler) (count float64, status int) {
	r, w := get("/"), &discard{h: http.Header{}}
	r.Header.Set("X-User", "ada")
	serve := func() {
		w.reset()
		r.Pattern = ""
		h.ServeHTTP(w, r)
	}
	for range 100 { // fill pools and maps
		serve()
	}
	return testing.AllocsPerRun(1000, serve), w.status
}

// ample never denies.
func ample() stint.Limit {
	return stint.Rate(1_000_000, time.Second, stint.WithBurst(1_000_000_000))
}
