package routing

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// hostsOf returns what routers may take a request's host for: first what a mux does, then
// every spelling of it in which patterns are stored. They differ in where they cut off a
// port. The mux cuts nothing off a malformed one, as in "a.test:80:80" or "a.test::";
// others cut at the first colon, at the last, or behind the address in brackets. Some
// parse the whole as an authority, which may begin with a user.
func (rt *Router) hostsOf(r *http.Request) []string {
	host := withoutPort(r.Host)
	first := host
	if r.Method == http.MethodConnect {
		first = r.Host
	}
	hosts := []string{first}
	if rt.hosts == nil {
		return hosts
	}
	cut := []string{host}
	if _, err := netip.ParseAddr(host); err != nil || host == r.Host { // not "[::1]:80", whose colons are the address's
		authority := r.Host[strings.LastIndexByte(r.Host, '@')+1:]
		cut = append(cut, authority)
		for _, i := range [...]int{strings.IndexByte(authority, ':'), strings.LastIndexByte(authority, ':'),
			strings.IndexByte(authority, ']')} {
			if i >= 0 {
				cut = append(cut, authority[:i])
			}
		}
	}
	for _, host := range cut {
		plain := plainHost(host)
		if r.Method != http.MethodConnect { // a mux removes no port then
			plain = withoutPort(plain)
		}
		if !slices.Contains(hosts, plain) {
			hosts = append(hosts, plain)
		}
	}
	return hosts
}

// usualHost reports whether all routers take a host for the same: it is in the spelling
// of plainHost, apart from one port.
func usualHost(host string) bool {
	for i := 0; i < len(host); i++ {
		if c := host[i]; c-'A' <= 'Z'-'A' || c >= 0x80 || c == '[' || c == ']' || c == '@' {
			return false
		}
	}
	name, port, _ := strings.Cut(host, ":")
	return !strings.HasSuffix(name, ".") && !strings.Contains(port, ":")
}

// withoutPort returns what http.ServeMux makes of a request's host.
func withoutPort(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// plainHost returns a host without port in the spelling that patterns are stored under:
// in lower case, without dots at its end or brackets around an address.
func plainHost(host string) string {
	return strings.ToLower(strings.TrimRight(strings.Trim(host, "[]"), "."))
}
