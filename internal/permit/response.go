package permit

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Response is the response to a permit's request. A permit has one only if a limit needs it: other
// ResponseWriters aren't wrapped.
type Response struct {
	respond.Watched
	// Settlers are the functions of WithSettle. It has an element for each charge, or none.
	Settlers []*read.Settler

	pacing         *pacing // nil if no Bandwidth paces the response
	handlerSettled decide.HandlerSettled
}

// pacing is the Bandwidths that pace a response.
type pacing struct {
	respond.Paced
	bandwidths []read.Paced
}

// Pace makes Bandwidths pace the response, which has begun.
func (s *Response) Pace(payer respond.Payer, bandwidths []read.Paced) {
	s.pacing = &pacing{bandwidths: slices.Clone(bandwidths)}
	limits := make([]respond.ByteLimit, len(bandwidths))
	for i := range bandwidths {
		limits[i] = byteLimit(&bandwidths[i])
	}
	s.pacing.Begin(&s.Watched, payer, limits)
}

// byteLimit returns a Bandwidth as package respond takes it.
func byteLimit(b *read.Paced) respond.ByteLimit {
	return respond.ByteLimit{
		Limit: b.StoreLimit, Key: b.Key, Block: b.Bytes.Block, Piece: b.Bytes.Piece,
		Responses: b.Bytes.Responses, Requests: b.Bytes.Requests, DryRun: b.DryRun, Closed: b.Closed,
	}
}

// Around returns what the next handler gets for w and r. copied says that r is already a copy.
func (s *Response) Around(w http.ResponseWriter, r *http.Request, copied bool) (http.ResponseWriter, *http.Request) {
	if s.pacing != nil {
		return s.pacing.Writer(w), s.pacing.Next(r, copied)
	}
	return s.Writer(w), s.Next(r)
}

// paces reports whether a Bandwidth with a hash (inside.Hash) and a key paces the response.
func (s *Response) paces(hash uint64, key string) bool {
	if s == nil || s.pacing == nil {
		return false
	}
	return slices.ContainsFunc(s.pacing.bandwidths, func(b read.Paced) bool {
		return inside.Hash(b.StoreLimit) == hash && b.Key == key
	})
}

// unmoved ends the pacing, and returns the charges that give back bytes that were paid for and haven't moved.
func (s *Response) unmoved() []store.Charge {
	if s.pacing == nil {
		return nil
	}
	return s.pacing.End()
}

// heldUp returns how long the pacing has delayed the response.
func (s *Response) heldUp() time.Duration {
	if s.pacing == nil {
		return 0
	}
	return s.pacing.Delayed()
}

// ending returns what adaptive limits learn from the response.
func (s *Response) ending() adaptive.Ending {
	switch got, ok := s.Outcome(); {
	case ok && got.Hijacked:
		return adaptive.Ignored // the duration is that of a connection, not of a request
	case ok && got.Status >= http.StatusInternalServerError:
		return adaptive.Failed
	}
	return adaptive.Finished
}

// pushResponse sends a complete response to the client before the store is called for amends or unmoved bytes, so that
// the client doesn't wait for the store.
func (p *Core) pushResponse(amends []decide.Amend) {
	if len(amends) > 0 || p.Response.pacing != nil {
		p.Response.PushBefore(p.Issuer.Backend.Store)
	}
}

// reportPaced reports how the response was paced.
func (p *Core) reportPaced() {
	s := p.Response.pacing
	if s == nil || p.Observers == nil {
		return
	}
	if _, ok := p.Response.Outcome(); !ok {
		return
	}
	for i := range s.bandwidths {
		b := &s.bandwidths[i]
		p.Issuer.Reporter.Paced(p, b, s.Moved(byteLimit(b)))
	}
}

// asCharged is stint.AsCharged.
const asCharged int64 = -1

// amends calls the functions of WithSettle, each once.
func (p *Core) amends() (all []decide.Amend) {
	got, ok := p.Response.Outcome()
	if !ok {
		return nil
	}
	costs := map[*read.Settler]int64{}
	for i, settler := range p.Response.Settlers {
		if settler == nil {
			continue
		}
		cost, known := costs[settler]
		if !known {
			cost = p.checkCost(i, settler.Cost(p.Response.Request(), got.Status, got.Written))
			costs[settler] = cost
		}
		if cost >= 0 {
			all = append(all, decide.Amend{Grant: i, Cost: cost, AtLeast: p.Grants.At(i).Limit.NoRefund})
		}
	}
	return all
}

// checkCost returns the cost that a function of WithSettle has returned for a grant. If the cost is out of range,
// checkCost reports it and returns asCharged.
func (p *Core) checkCost(grant int, cost int64) int64 {
	if cost == asCharged || cost >= 0 && cost <= store.MaxCost {
		return cost
	}
	g := p.Grants.At(grant)
	c := store.Charge{Key: g.Key, Limit: g.Limit.StoreLimit, Cost: cost, DryRun: g.Limit.DryRun}
	p.Issuer.Reporter.WrongCost(p, c,
		fmt.Errorf("stint: WithSettle: limit %s: %w: %d: return 0 to 2^40, or AsCharged", c.Limit.Name(),
			store.ErrCost, cost))
	return asCharged
}
