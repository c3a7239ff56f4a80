package stint

import (
	"errors"
	"net/http"
	"net/netip"
	"reflect"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/read"
)

// Predicate answers a question about a request and knows how it was made: FromCIDR
// returns one. New rejects the zero Predicate, and one made with arguments that can't work.
type Predicate struct{ is *predicate }

// predicate is the contents of a Predicate.
type predicate struct {
	read.Predicate
	wrong mistake.List // in the arguments that it was made with
}

// Match returns the answer for a request. A Predicate that New rejects returns false.
func (p Predicate) Match(r *http.Request) bool { return p.is != nil && p.is.Predicate.Match(r) }

// WithSkip, given to New or With, exempts requests for which skip returns true, before
// anything else is checked. On one limit, or as a default for a route's limits, it leaves
// these limits out: a limit for clients without an API key skips those with one. If given
// several times in one place, any of them exempts. By default nothing is exempt.
//
// skip is a function, such as Preflight, or a Predicate, such as FromCIDR returns. It is
// called concurrently, once for each limit that has it; New doesn't call it. Allow, Take and
// the like have no request, and skip no limit. New rejects nil and the zero Predicate.
func WithSkip[P func(*http.Request) bool | Predicate](skip P) SharedOption {
	p := predicateOf(skip)
	return skipOption{all: p, settingOption: checkedSetting(p != nil, "WithSkip(nil)", "write a predicate, such as stint.Preflight", func(s *compile.Settings) {
		s.Errs = append(s.Errs, p.wrong.Within("WithSkip")...)
		s.Skip = either(s.Skip, p.Match)
	})}
}

// skipOption is an option of limits that exempts a request from all where it is given to New.
type skipOption struct {
	settingOption
	all *predicate // nil: rejected
}

func (o skipOption) applyLimiter(c *config) {
	if o.all == nil {
		o.settingOption.applyLimiter(c)
		return
	}
	c.Errs = append(c.Errs, o.all.wrong.Within("WithSkip")...)
	c.Skip = append(c.Skip, o.all.Predicate)
}

// either returns a function that reports whether one of two returns true. The first may be nil.
func either(a, b func(*http.Request) bool) func(*http.Request) bool {
	if a == nil {
		return b
	}
	return func(r *http.Request) bool { return a(r) || b(r) }
}

// WithBlock denies requests for which block returns true with 403 (ErrBlocked),
// without charging anything. If given several times, any of them denies. By default
// nothing is blocked. block is a function, or a Predicate, such as FromCIDR returns. It is
// called concurrently; New doesn't call it. New rejects nil and the zero Predicate.
func WithBlock[P func(*http.Request) bool | Predicate](block P) Option {
	p := predicateOf(block)
	return checkedOption(p != nil, "WithBlock(nil)", "write a predicate, such as stint.FromCIDR(...)",
		func(c *config) {
			c.Errs = append(c.Errs, p.wrong.Within("WithBlock")...)
			c.Block = append(c.Block, p.Predicate)
		})
}

// predicateOf returns the contents of a Predicate, or those that a function would have; nil
// for a nil function and the zero Predicate.
func predicateOf(p any) *predicate {
	switch p := p.(type) {
	case Predicate:
		return p.is
	case func(*http.Request) bool:
		if p != nil {
			return &predicate{Predicate: read.Predicate{Match: p, Reads: readsOf(p)}}
		}
	}
	return nil
}

// readsOf returns what a function that is a predicate looks at.
func readsOf(p func(*http.Request) bool) keys.Reads {
	if reflect.ValueOf(p).Pointer() == reflect.ValueOf(Preflight).Pointer() {
		return keys.Reads{Method: http.MethodOptions, Fields: []string{"Origin", "Access-Control-Request-Method"}}
	}
	return keys.Reads{Function: true}
}

// ErrBlocked is the error of a request that a WithBlock predicate denies. It is
// answered with 403.
var ErrBlocked = errors.New("stint: blocked by a WithBlock predicate")

// FromCIDR returns a predicate that matches requests whose peer has an address in one of
// the networks: for WithSkip and internal callers, or for WithBlock. It looks at the
// connection only, never at a header, so behind a proxy it sees the proxy: WithSkip of a network
// with a proxy exempts all its clients, which isn't detected. New rejects invalid prefixes and an
// empty list.
//
// An IPv4 network also contains its addresses in their IPv6 spellings, mapped
// (::ffff:0:0/96) and NAT64 (64:ff9b::/96). A peer without an address is in no network.
// The time of a call hardly grows with the number of networks.
func FromCIDR(prefixes ...netip.Prefix) Predicate {
	set, problems := clientip.NewPrefixes(prefixes)
	wrong := addressed("FromCIDR", problems)
	if len(prefixes) == 0 {
		wrong.Bad("FromCIDR", "no network", `write some, such as netip.MustParsePrefix("10.0.0.0/8"), or leave the predicate out`)
	}
	if wrong != nil {
		return Predicate{&predicate{Predicate: read.Predicate{Match: func(*http.Request) bool { return false }}, wrong: wrong}}
	}
	return Predicate{&predicate{Predicate: read.Predicate{
		Match: func(r *http.Request) bool { return set.HasPeer(r.RemoteAddr) }, Reads: keys.Reads{Peer: true},
	}}}
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
