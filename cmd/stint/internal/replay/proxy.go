package replay

import (
	"net/http"
	"slices"

	"github.com/stint-go/stint/store"
)

// forwardedFor is the header field to which proxies append the address of their client.
const forwardedFor = "X-Forwarded-For"

// BehindProxy converts the log of a proxy to the requests that the server behind it gets: each
// is sent from addr, and the address that the proxy has logged is the last in X-Forwarded-For,
// which ForwardedIP reads. The addresses that the proxy has received in the field come before it.
// If the log doesn't have them, a request for which they make a difference isn't judged: one
// whose logged address is a trusted proxy's, such as a CDN's.
func BehindProxy(l Log, addr string) Log {
	p := &behindProxy{log: l, says: l.Says(), addr: addr, fieldIndex: -1}
	if !p.says.Peer { // the client isn't known: the field stays as the log has it
		p.says.Peer = true
		return p
	}
	p.says.Fields = slices.Clone(p.says.Fields)
	if p.fieldIndex = slices.Index(p.says.Fields, forwardedFor); p.fieldIndex < 0 {
		p.fieldIndex = len(p.says.Fields)
		p.says.Fields = append(p.says.Fields, forwardedFor)
		p.says.OnlyLastHop = true
	}
	return p
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
		switch f := &fields[p.fieldIndex]; *f {
		case redacted:
		case "":
			*f = r.Peer
		default:
			*f += ", " + r.Peer
		}
		r.Fields = fields
	}
	r.Peer = p.addr
	return nil
}

func (p *behindProxy) brokenLines() Broken { return brokenOf(p.log) }

func (p *behindProxy) missingFields() []string { return missingFieldsOf(p.log) }

// chargedKey is a charge before it is decided.
type chargedKey struct {
	limit *store.Limit
	key   string
	cost  int64
}

func chargedKeyOf(c *store.Charge) chargedKey { return chargedKey{c.Limit, c.Key, c.Cost} }

// earlierHops are addresses that no client has (RFC 6666). No two keys of them are equal, whatever the
// prefix of a key is.
var earlierHops = [2]string{"100::1, ", "100:0:1::1, "}

const unknownHops = "it came from a trusted proxy, and the log doesn't have the X-Forwarded-For with its client"

// findAnyHops is findCharges for a log that lacks the earlier hops of X-Forwarded-For. A request is judged
// if they make no difference.
func (j *judge) findAnyHops(logged *Request, r *http.Request) (verdict, bool) {
	field := r.Header[forwardedFor]
	if len(field) == 0 {
		return j.findCharges(logged, r)
	}
	last := field[0]
	defer func() { field[0] = last }()
	field[0] = earlierHops[0] + last
	first, charged := j.findCharges(logged, r)
	j.hops = j.hops[:0]
	if charged {
		for i := range j.call.Charges {
			j.hops = append(j.hops, chargedKeyOf(&j.call.Charges[i]))
		}
	}
	field[0] = earlierHops[1] + last
	v, also := j.findCharges(logged, r)
	same := v == first && charged == also
	for i := 0; same && charged && i < max(len(j.hops), len(j.call.Charges)); i++ {
		same = i < len(j.hops) && i < len(j.call.Charges) && j.hops[i] == chargedKeyOf(&j.call.Charges[i])
	}
	if !same {
		return verdict{deniedBy: -1, unjudged: unknownHops}, false
	}
	return v, charged
}
