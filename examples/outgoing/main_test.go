package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// inProcess answers requests without a network, so that a bubble's clock
// drives both sides.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestKeepsToBothLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, denied := 0, 0
		server := strict()
		upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			rec := httptest.NewRecorder()
			server.ServeHTTP(rec, r)
			if rec.Code == http.StatusTooManyRequests {
				denied++
			}
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		})
		client := &http.Client{Transport: polite(inProcess{upstream})}

		start := time.Now()
		for i := range 6 {
			res, err := client.Get("http://upstream.example/")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Fatalf("request %d: %s", i+1, res.Status)
			}
		}
		// The client's own limit spaces the first three; the other side gives
		// out the rest at 2, 4 and 6 s and says so in each answer, so nothing
		// is asked in vain. Waits are lengthened by chance, a little, so that
		// many clients don't wake together.
		if took := time.Since(start); took < 6*time.Second || took > 7*time.Second {
			t.Errorf("six requests took %v, want 6 s and a little", took)
		}
		if asked != 6 || denied != 0 {
			t.Errorf("asked %d times and was denied %d times, want 6 and 0", asked, denied)
		}
	})
}
