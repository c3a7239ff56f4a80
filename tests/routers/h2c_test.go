package routers

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	//lint:ignore SA1019 it is deprecated and in use, which is what this test is about
	"golang.org/x/net/http2/h2c"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// The streams of an HTTP/2 connection that h2c takes over are requests of their own,
// wherever the limiter stands: their contexts descend from that of the request that
// opened the connection.
func TestH2C(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, stint.FromContext(r.Context()).Decision().Remaining)
	})
	for name, build := range map[string]func(limit func(http.Handler) http.Handler) http.Handler{
		"h2c outside": func(limit func(http.Handler) http.Handler) http.Handler {
			//lint:ignore SA1019 it is deprecated and in use, which is what this test is about
			return h2c.NewHandler(limit(served), new(http2.Server))
		},
		"a limiter on both sides": func(limit func(http.Handler) http.Handler) http.Handler {
			//lint:ignore SA1019 it is deprecated and in use, which is what this test is about
			return limit(h2c.NewHandler(limit(served), new(http2.Server)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(build(stinthttp.New(stint.Rate(4, time.Hour), stint.WithKey(stint.Global()))))
			defer srv.Close()
			client := &http.Client{Transport: &http2.Transport{
				AllowHTTP: true,
				DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
			}}
			defer client.CloseIdleConnections()
			passed := 0
			for range 20 {
				resp, err := client.Get(srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.ProtoMajor != 2 {
					t.Fatal(resp.Proto)
				}
				if resp.StatusCode == 200 {
					passed++
				}
			}
			if passed != 4 && passed != 3 { // the connection's first line may be a request, too
				t.Errorf("%d of 20 passed, want at most 4", passed)
			}
		})
	}
}

// An upgrade is a request that is answered; what else comes over its connection isn't.
func TestUpgradeToH2C(t *testing.T) {
	var permits []bool
	limit := stinthttp.New(stint.Rate(9, time.Hour), stint.WithKey(stint.Global()))
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, outer *http.Request) {
		permits = append(permits, stint.FromContext(outer.Context()) != nil)
		stream := httptest.NewRequest("GET", "/", nil).WithContext(outer.Context())
		stream.Proto, stream.ProtoMajor, stream.ProtoMinor = "HTTP/2.0", 2, 0
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			permits = append(permits, stint.FromContext(r.Context()).Decision().Remaining == 7)
		})).ServeHTTP(w, stream)
	}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
	r.Header.Set("Upgrade", "h2c")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if len(permits) != 2 || !permits[0] || !permits[1] {
		t.Errorf("%v: want a permit for the upgrade's handler, and another for a stream", permits)
	}
}
