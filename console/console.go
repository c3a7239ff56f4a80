// Package console serves a live page about limiters: their limits, the denied keys with
// reasons, and the health of the store.
//
//	page, err := console.New(
//		console.Limiters(lim),
//		console.WithToken(os.Getenv("CONSOLE_TOKEN"))) // or WithAuthorizer
//	if err != nil {
//		log.Fatal(err)
//	}
//	mux.Handle("/debug/stint/", page)
//
// The page begins with current problems. A failure is shown until a minute has passed without
// another; a lasting problem, such as an open breaker, until it ends. Below is a table with a
// row for each limit: the share of requests that it denied, the keys that it denied most, and
// the usage of its fullest key over five minutes. Each limit links to its keys. Each key links
// to a page with the units that the key has left in all limiters, and the reasons of its
// denials. Requests that a dry run would have denied are marked.
//
// The handler needs no files and no other service. The page updates itself by
// server-sent events; a browser without scripts reloads it every five seconds.
//
// Figures are counted in this process, since New, or in the last five minutes where the page
// says so. The units that a key has left are read from the store, so processes that share a
// store show the same numbers.
//
// # Memory
//
// For each limit the console keeps counts of the last five minutes, and the keys that are
// admitted and denied most. A space-saving sketch finds these keys: after n decisions it holds
// every key with more than n/64 of them. The page shows each count as two bounds, at most n/64
// apart, or as one number if it is exact. A limit with many keys takes about 170 KB. For each
// limiter, the console keeps the last denials of up to 512 keys, in about 250 KB. It also
// remembers, in 128 KB, the last 50,000 keys that it has seen. At most one in fifty other keys
// is mistaken for a key that it has seen. Only the first 100 limits of a limiter have figures.
//
// # Cost
//
// The console adds 0.2 to 0.7 µs of CPU time to a request. This is 2 to 3 % of a request of 11
// µs whose handler does nothing, 1 % of a request of 37 µs that reads and writes 1 KB of JSON,
// and 0.5 % of a request of 87 µs that renders HTML. While browsers show the page, it takes
// another 0.1 % of a core, whatever the load. BenchmarkCost measures this.
//
// # Who may see it
//
// Keys may be addresses or credentials. In production, restrict access to the page by
// WithAuthorizer, for single sign-on, or by WithToken. Both work behind proxies, because
// neither depends on addresses. Serve the page over TLS: a token and its cookie are
// credentials.
//
// Without either option, for development, New makes a token and writes the end of a link to the
// page to standard error, never to a logger:
//
//	…/?token=Q5VJ6Y2T3BXW7KDN4RZSAEHMGC
//
// Put the page's address in front of this text. The token is valid until the process ends.
//
// The page shows the beginning of each key and a fingerprint, or all of it with
// [WithKeysInClear]. A key's link contains the key in encrypted form. Fingerprints and links
// are made with the token, so they are the same in all processes with the same token. Without a
// token, each process has its own.
//
// # JSON
//
// A request that accepts application/json, and doesn't accept HTML, gets the same data as JSON:
//
//	curl -H "Authorization: Bearer $CONSOLE_TOKEN" -H 'Accept: application/json' https://example.com/debug/stint/
//
// The page's address returns the process, current problems, and all limiters with their limits.
// A key's link, and the form that looks up a key (POST key=…), add what the key has left. See
// Page.
package console

