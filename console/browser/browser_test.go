// Package browser drives the console, and the page of a plan, in a real Chromium.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
	"github.com/stint-go/stint/tests/nginxtest"
)

var pictures = flag.String("pictures", "", "a directory to draw the pages into")

const hostile = `<img src=x onerror="document.title='broken'">`

const secret = "sixteen bytes at least"

// link is a link to the page that opens it, at a server's address.
func link(address string) string { return address + "/console/?token=" + url.QueryEscape(secret) }

// site is a limited server with a console beside it, on a loopback address.
type site struct {
	*httptest.Server
	limiter *stint.Limiter
}

func newSite(t *testing.T) site {
	t.Helper()
	l, err := stint.New(stint.WithLimiterName("shop"), stint.WithKey(stint.Header("X-Api-Key")),
		stint.Rate(3, time.Hour, stint.WithName("caller")),
		stint.AdaptiveConcurrency(1, 50, stint.WithName("workers"), stint.WithKey(stint.Global())),
		stint.WithRoute("GET /login", stint.Rate(1, time.Hour, stint.WithName("login")), stint.Ban(3, time.Hour, stint.WithBanFor(time.Hour))))
	if err != nil {
		t.Fatal(err)
	}
	page, err := console.New(console.Limiters(l), console.WithToken(secret), console.WithActions(), console.WithKeysInClear())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", page)
	mux.Handle("/", stinthttp.Middleware(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })))
	s := site{httptest.NewServer(mux), l}
	t.Cleanup(s.Close)
	return s
}

