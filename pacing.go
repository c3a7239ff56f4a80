package stint

import (
	"context"

	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// lanes are the Bandwidths that pace a response.
type lanes struct {
	respond.Paced
	all []read.Paced
}

// payer returns what a paced response charges its bytes with: the version's store.
func payer(v *version, of subject) respond.Payer {
	return respond.Payer{
		Store: v.backend.Store, Lines: &v.backend.Lines.Turns,
		GiveBack: func(ctx context.Context, charges []store.Charge) []store.Result {
			return giveBack(ctx, v, of, charges)
		},
		StoreFailed: func(charges []store.Charge, err error, cut bool) error {
			if cut {
				err = &StoreError{err}
			}
			e := of.event(EventStoreFailed, err)
			v.events.sendAbout(of.to, &e, charges)
			return err
		},
	}
}

func byteLimitsOf(all []read.Paced) []respond.ByteLimit {
	limits := make([]respond.ByteLimit, len(all))
	for i := range all {
		limits[i] = byteLimitOf(&all[i])
	}
	return limits
}

// byteLimitOf returns p as package respond takes it.
func byteLimitOf(p *read.Paced) respond.ByteLimit {
	return respond.ByteLimit{
		Limit: p.Limit.Limit, Key: p.Key, Block: p.Bytes.Block, Piece: p.Bytes.Piece,
		Responses: p.Bytes.Responses, Requests: p.Bytes.Requests, DryRun: p.DryRun, Closed: p.Closed,
	}
}

// sendPacing sends what has moved under one of the Bandwidths.
func (p *Permit) sendPacing(of *read.Paced, got respond.Moved) {
	e := p.event(EventPaced)
	e.Request = p.response.Request()
	e.about([]store.Charge{{Key: of.Key, Limit: of.Limit.Limit, DryRun: of.DryRun}})
	e.Pacing = &Pacing{
		Limit: of.Name(), Bytes: got.Bytes, RequestBytes: got.RequestBytes,
		Waited: got.Waited, DryRun: of.DryRun, Err: got.Err,
	}
	p.version.events.send(p.to, &e)
}

// paced returns the Bandwidths that pace the response.
func (p *Permit) paced() []read.Paced {
	if p.response == nil || p.response.pacing == nil {
		return nil
	}
	return p.response.pacing.all
}

// sendPaced notifies the observers how the response was paced.
func (p *Permit) sendPaced() {
	s := p.response
	if s == nil || s.pacing == nil || p.to == nil {
		return
	}
	if _, ok := s.Outcome(); !ok {
		return
	}
	for i := range s.pacing.all {
		of := &s.pacing.all[i]
		p.sendPacing(of, s.pacing.Moved(byteLimitOf(of)))
	}
}
