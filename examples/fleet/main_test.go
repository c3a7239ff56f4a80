package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
)

// Two processes and one Redis are one limit: of a rush on both, the burst
// passes, and what has come in meanwhile.
func TestTwoProcessesAreOneLimit(t *testing.T) {
	server := redistest.Start(t)
	program := filepath.Join(t.TempDir(), "fleet")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	urls := []string{start(t, program, server.Addr()), start(t, program, server.Addr())}

	began := time.Now()
	var passed, denied atomic.Int64
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			res, err := http.Get(urls[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
			switch res.StatusCode {
			case http.StatusOK:
				passed.Add(1)
			case http.StatusTooManyRequests:
				denied.Add(1)
			default:
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
	clients.Wait()
	// Slots may deny some of the rush; the rate never lets more through.
	most := 10 + int64(time.Since(began)/time.Second)
	if n := passed.Load(); n > most || n < 4 || n+denied.Load() != 40 {
		t.Errorf("%d passed and %d were denied, want %d at the most", n, denied.Load(), most)
	}
	left := 0
	for i := range 40 { // one after the other: the rest of the burst
		res, err := http.Get(urls[i%2])
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			left++
		}
	}
	most = 10 + int64(time.Since(began)/time.Second)
	if n := passed.Load() + int64(left); n > most || n < 10 {
		t.Errorf("%d passed in all, want 10 to %d", n, most)
	}
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
	cmd := exec.Command(program, "-addr", addr, "-redis", redis, "-timeout", "1m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // another process begins
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_, _ = io.WriteString(conn, "")
			conn.Close()
			return "http://" + addr + "/"
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
