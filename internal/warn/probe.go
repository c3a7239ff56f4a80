package warn

import (
	"net/http"
	"strings"
)

// Signs are what a probe shows of a key function.
type Signs uint32

const (
	// OfPeer: the key has the peer's address in it.
	OfPeer Signs = 1 << iota
	// OfPattern: it has the request's pattern in it.
	OfPattern
	// OfField: it is a header field of the application's.
	OfField
	// OfForwarded: it has a forwarding header in it, whoever wrote that.
	OfForwarded
	// other: there is a key, and none of these.
	other
)

// forwarding are the fields in which proxies say for whom they ask.
var forwarding = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Azure-Clientip",
	"X-Envoy-External-Address", "Cf-Connecting-Ipv6", "X-Appengine-User-Ip", "X-Original-Forwarded-For",
}

// What a probe is marked with is no address: who checks what a proxy says doesn't
// take it.
const (
	mark    = "a-probe-of-stint"
	pattern = "/pattern-of-a-probe"
)

// Mark marks what may come into the key of a probe.
func Mark(r *http.Request) {
	marked := []string{mark}
	for _, name := range forwarding {
		r.Header[name] = marked
	}
	r.Pattern = pattern
}

// SignsOf are the signs of a key that a probe was given, "" if it was given none.
func SignsOf(probe *http.Request, key string) (s Signs) {
	host, _, _ := strings.Cut(probe.RemoteAddr, ":")
	for i, text := range [...]string{host, pattern, mark} {
		if strings.Contains(key, text) {
			s |= [...]Signs{OfPeer, OfPattern, OfForwarded}[i]
		}
	}
	if s == 0 && key != "" {
		s = other
	}
	return s
}

// byFields reports whether a probe, which has no fields, had no key: it is then by a
// credential or the like, which somebody might have taken for what it isn't.
func (s Signs) byFields() bool { return s&^OfField == 0 }

// Found is what the signs alone say.
func (s Signs) Found() (found Set) {
	found.add(ForwardingHeader, s&OfForwarded != 0)
	return found
}
