package warn

import (
	"net/http"
	"strings"
)

// Signs are the findings of a probe of a key function.
type Signs uint32

const (
	// OfPeer: the key contains the peer's address.
	OfPeer Signs = 1 << iota
	// OfPattern: the key contains the request's pattern.
	OfPattern
	// OfField: the key is a header field of the application's.
	OfField
	// OfForwarded: the key contains a forwarding header, whoever wrote that.
	OfForwarded
	// other: there is a key without any of these.
	other
)

// forwarding are the fields in which proxies name the client.
var forwarding = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Azure-Clientip",
	"X-Envoy-External-Address", "Cf-Connecting-Ipv6", "X-Appengine-User-Ip", "X-Original-Forwarded-For",
}

// The marks of a probe aren't addresses: a function that checks what a proxy says
// doesn't accept them.
const (
	mark    = "a-probe-of-stint"
	pattern = "/pattern-of-a-probe"
)

// Mark marks everything in a probe that may become part of a key.
func Mark(r *http.Request) {
	marked := []string{mark}
	for _, name := range forwarding {
		r.Header[name] = marked
	}
	r.Pattern = pattern
}

// SignsOf returns the signs of the key that a probe got; key is "" if it got none.
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

// byFields reports whether a probe, which has no fields, got no key. The key is then a
// credential or the like, which may have been confused with something else.
func (s Signs) byFields() bool { return s&^OfField == 0 }

// found returns what the signs alone show.
func (s Signs) found() (found Set) {
	found.add(ForwardingHeader, s&OfForwarded != 0)
	return found
}