import (
	"cmp"
	"crypto/cipher"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// Option is an option of New.
type Option interface{ apply(*page) }

type option func(*page)

func (set option) apply(x *page) { set(x) }

// Limiters sets the limiters that the page shows, in this order. The figures of a limiter
// include the decisions of those derived from it by With: don't pass these too, or their
// decisions are shown twice.
func Limiters(lims ...*stint.Limiter) Option {
	return option(func(p *page) {
		for _, l := range lims {
			if l == nil {
				p.errs = append(p.errs, errors.New("stint: console: a limiter is nil: leave it out"))
				continue
			}
			p.boards = append(p.boards, newBoard(l))
		}
	})
}

// WithActions lets viewers of the page reset a key, ban a key, and lift a key's bans.
// Actions are POST requests; cross-origin ones are denied with 403. Each action is logged, with
// its remote address and who has called it if an authorizer says so.
func WithActions() Option { return option(func(p *page) { p.Actions = true }) }

// WithKeysInClear makes the page and the log of actions show whole keys.
func WithKeysInClear() Option { return option(func(p *page) { p.Clear = true }) }

// WithLogger sets the logger for the actions of viewers (WithActions). The default is slog.Default().
func WithLogger(l *slog.Logger) Option { return option(func(p *page) { p.logger = l }) }

// WithProcessName sets the process name that the page shows. Behind a load balancer, the name
// tells which process served the page. The default is the name of the host and the process's
// number: "web-7, process 4242".
func WithProcessName(name string) Option { return option(func(p *page) { p.name = name }) }

// page is the handler.
type page struct {
	Actions, Clear bool

	name        string // of the process
	boards      []*board
	authorize   func(*http.Request) (who string, ok bool) // nil unless there is an authorizer
	token       *token                                    // nil unless one opens the page
	logger      *slog.Logger
	errs        []error
	secret      []byte // of fingerprints
	sealer      cipher.AEAD
	crossOrigin *http.CrossOriginProtection

	mu        sync.Mutex
	rendered  time.Time
	parts     []fragment
	views     []*limiterView
	openViews map[openedView]template.HTML // what viewers have opened
	viewers   int
}

// New returns the page's handler, which is safe for concurrent use. Mount it at a pattern
// that ends in a slash, such as "/debug/stint/". New observes the limiters from then on,
// for as long as they live: call it before they decide requests. It returns an error that
// names everything wrong with the options, such as a token that is too short.
func New(opts ...Option) (http.Handler, error) {
	p := &page{secret: make([]byte, 32), crossOrigin: http.NewCrossOriginProtection()}
	_, _ = rand.Read(p.secret) // which never fails
	for _, o := range opts {
		if o == nil {
			p.errs = append(p.errs, errors.New("stint: console: an option is nil: leave it out"))
			continue
		}
		o.apply(p)
	}
	if len(p.boards) == 0 {
		p.errs = append(p.errs, errors.New("stint: console: no limiters: use console.Limiters(lim)"))
	}
	if p.errs != nil {
		return nil, errors.Join(p.errs...)
	}
	if p.authorize == nil && p.token == nil {
		secret := rand.Text()
		p.setToken(secret)
		fmt.Fprintf(os.Stderr, "stint: console: for development, open the page at …/?token=%s (in production, use console.WithAuthorizer or console.WithToken)\n", secret)
	}
	p.sealer = newSealer(p.secret)
	if p.name == "" {
		host, _ := os.Hostname()
		p.name = fmt.Sprintf("%s, process %d", cmp.Or(host, "a host without a name"), os.Getpid())
	}
	ids := map[string]bool{}
	for i, b := range p.boards {
		b.id = b.limiter.Describe().Name
		b.title = cmp.Or(b.id, "limiter "+strconv.Itoa(i+1))
		if b.id == "" || ids[b.id] { // of a limiter without a name of its own
			b.id = strconv.Itoa(i)
		}
		ids[b.id] = true
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
	who, ok := p.admit(w, r)
	if !ok {
		return
	}
	switch last := element(r); {
	case last == "key" && (r.Method == http.MethodPost || r.URL.Query().Has("open")):
		p.serveKey(w, r, who)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case last == "" || last == "key":
		p.show(w, r, http.StatusOK, nil)
	case last == "events":
		p.serveEvents(w, r)
	case last == "style.css" || last == "script.js":
		p.serveAsset(w, last)
	default:
		http.NotFound(w, r)
	}
}

func (p *page) serveAsset(w http.ResponseWriter, name string) {
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
