package browser

import (
	"context"
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

// command runs stint in a directory, in which it is built first.
func command(t *testing.T, dir string, args ...string) {
	t.Helper()
	path := filepath.Join(dir, "stint")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/stint").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// open opens the page report.html of a directory. It checks that nothing that a client wrote runs, that the page is not
// too wide and has a light and a dark form, and in the end that it loads nothing else.
func open(t *testing.T, ctx context.Context, dir, title string) {
	t.Helper()
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
	t.Cleanup(func() {
		s.Close()
		if n := others.Load(); n > 0 {
			t.Errorf("the page loads %d files", n)
		}
	})
	run(t, ctx, chromedp.Navigate(s.URL+"/report.html"))
	says(t, ctx, "h1", title[strings.Index(title, ": ")+2:])
	if got := get(t, ctx, chromedp.Evaluate[string](`document.title`)); got != title {
		t.Errorf("the title is %q: something that a client wrote has run", got)
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
}

// The page that stint plan writes shows its pictures, in light and dark, loads nothing else, and
// runs nothing that clients have written.
func TestPageOfAPlan(t *testing.T) {
	ctx, dir := browse(t), t.TempDir()
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
	command(t, dir, "plan", "--policy", "policy.yaml", "--html", "report.html", "--format", "nginx-json", "--field", "peer=", "--field", "host=", "--field", "bytes=", "--field", "header.X-Api-Key=key", "access.json")
	open(t, ctx, dir, "stint plan: policy.yaml")
	says(t, ctx, "body", "600 requests")
	says(t, ctx, "body", "denied by quota")
	// Each denial is drawn: a bar has a height and a color of its own.
	drawn := `[...document.querySelectorAll("svg rect")].filter(r => r.getBoundingClientRect().height > 0 && getComputedStyle(r).fill !== "rgb(0, 0, 0)").length`
	if n := get(t, ctx, chromedp.Evaluate[int](drawn)); n < 300 {
		t.Errorf("%d bars are drawn", n)
	}
}

// reportOfTheDocument writes the page of docs/rollout.md's first plan, and returns its name.
func reportOfTheDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, policy, _ := strings.Cut(string(text), "```yaml\n")
	policy, _, _ = strings.Cut(policy, "```")
	log, err := exec.Command("go", "run", "../../cmd/stint/examplelog").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"access.json": string(log), "policy.yaml": policy} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command(t, dir, "plan", "--policy", "policy.yaml", "--html", "report.html", "access.json")
	return filepath.Join(dir, "report.html")
}

// So does the page of stint suggest.
func TestPageOfSuggestions(t *testing.T) {
	ctx, dir := browse(t), t.TempDir()
	var log strings.Builder
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for i := range 1200 {
		key := fmt.Sprint("client-", i)
		if i == 99 { // one of those that send most
			key = hostile
		}
		for n := range 1 + i%9 + i%100/99*50 {
			fmt.Fprintf(&log, `{"msec":"%d.%03d","request_time":"0.010","request_method":"GET","request_uri":"/%d","status":"200","key":%q}`+"\n", at.Unix()+int64(i), n, i, key)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "access.json"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, dir, "suggest", "--key", "{header: X-Api-Key}", "--html", "report.html", "--format", "nginx-json", "--field", "peer=", "--field", "host=", "--field", "bytes=", "--field", "header.X-Api-Key=key", "access.json")
	open(t, ctx, dir, "stint suggest: limits by {header: X-Api-Key}")
	says(t, ctx, "pre", "version: 1")
	says(t, ctx, "body", "onerror") // as text, among the keys that are touched
	curve := `(() => { const c = document.querySelector("svg polyline.line"), b = c.getBoundingClientRect(), s = getComputedStyle(c);
		return b.width > 50 && b.height > 10 && s.fill === "none" && s.stroke !== "none" && document.querySelectorAll("svg circle").length === 2 })()`
	if !get(t, ctx, chromedp.Evaluate[bool](curve)) {
		t.Error("the curve isn't drawn")
	}
}
