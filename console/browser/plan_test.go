package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// The page that stint plan writes shows its pictures, in light and dark, loads nothing else, and
// runs nothing that clients have written.
func TestPageOfAPlan(t *testing.T) {
	ctx, dir := browse(t), t.TempDir()
	command := filepath.Join(dir, "stint")
	if out, err := exec.Command("go", "build", "-o", command, "../../cmd/stint").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var log strings.Builder
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for i := range 300 {
		for _, client := range []string{"ann", hostile} {
			fmt.Fprintf(&log, `{"msec":"%d.%03d","request_time":"0.010","request_method":"GET","request_uri":"/%d","status":"200","key":%q}`+"\n", at.Unix()+int64(i), i, i, client)
		}
	}
	fmt.Fprintln(&log, hostile)
	for name, text := range map[string]string{
		"access.json": log.String(),
		"policy.yaml": "version: 1\nkey: {header: X-Api-Key}\nlimits:\n  - {name: per-client, rate: 1/10s}\n  - {name: quota, quota: 5/daily}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(command, "plan", "--policy", "policy.yaml", "--html", "report.html", "--format", "json:nginx", "--field", "peer=", "--field", "host=", "--field", "bytes=", "--field", "header.X-Api-Key=key", "access.json")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	var others atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/report.html" {
			if r.URL.Path != "/favicon.ico" { // which browsers ask for themselves
				others.Add(1)
			}
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, filepath.Join(dir, "report.html"))
	}))
	defer s.Close()
	run(t, ctx, chromedp.Navigate(s.URL+"/report.html"))
	says(t, ctx, "h1", "policy.yaml")
	says(t, ctx, "body", "600 requests")
	says(t, ctx, "body", "denied by quota")
	if title := get(t, ctx, chromedp.Evaluate[string](`document.title`)); title != "stint plan: policy.yaml" {
		t.Errorf("the title is %q: something that a client wrote has run", title)
	}
	// Each denial is drawn: a bar has a height and a color of its own.
	drawn := `[...document.querySelectorAll("svg rect")].filter(r => r.getBoundingClientRect().height > 0 && getComputedStyle(r).fill !== "rgb(0, 0, 0)").length`
	if n := get(t, ctx, chromedp.Evaluate[int](drawn)); n < 300 {
		t.Errorf("%d bars are drawn", n)
	}
	wide := `document.documentElement.scrollWidth > document.documentElement.clientWidth`
	if get(t, ctx, chromedp.Evaluate[bool](wide)) {
		t.Error("the page is wider than the window")
	}
	back := func(name string) string {
		scheme(t, ctx, name)
		return get(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
	}
	if light, dark := back("light"), back("dark"); light != "rgb(255, 255, 255)" || dark == light {
		t.Errorf("the background is %s, and in the dark %s", light, dark)
	}
	if n := others.Load(); n > 0 {
		t.Errorf("the page loads %d files", n)
	}
}
