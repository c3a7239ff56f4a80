package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
)

// Two processes and one Redis: a tenant has one count, of its plan's size, and
// keeps it when the plan changes while both run.
func TestPlansAcrossProcesses(t *testing.T) {
	server := redistest.Start(t)
	server.Do("HSET", "plans", "acme", "free", "globex", "scale", "initech", "golden")
	program := filepath.Join(t.TempDir(), "tenants")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	urls := []string{start(t, program, server.Addr()), start(t, program, server.Addr())}
	day := today()

	// 10 at once and one every 6 s, whichever process is asked.
	began, passed := time.Now(), 0
	for i := range 24 {
		code, body := get(t, urls[i%2], "acme")
		switch code {
		case http.StatusOK:
			passed++
			if want := fmt.Sprintf("daily: %d of 100 left\n", 100-passed); today() == day && !strings.Contains(body, want) {
				t.Errorf("request %d: %q, want %q in it", i, body, want)
			}
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("status %d", code)
		}
	}
	if most := 10 + int(time.Since(began)/(6*time.Second)); passed < 10 || passed > most {
		t.Errorf("%d of 24 passed, want 10 to %d", passed, most)
	}

	// Another tenant has other numbers and a count of its own.
	for i := range 24 {
		code, body := get(t, urls[i%2], "globex")
		if want := fmt.Sprintf("daily: %d of 100000 left\n", 99_999-i); code != http.StatusOK || today() == day && !strings.Contains(body, want) {
			t.Fatalf("status %d, %q, want %q in it", code, body, want)
		}
	}

	// acme upgrades: each process comes to know, and the day goes on from what
	// has been used of it.
	server.Do("HSET", "plans", "acme", "scale")
	for _, url := range urls {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // another process asks a real server
			code, body := get(t, url, "acme")
			if code == http.StatusOK {
				passed++
			}
			if strings.Contains(body, " of 100000 left") {
				if want := fmt.Sprintf("daily: %d of 100000 left\n", 100_000-passed); today() == day && !strings.Contains(body, want) {
					t.Errorf("%q, want %q in it", body, want)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the plan is still the old one: status %d, %q", code, body)
			}
		}
	}

	for tenant, want := range map[string]int{
		"nobody":  http.StatusForbidden,
		"":        http.StatusForbidden,
		"initech": http.StatusOK, // its plan isn't offered, and the default holds
	} {
		if code, body := get(t, urls[0], tenant); code != want || strings.Contains(body, "golden") {
			t.Errorf("tenant %q: status %d, want %d; %q", tenant, code, want, body)
		}
	}
}

// today is the day that quotas go by: counts are compared only within one.
func today() int { return time.Now().UTC().YearDay() }

func get(t *testing.T, url, tenant string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tenant != "" {
		req.Header.Set("X-Tenant", tenant)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// start runs the program and returns its address once it answers.
func start(t *testing.T, program, redis string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(program, "-addr", addr, "-redis", redis, "-timeout", "1m", "-ttl", "50ms")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the program at %s wrote:\n%s", addr, &said)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // another process begins
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return "http://" + addr + "/"
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
