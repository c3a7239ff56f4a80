package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// listener serves HTTP on an address.
//
// http.Server.Shutdown closes connections whose request it reads while it stops, without an answer. So a listener is
// closed first, all connections that have been accepted are answered, and Shutdown finds only idle ones.
type listener struct {
	net.Listener
	what   string // it is for
	server *http.Server
	done   chan struct{} // closed when no more connections are accepted

	mu sync.Mutex
	// busy are the connections that may have a request without an answer, with the time at which a new one was
	// accepted. It is zero when the request has been read.
	busy map[net.Conn]time.Time
}

// silence is how long a new connection that sends no request keeps a listener from stopping.
const silence = 5 * time.Second

// listen serves a handler.
func (s *Server) listen(what, addr string, h http.Handler) (net.Addr, error) {
	l := &listener{what: what, done: make(chan struct{}), busy: map[net.Conn]time.Time{}}
	l.server = &http.Server{
		Handler: s.closing(h), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ConnState: l.state,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn),
		// Or net/http would answer OPTIONS * by 200, and Envoy let each pass.
		DisableGeneralOptionsHandler: true,
	}
	var err error
	if l.Listener, err = net.Listen("tcp", addr); err != nil {
		return nil, err
	}
	s.listeners = append(s.listeners, l)
	s.config.Logger.Info("listening", "for", what, "address", l.Addr().String())
	go func() {
		defer close(l.done)
		if err := l.server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.failed <- fmt.Errorf("%s: %w", what, err)
		}
	}()
	return l.Addr(), nil
}

// closing has answers close their connections while the server drains. So clients connect anew, to another replica,
// and few send a request on a connection that the server is about to close.
func (s *Server) closing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// state follows a connection.
func (l *listener) state(c net.Conn, to http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch to {
	case http.StateNew:
		l.busy[c] = time.Now()
	case http.StateActive:
		l.busy[c] = time.Time{}
	default:
		delete(l.busy, c)
	}
}

// answered reports whether no connection waits for an answer.
func (l *listener) answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, since := range l.busy {
		if since.IsZero() || time.Since(since) < silence {
			return false
		}
	}
	return true
}

// stop accepts no more connections, and returns when those that have been accepted are answered, or when ctx ends.
// From now on each answer closes its connection, even if the request came before the server drained. Otherwise a client
// might send its next request on a connection that Shutdown closes.
func (l *listener) stop(ctx context.Context) error {
	l.server.SetKeepAlivesEnabled(false)
	_ = l.Close()
	<-l.done
	for ticker := time.NewTicker(5 * time.Millisecond); !l.answered(); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", l.what, errCut)
		}
	}
	return l.server.Shutdown(ctx)
}
