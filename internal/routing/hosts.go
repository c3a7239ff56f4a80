package routing

import (
	"net"
	"net/http"
	"strings"
)

// hostsOf returns the host as a mux reads it, and in the spelling in which patterns are
// stored.
func (rt *Router) hostsOf(r *http.Request) []string {
	host := withoutPort(r.Host)
	plain := plainHost(host)
	if r.Method == http.MethodConnect {
		host = r.Host
	}
	if !rt.hosts || host == plain {
		return []string{host}
	}
	return []string{host, plain}
}

// usualHost reports whether a host is in the spelling of plainHost, apart from a port.
func usualHost(host string) bool {
	for i := 0; i < len(host); i++ {
		if c := host[i]; c-'A' <= 'Z'-'A' || c >= 0x80 || c == '[' {
			return false
		}
	}
	return !strings.HasSuffix(host, ".") && !strings.Contains(host, ".:")
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
// in lower case, without a dot at its end or brackets around an address.
func plainHost(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
