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

// Bandwidth paces the responses of a key (and, with WithRequestBytes, its
// requests) to so many bytes per second, over all its connections and, with a
// store that is shared, all processes. At least 1024. Its default name is
// "bandwidth".
//
//	stint.Bandwidth(1_000_000, stint.WithKey(stint.Header("X-API-Key"))) // 8 Mbit/s for each customer
//
// The first WithBurst bytes pass freely, so that pages and small answers are as
// fast as ever: by default a quarter of a second's worth, but at least 16 KiB;
// 4096 at the least, and a burst below a millisecond's worth counts as that.
// Beyond that bytes are paid for before they are written, in
// pieces of a sixteenth of a second's worth (at least 4 KiB, at most the burst):
// a stream asks the store about 16 times a second, however small its writes.
// Streams of one key take turns, each a piece at a time.
//
// Bandwidth never refuses a request: it makes the handler's writes, and reads of
// the body, take longer. What that comes to:
//
//   - What has been paid for is flushed before a pause. A pause ends early when
//     the request's context does; the write then returns its error, and a
//     response that isn't complete is cut off, so that nobody takes a part for
//     the whole.
//   - http.Server's WriteTimeout and ReadTimeout count pauses too. Leave them 0
//     where responses are long, or set deadlines by http.ResponseController,
//     which works, as Flush, Hijack, io.ReaderFrom and HTTP/2 do: a file is
//     still sent by the kernel, piece by piece, where its Content-Length is set.
//   - What was paid for and not sent (the client left) is given back when the
//     handler returns. Where other streams have reserved turns behind it, that
//     is up to a piece less.
//   - Only bodies count, and for HEAD nothing does. Nor does what is written to a
//     connection after a Hijack.
//   - If the store fails, the response goes on unpaced, and the store is asked
//     again after a second; under FailClosed it is cut off, as is one that has
//     not begun. A request that other limits had to let pass undecided is paced
//     all the same.
//   - After a Limiter.Update a stream goes on under the limit it began with.
//   - Under several Bandwidths a response takes as long as the slowest makes it.
//     Those in a dry run neither hold it up nor change the size of its writes.
//
// Handlers hold what they hold (memory, a slot of a Concurrency) for as long as
// their client's bandwidth makes them: put a Concurrency beside it.
//
// It adds no fields, is in no Decision, and Allow, Take, Wait and Peek don't know it.
// When a response has ended observers are told (EventPaced). A WithCost, WithMaxWait or
// WithSettle of the limiter or the route doesn't apply to it.
//
// After an Update that changes the numbers, up to a burst may be counted twice or not
// at all.
func Bandwidth(bytesPerSecond int64, opts ...BandwidthOption) Limit {
	b := &bandwidth{}
	r := newLimit(b, store.Spec{Name: "bandwidth", Units: 1, Period: time.Second}, opts).rule
	s := &r.spec
	if bytesPerSecond < respond.Slowest || bytesPerSecond > respond.Fastest {
		r.errs.bad(fmt.Sprintf("Bandwidth(%d)", bytesPerSecond), "",
			fmt.Sprintf("write bytes per second, %d to %d", respond.Slowest, respond.Fastest))
	}
	burst := s.Burst
	s.Burst = 0 // a wrong one is no affair of the store's limit
	if burst != 0 && (burst < respond.LeastPiece || burst > store.MaxCost) {
		r.errs.bad(fmt.Sprintf("WithBurst(%d)", max(burst, 0)),
			"bytes are paid for in pieces, and smaller ones would each be a call to the store",
			fmt.Sprintf("write %d or more, up to %d", respond.LeastPiece, int64(store.MaxCost)))
	}
	if len(r.errs) == 0 {
		rate := respond.NewRate(bytesPerSecond, burst)
		s.Units, s.Period, s.Burst = rate.Units, rate.Period, rate.Burst
		b.block, b.piece = rate.Block, rate.Piece
	}
	return Limit{r}
}

// WithRequestBytes makes a Bandwidth count the bytes of request bodies too,
// as the handler reads them.
func WithRequestBytes() BandwidthOption {
	return bandwidthOption{change: func(r *rule) { r.kind.(*bandwidth).requests = true }}
}

