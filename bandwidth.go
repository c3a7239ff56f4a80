package stint

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Bandwidth paces the responses of a key (or its request bodies, or both: WithDirection)
// to a number of bytes per second, over all its connections and, with a shared
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
	b := &read.Bytes{Responses: true}
	r := &compile.Rule{Kind: limit.Bandwidth, Bytes: b, Spec: store.Spec{Name: "bandwidth", Units: 1, Period: time.Second}}
	apply(r, opts)
	s := &r.Spec
	if bytesPerSecond < respond.Slowest || bytesPerSecond > respond.Fastest {
		r.Errs.Bad(fmt.Sprintf("Bandwidth(%d)", bytesPerSecond), "",
			fmt.Sprintf("write bytes per second, %d to %d", respond.Slowest, respond.Fastest))
	}
	burst := s.Burst
	s.Burst = 0 // or the store's limit would report a wrong one too
	if burst != 0 && (burst < respond.LeastPiece || burst > store.MaxCost) {
		r.Errs.Bad(fmt.Sprintf("WithBurst(%d)", max(burst, 0)),
			"smaller pieces of a response would each cost a call to the store",
			fmt.Sprintf("write %d or more, up to %d", respond.LeastPiece, int64(store.MaxCost)))
	}
	if len(r.Errs) == 0 {
		rate := respond.NewRate(bytesPerSecond, burst)
		s.Units, s.Period, s.Burst = rate.Units, rate.Period, rate.Burst
		b.Block, b.Piece = rate.Block, rate.Piece
	}
	return Limit{r}
}

// Direction says whose bodies a Bandwidth counts: see WithDirection.
type Direction uint8

const (
	Responses Direction = iota // the default
	Requests
	Both // of one rate: uploads and downloads share it
)

// WithDirection sets whose bodies a Bandwidth counts: Responses (the default), Requests, or Both,
// which then share the rate. New rejects any other value.
func WithDirection(d Direction) BandwidthOption {
	return changeOption{change: func(r *compile.Rule) {
		if d > Both {
			r.Errs.Bad(fmt.Sprintf("WithDirection(%d)", d), "", "write stint.Responses, stint.Requests or stint.Both")
			return
		}
		r.Bytes.Responses, r.Bytes.Requests = d != Requests, d != Responses
	}}
}
