package respond

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// asked calls then before a Take is answered: it is given how many came before.
func asked(then func(n int) error) *storefake.Store {
	s := storefake.New()
	s.OnTake = func(c *storefake.Call) error {
		n, _ := s.Counts()
		if err := then(n - 1); err != nil {
			return err
		}
		return c.Pass()
	}
	return s
}

// begin is a response with one ByteLimit of 4096 bytes per second and as many at once.
func begin(t *testing.T, ctx context.Context, s store.Store, closed bool) (r *Paced, p *Payer) {
	t.Helper()
	rate := NewRate(4096, 4096)
	l, err := store.NewLimit(store.Spec{Name: "bytes", Units: rate.Units, Period: rate.Period, Burst: rate.Burst})
	if err != nil {
		t.Fatal(err)
	}
	r = new(Paced)
	r.Begin(watched(httptest.NewRequest("GET", "/", nil).WithContext(ctx)), Payer{
		Backend:     &decide.Backend{Store: s, Lines: new(lines.Lines), Current: func(l *limit.Limit) *limit.Limit { return l }},
		Refund:      func(context.Context, []store.Charge) {},
		StoreFailed: func(_ []store.Charge, err error, _ bool) error { return err },
	}, []ByteLimit{{Limit: l, Key: "k", Block: rate.Block, Piece: rate.Piece, Responses: true, Closed: closed}})
	return r, &r.response.Payer
}

func watched(r *http.Request) *Watched {
	w := new(Watched)
	w.Begin(r)
	return w
}

// Functions that a pacer calls may end the response: no lock is held then.
func TestPacerCallsWithoutItsLock(t *testing.T) {
	errDown := errors.New("down")
	failing := func(int) error { return errDown }
	tests := []struct {
		name   string
		closed bool
		hook   func(p *Payer, end func())
		ends   int
	}{
		{"a store that is asked", false, func(p *Payer, end func()) {
			p.Backend.Store = asked(func(int) error { end(); return nil })
		}, 1},
		{"a store that has failed", false, func(p *Payer, end func()) {
			p.Backend.Store = asked(failing)
			p.StoreFailed = func(_ []store.Charge, err error, _ bool) error { end(); return err }
		}, 1},
		{"a store that has failed, closed", true, func(p *Payer, end func()) {
			p.Backend.Store = asked(failing)
			p.StoreFailed = func(_ []store.Charge, err error, _ bool) error { end(); return err }
		}, 1},
		{"bytes that are given back", false, func(p *Payer, end func()) {
			p.Backend.Store = asked(func(int) error { end(); return nil })
			p.Refund = func(context.Context, []store.Charge) { end() }
		}, 2},
	}
	for _, tt := range tests {
		s, p := begin(t, t.Context(), storefake.New(), tt.closed)
		ends := 0
		tt.hook(p, func() { s.End(); ends++ })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Writer(httptest.NewRecorder()).Write(make([]byte, 4096))
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for a lock", tt.name)
		}
		if ends != tt.ends {
			t.Errorf("%s: ended %d times, want %d", tt.name, ends, tt.ends)
		}
	}
}

// A client that leaves ends the pause until turns can be reserved again, too.
func TestLaneEndsAPauseWithoutTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving, leave := context.WithCancel(t.Context())
		full := storefake.New()
		full.OnTake = func(c *storefake.Call) error {
			c.Results[0] = store.Result{RetryAfter: time.Minute}
			return nil
		}
		s, _ := begin(t, leaving, full, false)
		time.AfterFunc(time.Second, leave)
		start := time.Now()
		n, err := s.Writer(httptest.NewRecorder()).Write(make([]byte, 9000))
		if took := time.Since(start); n != 0 || !errors.Is(err, context.Canceled) || took != time.Second {
			t.Errorf("wrote %d after %v: %v", n, took, err)
		}
	})
}

// If a response ends, or its client leaves, while bytes are paid for, they are given back once.
func TestLaneGivesBackOnce(t *testing.T) {
	for name, want := range map[string]error{"ends": errEnded, "leaves": context.Canceled} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		s, p := begin(t, ctx, storefake.New(), false)
		p.Backend.Store = asked(func(int) error {
			if name == "leaves" {
				leave()
				return nil
			}
			return nothing(s.End())
		})
		var back, atEnd []store.Charge
		p.Refund = func(_ context.Context, charges []store.Charge) {
			back = append(back, charges...)
			atEnd = append(atEnd, s.End()...)
		}
		n, err := s.Writer(httptest.NewRecorder()).Write(make([]byte, 9000))
		if n != 0 || !errors.Is(err, want) {
			t.Errorf("%s: wrote %d, %v", name, n, err)
		}
		atEnd = append(atEnd, s.End()...)
		if len(back) != 1 || back[0].Cost != 0 || back[0].Receipt.Cost != 4096 || len(atEnd) != 0 {
			t.Errorf("%s: given back %+v, and %+v at the end", name, back, atEnd)
		}
	}
}

// nothing returns an error if there are charges.
func nothing(charges []store.Charge) error {
	if len(charges) > 0 {
		return errors.New("there is something to give back")
	}
	return nil
}

