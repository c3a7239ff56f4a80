package stint

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/stint-go/stint/internal/clientip"
)

// FromCIDR is true for requests whose peer has an address in one of the
// networks: for WithSkip and internal callers, or WithBlock. It looks at the
// connection only and never at a header, so behind a proxy it sees the proxy.
//
// An IPv4 network also holds its addresses in their IPv6 spellings, mapped
// (::ffff:0:0/96) and NAT64 (64:ff9b::/96). A peer without an address is in no
// network. The time a call takes hardly grows with the number of networks. A
// prefix that is invalid is reported by New.
func FromCIDR(prefixes ...netip.Prefix) func(*http.Request) bool {
	set, problems := clientip.NewPrefixes(prefixes)
	if len(prefixes) == 0 {
		problems = []string{"no network: write some, such as netip.MustParsePrefix(\"10.0.0.0/8\"), or leave the predicate out"}
	}
	if problems != nil {
		for i := range problems {
			problems[i] = "FromCIDR: " + problems[i]
		}
		return func(r *http.Request) bool {
			if report, ok := r.Context().Value(predicateProbe{}).(*configError); ok {
				report.problems = append(report.problems, problems...)
			}
			return false
		}
	}
	return func(r *http.Request) bool { return set.HasPeer(r.RemoteAddr) }
}

// Preflight is true for the request that a browser sends by itself before a
// cross-origin one: OPTIONS with Origin and Access-Control-Request-Method. With
// WithSkip these aren't limited; by default they are, as any client can send
// them.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// predicateProbe is the context key under which a probe carries the
// *configError that predicates write their mistakes to. A predicate has only a
// bool to answer with.
type predicateProbe struct{}

// predicateProblem asks a predicate whether it was made with arguments that
// can't work, by calling it with a copy of probe. What a user's own predicate
// makes of a request that never happened, a panic included, doesn't matter.
func predicateProblem(p func(*http.Request) bool, probe *http.Request) (err error) {
	report := new(configError)
	defer func() {
		_ = recover()
		if report.problems != nil {
			err = report
		}
	}()
	p(probe.WithContext(context.WithValue(probe.Context(), predicateProbe{}, report)))
	return nil
}
