package adaptertest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// flowExtend: a handler whose Extend is denied calls Deny. Before the response has begun, Deny writes it. Afterwards
// Deny writes nothing.
func flowExtend(t *testing.T, a Adapter) {
	asCharged := func(*http.Request, int, int64) int64 { return stint.AsCharged }
	for _, begun := range []bool{false, true} {
		l := compiled(t, byAll, stint.Rate(10, 1000*time.Hour, stint.WithSettle(asCharged)))
		h := a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			if begun {
				_, _ = io.WriteString(w, "part")
			}
			err := stint.FromContext(r.Context()).Extend(r.Context(), 11)
			if !errors.Is(err, stint.ErrDenied) {
				t.Errorf("Extend returned %v", err)
			}
			l.Deny(w, r, err)
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, get("/"))
		switch retry := w.Header().Get("Retry-After"); {
		case begun && (w.Code != http.StatusOK || w.Body.String() != "part" || retry != ""):
			t.Errorf("after the beginning: %d %q %v", w.Code, w.Body, w.Header())
		case !begun && (w.Code != http.StatusTooManyRequests || retry == ""):
			t.Errorf("before the beginning: %d %q %v", w.Code, w.Body, w.Header())
		}
	}
}
