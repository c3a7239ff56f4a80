// Package console is a live page about limiters: what is limited, who, why, and
// whether the store is well.
//
//	page, err := console.New(
//		console.Limiters(lim),
//		console.WithAuthorizer(console.Loopback))
//	if err != nil {
//		log.Fatal(err)
//	}
//	mux.Handle("/debug/stint/", page)
//
// The page needs nothing but the handler. It updates itself by server-sent events; a
// browser without scripts loads it again every five seconds.
//
// Figures are those of this process, since New, or of the last five minutes where the
// page says so. What one key has left is asked of the store, and is the fleet's where
// processes share the store.
//
// # Memory
//
// For each limit the console holds counts of five minutes, and the keys that are
// admitted and refused most, which it finds with a space-saving sketch: of n decisions,
// the sketch knows each key that has more than n/64, and the page shows two bounds for
// each count, which are at most n/64 apart. A limit with many keys takes about 150 KB.
// A limiter's limits beyond the first 100 have no figures of their own.
//
// # Cost
//
// A request takes between 0.7 and 1.1 µs of CPU time more, half of that to build the
// events that any observer is told. That is 6 % where a request takes 12 µs in all,
// with a handler that does nothing; 3 % of 36 µs, with 1 KB of JSON read and written;
// and 1.3 % of 85 µs, with a page of HTML. While somebody looks, the page takes about
// 0.1 % of one processor more, whatever the load and however many look (BenchmarkCost).
//
// # Who may see it
//
// Keys may be addresses or credentials, so New fails without a [WithAuthorizer], and
// the page shows keys as a beginning and a fingerprint unless [WithKeysInClear] is
// given.
package console

import (
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// Option is what New takes.
type Option func(*page)

// Limiters are those that the page shows, in that order. A limiter stands for those
// that are derived from it by With, which aren't given beside it: their decisions are
// in its figures.
func Limiters(lims ...*stint.Limiter) Option {
	return func(p *page) {
		for _, l := range lims {
			if l == nil {
				p.wrong = append(p.wrong, errors.New("stint: console: a limiter is nil: leave it out"))
				continue
			}
			p.boards = append(p.boards, newBoard(l))
		}
	}
}

// WithAuthorizer says who may see the page and, with WithActions, act: those requests
// for which allow returns true. All others are answered with 403. It is asked for
// every request, and again every half minute while a page is open; it must be safe for
// concurrent use.
func WithAuthorizer(allow func(*http.Request) bool) Option {
	return func(p *page) { p.allow = allow }
}

// Loopback is an authorizer that allows requests from this machine: from a loopback
// address, for a loopback address or localhost, and not passed on by a proxy, as far as
// proxies say so (Forwarded, Via, X-Forwarded-For, X-Real-IP). Behind a
// proxy on the same machine that adds none of these fields it allows everybody.
func Loopback(r *http.Request) bool {
	for _, f := range [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"} {
		if len(r.Header[f]) > 0 {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	// A name that anybody may point at this machine lets any site read the page.
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// WithActions lets those who may see the page reset a key, or only lift its bans.
// Cross-origin requests are refused, and each action is logged.
func WithActions() Option { return func(p *page) { p.Actions = true } }

// WithKeysInClear shows whole keys.
func WithKeysInClear() Option { return func(p *page) { p.Clear = true } }

// WithLogger says where actions are logged. The default is slog.Default.
func WithLogger(l *slog.Logger) Option { return func(p *page) { p.logger = l } }

// page is the handler.
type page struct {
	Actions, Clear bool

	boards []*board
	allow  func(*http.Request) bool
	logger *slog.Logger
	wrong  []error
	secret []byte // of fingerprints
	cross  *http.CrossOriginProtection

	mu       sync.Mutex
	rendered time.Time
	parts    []fragment
	viewers  int
}

// New returns the page. It observes the limiters from then on, for as long as they
// live: call it before they decide requests. The error says all that is wrong with the
// options.
//
// Mount the handler at a pattern that ends in a slash, such as "/debug/stint/".
func New(opts ...Option) (http.Handler, error) {
	p := &page{secret: make([]byte, 32), cross: http.NewCrossOriginProtection()}
	for _, o := range opts {
		if o == nil {
			p.wrong = append(p.wrong, errors.New("stint: console: an option is nil: leave it out"))
			continue
		}
		o(p)
	}
	if len(p.boards) == 0 {
		p.wrong = append(p.wrong, errors.New("stint: console: no limiters: write console.Limiters(lim)"))
	}
	if p.allow == nil {
		p.wrong = append(p.wrong, errors.New("stint: console: nothing says who may see the page: "+
			"write console.WithAuthorizer(console.Loopback), or a function of yours"))
	}
	if p.wrong != nil {
		return nil, errors.Join(p.wrong...)
	}
	_, _ = rand.Read(p.secret) // which never fails
	for _, b := range p.boards {
		b.limiter.Observe(func(e stint.Event) { b.observe(&e) })
	}
	return p, nil
}

//go:embed assets
var assets embed.FS

var templates = template.Must(template.ParseFS(assets, "assets/*.html"))

// ServeHTTP goes by the last element of the path, so that the page can be anywhere.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !p.allow(r) {
		http.Error(w, "you may not see this page", http.StatusForbidden)
		return
	}
	last := path.Base(r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") {
		last = ""
	}
	switch {
	case last == "key" && r.Method == http.MethodPost:
		p.key(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case last == "" || last == "key":
		p.show(w, http.StatusOK, &view{})
	case last == "events":
		p.stream(w, r)
	case last == "style.css" || last == "script.js":
		p.asset(w, last)
	default:
		http.NotFound(w, r)
	}
}

func (p *page) asset(w http.ResponseWriter, name string) {
	data, err := fs.ReadFile(assets, "assets/"+name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	kind := "text/css; charset=utf-8"
	if strings.HasSuffix(name, ".js") {
		kind = "text/javascript; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(data)
}
