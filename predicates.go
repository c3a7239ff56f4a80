package stint

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/probe"
)

// WithSkip exempts requests for which skip returns true, before anything else is
// checked. If given several times, any of them exempts. By default nothing is exempt.
// New refuses nil. skip is called concurrently.
func WithSkip(skip func(*http.Request) bool) Option {
	return checkedOption(skip != nil, "WithSkip(nil)", "write a predicate, such as stint.Preflight",
		func(c *config) { c.skip = append(c.skip, skip) })
}

// WithBlock refuses requests for which block returns true with 403 (ErrBlocked),
// without charging anything. If given several times, any of them refuses. By default
// nothing is blocked. New refuses nil. block is called concurrently.
func WithBlock(block func(*http.Request) bool) Option {
	return checkedOption(block != nil, "WithBlock(nil)", "write a predicate, such as stint.FromCIDR(...)",
		func(c *config) { c.block = append(c.block, block) })
}

// ErrBlocked is the error of a request that a WithBlock predicate refuses. It is
// answered with 403.
var ErrBlocked = errors.New("stint: blocked by a WithBlock predicate")

// FromCIDR returns a predicate that is true for requests whose peer has an address in
// one of the networks: for WithSkip and internal callers, or for WithBlock. It looks at
// the connection only, never at a header, so behind a proxy it sees the proxy. New
// refuses invalid prefixes and an empty list.
//
// An IPv4 network also contains its addresses in their IPv6 spellings, mapped
// (::ffff:0:0/96) and NAT64 (64:ff9b::/96). A peer without an address is in no network.
// The time of a call hardly grows with the number of networks.
func FromCIDR(prefixes ...netip.Prefix) func(*http.Request) bool {
	set, problems := clientip.NewPrefixes(prefixes)
	wrong := addressed("FromCIDR", problems)
	if len(prefixes) == 0 {
		wrong.Bad("FromCIDR", "no network", `write some, such as netip.MustParsePrefix("10.0.0.0/8"), or leave the predicate out`)
	}
	if wrong != nil {
		return func(r *http.Request) bool {
			if report, ok := probe.Report(r).(*mistake.Error); ok {
				report.Mistakes = append(report.Mistakes, wrong...)
			}
			return false
		}
	}
	return func(r *http.Request) bool { return set.HasPeer(r.RemoteAddr) }
}

// Preflight is a predicate that is true for the request that a browser sends by itself
// before a cross-origin one: OPTIONS with Origin and Access-Control-Request-Method. Use
// it with WithSkip to exempt those requests. By default they are limited, because any
// client can send them.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// sift applies the predicates of WithSkip and WithBlock, which exempt or refuse a request
// before any limit decides it.
func (v *version) sift(r *http.Request) (exempt bool, err error) {
	for _, skip := range v.skip {
		if skip(r) {
			return true, nil
		}
	}
	for _, block := range v.block {
		if block(r) {
			err := &failure.Error{Err: ErrBlocked, Status: http.StatusForbidden}
			told := Event{Kind: EventBlocked, Request: r, Err: err}
			if v.limiter.audience.Load() != nil { // the route is only for observers
				told.Route = v.plan(r).route()
			}
			v.observe(&told)
			return false, err
		}
	}
	return false, nil
}

// predicate returns the mistakes in the arguments that a predicate of option was made with.
func predicate(option string, p func(*http.Request) bool) mistake.List {
	report := new(mistake.Error)
	probe.Predicate(p, probe.Request(), report)
	return report.Mistakes.Within(option)
}
