package keys

import "slices"

// Reads lists the parts of a request that something is read from, such as a key. A replay
// compares it with the parts that a log has.
type Reads struct {
	// Fields are header fields, in canonical form, each once.
	Fields []string
	// Peer is the address that the request was sent from.
	Peer bool
	// Host is the request's host.
	Host bool
	// Router is the match of a router around the limiter.
	Router bool
	// Function is whatever a function of the application looks at.
	Function bool
	// Given is the key that Take and the like are given.
	Given bool
	// Method is the only one of whose requests anything is read but the method, or "".
	Method string
}

// add adds what another part is read from.
func (r *Reads) add(o Reads) {
	r.Fields = slices.Clip(r.Fields)
	for _, name := range o.Fields {
		if !slices.Contains(r.Fields, name) {
			r.Fields = append(r.Fields, name)
		}
	}
	r.Peer, r.Host, r.Router, r.Function = r.Peer || o.Peer, r.Host || o.Host, r.Router || o.Router, r.Function ||
		o.Function
}
