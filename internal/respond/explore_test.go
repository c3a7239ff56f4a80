package respond_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// explored is a Paced that is explored.
type explored interface {
	Writer(w http.ResponseWriter) http.ResponseWriter
	Body() io.ReadCloser
	End() []store.Charge
	Bytes() (written, read int64)
}

// terms are the rates that pace a response.
type terms struct {
	fine, coarse   *store.Limit // coarse counts in blocks of two bytes, or is nil
	closed, dryRun bool
	giveBack       func([]store.Charge)
	lines          *any // those of a run
}

type (
	request  = *http.Request
	anyStore = store.Store
)

var variants = map[string]func(request, anyStore, terms) explored{}

const exploredFile = `package respond

import (
	"context"
	"io"
	"net/http"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

type Explored struct {
	Paced
	body io.ReadCloser
	limit ByteLimit
}

func Explore(r *http.Request, s store.Store, fine, coarse *store.Limit, piece int64, closed, dryRun bool, giveBack func([]store.Charge), all *any) *Explored {
	if *all == nil {
		*all = new(lines.Lines)
	}
	x := &Explored{limit: ByteLimit{Limit: fine, Key: "k", Block: 1, Piece: piece, Responses: true, Requests: true, Closed: closed, DryRun: dryRun}}
	limits := []ByteLimit{x.limit}
	if coarse != nil {
		limits = append(limits, ByteLimit{Limit: coarse, Key: "k", Block: 2, Piece: 4, Responses: true, Requests: true, Closed: closed, DryRun: dryRun})
	}
	w := new(Watched)
	w.Begin(r)
	x.Begin(w, Payer{
		Backend: &decide.Backend{
			Store: s, Lines: (*all).(*lines.Lines), Current: func(l *limit.Limit) *limit.Limit { return l },
		},
		Refund:      func(_ context.Context, charges []store.Charge) { giveBack(charges) },
		StoreFailed: func(_ []store.Charge, err error, _ bool) error { return err },
	}, limits)
	x.body = x.Next(r, true).Body
	return x
}

func (x *Explored) Body() io.ReadCloser { return x.body }

func (x *Explored) Bytes() (written, read int64) {
	m := x.Moved(x.limit)
	return m.Bytes, m.RequestBytes
}
`

// perSecond is how many bytes pass in a second, and at once; piece is how many are paid for
// at once.
const perSecond, piece = 4, 3

// till is a store that decides each call in a step.
type till struct {
	*steps.Run
	states map[*store.Limit]store.State
	paid   map[*store.Limit]int64 // in the limit's units
	lost   map[*store.Limit]int64 // the most that is behind turns of others and hasn't come back
	// reserved is the units of turns that didn't come at once.
	reserved int64
	down     bool
}

var errTill = errors.New("down")

func (s *till) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	now := steps.AtTime(unsafe.Pointer(s))
	if steps.Note("the store is asked for %d, down: %t", charges[0].Cost, s.down); s.down {
		return errTill
	}
	states := make([]store.State, len(charges))
	for i := range charges {
		states[i] = s.states[charges[i].Limit]
	}
	store.Decide(store.Now{Steady: now}, charges, states, results)
	for i := range charges {
		l := charges[i].Limit
		s.states[l] = states[i]
		s.paid[l] += results[i].Receipt.Cost
		if results[i].Delay > 0 && len(charges) == 1 {
			s.reserved += results[i].Receipt.Cost
		}
	}
	return nil
}

func (s *till) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	copy(results, s.settle(charges))
	return nil
}

// settle makes no error. What isn't given back, because another turn stands behind it, stays
// paid, and whoever comes next may use it.
func (s *till) settle(charges []store.Charge) []store.Result {
	results := make([]store.Result, len(charges))
	if len(charges) == 0 {
		return results
	}
	now := steps.AtTime(unsafe.Pointer(s))
	for i := range charges {
		c := &charges[i]
		steps.Note("the store is to settle %d as %d, down: %t", c.Receipt.Cost, c.Cost, s.down)
		if c.Cost < 0 || c.Cost > c.Receipt.Cost {
			s.Broken("%d of %d units are given back", c.Receipt.Cost-c.Cost, c.Receipt.Cost)
		}
		owed, state := s.owed(c.Limit, now), s.states[c.Limit]
		store.Amend(store.Now{Steady: now}, c, &state, &results[i])
		s.states[c.Limit] = state
		refunded := owed - s.owed(c.Limit, now)
		s.paid[c.Limit] -= refunded
		s.lost[c.Limit] += c.Receipt.Cost - refunded
	}
	return results
}