// bandwidth is the kind of Bandwidth, whose requests pay for bytes as they go.
type bandwidth struct {
	charged
	block, piece int64 // of its respond.Rate
	requests     bool
}

func (*bandwidth) enter(e *entry) {
	e.cost, e.settle, e.wait = nil, nil, waiting.Terms{} // of the limiter
	e.needs, e.watch = paces|watches|releases, pace
}

func (b *bandwidth) unit() (int64, string) { return b.block, " bytes" }
func (*bandwidth) counted(*entry) bool     { return false } // it refuses nobody
func (*bandwidth) succeeds() bool          { return false }

// paced is a Bandwidth and the key of one request.
type paced struct {
	entry *entry
	key   string
}

// Pacing is what a Bandwidth has made of a request, as the observer is told.
type Pacing struct {
	// Limit is its name.
	Limit string
	// Bytes is how many bytes of the response's body have been written, and
	// RequestBytes how many of the request's have been read: 0 without
	// WithRequestBytes.
	Bytes, RequestBytes int64
	// Waited is how long writes and reads were held up, by all limits together.
	// For a dry run, which holds nothing up, it is roughly how long that limit
	// would have made them wait.
	Waited time.Duration
	// DryRun says that the limit only reports.
	DryRun bool
	// Err is why the response was cut off: the store's failure, the end of the
	// request's context, or an answer of the store that a piece can never pass;
	// nil if it wasn't.
	Err error
}

// ofPaced is what the Bandwidths of a call need.
func (c *call) ofPaced() (all needs) {
	for i := range c.paced {
		all |= c.paced[i].entry.needs
	}
	return all
}

// response is what a permit knows of the response to its request. Only permits
// of limits that ask for it have one: no other ResponseWriter is wrapped.
type response struct {
	watched
	pacing pacing // nil where nothing paces it
	byHand []bool // of each charge: the handler has settled it
}

// watched is the response as it is looked at: respond.Watched, or respond.Paced.
type watched interface {
	Next(r *http.Request, own bool) *http.Request
	Writer(w http.ResponseWriter) http.ResponseWriter
	Request() *http.Request
	Panicked(aborted bool)
	Outcome() (o respond.Outcome, ok bool)
	PushBefore(to store.Store)
}

// pacing is what Bandwidths make of a response.
type pacing interface {
	// has reports whether such a one is among them.
	has(which func(*entry) bool) bool
	// HeldUp is how long writing has been held up.
	HeldUp() time.Duration
	// End stops it, and returns the charges that give back what has not moved.
	End() []store.Charge
	// observe tells the observers what has come of it.
	observe(p *Permit)
}

// responded makes the permit's part of the response, if some limit asks for it.
func (c *call) responded() *response {
	if c.r == nil || c.needs&watches == 0 {
		return nil
	}
	if len(c.paced) > 0 {
		return c.paced[0].entry.watch(c)
	}
	for _, e := range c.entries {
		if e.watch != nil {
			return e.watch(c)
		}
	}
	return nil
}

// watch makes a response that is only looked at. Nothing but what looks at responses
// leads here, nor to pace: a server without is not built with either.
func watch(c *call) *response {
	s := new(struct {
		response
		of respond.Watched
	})
	s.of.Begin(c.r)
	s.watched = &s.of
	return &s.response
}

// pace makes a response that the call's Bandwidths pace.
func pace(c *call) *response {
	s := new(struct {
		response
		of lanes
	})
	s.of.all = slices.Clone(c.paced)
	s.of.Begin(c.r, c.lim.payer(c.r, c.plan), entriesOf(s.of.all))
	s.watched, s.pacing = &s.of, &s.of
	return &s.response
}

// lanes are the Bandwidths that pace a response.
type lanes struct {
	respond.Paced
	all []paced
}

