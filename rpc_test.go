package stint_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Each protocol has its own answers; tests/rpc has them read by the protocols' clients.
func TestRPCError(t *testing.T) {
	protocols := []struct{ method, target, contentType, version string }{
		{"POST", "/a.B/C", "application/grpc", ""},
		{"POST", "/a.B/C", "application/grpc-web+proto", ""},
		{"POST", "/a.B/C", "application/connect+json", "1"},
		{"POST", "/a.B/C", "application/proto", "1"},
		{"GET", "/a.B/C?connect=v1&encoding=json", "", ""},
		{"POST", "/a.B/C", "application/json", ""},
		{"GET", "/a.B/C?connect=now", "", ""},
	}
	const details = `,"details":[{"type":"google.rpc.RetryInfo","value":"CgMIkBw"}]` // 3600 seconds
	for _, tt := range []struct {
		name     string
		opts     []stint.Option
		answers  [3]string // of gRPC, of connect's streams, of connect's unary calls
		status   int       // of connect's unary calls
		fallback int       // of what is no call
	}{
		{"denied", []stint.Option{stint.WithKey(stint.RemoteIP())}, [3]string{
			"8 Too Many Requests: limit rate",
			`{"error":{"code":"resource_exhausted","message":"Too Many Requests: limit rate"` + details + `}}`,
			`{"code":"resource_exhausted","message":"Too Many Requests: limit rate"` + details + `}`,
		}, 429, 429},
		{"an empty key", []stint.Option{stint.WithKey(stint.Header("X-API-Key"))}, [3]string{
			"7 Forbidden",
			`{"error":{"code":"permission_denied","message":"Forbidden"}}`,
			`{"code":"permission_denied","message":"Forbidden"}`,
		}, 403, 403},
		{"a secret error", []stint.Option{stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("secret") }))}, [3]string{
			"13 Internal Server Error",
			`{"error":{"code":"internal","message":"Internal Server Error"}}`,
			`{"code":"internal","message":"Internal Server Error"}`,
		}, 500, 500},
		{"another status", []stint.Option{stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", payUp{} }))}, [3]string{
			"9 Payment Required",
			`{"error":{"code":"failed_precondition","message":"Payment Required"}}`,
			`{"code":"failed_precondition","message":"Payment Required"}`,
		}, 400, 402},
	} {
		l := limiter(t, append(tt.opts, stint.Rate(1, time.Hour), stint.WithErrorHandler(stint.RPCError))...)
		h := mount(l, func(http.ResponseWriter, *http.Request) {})
		h.ServeHTTP(httptest.NewRecorder(), get("/")) // the one that passes
		for i, p := range protocols {
			r := httptest.NewRequest(p.method, p.target, nil)
			if p.contentType != "" {
				r.Header.Set("Content-Type", p.contentType)
			}
			if p.version != "" {
				r.Header.Set("Connect-Protocol-Version", p.version)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			got, kind, code := w.Body.String(), w.Header().Get("Content-Type"), 200
			var want string
			switch {
			case i < 2:
				got += w.Header().Get("Grpc-Status") + " " + w.Header().Get("Grpc-Message")
				want = tt.answers[0]
			case i == 2:
				want = string([]byte{2, 0, 0, 0, byte(len(tt.answers[1]))}) + tt.answers[1]
			case i < 5:
				want, code, p.contentType = tt.answers[2], tt.status, "application/json"
			default:
				want, code, p.contentType = got, tt.fallback, "application/problem+json"
			}
			if got != want || w.Code != code || kind != p.contentType {
				t.Errorf("%s, %+v: %d %s %q, want %d %q", tt.name, p, w.Code, kind, got, code, want)
			}
			if denied := tt.name == "denied"; denied != (w.Header().Get("Retry-After") == "3600") || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %+v: the header is %v", tt.name, p, w.Header())
			}
		}
	}
}

// A denial by a tenant's limit outside of HTTP has the fields of a request's denial, and from these its details.
func TestRPCErrorOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.WithErrorHandler(stint.RPCError),
			stint.WithLimitSource(stint.Header("Tenant"), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
				return []stint.Limit{stint.Rate(1, time.Hour, stint.WithName("plan"))}, nil
			}))
		ways := map[string]func(key string) error{
			"Allow": func(key string) error { return l.Allow(t.Context(), key, 1) },
			"Take":  func(key string) error { _, err := l.Take(t.Context(), key, 1); return err },
			"Wait": func(key string) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := l.Wait(ctx, key, 1)
				return err
			},
		}
		want := map[string]string{"Grpc-Status": "8", "Grpc-Retry-Pushback-Ms": "3600000", "Retry-After": "3600",
			"Ratelimit": `"plan";r=0;t=3600`, "Ratelimit-Policy": `"plan";q=1;w=3600`, "Cache-Control": "no-store"}
		for way, ask := range ways {
			if err := ask(way); err != nil {
				t.Fatal(err)
			}
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/a.B/C", nil)
			r.Header.Set("Content-Type", "application/grpc")
			l.Deny(w, r, ask(way))
			for field, value := range want {
				if got := w.Header().Get(field); got != value {
					t.Errorf("%s: %s is %q, want %q", way, field, got, value)
				}
			}
		}
	})
}

type payUp struct{}

func (payUp) Error() string   { return "no money" }
func (payUp) StatusCode() int { return http.StatusPaymentRequired }
