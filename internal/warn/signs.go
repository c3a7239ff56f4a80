package warn

import "slices"

// Signs are what a key consists of.
type Signs uint32

const (
	// OfPeer: the key contains the peer's address, or the one that a trusted proxy names.
	OfPeer Signs = 1 << iota
	// OfPattern: the key contains the request's pattern.
	OfPattern
	// OfField: the key contains a header field.
	OfField
	// OfForwarded: the key contains a forwarding header, whoever wrote that.
	OfForwarded
	// OfFunction: a function of the application's returns the key. Requests show the rest.
	OfFunction
	// Other: the key contains something that every request has.
	Other
)

// forwarding are the fields in which proxies name the client. The first of them are lists.
var forwarding = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Azure-Clientip",
	"X-Envoy-External-Address", "Cf-Connecting-Ipv6", "X-Appengine-User-Ip", "X-Original-Forwarded-For",
}

// lists is how many of forwarding are lists.
const lists = 2

// SignsOfField returns the signs of a key that is a header field, by its canonical name.
func SignsOfField(canonical string) Signs {
	if slices.Contains(forwarding[:], canonical) {
		return OfForwarded
	}
	return OfField
}

// byFields reports whether a request without header fields has no such key, as far as is
// known. The key is then a credential or the like, which may have been confused with
// something else.
func (s Signs) byFields() bool { return s&^(OfField|OfFunction) == 0 }

// found returns what the signs alone show.
func (s Signs) found() Found { return Found{Forwarding: s&OfForwarded != 0} }
