package warn

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
)

const (
	// routeLooks is how many requests a Routes looks at.
	routeLooks = 10_000
	// Of requests that match no pattern, one in nearEach is compared with those there are: picked
	// at random, since traffic may be periodic.
	nearEach = 8
	// fewNear is how many of those near a pattern a scanner, or a typing error, may make.
	fewNear = 10
)

// Routes looks at a limiter's first requests for patterns that none matches, although some come
// near. It is safe for concurrent use.
type Routes struct {
	all    map[string]*route
	list   []*route // of all
	ask    func()
	looked atomic.Int64
}

type route struct {
	method, host, path string
	matched            atomic.Bool
	near               atomic.Int64
	meant              atomic.Pointer[string] // the path that was near, as a pattern
}

// NewRoutes returns the Routes of patterns. ask is called on a goroutine of its own when Missed
// has an answer.
func NewRoutes(patterns []string, ask func()) *Routes {
	w := &Routes{all: map[string]*route{}, ask: ask}
	for _, p := range patterns {
		r := new(route)
		rest := p
		if method, after, found := strings.Cut(p, " "); found {
			r.method, rest = method, strings.TrimLeft(after, " \t")
		}
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			r.host, r.path = rest[:i], rest[i:]
		}
		w.all[p], w.list = r, append(w.list, r)
	}
	return w
}

// Over reports whether the Routes looks no more.
func (w *Routes) Over() bool { return w.looked.Load() >= routeLooks }

// Look looks at a request and the pattern that it has matched; of several, separated by commas,
// or "" for none.
func (w *Routes) Look(r *http.Request, pattern string) {
	n := w.looked.Add(1)
	switch of := w.all[pattern]; {
	case of != nil:
		if !of.matched.Load() {
			of.matched.Store(true)
		}
	case pattern != "":
		for p := range strings.SplitSeq(pattern, ", ") {
			if of := w.all[p]; of != nil {
				of.matched.Store(true)
			}
		}
	case rand.Uint32()%nearEach == 0:
		for _, of := range w.list {
			if !of.matched.Load() {
				of.look(r)
			}
		}
	}
	if n == routeLooks {
		go w.ask()
	}
}

// look looks at a request that no pattern has matched. It allocates only for the first that is
// near.
func (of *route) look(r *http.Request) {
	if of.method != "" && of.method != r.Method {
		return
	}
	how, n := of.compare(r)
	if how == elsewhere || of.near.Add(1) > 1 {
		return
	}
	var meant string
	switch got := r.URL.Path; how {
	case stripped:
		meant = of.path[n:]
	case prefixed:
		meant = got
	case misspelled:
		ps := strings.Split(of.path, "/")
		ps[n] = strings.Split(got, "/")[n]
		meant = strings.Join(ps, "/")
	}
	meant = of.host + meant
	if of.method != "" {
		meant = of.method + " " + meant
	}
	of.meant.Store(&meant)
}

// comparison says how the path of a request differs from a pattern that seems to be meant for it.
type comparison uint8

const (
	elsewhere  comparison = iota
	stripped              // it lacks the first n bytes of the pattern, as http.StripPrefix has it
	prefixed              // it has a segment in front of the pattern
	misspelled            // its segment n has another letter
)

func (of *route) compare(r *http.Request) (how comparison, n int) {
	got := r.URL.Path
	if sent, _, _ := strings.Cut(r.RequestURI, "?"); len(sent) > len(got) && strings.HasSuffix(sent, got) {
		prefix := sent[:len(sent)-len(got)]
		if rest, had := strings.CutPrefix(of.path, prefix); had && matches(rest, got) {
			return stripped, len(prefix)
		}
	}
	if len(of.path) > 1 && !strings.Contains(of.path, "{") {
		if prefix, had := strings.CutSuffix(got, of.path); had && len(prefix) > 1 && strings.Count(prefix, "/") == 1 {
			return prefixed, 0
		}
	}
	at := -1
	p, g, more := of.path, got, true
	for i := 0; more; i++ {
		var a, b string
		var also bool
		a, p, more = strings.Cut(p, "/")
		if b, g, also = strings.Cut(g, "/"); more != also {
			return elsewhere, 0
		}
		switch {
		case segment(a, b):
		case at >= 0 || !oneEdit(a, b):
			return elsewhere, 0
		default:
			at = i
		}
	}
	if at < 0 {
		return elsewhere, 0
	}
	return misspelled, at
}

// matches reports whether a path has the segments of a pattern's.
func matches(p, path string) bool {
	for more := true; more; {
		var a, b string
		var also bool
		a, p, more = strings.Cut(p, "/")
		b, path, also = strings.Cut(path, "/")
		switch {
		case !more && (a == "" || strings.HasSuffix(a, "...}")):
			return true
		case more != also || !segment(a, b):
			return false
		}
	}
	return true
}

// segment reports whether a segment of a path is one of the pattern's.
func segment(p, got string) bool { return p == got || strings.HasPrefix(p, "{") && got != "" }

// oneEdit reports whether a word of letters becomes another by one letter more, less or other.
// Short words have too many neighbours, and words with digits are versions.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	const others = "0123456789{}"
	if len(a) < 4 || len(b)-len(a) > 1 || strings.ContainsAny(a, others) || strings.ContainsAny(b, others) {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		return i < len(a) && a[i+1:] == b[i+1:]
	}
	return a[i:] == b[i+1:]
}

// Missed are the patterns that no request has matched, with what they would have to be for the
// requests that came near.
func (w *Routes) Missed() map[string]string {
	missed := map[string]string{}
	for p, of := range w.all {
		if meant := of.meant.Load(); !of.matched.Load() && meant != nil && of.near.Load() > fewNear {
			missed[p] = *meant
		}
	}
	return missed
}
