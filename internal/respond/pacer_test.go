package respond

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/internal/turns"
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
		Store:       s,
		Lines:       new(turns.Lines),
		Refund:      func(context.Context, []store.Charge) []store.Result { return nil },
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
		then   func(n int) error
		hook   func(p *Payer, end func())
	}{
		{"a store that is asked", false, nil, func(p *Payer, end func()) {
			p.Store = asked(func(int) error { end(); return nil })
		}},
		{"a store that has failed", false, failing, func(p *Payer, end func()) {
			p.StoreFailed = func(_ []store.Charge, err error, _ bool) error { end(); return err }
		}},
		{"a store that has failed, closed", true, failing, func(p *Payer, end func()) {
			p.StoreFailed = func(_ []store.Charge, err error, _ bool) error { end(); return err }
		}},
		{"a turn given back", false, nil, func(p *Payer, end func()) {
			p.Refund = func(context.Context, []store.Charge) []store.Result { end(); return nil }
		}},
	}
	for _, tt := range tests {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		then := tt.then
		if then == nil {
			then = func(n int) error {
				if n > 0 {
					cancel() // while the second piece waits for its turn
				}
				return nil
			}
		}
		s, p := begin(t, ctx, asked(then), tt.closed)
		ended := false
		tt.hook(p, func() { s.End(); ended = true })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Writer(httptest.NewRecorder()).Write(make([]byte, 9000))
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for a lock", tt.name)
		}
		if !ended {
			t.Errorf("%s: it is not called", tt.name)
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

// If a response ends while a turn is being given back, it is given back once.
func TestLaneGivesBackOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, p := begin(t, ctx, asked(func(n int) error {
		if n > 0 {
			cancel()
		}
		return nil
	}), false)
	var back, atEnd []store.Charge
	p.Refund = func(_ context.Context, charges []store.Charge) []store.Result {
		back = append(back, charges...)
		atEnd = append(atEnd, s.End()...)
		return nil
	}
	n, err := s.Writer(httptest.NewRecorder()).Write(make([]byte, 9000))
	if n != 4096 || !errors.Is(err, context.Canceled) {
		t.Errorf("wrote %d, %v", n, err)
	}
	atEnd = append(atEnd, s.End()...)
	if len(back) != 1 || back[0].Cost != 0 || back[0].Receipt.Cost != 4096 || len(atEnd) != 0 {
		t.Errorf("given back %+v, and %+v at the end", back, atEnd)
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
			if taken := left(t, p.Store, b); len(back) > 0 || taken != 4096 {
				t.Errorf("%d left before %+v is given back, want nothing paid", taken, back)
			}
		} else if len(back) != 1 || back[0].Cost != 0 || back[0].Receipt.Cost == 0 {
			t.Errorf("%s: given back %+v, want all that was paid for", name, back)
		}
	}
}
