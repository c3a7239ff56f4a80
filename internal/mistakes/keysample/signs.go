package keysample

import "slices"

// Signs are what a key consists of, as far as it may be a mistake. A key without signs, such as the
// method, may have few values.
type Signs uint8

const (
	// OfPeer: the key contains the peer's address, or the one that a trusted proxy names.
	OfPeer Signs = 1 << iota
	// OfPattern: the key contains the request's pattern.
	OfPattern
	// OfField: the key contains a header field.
	OfField
	// OfForwarded: the key contains a forwarding header, whoever wrote that.
	OfForwarded
	// OfFunction: a function of the application's returns the key.
	OfFunction
)

// SignsOfField returns the signs of a key that is a header field, by its canonical name.
func SignsOfField(canonical string) Signs {
	if slices.Contains(forwardingFields[:], canonical) {
		return OfForwarded
	}
	return OfField
}