// owed returns the units of a limit that are missing until its bucket is full.
func (s *till) owed(l *store.Limit, now int64) int64 {
	states, results := []store.State{s.states[l]}, make([]store.Result, 1)
	store.Decide(store.Now{Steady: now}, []store.Charge{{Key: "k", Limit: l}}, states, results)
	spec := l.Spec()
	return int64(results[0].ResetAfter) * spec.Units / int64(spec.Period)
}

// AnswersAtOnce spares pacers a context of their own for each call.
func (s *till) AnswersAtOnce() bool { return true }

// traffic is a set of concurrent actions on responses. Each does one thing after the other: those
// that begin with the same letter are to one response.
type traffic struct {
	closed, dryRun, coarse bool
	prompt                 bool // the rate is used: no stream waits longer than for the bytes that move
	actors                 []string
}

func (x traffic) String() string {
	return fmt.Sprintf("closed %t, dry run %t, coarse %t: %s", x.closed, x.dryRun, x.coarse, strings.Join(x.actors, " | "))
}

// road is one run.
type road struct {
	traffic
	*till
	moved  int64
	last   int64 // when it was written last, in microseconds
	sum    int64 // what had moved then
	failed bool  // the store was down
	loose  bool  // so it was, or isn't heeded: more may move than is paid for
}

// response is one of a run.
type response struct {
	*road
	header http.Header
	paced  explored
	to     http.ResponseWriter
	leave  func()

	left   time.Time // when its client did
	ended  bool
	stalls bool // its request's body
}

func (x traffic) scenario(begin func(request, anyStore, terms) explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		by := terms{fine: limitOf("fine", perSecond), closed: x.closed, dryRun: x.dryRun, lines: new(any)}
		if x.coarse {
			by.coarse = limitOf("coarse", perSecond/2)
		}
		w := &road{traffic: x, till: &till{Run: r, states: map[*store.Limit]store.State{}, paid: map[*store.Limit]int64{}, lost: map[*store.Limit]int64{}}, loose: x.dryRun}
		by.giveBack = func(charges []store.Charge) { w.settle(charges) }
		all := map[string]*response{}
		for i, does := range x.actors {
			name, does, _ := strings.Cut(does, ": ")
			p := all[name]
			if p == nil {
				ctx, leave := ending.WithCancel(context.Background())
				p = &response{road: w, leave: leave, header: http.Header{}}
				all[name] = p
				sent := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
				sent.Body, sent.ContentLength = &wire{p}, -1
				p.paced = begin(sent, w.till, by)
				p.to = p.paced.Writer(&wire{p})
				if x.prompt {
					p.header.Set("Content-Length", "6")
				}
			}
			r.Go(fmt.Sprint(name, i), func() {
				for what := range strings.SplitSeq(does, "; ") {
					p.do(what)
				}
			})
		}
		r.End(func() {
			bytes := int64(0)
			for _, p := range all {
				written, read := p.paced.Bytes()
				bytes += written + read
			}
			if bytes != w.moved {
				r.Broken("%d bytes are counted, and %d have moved", bytes, w.moved)
			}
			due := (w.sum - perSecond) * 1e6 / perSecond
			if strings.Contains(fmt.Sprint(x.actors), "stall") {
				due += 1e6 / perSecond // a byte whose turn has come, and which is on its way to the handler
			}
			if x.prompt && w.last > max(due, 0) {
				r.Broken("%d bytes take %d µs, want %d", w.sum, w.last, due)
			}
			// A turn passes unused if its stream has left, or was given bytes that another hasn't used. So do such
			// bytes, if the stream that they are given leaves, too.
			turns, leaves := int64(0), strings.Contains(fmt.Sprint(x.actors), "leave")
			if len(x.actors) > 1 {
				turns = w.reserved
			}
			if leaves && len(x.actors) > 2 {
				turns += piece
			}
			w.checkPaid(by.fine, 1, turns)
			if x.coarse {
				w.checkPaid(by.coarse, 2, int64(2*len(all))) // half a block of each response and each request
			}
		})
	}
}

// checkPaid checks what a limit has been paid in the end: for all that has moved, and at
// most more beyond that.
func (w *road) checkPaid(l *store.Limit, block, more int64) {
	paid := w.paid[l] * block
	more += w.lost[l] * block
	if w.failed || paid <= w.moved+more && (paid >= w.moved || w.loose) {
		return
	}
	w.Broken("%d bytes are paid for in the end to %s, and %d have moved", paid, l.Name(), w.moved)
}

