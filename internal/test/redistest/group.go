package redistest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// startAll starts n servers, or sentinels if there is a conf, at once, and ends them with the test.
func startAll(t testing.TB, path string, n int, conf string, args []string) []*Server {
	t.Helper()
	type result struct {
		p   *process
		err error
	}
	results := make(chan result, n)
	for range n {
		go func() {
			p, err := spawn(path, conf, args)
			results <- result{p, err}
		}()
	}
	servers := make([]*Server, 0, n)
	var failed error
	for range n {
		r := <-results
		if r.err != nil {
			failed = errors.Join(failed, r.err)
			continue
		}
		servers = append(servers, own(t, r.p, nil))
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return servers
}

// await calls ask until it returns no error. What servers agree on among themselves can
// only be polled.
func await(t testing.TB, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// text sends a command whose reply has to be text.
func (s *Server) text(args ...any) (string, error) {
	v, err := s.p.do(args...)
	text, _ := v.(string)
	return text, err
}
