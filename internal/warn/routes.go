package warn

import (
	"net/http"
	"strings"
	"sync/atomic"
)

const (
	// routeLooks is how many requests a Routes looks at.
	routeLooks = 10_000
	// fewNear is how many requests near a pattern a scanner, or a typing error, may make.
	fewNear = 20
)

// Routes looks at a limiter's first requests for patterns that none matches, although some come
// near. It is safe for concurrent use.
type Routes struct {
	all    map[string]*route
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
		w.all[p] = r
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
	default:
		for _, of := range w.all {
			if !of.matched.Load() {
				of.look(r)
			}
		}
	}
	if n == routeLooks {
		go w.ask()
	}
}

// look looks at a request that no pattern has matched.
func (of *route) look(r *http.Request) {
	if of.method != "" && of.method != r.Method {
		return
	}
	meant, ok := of.meantBy(r)
	if !ok {
		return
	}
	if of.near.Add(1) == 1 {
		meant = of.host + meant
		if of.method != "" {
			meant = of.method + " " + meant
		}
		of.meant.Store(&meant)
	}
}

// meantBy returns the path that the pattern would have, if it is for such a request: without the
// prefix that http.StripPrefix has taken away, with one that it lacks, or with one letter changed.
func (of *route) meantBy(r *http.Request) (path string, ok bool) {
	got := r.URL.Path
	if sent, _, _ := strings.Cut(r.RequestURI, "?"); len(sent) > len(got) && strings.HasSuffix(sent, got) {
		prefix := sent[:len(sent)-len(got)]
		if rest, had := strings.CutPrefix(of.path, prefix); had && matches(rest, got) {
			return rest, true
		}
	}
	if !strings.Contains(of.path, "{") && len(of.path) > 1 {
		if prefix, had := strings.CutSuffix(got, of.path); had && strings.Count(prefix, "/") == 1 && len(prefix) > 1 {
			return got, true
		}
	}
	ps, gs := strings.Split(of.path, "/"), strings.Split(got, "/")
	if len(ps) != len(gs) {
		return "", false
	}
	at := -1
	for i, p := range ps {
		switch {
		case segment(p, gs[i]):
		case at >= 0 || !oneEdit(p, gs[i]):
			return "", false
		default:
			at = i
		}
	}
	if at < 0 {
		return "", false
	}
	ps[at] = gs[at]
	return strings.Join(ps, "/"), true
}

// matches reports whether a path has the segments of a pattern's.
func matches(pattern, path string) bool {
	ps, gs := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, p := range ps {
		if strings.HasSuffix(p, "...}") || p == "" && i > 0 && i == len(ps)-1 {
			return true
		}
		if i >= len(gs) || !segment(p, gs[i]) {
			return false
		}
	}
	return len(ps) == len(gs)
}

// segment reports whether a segment of a path is one of the pattern's.
func segment(p, got string) bool { return p == got || strings.HasPrefix(p, "{") && got != "" }

// oneEdit reports whether a word of letters becomes another by one letter more, less or other.
// Short words have too many neighbours, and words with digits are versions.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) < 4 || len(b)-len(a) > 1 || strings.ContainsAny(a+b, "0123456789{}") {
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
