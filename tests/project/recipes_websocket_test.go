package project

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// pipes is a listener whose connections are in memory, so that their deadlines go by the clock of a bubble.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.dialed <- theirs
	return ours, nil
}

// A WebSocket holds a slot until it is closed, its messages are limited, and a client that is gone loses its slot.
func TestWebSocket(t *testing.T) {
	user := stint.Header("X-User")
	answer := func(message []byte) []byte { return message }

	const silence, patience = time.Minute, 10 * time.Second
	sockets := stint.Must(stint.New(stint.Concurrency(2, stint.WithName("sockets")), stint.WithKey(user)))
	messages := stint.Must(stint.New(
		stint.Rate(10, time.Second, stint.WithName("messages")), stint.WithKey(stint.GivenKey())))
	serve := func(w http.ResponseWriter, r *http.Request) {
		id, err := user.Of(r)
		if err != nil {
			http.Error(w, "no user", http.StatusForbidden)
			return
		}
		upgrader := websocket.Upgrader{HandshakeTimeout: patience}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // Upgrade has answered
		}
		defer conn.Close() // releases the slot

		conn.SetReadLimit(64 << 10)
		extend := func(string) error { return conn.SetReadDeadline(time.Now().Add(silence)) }
		conn.SetPongHandler(extend)
		_ = extend("")
		done := make(chan struct{})
		defer close(done)
		go func() {
			pings := time.NewTicker(silence * 9 / 10)
			defer pings.Stop()
			for {
				select {
				case <-pings.C:
					_ = conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience))
				case <-done:
					return
				}
			}
		}()

		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				return // the client has closed the connection, or hasn't answered a ping
			}
			if err := messages.Allow(r.Context(), id, 1); err != nil {
				reason := websocket.FormatCloseMessage(websocket.CloseTryAgainLater, "too many messages")
				_ = conn.WriteControl(websocket.CloseMessage, reason, time.Now().Add(patience))
				return
			}
			_ = conn.SetWriteDeadline(time.Now().Add(patience))
			if err := conn.WriteMessage(websocket.TextMessage, answer(message)); err != nil {
				return
			}
		}
	}
	handler := stinthttp.Middleware(sockets)(http.HandlerFunc(serve))

	synctest.Test(t, func(t *testing.T) {
		listener := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: handler}
		go server.Serve(listener)
		defer server.Close()
		dial := func(user string) (*websocket.Conn, int) {
			dialer := websocket.Dialer{NetDialContext: listener.dial}
			conn, resp, err := dialer.Dial("ws://server/", http.Header{"X-User": {user}})
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return conn, resp.StatusCode
		}

		// One client answers pings, as it reads; the other is gone.
		alive, _ := dial("ada")
		gone, _ := dial("ada")
		if alive == nil || gone == nil {
			t.Fatal("two connections of ada are denied")
		}
		if _, code := dial("ada"); code != http.StatusTooManyRequests {
			t.Errorf("a third one: %d", code)
		}
		if _, code := dial(""); code != http.StatusForbidden {
			t.Errorf("without a user: %d", code)
		}
		read := make(chan error, 1)
		answers := 0
		go func() {
			for {
				if _, _, err := alive.ReadMessage(); err != nil {
					read <- err
					return
				}
				answers++
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(read) > 0 {
			t.Fatalf("a client that answers pings is closed: %v", <-read)
		}
		third, code := dial("ada")
		if code != http.StatusSwitchingProtocols {
			t.Fatalf("after the other one is gone: %d", code)
		}
		_ = third.Close()

		// Its messages are limited.
		for range 11 {
			if err := alive.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		var closed *websocket.CloseError
		if err := <-read; !errors.As(err, &closed) || closed.Code != websocket.CloseTryAgainLater || answers != 10 {
			t.Errorf("%d answers, then %v", answers, err)
		}
		again, code := dial("ada")
		if code != http.StatusSwitchingProtocols {
			t.Errorf("after both connections are closed: %d", code)
		}
		_ = again.Close()
		_ = gone.Close()
		synctest.Wait()
	})
}