// payer has a response's bytes paid for by the version's store.
func (v *version) payer(r *http.Request, p *plan) respond.Payer {
	return respond.Payer{
		Store:    v.store,
		GiveBack: func(ctx context.Context, charges []store.Charge) { v.cancel(ctx, v.store, p, charges) },
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

// respond is p for a response.
func (p *paced) respond() respond.Entry {
	e, b := p.entry, p.entry.kind.(*bandwidth)
	return respond.Entry{
		Limit: e.limit, Key: p.key, Block: b.block, Piece: b.piece,
		Requests: b.requests, DryRun: e.dryRun, Closed: e.closed,
	}
}

func (s *lanes) has(which func(*entry) bool) bool {
	return slices.ContainsFunc(s.all, func(p paced) bool { return which(p.entry) })
}

func (s *lanes) observe(p *Permit) {
	for i := range s.all {
		p.observePacing(&s.all[i], s.Moved(s.all[i].respond()))
	}
}

func (p *Permit) observePacing(of *paced, got respond.Moved) {
	limit := of.entry.limit
	e := Event{Kind: EventPaced, Route: p.plan.route(), Request: p.response.Request()}
	e.about([]store.Charge{{Key: of.key, Limit: limit, DryRun: of.entry.dryRun}})
	defer e.takeBack()
	e.Pacing = &e.keys.pacing
	*e.Pacing = Pacing{
		Limit: limit.Name(), Bytes: got.Bytes, RequestBytes: got.RequestBytes,
		Waited: got.Waited, DryRun: of.entry.dryRun, Err: got.Err,
	}
	p.lim.observe(&e)
}

// paces reports whether a Bandwidth paces the response that is such a one.
func (p *Permit) paces(which func(*entry) bool) bool {
	return p.response != nil && p.response.pacing != nil && p.response.pacing.has(which)
}

// observePaced tells the observers what has come of the pacing.
func (p *Permit) observePaced() {
	s := p.response
	if s == nil || s.pacing == nil || p.lim.of.told.Load() == nil {
		return
	}
	if _, ok := s.Outcome(); ok {
		s.pacing.observe(p)
	}
}

// settleSource is one use of WithSettle. Limits that get it from the same one
// share one call a request.
type settleSource struct {
	fn    func(r *http.Request, status int, written int64) int64
	watch func(*call) *response
}

// AsCharged, returned by the function of a WithSettle, leaves the charge as it
// is.
const AsCharged int64 = -1

// WithSettle gives a request its true cost once its response is known: when
// the handler has returned, cost is asked with the status and the number of
// body bytes written, and what was charged becomes that. Below the charge the
// difference is refunded, above it is owed by the next; AsCharged leaves it.
// The request is the one the next handler was given, with its permit and, where
// the router sets them, its pattern and path values.
//
//	// Only failed logins count.
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute), stint.WithSettle(stint.FailedOnly))
//
// The charge made before the handler runs is what holds at once, so that many
// requests at a time can't pass on credit: a WithCost beside it says what to
// reserve. It stays where cost is not asked: outside HTTP (Take, Wait), and in
// an adapter that doesn't wrap the response as Permit.Next says. Slots of a concurrency
// limit are released, not settled.
//
//   - It is asked once a request, for all limits that share the option, on the
//     request's goroutine. It is asked also if the client has left.
//   - A limit that the handler has settled itself, by Permit.Settle, is left at
//     that: the handler knows better.
//   - A handler's panic is 500, whatever it has written before. One with
//     http.ErrAbortHandler is what has been written, 500 only if nothing has.
//   - After a Hijack the status is 101, and written what was written before.
//     After Permit.Detach cost is asked when the release is called.
//   - To HEAD nothing is written, whatever the handler writes.
//
// A charge that can't be settled stays as it is; observers are told
// (EventSettleFailed), as they are of what has been settled (EventSettled). With a store
// in memory that takes no time. Another one is told when the handler has
// returned, in one call with the release of slots, for up to 2 seconds: behind a
// response that declares its Content-Length, but before the end of one that
// doesn't.
func WithSettle(cost func(r *http.Request, status int, written int64) int64) SettleOption {
	if cost == nil {
		return settleOption{setting: func(s *settings) {
			s.errs.bad("WithSettle(nil)", "", "write a function, such as stint.FailedOnly, or leave it out")
		}}
	}
	src := &settleSource{cost, watch}
	return settleOption{setting: func(s *settings) { s.settle = src }}
}

