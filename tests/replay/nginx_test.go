// Package replay holds plans to what servers have done.
package replay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/plan"
	"github.com/stint-go/stint/tests/nginxtest"
)

// A real nginx's own log, replayed, denies what the server behind it has denied.
func TestPlanOfNginxLog(t *testing.T) {
	client := stint.Join(stint.ForwardedIP(netip.MustParsePrefix("127.0.0.0/8")), stint.Header("User-Agent"))
	newLimiter := func() (*stint.Limiter, error) {
		return stint.New(
			stint.Rate(9, 24*time.Hour, stint.WithBurst(5), stint.WithName("rate")),
			stint.WithRoute("POST /login", stint.Rate(3, 24*time.Hour, stint.WithName("login"))),
			stint.WithKey(client))
	}
	lim := stint.Must(newLimiter())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lim.Serve(w, r, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "access.log")
	front := nginxtest.Start(t, s.URL, "access_log "+path+" combined; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")

	want := map[int]int64{} // by status
	const requests = 60
	for i := range requests {
		method, target := "GET", fmt.Sprintf("/items/%%22%d?q=1", i)
		if i%3 == 0 {
			method, target = "POST", "/login"
		}
		r, err := http.NewRequest(method, front+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", fmt.Sprintf(`agent "%d" \`, i%4))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		want[res.StatusCode]++
	}
	denied := want[http.StatusTooManyRequests]
	if denied == 0 || denied+want[http.StatusOK] != requests {
		t.Fatalf("the server answered %v", want)
	}

	var text []byte
	for deadline := time.Now().Add(30 * time.Second); bytes.Count(text, []byte("\n")) < requests; { // nginx logs a request after it has answered
		var err error
		if text, err = os.ReadFile(path); err != nil || time.Now().After(deadline) {
			t.Fatalf("%d lines of %d in the log: %v", bytes.Count(text, []byte("\n")), requests, err)
		}
	}
	log, err := plan.Read(path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := plan.Run(newLimiter, plan.BehindProxy(log, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.NotJudged) > 0 || r.Log.Broken.Lines > 0 || len(r.Scenarios) != 2 {
		t.Errorf("not judged: %v; broken: %+v", r.NotJudged, r.Log.Broken)
	}
	for _, s := range r.Scenarios {
		if s.Requests != requests || s.Denied != denied || s.Statuses["4xx"] == nil || s.Statuses["4xx"].Denied != denied {
			t.Errorf("%s: %+v, and the server denied %d", s.Name, s.Count, denied)
		}
	}
}
