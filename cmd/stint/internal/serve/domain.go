package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
)

// domain has the limits of a domain of Envoy's rate limit service.
type domain struct {
	name  string
	log   *occasionally
	rules atomic.Pointer[rules]
}

// rules are what a domain decides by, from one version of its file to the next.
type rules struct {
	routed *stint.Limiter // for descriptors with a path
	base   *stint.Limiter // for all others; nil if these have no limits
	after  []string       // the names of limits that are charged after the decision
	shown  map[string]*service.RateLimitResponse_RateLimit
	tree   *tree // of a configuration of envoyproxy/ratelimit; or nil
	closed bool  // a limit denies while the store fails
}

// newRules returns the rules of a policy, by limiters that exist already.
func newRules(p *policy.Policy, routed, base *stint.Limiter) *rules {
	r := &rules{routed: routed, base: base, after: p.After(), shown: map[string]*service.RateLimitResponse_RateLimit{}}
	for e := range plansOf(routed).Entries {
		r.closed = r.closed || e.Closed
		r.shown[e.Name()] = shownLimit(e.StoreLimit.Spec())
	}
	return r
}

func plansOf(l *stint.Limiter) *read.Plans { return read.SealedPlans(l.Describe().Plans).Open() }

// limiter returns the limiter of a descriptor, or nil if the descriptor has no limits.
func (r *rules) limiter(d *descriptor) *stint.Limiter {
	switch {
	case r.tree != nil && (d.rule == nil || d.rule.unlimited || d.rule.units == 0):
		return nil
	case r.tree != nil || d.hasPath():
		return r.routed
	}
	return r.base
}

// units are the periods that Envoy has names for.
var units = map[time.Duration]service.RateLimitResponse_RateLimit_Unit{
	time.Second: service.RateLimitResponse_RateLimit_SECOND, time.Minute: service.RateLimitResponse_RateLimit_MINUTE,
	time.Hour: service.RateLimitResponse_RateLimit_HOUR, 24 * time.Hour: service.RateLimitResponse_RateLimit_DAY,
	7 * 24 * time.Hour:   service.RateLimitResponse_RateLimit_WEEK,
	30 * 24 * time.Hour:  service.RateLimitResponse_RateLimit_MONTH,
	365 * 24 * time.Hour: service.RateLimitResponse_RateLimit_YEAR,
}

// shownLimit is a limit as responses show it. The unit is unknown if Envoy has no name for it.
func shownLimit(s store.Spec) *service.RateLimitResponse_RateLimit {
	period := s.Period
	switch name, _, _ := strings.Cut(s.Window.String(), " "); {
	case s.Window == store.Window{}:
	case name == "monthly":
		period = 30 * 24 * time.Hour
	case name == "yearly":
		period = 365 * 24 * time.Hour
	default:
		period = s.Window.Length(time.Unix(0, 0))
	}
	return &service.RateLimitResponse_RateLimit{Name: s.Name, RequestsPerUnit: clamp(s.Units), Unit: units[period]}
}

// verdict is the answer to a descriptor.
type verdict struct {
	denied    bool
	unlimited bool
	// decision is the answer of the descriptor's limits. It is empty if no limit applies, or if the store failed.
	decision stint.Decision
	header   http.Header
}

// fields is a response that keeps its header fields.
type fields struct{ header http.Header }

func (f *fields) Header() http.Header         { return f.header }
func (f *fields) Write(b []byte) (int, error) { return len(b), nil }
func (f *fields) WriteHeader(int)             {}

// decide decides descriptors one after the other. If one is denied, what the others were charged is refunded.
func (d *domain) decide(ctx context.Context, all []*descriptor) []verdict {
	c := &call{ctx: ctx, domain: d, rules: d.rules.Load(), all: all, verdicts: make([]verdict, len(all))}
	if t := c.rules.tree; t != nil {
		t.assign(all)
	}
	c.from(0)
	return c.verdicts
}

// call is the decision of the descriptors of a request.
type call struct {
	ctx      context.Context
	domain   *domain
	rules    *rules
	all      []*descriptor
	verdicts []verdict
	denied   bool // at least one
}

