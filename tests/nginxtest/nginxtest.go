// Package nginxtest starts a real nginx in front of a test's server.
package nginxtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Start starts an nginx on loopback that passes all requests to the server at the address
// to, such as "http://127.0.0.1:8080", and returns its own. directives are added to its
// location. It ends with the test, which is skipped where there is no nginx.
func Start(t testing.TB, to, directives string) (address string) {
	t.Helper()
	return StartServer(t, fmt.Sprintf("location / { proxy_pass %s; %s }", to, directives))
}

// StartServer starts an nginx on loopback that has a server of these directives, and returns its address.
// It ends with the test, which is skipped where there is no nginx.
func StartServer(t testing.TB, directives string) (address string) {
	t.Helper()
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("no nginx: apt-get install nginx-light changes that")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	const attempts = 10 // another process may take the port in between
	for range attempts {
		at := FreeAddress(t)
		text := fmt.Sprintf(`
			daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
			events {}
			http {
				access_log off;
				client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
				server {
					listen %[2]s;
					%[3]s
				}
			}`, dir, at, directives)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("nginx", "-c", config, "-e", filepath.Join(dir, "error.log"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if err := answers(at, ended); err != nil {
			t.Log(err)
			continue
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			<-ended
		})
		return "http://" + at
	}
	said, _ := os.ReadFile(filepath.Join(dir, "error.log"))
	t.Fatalf("nginx doesn't start: %s", said)
	return ""
}

// FreeAddress returns an address of loopback on which nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// answers waits until a process listens at the address, or the process has ended.
func answers(at string, ended <-chan error) error {
	for {
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			return nil
		}
		select {
		case err := <-ended:
			return errors.Join(errors.New("nginx has ended"), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
