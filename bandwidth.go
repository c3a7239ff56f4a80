package stint

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Bandwidth paces the responses of a key (and, with WithRequestBytes, its request
// bodies) to a number of bytes per second, over all its connections and, with a shared
// store, all processes. The default name is "bandwidth".
//
//	stint.Bandwidth(1_000_000, stint.WithKey(stint.Header("X-API-Key"))) // 8 Mbit/s for each customer
//
// bytesPerSecond is from 1024 to 2^36 (64 GiB). New rejects other numbers, and a
// WithBurst below 4096. It combines with every other kind of limit and with other
// Bandwidths; a WithCost, WithMaxWait or WithSettle of the limiter or the route doesn't
// apply to it.
//
// The first WithBurst bytes pass at full speed, so that pages and small answers aren't
// delayed. The default burst is a quarter of a second's worth, at least 16 KiB; a burst
// below a millisecond's worth counts as that. Beyond it, bytes are paid for before they
// are written, in pieces of a sixteenth of a second's worth (at least 4 KiB, at most
// the burst). So a stream asks the store about 16 times a second, however small its
// writes. Streams of one key take turns, one piece at a time.
//
// Bandwidth never denies a request: it makes the handler's writes, and reads of the
// body, take longer. That has these consequences:
//
//   - What has been paid for is flushed before a pause. A pause ends early when the
//     request's context does. The write then returns its error, and an incomplete
//     response is cut off, so that no client takes a part for the whole.
//   - http.Server's WriteTimeout and ReadTimeout include pauses. Leave them 0 where
//     responses are long, or set deadlines by http.ResponseController. That works, as
//     do Flush, Hijack, io.ReaderFrom and HTTP/2: a file is still sent by the kernel,
//     piece by piece, if its Content-Length is set.
//   - What was paid for and not sent (the client left) goes to other streams of this
//     process that wait, and otherwise back to the store when the handler returns. If
//     another process has reserved turns behind it, up to a piece less comes back.
//   - A request's body is paid for as it arrives, one call for each read: a stream may be
//     ahead by one read of at most a piece, and a client that stalls holds nothing back.
//   - Only bodies count, and for HEAD nothing does. What is written to a connection
//     after a Hijack doesn't count.
//   - If the store fails, the response goes on unpaced, and the store is asked again
//     after a second. Under FailClosed the response is cut off, even if it hasn't
//     begun. A request that other limits let pass undecided is paced all the same.
//   - After a Limiter.Update a stream goes on under the limit it began with. If the
//     numbers change, up to a burst may be counted twice or not at all.
//   - Under several Bandwidths a response takes as long as the slowest requires. Those
//     in a dry run neither delay it nor change the size of its writes.
//
// Handlers hold their resources (memory, a slot of a Concurrency) for as long as their
// client's bandwidth makes them: put a Concurrency beside it.
//
// A Bandwidth adds no header fields and appears in no Decision; Allow, Take, Wait and
// Peek ignore it. When a response has ended, observers get an EventPaced.
func Bandwidth(bytesPerSecond int64, opts ...BandwidthOption) Limit {
	b := &bandwidth{}
	r := newLimit(b, store.Spec{Name: "bandwidth", Units: 1, Period: time.Second}, opts).rule
	s := &r.spec
	if bytesPerSecond < respond.Slowest || bytesPerSecond > respond.Fastest {
		r.errs.Bad(fmt.Sprintf("Bandwidth(%d)", bytesPerSecond), "",
			fmt.Sprintf("write bytes per second, %d to %d", respond.Slowest, respond.Fastest))
	}
	burst := s.Burst
	s.Burst = 0 // or the store's limit would report a wrong one too
	if burst != 0 && (burst < respond.LeastPiece || burst > store.MaxCost) {
		r.errs.Bad(fmt.Sprintf("WithBurst(%d)", max(burst, 0)),
			"smaller pieces of a response would each cost a call to the store",
			fmt.Sprintf("write %d or more, up to %d", respond.LeastPiece, int64(store.MaxCost)))
	}
	if len(r.errs) == 0 {
		rate := respond.NewRate(bytesPerSecond, burst)
		s.Units, s.Period, s.Burst = rate.Units, rate.Period, rate.Burst
		b.block, b.piece = rate.Block, rate.Piece
	}
	return Limit{r}
}

// WithRequestBytes makes a Bandwidth also count the bytes of request bodies, as the
// handler reads them. By default only responses count.
func WithRequestBytes() BandwidthOption {
	return changeOption{change: func(r *rule) { r.kind.(*bandwidth).requests = true }}
}

// bandwidth is the kind of Bandwidth. Its requests are charged for bytes as they move.
type bandwidth struct {
	charged
	block, piece int64 // of its respond.Rate
	requests     bool
}

func (*bandwidth) enter(e *entry, _ *rule) {
	e.cost, e.settle, e.wait = nil, nil, waiting.Terms{} // the limiter's, which don't apply
	e.needs = paces | watches | releases
}

func (b *bandwidth) says(s store.Spec) string {
	return fmt.Sprintf("Bandwidth: %d bytes per 1s, burst %d", s.Units*b.block*int64(time.Second/s.Period), s.Burst*b.block)
}

func (*bandwidth) counted(*entry) bool { return false } // it denies no request

// paced is a Bandwidth and the key of one request.
type paced struct {
	entry *entry
	key   string
}

// Pacing describes how a Bandwidth paced a request, for observers (EventPaced).
type Pacing struct {
	// Limit is the name of the Bandwidth.
	Limit string
	// Bytes is the number of bytes of the response's body that were written, and
	// RequestBytes the number of those of the request's that were read: 0 without
	// WithRequestBytes.
	Bytes, RequestBytes int64
	// Waited is how long writes and reads were delayed, by all limits together. For a
	// dry run, which delays nothing, it is roughly how long that limit would have
	// delayed them.
	Waited time.Duration
	// DryRun says that the limit only reports.
	DryRun bool
	// Err is why the response was cut off: the store's failure, the end of the
	// request's context, or an answer of the store that a piece can never pass;
	// nil if it wasn't.
	Err error
}

// ofPaced returns the needs of a call's Bandwidths.
func (c *call) ofPaced() (all needs) {
	for i := range c.paced {
		all |= c.paced[i].entry.needs
	}
	return all
}

// pace makes a response that is paced by the call's Bandwidths. decides says that other
// limits decide by it.
func (c *call) pace(decides bool) *response {
	s := new(struct {
		response
		of lanes
	})
	s.of.all = slices.Clone(c.paced)
	s.of.Begin(c.r, c.version.payer(c.r, c.plan), entriesOf(s.of.all))
	s.watched, s.pacing, s.of.Decides = &s.of, &s.of, decides
	return &s.response
}

// lanes are the Bandwidths that pace a response.
type lanes struct {
	respond.Paced
	all []paced
}

// payer returns what a paced response charges its bytes with: the version's store.
func (v *version) payer(r *http.Request, p *plan) respond.Payer {
	return respond.Payer{
		Store: v.store, Queues: v.streams,
		GiveBack: func(ctx context.Context, charges []store.Charge) []store.Result {
			return v.giveBack(ctx, p, charges)
		},
		StoreFailed: func(err error, cut bool) error {
			if cut {
				err = &StoreError{err}
			}
			v.observe(&Event{Kind: EventStoreFailed, Route: p.route(), Request: r, Err: err})
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

// respond returns p as package respond takes it.
func (p *paced) respond() respond.Entry {
	e, b := p.entry, p.entry.kind.(*bandwidth)
	return respond.Entry{
		Limit: e.limit, Key: p.key, Block: b.block, Piece: b.piece,
		Requests: b.requests, DryRun: e.dryRun, Closed: e.closed,
	}
}

func (s *lanes) bandwidths() []paced { return s.all }

func (s *lanes) observe(p *Permit) {
	for i := range s.all {
		p.observePacing(&s.all[i], s.Moved(s.all[i].respond()))
	}
}

func (p *Permit) observePacing(of *paced, got respond.Moved) {
	limit := of.entry.limit
	e := Event{Kind: EventPaced, below: p.below(), Route: p.plan.route(), Request: p.response.Request()}
	e.about([]store.Charge{{Key: of.key, Limit: limit, DryRun: of.entry.dryRun}})
	e.Pacing = &Pacing{
		Limit: limit.Name(), Bytes: got.Bytes, RequestBytes: got.RequestBytes,
		Waited: got.Waited, DryRun: of.entry.dryRun, Err: got.Err,
	}
	p.version.observe(&e)
}

// paced returns the Bandwidths that pace the response.
func (p *Permit) paced() []paced {
	if p.response == nil || p.response.pacing == nil {
		return nil
	}
	return p.response.pacing.bandwidths()
}

// observePaced notifies the observers how the response was paced.
func (p *Permit) observePaced() {
	s := p.response
	if s == nil || s.pacing == nil || p.version.limiter.audience.Load() == nil {
		return
	}
	if _, ok := s.Outcome(); ok {
		s.pacing.observe(p)
	}
}