// What a stream of a key doesn't use goes to the next that waits: its turn if it leaves, and the bytes that it has paid
// for. If no stream waits, or they don't suffice for it, a turn passes unused, and bytes are refunded. But beside a
// turn that it has reserved, the store refunds nothing.
func TestNextStream(t *testing.T) {
	const perSecond = 4096 // and as many are there at once
	for _, test := range []struct {
		name    string
		leaves  bool  // the first stream waits for its second piece, and leaves; or it ends with 3996 bytes unused
		wants   int   // the second stream, which comes before that; 0: there is none
		needs   int64 // of the bytes that come from the begin on, when it passes
		refunds int64 // to the first stream
		left    int64 // a quarter of a second after the begin, or a second if the first stream leaves
	}{
		{name: "a turn for a stream that waits", leaves: true, wants: perSecond, needs: perSecond},
		{name: "a turn for more than it needs", leaves: true, wants: 1096, needs: perSecond, left: 3000},
		{name: "a turn for none", leaves: true},
		{name: "bytes for a stream that waits", wants: 3996, needs: perSecond / 8},
		{name: "more bytes than it needs", wants: 1000, needs: perSecond / 8, left: perSecond/4 - 1000},
		{name: "too few bytes", wants: 3997, needs: 3997, refunds: 3996},
		{name: "bytes for none", refunds: 3996, left: perSecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, memory := time.Now(), memstore.New()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first, p := begin(t, ctx, memory, false)
				limit := first.response.accounts[0].ByteLimit
				second := new(Paced)
				second.Begin(watched(httptest.NewRequest("GET", "/", nil).WithContext(t.Context())), *p, []ByteLimit{limit})
				var all sync.WaitGroup
				write := func(s *Paced, n, length int, want error) {
					all.Go(func() {
						w := s.Writer(httptest.NewRecorder())
						w.Header().Set("Content-Length", strconv.Itoa(length))
						if _, err := w.Write(make([]byte, n)); !errors.Is(err, want) {
							t.Errorf("%d bytes are written: %v, want %v", n, err, want)
						}
						if passes := time.Duration(test.needs) * time.Second / perSecond; s == second {
							if took := time.Since(start); took < passes || took > passes+100*time.Microsecond {
								t.Errorf("the second stream passes after %v, want %v", took, passes)
							}
						}
					})
					synctest.Wait()
				}
				if test.leaves {
					write(first, 2*perSecond, 2*perSecond, context.Canceled)
				} else {
					write(first, 100, perSecond, nil)
				}
				if test.wants > 0 {
					write(second, test.wants, test.wants, nil)
				}
				time.Sleep(time.Second / 8)
				if test.leaves {
					leave()
					time.Sleep(time.Second * 7 / 8)
				} else {
					refunds, got := first.End(), int64(0)
					for _, c := range refunds {
						got += c.Receipt.Cost - c.Cost
					}
					err := memory.Settle(t.Context(), refunds, make([]store.Result, len(refunds)))
					if err != nil || got != test.refunds {
						t.Errorf("%d bytes are refunded, want %d: %v", got, test.refunds, err)
					}
					time.Sleep(time.Second / 8)
				}
				synctest.Wait()
				if got := left(t, memory, limit); got != test.left {
					t.Errorf("%d bytes are left, want %d", got, test.left)
				}
				all.Wait()
				time.Sleep(time.Second)
				if waiting, n, _ := p.Backend.Lines.Counts(); waiting+n > 0 {
					t.Errorf("%d wait in %d lines at the end", waiting, n)
				}
			})
		})
	}
}

// bursting is a writer, a source and a body that panic.
type bursting struct{ *httptest.ResponseRecorder }

func (bursting) Write([]byte) (int, error)             { panic("write") }
func (b bursting) ReadFrom(r io.Reader) (int64, error) { return io.Copy(io.Discard, r) }
func (bursting) Read([]byte) (int, error)              { panic("read") }
func (bursting) Close() error                          { return nil }

// left returns how many blocks of an entry are left.
func left(t *testing.T, s store.Store, e ByteLimit) int64 {
	t.Helper()
	results := make([]store.Result, 1)
	if err := s.Take(t.Context(), []store.Charge{{Key: e.Key, Limit: e.Limit}}, results); err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining
}

// What was paid for when a write panicked is given back. For a read that panicked nothing
// was paid.
func TestLaneGivesBackAfterPanic(t *testing.T) {
	for name, move := range map[string]func(s *Paced, w http.ResponseWriter){
		"write": func(_ *Paced, w http.ResponseWriter) { _, _ = w.Write(make([]byte, 4096)) },
		"copy": func(_ *Paced, w http.ResponseWriter) {
			w.Header().Set("Content-Length", "4096")
			_, _ = w.(io.ReaderFrom).ReadFrom(bursting{})
		},
		"read": func(s *Paced, w http.ResponseWriter) { _, _ = s.Next(s.r, true).Body.Read(make([]byte, 4096)) },
	} {
		s, p := begin(t, t.Context(), memstore.New(), false)
		b := s.response.accounts[0].ByteLimit
		b.Requests = true
		r := httptest.NewRequest("POST", "/", nil)
		r.Body, r.ContentLength = bursting{}, 4096
		s = new(Paced)
		s.Begin(watched(r), *p, []ByteLimit{b})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			move(s, s.Writer(bursting{httptest.NewRecorder()}))
		}()
		back := s.End()
		if name == "read" {
			if taken := left(t, p.Backend.Store, b); len(back) > 0 || taken != 4096 {
				t.Errorf("%d left before %+v is given back, want nothing paid", taken, back)
			}
		} else if len(back) != 1 || back[0].Cost != 0 || back[0].Receipt.Cost == 0 {
			t.Errorf("%s: given back %+v, want all that was paid for", name, back)
		}
	}
}
