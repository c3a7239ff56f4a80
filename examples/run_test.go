// Package examples holds programs, one in each directory. Its test acts as a new user:
// it starts each program and runs the commands that it prints.
package examples

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A visit is an example as a new user sees it.
type visit struct {
	args  string // besides -addr
	redis bool   // needs one
	alone bool   // runs by itself: there is nothing to try, and it ends
	// sees are patterns of the commands' output, from its beginning to
	// its end, and says that of the program itself.
	sees, says []string
	// within is how fast the commands have to be, but for those that sleep, to show it:
	// before the limits let another pass. If the machine is too slow, they are tried
	// again.
	within time.Duration
}

const (
	ok     = `(?m)^200\b`
	denied = `(?m)^429\b`
)

var visits = map[string]visit{
	"adaptive":    {alone: true, args: "-algorithm vegas -phase 600ms", says: []string{"40 workers", "(?m)^algorithm,seconds", "(?m)^vegas,0.5,40,"}},
	"bandwidth":   {args: "-rate 10000000", sees: []string{`(?m)^200 [1-9]`, `(?m)^200 [2-9]`, `(?m)^200 [2-9]`}, says: []string{`/zeros: 20000000 bytes, held up for`}},
	"bolt":        {sees: []string{"HTTP/1.1 200", `"daily";r=2`, "HTTP/1.1 200", "HTTP/1.1 200", `"daily";r=0`, "HTTP/1.1 429"}},
	"console":     {sees: []string{ok, "(39|40) of 40 left"}},
	"degradation": {within: 2 * time.Second, sees: []string{"(?m)^page, version 1", "(?m)^page, version 5", "stale page, version 5", "HTTP/1.1 200", "HTTP/1.1 302", "Location: /export/queued"}},
	"echo":        {within: 2 * time.Second, sees: []string{ok, ok, ok, ok, ok, denied + ` "api";r=0`, `"error":"slow down"`}},
	"endpoints":   {sees: []string{"(?m)^/items 200", "(?m)^/items 429", "(?m)^/reports 200", "(?m)^/signup 200", "(?m)^/signup 429", "(?m)^/healthz 200"}},
	"fairqueue":   {alone: true, args: "-second 50ms", says: []string{"(?m)^queue,second,app,shop,bulk$", `(?m)^arrival,30,\d`, `(?m)^fair,30,\d`}},
	"fallback":    {redis: true, args: "-timeout 1m", within: 2 * time.Second, sees: []string{"200 200 200 200 200 429"}, says: []string{"redis-cli .* shutdown"}},
	"flashsale":   {within: 6 * time.Second, sees: []string{`200 429`, `\d+ 200`, `\d+ 503`}},
	"fleet":       {redis: true, args: "-timeout 1m", within: time.Second, sees: []string{strings.Repeat("200 ", 10) + "429 429"}},
	"gin":         {within: time.Second / 2, sees: []string{ok, ok, denied, `"search";r=0`}},
	"grpc":        {alone: true, says: []string{`(?m)^call 3 OK .*r=0`, "(?m)^call 4 ResourceExhausted", "waiting for [12]s", "(?m)^call 4 OK", "(?m)^stream 1 OK", "(?m)^stream 2 ResourceExhausted", "(?m)^stream 2 OK"}},
	"llm":         {sees: []string{"HTTP/1.1 200", `"tokens";r=9932`, `data: .*"text"`, "event: error", `"limit":"month"`, `429 .*"tokens";r=99\d\d`, `200 .*"tokens";r=99\d\d`}},
	"login":       {sees: []string{"welcome\nwelcome\nwelcome\nwelcome\nwelcome\nwelcome\n", "(wrong.*\n){5}", `"login-account-address"`, `"login-address"`}},
	"outgoing":    {alone: true, says: []string{`\d\.\ds  request 1: 200`, `(?m)^([6-9]|\d\d+)\.\ds  request 6: 200`}},
	"policy":      {sees: []string{`"flow";q=10;w=1`, `"flow";q=5;w=1`, "earlier limits", "write burst"}},
	"priority":    {sees: []string{"/reports: waited 0s", "/checkout: waited", "/reports: waited [1-9]"}},
	"queueing":    {within: 5 * time.Second, sees: []string{"served after 0s", "served after [1-9]", `\d+ 200`, `\d+ 429`}},
	"quickstart":  {within: time.Second, sees: []string{ok, `(?m)^200 "rate";r=0`, denied, denied, "Retry-After: "}},
	"quota":       {within: 3 * time.Second / 2, sees: []string{"daily: 999 of 1000 left", "HTTP/1.1 403", ok, denied + ` "rate";r=0`}},
	"slots":       {redis: true, alone: true, says: []string{"job . waits for a slot", "job . runs", "job . has ended", "job . runs", "job . has ended"}},
	"tenants":     {redis: true, args: "-timeout 1m", sees: []string{"403", "calls: 9 of 10 left", denied, "calls: .* of 50 left"}},
}

