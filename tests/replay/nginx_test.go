// Package replay compares stint plan with what servers have done.
package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tests/nginxtest"
)

// policy has the limits of the test's server.
const policy = `
version: 1
key: {join: [{forwarded-ip: {trusted: [127.0.0.1]}}, {header: User-Agent}]}
limits: [{name: rate, rate: 9/24h, burst: 5}]
routes:
  POST /login: {limits: [{name: login, rate: 3/24h}]}
`

// A real nginx's own log, replayed, denies what the server behind it has denied.
func TestPlanOfNginxLog(t *testing.T) {
	client := stint.Join(stint.ForwardedIP(netip.MustParsePrefix("127.0.0.1/32")), stint.Header("User-Agent"))
	lim := stint.Must(stint.New(
		stint.Rate(9, 24*time.Hour, stint.WithBurst(5), stint.WithName("rate")),
		stint.WithRoute("POST /login", stint.Rate(3, 24*time.Hour, stint.WithName("login"))),
		stint.WithKey(client)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lim.Serve(w, r, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "access.log")
	front := nginxtest.Start(t, s.URL, "access_log "+path+" combined; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")

	// The client has another address than nginx, which isn't trusted: so its own X-Forwarded-For, which this log
	// doesn't have, makes no difference.
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	browser := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer browser.CloseIdleConnections()

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
		res, err := browser.Do(r)
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
	report := planned(t, text)
	if len(report.NotJudged) > 0 || report.Log.Broken.Lines > 0 || len(report.Scenarios) != 2 {
		t.Errorf("not judged: %v; broken: %+v; %d scenarios", report.NotJudged, report.Log.Broken, len(report.Scenarios))
	}
	for _, s := range report.Scenarios {
		if s.Requests != requests || s.Denied != denied || s.Statuses["4xx"].Denied != denied {
			t.Errorf("%s: %+v, and the server denied %d", s.Name, s.count, denied)
		}
	}
}

// report is what the test reads of the JSON that stint plan prints.
type report struct {
	Log struct {
		Broken struct{ Lines int64 }
	}
	NotJudged []any
	Scenarios []struct {
		Name string
		count
		Statuses map[string]count
	}
}

type count struct{ Requests, Denied int64 }

// planned runs stint plan on a log of a server at nginx's back.
func planned(t *testing.T, log []byte) (r report) {
	t.Helper()
	dir := t.TempDir()
	command, file, logged := filepath.Join(dir, "stint"), filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "access.log")
	if out, err := exec.Command("go", "build", "-o", command, "github.com/stint-go/stint/cmd/stint").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string][]byte{file: []byte(policy), logged: log} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(command, "plan", "--policy", file, "--proxy", "127.0.0.1", "--json", logged)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}
