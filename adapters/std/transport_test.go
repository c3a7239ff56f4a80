package stinthttp

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// With a real client and server, connections are reused, idle ones can be closed, and
// the fields of a server that limits with stint are understood.
func TestTransportWithServer(t *testing.T) {
	addrs := make(chan string, 10)
	srv := httptest.NewServer(New(
		stint.Rate(1, time.Hour, stint.WithBurst(2)), stint.WithKey(stint.Global()),
	)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { addrs <- r.RemoteAddr })))
	defer srv.Close()
	base := srv.Client().Transport
	client := &http.Client{Transport: NewTransport(nil, base)}
	for i, want := range []int{200, 200, 429} {
		resp, err := client.Post(srv.URL, "text/plain", strings.NewReader("x"))
		if err != nil || resp.StatusCode != want {
			t.Fatalf("request %d: %v, %v, want %d at once", i, resp, err, want)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if a, b := <-addrs, <-addrs; a != b {
		t.Errorf("connections %s and %s, want one", a, b)
	}
	client.CloseIdleConnections()
}

// A server that answers a rate limit with 403 is asked again by a transport whose user says so.
func TestTransportOfAServerThatForbids(t *testing.T) {
	for _, test := range []struct {
		opts []TransportOption
		want []int
	}{
		{nil, []int{403, 200}},
		{[]TransportOption{WithRetryable(func(r *http.Request) bool { return r.Method == "GET" })}, []int{200, 200}},
	} {
		var requests atomic.Int64
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				w.Header().Set("Retry-After-Ms", "10")
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		defer srv.Close()
		client := &http.Client{Transport: NewTransport(nil, srv.Client().Transport, test.opts...)}
		var got []int
		for range test.want {
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			got = append(got, resp.StatusCode)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}

// A Limiter that New hasn't made is reported before any request, too.
func TestTransportOfAZeroLimiter(t *testing.T) {
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, "make one with stint.New") {
			t.Errorf("recovered %q", got)
		}
	}()
	NewTransport(new(stint.Limiter), nil)
}

// A store that can't keep pauses is reported before any request. Without a limiter, pauses are the process's.
func TestTransportSharesPauses(t *testing.T) {
	on := func(s store.Store) *stint.Limiter {
		return stint.Must(stint.New(stint.Rate(1, time.Second, stint.WithName("calls")), stint.WithStore(s), stint.WithKey(stint.GivenKey())))
	}
	NewTransport(on(memstore.New()), nil, WithSharedPause())
	NewTransport(nil, nil, WithSharedPause())
	defer func() {
		var wrong *stint.OptionError
		err, _ := recover().(error)
		if !errors.As(err, &wrong) || wrong.Option != "WithSharedPause()" || !strings.Contains(err.Error(), "storefake.Store doesn't implement store.Banner: leave it out, or") {
			t.Errorf("recovered %v", err)
		}
	}()
	NewTransport(on(storefake.New()), nil, WithSharedPause())
}

// A Bandwidth would silently limit nothing.
func TestTransportRejectsBandwidth(t *testing.T) {
	lim := stint.Must(stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.Global()),
		stint.WithRoute("/files/", stint.Bandwidth(1<<20, stint.WithName("bytes")))))
	defer func() {
		var wrong *stint.OptionError
		err, _ := recover().(error)
		if !errors.As(err, &wrong) || wrong.Limit != "bytes" || !strings.Contains(err.Error(), "a Bandwidth doesn't pace outgoing requests: leave it out") {
			t.Errorf("recovered %v", err)
		}
	}()
	NewTransport(lim, nil)
}

// Transport reports all wrong options at once, before any request.
func TestTransportReportsOptions(t *testing.T) {
	for _, tt := range []struct {
		opts []TransportOption
		want []string
	}{
		{[]TransportOption{WithDestination(stint.Key{})}, []string{"WithDestination(Key{}): use another key, or leave it out"}},
		{[]TransportOption{WithDestination(stint.GivenKey())}, []string{"WithDestination(GivenKey()): a request doesn't have this key"}},
		{[]TransportOption{WithDestination(stint.Join(stint.Method(), stint.KeyFunc(func(*http.Request) (string, error) { return "", nil }).ForAdapter("stintgin")))}, []string{"WithDestination(Join(Method(), stintgin.Key)): a request doesn't have this key"}},
		{[]TransportOption{WithDestination(stint.Header("a b"))}, []string{`WithDestination(Header("a b")): this isn't a valid name of a header field`}},
		{[]TransportOption{nil, WithRetries(-1), WithMaxPause(-1), WithRetryable(nil), WithDestination(stint.Key{})}, []string{"option 1 is nil: leave it out", "WithRetries(-1): use 0", "WithMaxPause(-1ns): use 0", "WithRetryable(nil): pass a function", "WithDestination(Key{})"}},
	} {
		err := func() (err error) {
			defer func() { err, _ = recover().(error) }()
			NewTransport(nil, nil, tt.opts...)
			return nil
		}()
		var wrong *stint.OptionError
		if !errors.As(err, &wrong) {
			t.Errorf("want %q, got %v", tt.want, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}
