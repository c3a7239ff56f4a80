package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/tests/nginxtest"
)

// make test-traefik: the whole of Traefik, with a router and a middleware as the document has them.
func TestTraefik(t *testing.T) {
	if os.Getenv("STINT_SUITE") != "traefik" {
		t.Skip("make test-traefik runs this")
	}
	program := buildTraefik(t)
	auth := serve(t, "traefik")
	config := filepath.Join(t.TempDir(), "traefik.yaml")
	if err := os.WriteFile(config, []byte(blocksWith(t, "forwardAuth:", auth, backend(t))[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	at := nginxtest.FreeAddress(t)
	runProxy(t, at, exec.Command(program, "--entrypoints.web.address="+at, "--providers.file.filename="+config,
		"--global.checknewversion=false", "--global.sendanonymoususage=false"))
	// It listens before it has read its file. The policy exempts this request.
	for ask(t, "127.0.0.2", "GET", "http://"+at+"/healthz").status == 404 {
		time.Sleep(10 * time.Millisecond)
	}
	check(t, "http://"+at, false)
}

// buildTraefik builds the newest Traefik whose modules are all published: those that it replaces in its own go.mod, and
// those of the DNS providers that it has.
func buildTraefik(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	const traefik = "github.com/traefik/traefik/v3"
	module := "module traefik\n\ngo 1.26.0\n\nrequire " + traefik + " v3.6.12\n" +
		"replace github.com/abbot/go-http-auth => github.com/containous/go-http-auth v0.4.1-0.20200324110947-a37a7636d23e\n" +
		"replace github.com/gorilla/mux => github.com/containous/mux v0.0.0-20250523120546-41b6ec3aed59\n" +
		"replace github.com/mailgun/minheap => github.com/containous/minheap v0.0.0-20190809180810-6e71eb837595\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-o", program, traefik+"/cmd/traefik")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}
