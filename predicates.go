package stint

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/compile"
)

// WithSkip exempts requests for which skip returns true. Given to New or With, it exempts these
// requests from the whole limiter, including WithBlock. Given to a limit, it exempts the
// requests from this limit: for instance, a limit for anonymous clients can skip clients with
// an API key. Given to a route, it is the default for the route's limits. If WithSkip is given
// several times in one place, a request is exempt if any of the functions returns true. By
// default no request is exempt.
//
// skip is called concurrently, once for each limit that has it; New doesn't call skip.
// Preflight is such a function, and Key.In returns such a function for networks. Allow, Take,
// Wait and Peek have no request and skip no limit. New returns an error if skip is nil; in
// Update, nil removes all earlier functions.
func WithSkip(skip func(*http.Request) bool) SharedOption {
	return skipOption{all: skip, settingOption: checkedSetting(skip != nil, "WithSkip(nil)",
		"pass a function, such as stint.Preflight", func(s *compile.Settings) {
			s.Skip = either(s.Skip, skip)
		})}
}

// skipOption is an option of limits that exempts a request from all where it is given to New.
type skipOption struct {
	settingOption
	all func(*http.Request) bool // nil: rejected
}

func (o skipOption) applyLimiter(c *config) {
	if o.all == nil {
		o.settingOption.applyLimiter(c)
		return
	}
	c.Skip = append(c.Skip, o.all)
}

// either returns a function that reports whether one of two returns true. The first may be nil.
func either(a, b func(*http.Request) bool) func(*http.Request) bool {
	if a == nil {
		return b
	}
	return func(r *http.Request) bool { return a(r) || b(r) }
}

// WithBlock denies requests for which block returns true: the status is 403 (ErrBlocked), and
// nothing is charged. If WithBlock is given several times, a request is denied if any of the
// functions returns true. By default no request is blocked. Key.In returns such a function for
// networks. block is called concurrently; New doesn't call block. New returns an error if block
// is nil; in Update, nil removes all earlier functions.
func WithBlock(block func(*http.Request) bool) Option {
	return checkedOption(block != nil, "WithBlock(nil)", "pass a function, such as stint.RemoteIP().In(networks...)",
		func(c *config) { c.Block = append(c.Block, block) })
}

// In returns a function for WithSkip or WithBlock that reports whether the key's address is in
// one of the networks. The function compares the whole address, although the key of an IPv6
// address is only a prefix. An IPv4 network also contains the IPv6 forms of its addresses:
// mapped (::ffff:0:0/96) and NAT64 (64:ff9b::/96). An address that can't be determined is in no
// network. The function is safe for concurrent use, and fast even for thousands of networks.
//
// Behind a proxy, use ForwardedIP(proxies...).In. RemoteIP().In would compare the proxy's
// address, so a WithSkip for the proxy's network would exempt all clients.
//
// In is for keys made by RemoteIP, ForwardedIP, HeaderIP and IP. It is called when a program
// starts, so it panics for any other key, for a key that New rejects, for an invalid network,
// and if no network is given.
func (k Key) In(prefixes ...netip.Prefix) func(*http.Request) bool {
	set, problems := clientip.NewPrefixes(prefixes)
	invalid := append(slices.Clip(k.described().Problems), addressProblems("In", problems)...)
	if len(invalid) == 0 && k.described().Client == nil {
		invalid.Add(k.described().Name+".In", "the key isn't an address",
			"use stint.RemoteIP().In, or behind a proxy stint.ForwardedIP(trusted...).In")
	}
	if len(prefixes) == 0 {
		invalid.Add("In", "no network", `pass some, such as netip.MustParsePrefix("10.0.0.0/8")`)
	}
	if len(invalid) > 0 {
		panic(joinProblems(invalid))
	}
	client := k.key.Client
	return func(r *http.Request) bool { return client.In(r, set) }
}

// Preflight reports whether r is a CORS preflight request, which a browser sends before a
// cross-origin request: OPTIONS with Origin and Access-Control-Request-Method. Pass it to
// WithSkip to exempt preflight requests. By default they are limited, because any client can
// send them.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