// from decides the descriptors from the one at i on. Each is decided while the permits of those before it are
// open, since a permit can be refunded only until it ends.
func (c *call) from(i int) {
	if i == len(c.all) {
		return
	}
	d := c.all[i]
	l := c.rules.limiter(d)
	if l == nil {
		v := &c.verdicts[i]
		switch r := d.rule; {
		case r != nil:
			v.unlimited, v.denied = r.unlimited, r.denies()
			c.denied = c.denied || v.denied
		case c.rules.tree == nil || d.left:
			c.warnUnlimited(d)
		}
		c.from(i + 1)
		return
	}
	r, v := d.request(c.ctx), &c.verdicts[i]
	if d.hits == 0 {
		c.peek(l, r, v)
		c.from(i + 1)
		return
	}
	w := &fields{http.Header{}}
	v.header = w.header
	err := l.Admit(w, r, func(_ http.ResponseWriter, r *http.Request) {
		p := stint.FromContext(r.Context())
		if v.decision = p.Decision(); len(v.decision.Limits) == 0 && !limited(l, r) {
			c.warnUnlimited(d)
		}
		c.chargeAfter(l, r, d)
		c.from(i + 1)
		if c.denied {
			if err := p.Settle(c.ctx, 0); err != nil {
				c.domain.log.warn("rate limit service: a refund failed", "domain", c.domain.name, "error", err)
			}
		}
	})
	if err == nil {
		return
	}
	v.denied, c.denied = true, true
	if denied := (*stint.DeniedError)(nil); asDenied(err, &denied) {
		v.decision = denied.Decision
	}
	c.from(i + 1)
}

// warnUnlimited logs that no limit applies to a descriptor.
func (c *call) warnUnlimited(d *descriptor) {
	c.domain.log.warn("rate limit service: a descriptor has no limit, and passes", "domain", c.domain.name,
		"entries", names(d))
}

// limited reports whether a limit applies to a descriptor's request.
func limited(l *stint.Limiter, r *http.Request) bool {
	for _, e := range plansOf(l).Find(r).Entries {
		if key, err := e.Key.Read(r); err != nil || key != "" {
			return true
		}
	}
	return false
}

// peek decides a descriptor that is charged nothing.
func (c *call) peek(l *stint.Limiter, r *http.Request, v *verdict) {
	d, err := l.PeekRequest(r)
	if v.decision = d; err != nil {
		v.denied = c.rules.closed || !isStoreError(err)
	} else {
		v.denied = !d.Allowed
	}
	c.denied = c.denied || v.denied
}

// chargeAfter charges the limits that are charged whatever they have left.
func (c *call) chargeAfter(l *stint.Limiter, r *http.Request, d *descriptor) {
	if len(c.rules.after) == 0 {
		return
	}
	var charges []store.Charge
	for _, e := range plansOf(l).Find(r).Entries {
		if !slices.Contains(c.rules.after, e.Name()) {
			continue
		}
		key, err := e.Key.Read(r)
		if err == nil && key != "" {
			key, err = keytext.Encode(key)
		}
		switch {
		case err != nil:
			c.domain.log.warn("rate limit service: a key can't be used, so nothing is charged", "domain", c.domain.name, "limit",
				e.Name(), "error", err)
		case key != "":
			charges = append(charges, store.Charge{Key: key, Limit: e.StoreLimit, Cost: d.hits})
		}
	}
	if len(charges) == 0 {
		return
	}
	// What Settle adds is charged even if nothing is left.
	if err := l.Describe().Store.Settle(c.ctx, charges, make([]store.Result, len(charges))); err != nil {
		c.domain.log.warn("rate limit service: the store failed, so nothing is charged", "domain",
			c.domain.name, "error", err)
	}
}

// names returns the names of a descriptor's first entries, for the log: values may be clients' secrets.
func names(d *descriptor) (all []string) {
	const most = 10
	for i, e := range d.entries {
		if i == most {
			return append(all, fmt.Sprintf("and %d more", len(d.entries)-most))
		}
		all = append(all, brief(e.GetKey()))
	}
	return all
}

// brief returns the beginning of a text of a client, for the log.
func brief(text string) string {
	const most = 80 // bytes
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
