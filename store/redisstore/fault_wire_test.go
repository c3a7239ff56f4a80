package redisstore_test

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// wire is the connection between a client and its server.
type wire struct {
	addr  string
	delay atomic.Int64 // of each answer, in nanoseconds
	cut   atomic.Bool  // in an answer's place: what was asked has arrived
}

// stretch lays a wire to the server at addr.
func stretch(t *testing.T, addr string) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	w := &wire{addr: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			go w.carry(far, near, false)
			go w.carry(near, far, true)
		}
	}()
	return w
}

func (w *wire) carry(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if answers {
			time.Sleep(time.Duration(w.delay.Load())) // a slow network, before a real server
			if w.cut.Load() {
				return
			}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Answers that come late, or never though the server has decided: they are not
// asked for again, whether the client heeds the deadline or goes on waiting.
func TestFaultsWire(t *testing.T) {
	redistest.Suite(t, "faults")
	for _, tt := range []struct {
		name        string
		wrong, well func(*wire)
		classes     []error // nil: no caller notices
	}{
		{
			"slow",
			func(w *wire) { w.delay.Store(int64(callTimeout / 20)) }, func(w *wire) { w.delay.Store(0) },
			nil,
		},
		{
			"too slow",
			func(w *wire) { w.delay.Store(int64(callTimeout * 3 / 2)) }, func(w *wire) { w.delay.Store(0) },
			away,
		},
		{
			"answers lost",
			func(w *wire) { w.cut.Store(true) }, func(w *wire) { w.cut.Store(false) },
			away,
		},
	} {
		for heeds, name := range map[bool]string{true: tt.name, false: tt.name + ", a client that ignores deadlines"} {
			t.Run(name, func(t *testing.T) {
				w := stretch(t, redistest.Start(t).Addr())
				rdb := redis.NewClient(&redis.Options{Addr: w.addr, ContextTimeoutEnabled: heeds, DialTimeout: time.Minute, ReadTimeout: time.Minute})
				t.Cleanup(func() { rdb.Close() })
				timeout := redisstore.WithTimeout(callTimeout)
				if tt.classes == nil {
					timeout = patient
				}
				f := drive(t, redisstore.New(rdb, timeout))
				f.passes(t)
				tt.wrong(w)
				if tt.classes == nil {
					f.passes(t)
				} else {
					f.fails(t, "", tt.classes...)
				}
				tt.well(w)
				f.passes(t)
				if tt.classes == nil {
					f.end(t, allKept)
				} else {
					f.end(t, allKept, tt.classes...)
				}
			})
		}
	}
}

// A server that takes connections and says nothing. A handshake of TLS knows
// nothing of the call's deadline, and goes on for as long as DialTimeout says.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l := limit(t, store.Spec{Units: 1, Period: time.Second})
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": {ServerName: "localhost"}} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), TLSConfig: config, ContextTimeoutEnabled: true})
			defer rdb.Close()
			s := redisstore.New(rdb, redisstore.WithTimeout(callTimeout))
			pulse := redistest.StartPulse(t)
			_, err := take(s, "k", l, 1)
			if held := pulse.Elapsed(); held > 3*callTimeout || !redisstore.Unusable(err) {
				t.Errorf("held for %v of %v: %v", held, callTimeout, err)
			}
		})
	}
}
