package stinthttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
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
	client := &http.Client{Transport: Transport(nil, base)}
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