func TestExamples(t *testing.T) {
	redistest.Suite(t, "examples")
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range glob(t, "*/go.mod") { // modules of their own, built with this tree
		if out, err := inWorkspace("go", "build", "-C", filepath.Dir(file), "-o", bin, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, file := range glob(t, "*/main.go") {
		name := filepath.Dir(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, known := visits[name]
			if !known {
				t.Fatal("what does it show?")
			}
			v.run(t, bin, name)
		})
	}
	t.Run("slots without a Redis", func(t *testing.T) {
		t.Parallel()
		p := start(t, bin, "slots", []string{"-redis", freeAddr(t)})
		if code := p.end(t); code == 0 {
			t.Error("it succeeds")
		}
		if said := p.String(); !strings.Contains(said, "redis-server") || strings.Contains(said, "runs") {
			t.Errorf("it says %q", said)
		}
	})
	for _, name := range []string{"fleet", "tenants"} {
		t.Run(name+" without a Redis", func(t *testing.T) {
			t.Parallel()
			taken, err := net.Listen("tcp", "127.0.0.1:0") // so that it can't serve there, nor another test
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			nobody := freeAddr(t)
			p := start(t, bin, name, []string{"-redis", nobody, "-addr", taken.Addr().String()})
			waits := "waiting for the Redis at " + nobody
			p.until(t, func(said string) bool {
				if strings.Contains(said, "address already in use") {
					t.Fatal("it serves without its limits")
				}
				return strings.Count(said, waits) >= 2
			})
		})
	}
}

// inWorkspace is a command for modules that need others of this repository.
func inWorkspace(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOWORK=") // found from its directory
	return cmd
}

func (v visit) run(t *testing.T, bin, name string) {
	args := strings.Fields(v.args)
	all := func() []string { // with a server that has counted nothing yet
		if !v.redis {
			return args
		}
		return append(slices.Clone(args), "-redis", redistest.Start(t).Addr())
	}
	if v.alone {
		p := start(t, bin, name, all())
		p.end(t)
		inOrder(t, p.String(), v.says)
		return
	}
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a user without %s", tool)
		}
	}
	for range 5 {
		args := all()
		p := start(t, bin, name, append(slices.Clone(args), "-addr", freeAddr(t)))
		commands := p.commands(t)
		if n := strings.Count(strings.ReplaceAll(p.String(), "\n\n", "\n"), "\n"); n > 6 {
			t.Errorf("%d lines to read before there is anything to see:\n%s", n, p)
		}
		out, took := try(t, bin, commands, args)
		if v.within > 0 && took > v.within {
			t.Logf("the commands took %v of %v", took, v.within)
			continue
		}
		inOrder(t, out, v.sees)
		inOrder(t, p.String(), v.says)
		return
	}
	t.Log("the machine is too slow for what the example shows")
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

// freeAddr is an address that no process listens on, nor on the next port.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().(*net.TCPAddr)
		next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", addr.Port+1))
		_ = l.Close()
		if err == nil {
			_ = next.Close()
			return addr.String()
		}
	}
	t.Fatal("no two free ports in a row")
	return ""
}

// program is an example that runs, and what it has said so far.
type program struct {
	name   string
	cmd    *exec.Cmd
	mu     sync.Mutex
	said   bytes.Buffer
	exited chan struct{}
}

func start(t *testing.T, bin, name string, args []string) *program {
	t.Helper()
	p := &program{name: name, exited: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(bin, name), args...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	return p
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *program) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

const patience = 3 * time.Minute

// until waits for the program to have said something.
func (p *program) until(t *testing.T, said func(string) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !said(p.String()); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it says\n%s", p)
		}
	}
}

// end waits for the program to exit and returns its status.
func (p *program) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("it goes on:\n%s", p)
	}
	return p.cmd.ProcessState.ExitCode()
}

var indented = regexp.MustCompile(`(?m)^  (.+)\n`)

// commands are the lines that the program indents, up to an empty line.
func (p *program) commands(t *testing.T) (all []string) {
	t.Helper()
	p.until(t, func(said string) bool {
		_, said, ok := strings.Cut(said, "\n\n  ")
		return ok && strings.Contains(said, "\n\n")
	})
	text := p.String()
	if i := strings.LastIndex(text, "\n\n"); i > 0 {
		text = text[:i+1]
	}
	for _, m := range indented.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// try runs commands one after the other, as in a terminal. One that starts an
// example is run in the background, as in a terminal of its own. It returns what they
// print, and how long those took that don't sleep.
func try(t *testing.T, bin string, commands, args []string) (printed string, took time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var out bytes.Buffer
	for _, c := range commands {
		if other, ok := strings.CutPrefix(c, "go run ./examples/"); ok {
			name, more, _ := strings.Cut(other, " ")
			start(t, bin, name, append(strings.Fields(more), args...)).commands(t)
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-c", c)
		cmd.Stdout, cmd.Stderr = &out, &out
		began := time.Now()
		if err := cmd.Run(); err != nil && ctx.Err() != nil {
			t.Fatalf("%s: %v\n%s", c, err, &out)
		}
		if !strings.Contains(c, "sleep") {
			took += time.Since(began)
		}
	}
	return out.String(), took
}

// inOrder reports whether text has a match of each pattern, one behind the other.
func inOrder(t *testing.T, text string, patterns []string) {
	t.Helper()
	rest := text
	for _, p := range patterns {
		at := regexp.MustCompile(p).FindStringIndex(rest)
		if at == nil {
			t.Errorf("no %s where it should be in\n%s", p, text)
			return
		}
		rest = rest[at[1]:]
	}
}