// FailedOnly is for WithSettle: requests that are answered with a status below
// 400 cost nothing, as logins that succeed.
func FailedOnly(_ *http.Request, status int, _ int64) int64 {
	if status < 400 {
		return 0
	}
	return AsCharged
}

// RefundOn is for WithSettle: requests that are answered with one of these
// statuses cost nothing, such as 304 and 503.
func RefundOn(statuses ...int) func(r *http.Request, status int, written int64) int64 {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int, _ int64) int64 {
		if slices.Contains(statuses, status) {
			return 0
		}
		return AsCharged
	}
}

// amend is what one charge shall have cost.
type amend struct {
	i    int // of the charge
	cost int64
}

// amends asks the permit's WithSettle functions what the request has cost.
func (p *Permit) amends() (all []amend) {
	s := p.response
	if s == nil {
		return nil
	}
	got, ok := s.Outcome()
	if !ok {
		return nil
	}
	costs := map[*settleSource]int64{}
	for i := range p.grants {
		e := p.grants[i].entry
		if e.settle == nil {
			continue
		}
		cost, asked := costs[e.settle]
		if !asked {
			cost = e.settle.fn(s.Request(), got.Status, got.Written)
			costs[e.settle] = cost
			if cost != AsCharged && (cost < 0 || cost > store.MaxCost) {
				err := fmt.Errorf("stint: WithSettle: cost %d for %q: %w", cost, e.limit.Name(), store.ErrCost)
				p.lim.unsettled(p.plan, []store.Charge{p.grants[i].charge(cost)}, 0, err)
			}
		}
		if cost >= 0 && cost <= store.MaxCost {
			all = append(all, amend{i, cost})
		}
	}
	return all
}

// due leaves of amends those that still have to be made. The caller holds p.mu.
func (p *Permit) due(amends []amend) []amend {
	return slices.DeleteFunc(amends, func(a amend) bool {
		return p.byHand(a.i) ||
			p.grants[a.i].reported() ||
			p.grants[a.i].result.Receipt.Cost == a.cost
	})
}

func (p *Permit) byHand(i int) bool { return p.response.byHand != nil && p.response.byHand[i] }

// settledByHand notes that the handler has settled the chosen charges. The
// caller holds p.mu.
func (p *Permit) settledByHand(chosen []int) {
	if p.response == nil {
		return
	}
	if p.response.byHand == nil {
		p.response.byHand = make([]bool, len(p.grants))
	}
	for _, i := range chosen {
		p.response.byHand[i] = true
	}
}

// push sends what is complete to the client before a store is told of the amends,
// or of bytes that were paid for and not sent.
func (p *Permit) push(amends []amend) {
	if s := p.response; s != nil && (len(amends) > 0 || s.pacing != nil) {
		s.PushBefore(p.lim.store)
	}
}

// finish releases the permit's slots, makes the amends and gives back the bytes
// that were paid for and not sent, in one call.
func (p *Permit) finish(amends []amend) (end ending) {
	p.mu.Lock() // Settle may be at the results
	defer p.mu.Unlock()
	charges := end.charges
	for i := range p.grants {
		if g := &p.grants[i]; g.result.Receipt.Lease != (store.LeaseID{}) {
			charges = append(charges, g.charge(0))
		}
	}
	held := len(charges)
	if len(amends) > 0 {
		amends = p.due(amends)
	}
	for _, a := range amends {
		charges = append(charges, p.grants[a.i].charge(a.cost))
	}
	if s := p.response; s != nil && s.pacing != nil {
		charges = append(charges, s.pacing.End()...)
	}
	var results []store.Result
	end.charges = charges
	if results, end.took, end.err = p.lim.settle(p.ctx, p.lim.store, charges); end.err != nil {
		return end
	}
	for k, a := range amends {
		p.settled(a.i, results[held+k])
	}
	end.settled = len(amends) > 0
	return end
}

// settled takes over the result of settling charge i. The caller holds p.mu.
func (p *Permit) settled(i int, r store.Result) {
	was := &p.grants[i].result
	r.OK, r.Delay = true, was.Delay
	*was = r
}
