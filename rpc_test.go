package stint_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
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

type payUp struct{}

func (payUp) Error() string   { return "no money" }
func (payUp) StatusCode() int { return http.StatusPaymentRequired }