func limitOf(name string, n int64) *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: name, Units: n, Period: time.Second, Burst: n})
	if err != nil {
		panic(err)
	}
	return l
}

func (p *response) do(what string) {
	verb, text, _ := strings.Cut(what, " ")
	var n int
	_, _ = fmt.Sscan(text, &n)
	var err error
	var k int
	began := twin.Now()
	switch verb {
	case "write":
		if k, err = p.to.Write(make([]byte, n)); err == nil && k != n {
			p.Broken("%d of %d bytes are written, without an error", k, n)
		}
	case "read":
		k, err = p.paced.Body().Read(make([]byte, n))
		p.pass(int64(k))
	case "stall":
		p.stalls = true
		k, err = p.paced.Body().Read(make([]byte, n))
		p.pass(int64(k))
	case "hijack":
		_, _, err = p.to.(http.Hijacker).Hijack()
	case "end":
		p.ended = true
		p.settle(p.paced.End())
	case "leave":
		p.left = twin.Now()
		p.leave()
	case "second":
		lang.Receive(twin.After(time.Second))
	case "down", "up":
		steps.At(steps.Store, unsafe.Pointer(p.till))
		p.down, p.failed, p.loose = verb == "down", true, true
	}
	steps.Note("%s: %v", what, err)
	if err != nil && p.left.IsZero() && !p.ended && !(p.closed && p.failed) {
		p.Broken("%s: %v", what, err)
	}
	now := twin.Now()
	switch {
	case verb == "second":
	case p.dryRun && now.After(began):
		p.Broken("%s is delayed by a dry run", what)
	case !p.left.IsZero() && now.After(began) && now.After(p.left):
		p.Broken("%s waits for a client that has left", what)
	}
}

// wire is the connection: a response is written to it, a request is read from it.
type wire struct{ *response }

func (w *wire) Header() http.Header { return w.header }
func (w *wire) WriteHeader(int)     {}
func (w *wire) Close() error        { return nil }

func (w *wire) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (w *wire) Write(b []byte) (int, error) {
	w.last = w.pass(int64(len(b)))
	w.sum = w.moved
	return len(b), nil
}

// Read reads half of what it could: the rest hasn't come yet. It counts once it is paid for
// and the handler has it; until then at most a piece has come.
func (w *wire) Read(b []byte) (int, error) {
	if len(b) > piece && !w.dryRun {
		w.Broken("%d bytes are read before they are paid for", len(b))
	}
	if w.stalls {
		lang.Receive(twin.After(2 * time.Second))
	}
	return (len(b) + 1) / 2, nil
}

// pass counts n bytes that have moved, and returns when.
func (w *road) pass(n int64) (now int64) {
	now = steps.AtTime(unsafe.Pointer(w))
	w.moved += n
	steps.Note("%d bytes move", n)
	if due := perSecond + now*perSecond/1e6; w.moved > due && !w.loose {
		w.Broken("%d bytes have moved after %d µs, want at most %d", w.moved, now, due)
	}
	return now
}

// Whatever is written and read at once by responses that share a limit: no more moves than
// the limit lets through; what has moved is paid for in the end, and no more; and a write
// fails only if its client has left, its response has ended, or a store that is closed on
// failure fails.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:   "github.com/stint-go/stint/internal/respond",
			Added:  map[string]string{"explored.go": exploredFile},
			Beside: []string{"lines", "limit", "decide"},
			Edits: []steps.Edit{{File: "lines/lines.go", // each run polls at the same times
				Was: "rand.N(d/5)", Is: "rand.N(d/d)"}},
			Mutants: mutants,
			Entry: "func(r request, s anyStore, x terms) explored " +
				"{ return V.Explore(r, s, x.fine, x.coarse, " + fmt.Sprint(piece) + ", x.closed, x.dryRun, x.giveBack, x.lines) }",
		}).Run(t)
		return
	}
	var all []traffic
	paced := func(actors ...string) { all = append(all, traffic{actors: actors}) }
	paced("a: write 3; write 3; end")
	paced("a: end", "a: read 1; read 1; read 1")
	paced("a: write 6; end", "a: leave")
	paced("a: write 6; end", "a: second; leave")
	paced("a: write 3; end", "b: write 4; end")
	paced("a: write 3; end", "a: read 3", "a: leave")
	paced("a: write 2; hijack; end", "b: write 3; end")
	paced("a: write 3; end", "b: write 3; end", "b: leave")
	paced("a: write 3; end", "a: read 1", "b: write 1; end")
	paced("a: write 6; end", "a: leave", "b: write 3; end")
	for _, actors := range [][]string{
		{"a: write 3; end", "b: write 3; end"},
		{"a: read 1; read 1; stall 1; end", "b: write 3; end"},
	} {
		all = append(all, traffic{prompt: true, actors: actors})
	}
	for _, closed := range []bool{false, true} {
		all = append(all,
			traffic{closed: closed, actors: []string{"a: write 1; end", "a: read 1", "b: down; up"}},
			traffic{closed: closed, actors: []string{"a: write 3; end", "a: read 3", "b: down"}},
			traffic{closed: closed, actors: []string{"a: write 3; second; write 3; end", "b: down; second; up; write 3; end"}},
		)
	}
	for _, actors := range [][]string{
		{"a: write 3; write 3; end", "a: read 5", "a: leave"},
		{"a: end", "a: read 1; read 1; read 1"},
		{"a: write 3; end", "b: write 1; write 1; end", "b: down; up"},
	} {
		all = append(all, traffic{dryRun: true, actors: actors})
	}
	all = append(all,
		traffic{coarse: true, actors: []string{"a: write 3; end", "a: read 1"}},
		traffic{coarse: true, actors: []string{"a: write 1; write 2; end", "b: write 1; end", "a: leave"}},
		traffic{coarse: true, actors: []string{"a: end", "a: read 2; read 1", "a: second; leave"}},
	)
	steps.Explore(t, mutants, all, func(variant string, x traffic) func(*steps.Run) {
		return x.scenario(variants[variant])
	})
}

