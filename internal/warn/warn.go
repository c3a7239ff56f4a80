// Package warn looks for signs that a key isn't what its author meant: in what the key
// consists of, and in the first requests that have it. It also recognizes limiters that are
// built again and again. It reports facts; package stint makes warnings of them.
package warn

// Found holds what a key's source, and the requests looked at so far, have shown.
type Found struct {
	// Forwarding: the key is a forwarding header, which any client can write.
	Forwarding bool
	// Claimed: it is, of some requests that no proxy has passed on; others have the address of
	// their peer.
	Claimed bool
	// Port: all keys contain the caller's port.
	Port bool
	// Proxy: the key is the address of a proxy, through which most requests come.
	Proxy bool
	// Field is the header field in which that proxy names clients, if it holds one address.
	Field string
	// Silent: many clients have the address of a proxy as their key, which names none.
	Silent bool
	// Bare: the key contains the request's pattern, and no request has one.
	Bare bool
	// Unique: no key came twice.
	Unique bool
	// Single: almost all requests have the same key.
	Single bool
	// Missing is what a function returns for almost all requests that stands for no value,
	// such as "<nil>"; or "".
	Missing string
}
