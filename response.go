package stint

import (
	"context"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// response is what a permit knows of the response to its request. Only permits
// of limits that ask for it have one: no other ResponseWriter is wrapped.
type response struct {
	respond.Response
	paced  []paced // that pace it
	byHand []bool  // of each charge: the handler has settled it
}

// responded makes the permit's part of the response, if some limit asks for it.
func (c *call) responded() *response {
	if c.r == nil || c.needs&watches == 0 {
		return nil
	}
	if len(c.paced) > 0 {
		s := &response{paced: slices.Clone(c.paced)}
		s.Begin(c.r)
		s.Pace(c.lim.payer(c.r), entriesOf(s.paced))
		return s
	}
	s := new(response)
	s.Begin(c.r)
	return s
}

// payer has a response's bytes paid for by the version's store.
func (v *version) payer(r *http.Request) respond.Payer {
	return respond.Payer{
		Store:    v.store,
		GiveBack: func(ctx context.Context, charges []store.Charge) { v.cancel(ctx, v.store, charges) },
		StoreFailed: func(err error, cut bool) error {
			if cut {
				err = &StoreError{err}
			}
			v.observe(Event{Kind: EventStoreFailed, Request: r, Err: err})
			return err
		},
	}
}

func entriesOf(all []paced) []respond.Entry {
	entries := make([]respond.Entry, len(all))
	for i := range all {
		entries[i] = all[i].respond()
	}
	return entries
}

// respond is p for a response.
func (p *paced) respond() respond.Entry {
	e, b := p.entry, p.entry.kind.(*bandwidth)
	return respond.Entry{
		Limit: e.limit, Key: p.key, Block: b.block, Piece: b.piece,
		Requests: b.requests, DryRun: e.dryRun, Closed: e.closed,
	}
}

// has reports whether a Bandwidth that paces the response is such a one. It is
// called on a nil response too.
func (s *response) has(which func(*entry) bool) bool {
	return s != nil && slices.ContainsFunc(s.paced, func(p paced) bool { return which(p.entry) })
}

// observePaced tells the observers what has come of the pacing.
func (p *Permit) observePaced() {
	s := p.response
	if s == nil || len(p.lim.observers) == 0 {
		return
	}
	if _, ok := s.Outcome(); !ok {
		return
	}
	for i := range s.paced {
		e, got := s.paced[i].entry, s.Paced(s.paced[i].respond())
		p.lim.observe(Event{Kind: EventPaced, Request: s.Request(), Pacing: &Pacing{
			Limit: e.limit.Name(), Bytes: got.Bytes, RequestBytes: got.RequestBytes,
			Waited: got.Waited, DryRun: e.dryRun, Err: got.Err,
		}})
	}
}
