package routers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"golang.org/x/net/http2"
	//lint:ignore SA1019 it is deprecated and in use, which is what this test is about
	"golang.org/x/net/http2/h2c"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
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

// No method, and no version that a handler in between writes into a request, hides a permit from
// the handler that settles it.
func TestNothingHidesAPermit(t *testing.T) {
	settles := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := stint.FromContext(r.Context()).Settle(r.Context(), 500, "tokens"); err != nil {
			t.Error(err)
		}
	})
	tokens := func() *stint.Limiter {
		return stint.Must(stint.New(stint.Rate(1000, time.Hour, stint.WithName("tokens")), stint.WithKey(stint.Global())))
	}
	chi.RegisterMethod("PRI")
	routers := map[string]func() http.Handler{
		"none": func() http.Handler { return stinthttp.Middleware(tokens())(settles) },
		"ServeMux": func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", settles)
			return stinthttp.Middleware(tokens())(mux)
		},
		"chi": func() http.Handler {
			m := chi.NewRouter()
			m.Use(stinthttp.Middleware(tokens()))
			m.Handle("/x", settles)
			return m
		},
		"gin": func() http.Handler {
			e := gin.New()
			e.Use(stintgin.Middleware(tokens()))
			e.Any("/x", gin.WrapH(settles))
			e.Handle("PRI", "/x", gin.WrapH(settles))
			return e
		},
		"echo": func() http.Handler {
			e := echo.New()
			e.Use(stintecho.Middleware(tokens()))
			e.Add("POST", "/x", echo.WrapHandler(settles))
			e.Add("PRI", "/x", echo.WrapHandler(settles))
			return e
		},
		"another version in between": func() http.Handler {
			outer := tokens()
			inner := stint.Must(outer.With(stint.Rate(1000, time.Second, stint.WithName("more"))))
			return stinthttp.Middleware(outer)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
				stinthttp.Middleware(inner)(settles).ServeHTTP(w, r)
			}))
		},
	}
	for name, build := range routers {
		for request, prepare := range map[string]func(*http.Request){
			"POST": func(r *http.Request) { r.Method = "POST" },
			"PRI":  func(r *http.Request) { r.Method = "PRI" },
			"PRI without fields": func(r *http.Request) {
				r.Method, r.Header = "PRI", http.Header{"User-Agent": {""}}
			},
			"the first line of HTTP/2": func(r *http.Request) {
				r.Method, r.Header, r.URL.Opaque = "PRI", http.Header{"User-Agent": {""}}, "*"
			},
			"an upgrade": func(r *http.Request) {
				r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
				r.Header.Set("Upgrade", "h2c")
			},
		} {
			if name != "none" && name != "another version in between" && request == "the first line of HTTP/2" {
				continue // the router has no path *
			}
			for version := 1; version <= 2; version++ {
				if version == 2 && request == "an upgrade" {
					continue // no client sends it
				}
				t.Run(fmt.Sprintf("%s, %s, HTTP/%d", name, request, version), func(t *testing.T) {
					srv := httptest.NewUnstartedServer(build())
					srv.EnableHTTP2 = true
					srv.StartTLS()
					defer srv.Close()
					client := srv.Client()
					client.Transport.(*http.Transport).ForceAttemptHTTP2 = version == 2
					client.Transport.(*http.Transport).DisableCompression = true
					if version == 1 {
						client.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
					}
					to, _ := url.Parse(srv.URL + "/x")
					passed := 0
					for range 5 {
						u := *to
						r := &http.Request{Method: "POST", URL: &u, Host: to.Host, Header: http.Header{}}
						prepare(r)
						resp, err := client.Do(r)
						if err != nil {
							t.Fatal(err)
						}
						_ = resp.Body.Close()
						if resp.ProtoMajor != version {
							t.Fatalf("over %s", resp.Proto)
						}
						if resp.StatusCode == 200 {
							passed++
						}
					}
					if passed != 2 {
						t.Errorf("%d of 5 passed, want 2", passed)
					}
				})
			}
		}
	}
}

// The first line of an HTTP/2 connection is a request like any other to a handler that doesn't
// take the connection over.
func TestFirstLineKeepsItsPermit(t *testing.T) {
	l := stint.Must(stint.New(stint.Rate(9, time.Hour), stint.WithKey(stint.Global())))
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	limit := stinthttp.Middleware(l)
	limit(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		left = stint.FromContext(r.Context()).Decision().Remaining
	}))).ServeHTTP(httptest.NewRecorder(), r)
	if left != 8 {
		t.Errorf("%d left, want 8", left)
	}
}