func (s site) ask(t *testing.T, path, key string) int {
	t.Helper()
	r, err := http.NewRequest("GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// browse opens a tab, and fails the test where the page complains in it: of the
// security policy, or of a mistake in a script.
func browse(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("STINT_REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("no chromium: make test-console installs it")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, // which root can't have, and pages of this process don't need
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	err = chromedp.Listen(ctx, func(e any) {
		said, _ := json.Marshal(e)
		if strings.Contains(fmt.Sprintf("%T", e), "ExceptionThrown") || bytes.Contains(said, []byte("Content Security Policy")) {
			t.Errorf("the browser says %s", said)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// again asks the browser until it has an answer. While one page follows another, or a part
// of it is replaced, it may have none.
func again(t *testing.T, ctx context.Context, ask func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		t.Logf("asked again: %v", err)
		time.Sleep(50 * time.Millisecond) // a real browser, which is busy
	}
}

func run(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for _, step := range steps {
		again(t, ctx, func(ctx context.Context) error { return chromedp.Do(ctx, step) })
	}
}

func get[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) (got T) {
	t.Helper()
	again(t, ctx, func(ctx context.Context) (err error) {
		got, err = chromedp.Run(ctx, a)
		return err
	})
	return got
}

// says waits until a page has loaded, with its style, and an element has a text in it.
// While one page follows another, there is none to ask.
func says(t *testing.T, ctx context.Context, selector, text string) {
	t.Helper()
	ask := fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q)?.innerText || ""`, selector)
	var got string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // a real browser
		said, err := chromedp.Run(ctx, chromedp.Evaluate[string](ask))
		if err != nil {
			if got = err.Error(); ctx.Err() != nil {
				break
			}
			continue
		}
		if got = strings.Join(strings.Fields(said), " "); strings.Contains(got, text) {
			return
		}
	}
	t.Fatalf("%s never says %q, but %q", selector, text, got)
}

// The page shows load as it comes, without being loaded again; finds a key, resets it
// by keyboard, and the key passes.
func TestLivePage(t *testing.T) {
	s, ctx := newSite(t), browse(t)
	run(t, ctx, chromedp.Navigate(link(s.URL)))
	says(t, ctx, "#state", "Live")
	get(t, ctx, chromedp.Evaluate[string](`document.body.dataset.same = "yes"`))
	for range 5 {
		s.ask(t, "/", "bob")
	}
	s.ask(t, "/login", hostile)
	s.ask(t, "/login", hostile)
	says(t, ctx, "#board0", "allowed 4 denied 3")
	says(t, ctx, "#board0", hostile)
	says(t, ctx, "#board0", "bob 100 % of denied")
	if same := get(t, ctx, chromedp.Evaluate[string](`document.body.dataset.same ?? "no"`)); same != "yes" {
		t.Error("the page was loaded again")
	}

	run(t, ctx, chromedp.Focus(chromedp.CSS(`input[name=key]`)), chromedp.KeyEvent("bob"+kb.Enter))
	says(t, ctx, ".found", "0 of 3 left, would be denied")
	run(t, ctx, chromedp.Focus(chromedp.CSS(`button[value=reset]`)), chromedp.KeyEvent(kb.Enter))
	says(t, ctx, ".found", "This key was reset")
	says(t, ctx, ".found", "3 of 3 left")
	says(t, ctx, "#state", "Live")
	if code := s.ask(t, "/", "bob"); code != http.StatusOK {
		t.Errorf("after the reset: %d", code)
	}

	run(t, ctx, chromedp.SetValue(chromedp.CSS(`input[name=key]`), hostile), chromedp.Click(chromedp.CSS(`button[value=look]`)))
	says(t, ctx, ".found", hostile)
	if title := get(t, ctx, chromedp.Title()); title == "broken" {
		t.Error("a key became a part of the page")
	}
}

func TestWithoutScripts(t *testing.T) {
	s, ctx := newSite(t), browse(t)
	for range 5 {
		s.ask(t, "/", "bob")
	}
	run(t, ctx, chromedp.Navigate("about:blank"))
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	run(t, ctx, chromedp.Navigate(link(s.URL)))
	got := get(t, ctx, chromedp.OuterHTML(chromedp.CSS("body"), chromedp.NodeReady))
	for _, want := range []string{`id="state" role="status"></span>`, "TokenBucket: 3 per 1h0m0s", ">bob</a>"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page doesn't say %q", want)
		}
	}
}

// Whoever has no token sees nothing, also behind a proxy on the same machine; the token
// opens the page there, by the form and by a link, for as long as the browser runs.
func TestTokenOpensThePage(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ name, address string }{
		{"directly", s.URL},
		{"behind nginx", nginxtest.Start(t, s.URL, "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := browse(t)
			for _, query := range []string{"", "?token=guessed"} {
				if res := get(t, ctx, chromedp.NavigateResponse(tc.address+"/console/"+query)); res.Status != http.StatusUnauthorized {
					t.Fatalf("%q: status %v", query, res.Status)
				}
			}
			if got := get(t, ctx, chromedp.Evaluate[string](`document.body.innerText`)); strings.Contains(got, "shop") {
				t.Errorf("a stranger reads %q", got)
			}
			run(t, ctx, chromedp.SetValue(chromedp.CSS(`input[name=token]`), secret), chromedp.Click(chromedp.CSS(`button`)))
			says(t, ctx, "#state", "Live")
			s.ask(t, "/", "bob")
			run(t, ctx, chromedp.SetValue(chromedp.CSS(`input[name=key]`), "bob"), chromedp.Click(chromedp.CSS(`button[value=look]`)))
			says(t, ctx, ".found", "2 of 3 left")
			run(t, ctx, chromedp.Click(chromedp.CSS(`button[value=reset]`)))
			says(t, ctx, ".found", "This key was reset")

			ctx = browse(t)
			run(t, ctx, chromedp.Navigate(link(tc.address)))
			says(t, ctx, "#state", "Live")
			if at := get(t, ctx, chromedp.Evaluate[string](`location.href`)); at != tc.address+"/console/" {
				t.Errorf("the link leads to %s", at)
			}
			if seen := get(t, ctx, chromedp.Evaluate[string](`document.cookie`)); seen != "" {
				t.Errorf("scripts see %q", seen)
			}
			run(t, ctx, chromedp.Navigate(tc.address+"/console/"))
			says(t, ctx, "#state", "Live")
		})
	}
}

// On a phone nothing is wider than the screen, and the page is dark where the reader's
// device is.
func TestPhoneAndDark(t *testing.T) {
	s, ctx := newSite(t), browse(t)
	s.ask(t, "/", strings.Repeat("k", 120))
	s.ask(t, "/login", strings.Repeat("k", 120))
	s.ask(t, "/login", strings.Repeat("k", 120))
	run(t, ctx, chromedp.EmulateViewport(360, 740), chromedp.Navigate(link(s.URL)))
	says(t, ctx, "#board0", "kkk")
	narrow(t, ctx)
	for _, open := range []string{"?limiter=shop", "?limiter=shop&limit=login"} {
		run(t, ctx, chromedp.Navigate(s.URL+"/console/"+open))
		says(t, ctx, "#open", "kkk")
		narrow(t, ctx)
	}
	run(t, ctx, chromedp.SetValue(chromedp.CSS(`input[name=key]`), strings.Repeat("k", 120)), chromedp.Click(chromedp.CSS(`button[value=look]`)))
	says(t, ctx, ".found", "0 of 1 left")
	narrow(t, ctx)
	for _, tc := range []struct {
		scheme string
		dark   bool
	}{{"light", false}, {"dark", true}} {
		scheme(t, ctx, tc.scheme)
		img, err := png.Decode(bytes.NewReader(get(t, ctx, chromedp.CaptureScreenshot())))
		if err != nil {
			t.Fatal(err)
		}
		if dark := darkness(img); dark != tc.dark {
			t.Errorf("in %s the page is dark: %v", tc.scheme, dark)
		}
		for _, pale := range get(t, ctx, chromedp.Evaluate[[]string](contrast)) {
			t.Errorf("in %s it is hard to read: %s", tc.scheme, pale)
		}
	}
}

func narrow(t *testing.T, ctx context.Context) {
	t.Helper()
	if wide := get(t, ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth`)); wide > 360 {
		t.Errorf("the page is %d wide on a screen of 360", wide)
	}
}

// contrast lists the texts with a contrast below 4.5 to what is behind them, and the
// lines of charts with one below 3: what WCAG 2 asks for.
const contrast = `(() => {
	const rgb = s => s.match(/[\d.]+/g).map(Number);
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	const ratio = (a, b) => { const [x, y] = [light(a.slice(0, 3)), light(b.slice(0, 3))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const pale = [];
	for (const e of document.querySelectorAll("body *")) {
		const style = getComputedStyle(e), text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
		if (text && ratio(rgb(style.color), behind(e)) < 4.5) pale.push(e.tagName + "." + e.className + " " + e.textContent.slice(0, 40));
		if (e.tagName === "polyline" && ratio(rgb(style.stroke), behind(e.closest("figure"))) < 3) pale.push("line " + e.getAttribute("class"));
		if ((e.tagName === "path" || e.matches("rect.full")) && ratio(rgb(style.fill), behind(e.closest("td"))) < 3) pale.push("bar " + e.getAttribute("class"));
	}
	return pale;
})()`

// scheme makes the device a light or a dark one.
func scheme(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	if err != nil {
		t.Fatal(err)
	}
}

// darkness looks at a corner of the page.
func darkness(img image.Image) bool {
	return color.GrayModel.Convert(img.At(2, 2)).(color.Gray).Y < 128
}

// The pictures of the documents: of the example, half a minute after its start, and of a plan's report.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("make pictures draws them")
	}
	ctx, at := browse(t), example(t)
	run(t, ctx, chromedp.Sleep(30*time.Second), chromedp.EmulateViewport(1200, 420), chromedp.Navigate(at))
	says(t, ctx, "#state", "Live")
	draw(t, ctx, "console")

	run(t, ctx, chromedp.EmulateViewport(1200, 760), chromedp.Navigate("file://"+reportOfTheDocument(t)))
	says(t, ctx, "h1", "policy.yaml")
	draw(t, ctx, "plan")
}

// draw draws the page that is open, light and dark.
func draw(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	for name, in := range map[string]string{name: "light", name + "-dark": "dark"} {
		scheme(t, ctx, in)
		run(t, ctx, chromedp.Sleep(2*time.Second))
		if err := os.WriteFile(filepath.Join(*pictures, name+".png"), get(t, ctx, chromedp.CaptureScreenshot()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// example starts examples/console, and returns the address that it prints.
func example(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "console")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/stint-go/stint/examples/console").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := exec.Command(program, "-addr", "127.0.0.1:0")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at := strings.TrimSpace(lines.Text()); strings.HasPrefix(at, "http://") {
			return at
		}
	}
	t.Fatal("the example prints no address")
	return ""
}

// The example has something to show within half a minute, whoever looks.
func TestExampleLives(t *testing.T) {
	ctx, at := browse(t), example(t)
	run(t, ctx, chromedp.Navigate(at))
	says(t, ctx, "#state", "Live")
	for _, part := range []struct{ id, says string }{
		{"#board0", "workers"},
		{"#board0", "of denied"},
	} {
		says(t, ctx, part.id, part.says)
	}
	for _, part := range []struct{ open, says string }{
		{"?limiter=shop&limit=workers", "workers follows latency"},
		{"?limiter=shop&limit=caller", "most denied bob"},
		{"?limiter=shop&limit=caller", `<b onclick="alert(1)">eve</b>`},
		{"?limiter=shop", "bob caller"},
		{"?limiter=shop", "GET /login"},
	} {
		page, _, _ := strings.Cut(at, "?")
		run(t, ctx, chromedp.Navigate(page+part.open))
		says(t, ctx, "#open", part.says)
	}
}