var mutants = []steps.Variant{
	{Name: "bytes that are moving are given back at the end", Edits: []steps.Edit{{File: "pacer.go",
		Was: "	if p.moving {\n		return nil\n	}\n", Is: ""}}},
	{Name: "bytes that haven't moved after the end are kept", Edits: []steps.Edit{{File: "pacer.go",
		Was: "	p.moving = false\n", Is: "	if p.moving = false; p.err != nil {\n		return\n	}\n"}}},
	{Name: "bytes that are granted when the pacer has ended stay paid", Edits: []steps.Edit{{File: "pacer.go",
		Was: "p.call.Allowed && (err != nil || p.err != nil)", Is: "p.call.Allowed && err != nil"}}},
	{Name: "nobody waits", Edits: []steps.Edit{{File: "lines/line.go",
		Was: "!l.turns[0].At.After(now) {", Is: "!l.turns[0].At.After(now.Add(time.Hour)) {"}}},
	{Name: "a stalled upload's piece is kept", Edits: []steps.Edit{{File: "pace.go",
		Was: "s.request.total, s.request.incoming = r.ContentLength, true", Is: "s.request.total = r.ContentLength"}}},
	{Name: "an upload pays before it reads", Edits: []steps.Edit{{File: "pace.go",
		Was: "	n, err = b.ReadCloser.Read(p[:min(", Is: "	_, _ = b.pacer.pay(1)\n	n, err = b.ReadCloser.Read(p[:min("}}},
	{Name: "a store that is down is asked for each piece", Edits: []steps.Edit{{File: "pacer.go",
		Was: "		p.unpacedUntil = time.Now().Add(unpacedFor)\n", Is: ""}}},
	{Name: "a block that has been used in part is given back", Edits: []steps.Edit{{File: "account.go",
		Was: "a.credit/a.Block), 0)", Is: "(a.credit+a.Block-1)/a.Block), 0)"}}},
	{Name: "a dry run that ends while it pays has paid", Edits: []steps.Edit{{File: "pacer.go",
		Was: "	case err == nil && p.err != nil: // the pacer has ended meanwhile\n		p.refundLast()\n", Is: ""}}},
	{Name: "what is granted to a stream that has left stays paid", Edits: []steps.Edit{{File: "pacer.go",
		Was: "		p.refundLast()\n		return err\n", Is: "		return err\n"}}},
	{Name: "bytes that no stream waits for are lost", Edits: []steps.Edit{{File: "pacer.go",
		Was: "	return append(refunds, store.Charge{Key: a.Key,", Is: "	return append(refunds[:0:0], store.Charge{Cost: unused.Cost, Key: a.Key,"}}},
	{Name: "bytes that another stream uses are refunded, too", Edits: []steps.Edit{{File: "pacer.go",
		Was: "p.Backend.Lines.GiveTurn(lines.KeyOf(a.Limit, a.Key), turn) {", Is: "p.Backend.Lines.GiveTurn(lines.KeyOf(a.Limit, a.Key), turn) && turn == nil {"}}},
}
