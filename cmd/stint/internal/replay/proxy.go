package replay

import (
	"net/http"
	"slices"
)

// BehindProxy converts the log of a proxy to the requests that the server behind it gets: each
// is sent from addr, and the address that the proxy has logged is the last in X-Forwarded-For,
// which ForwardedIP reads. Addresses that the client itself has written there come before it,
// as far as they are logged.
func BehindProxy(l Log, addr string) Log {
	const name = "X-Forwarded-For"
	says := l.Says()
	says.Fields = slices.Clone(says.Fields)
	at := slices.Index(says.Fields, http.CanonicalHeaderKey(name))
	if at < 0 {
		at = len(says.Fields)
		says.Fields = append(says.Fields, name)
	}
	if !says.Peer { // the client isn't known: the field stays as the log has it
		says.Fields = l.Says().Fields
		says.Peer = true
		at = -1
	}
	return &behindProxy{l, says, addr, at}
}

type behindProxy struct {
	log        Log
	says       Says
	addr       string
	fieldIndex int // of the field, or -1
}

// Says implements Log.
func (p *behindProxy) Says() Says { return p.says }

// Next implements Log.
func (p *behindProxy) Next(r *Request) error {
	if err := p.log.Next(r); err != nil {
		return err
	}
	if p.fieldIndex >= 0 {
		fields := make([]string, len(p.says.Fields))
		copy(fields, r.Fields)
		if fields[p.fieldIndex] != "" {
			fields[p.fieldIndex] += ", "
		}
		fields[p.fieldIndex] += r.Peer
		r.Fields = fields
	}
	r.Peer = p.addr
	return nil
}

func (p *behindProxy) brokenLines() Broken { return brokenOf(p.log) }

func (p *behindProxy) missingFields() []string { return missingFieldsOf(p.log) }
