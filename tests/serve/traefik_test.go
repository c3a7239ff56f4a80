package serve

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make test-traefik: forwardAuth and the X-Forwarded-* fields of an entry point are Traefik's own code. The whole
// program can't be built from published modules: it replaces some, and its DNS providers require some that are gone.
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
	cmd := exec.Command(program, config)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	check(t, "http://"+strings.TrimSpace(address), false)
}

// buildTraefik builds testdata/traefik in a module of its own. Three modules that only other features need are
// replaced: go-http-auth by an older version of Traefik's fork, ext by two empty types, and lego by itself without its
// DNS providers.
func buildTraefik(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, said.String())
		}
		return strings.TrimSpace(string(out))
	}
	main, err := os.ReadFile("testdata/traefik/main.go")
	if err != nil {
		t.Fatal(err)
	}
	const traefik, lego = "github.com/traefik/traefik/v3 v3.7.13", "github.com/go-acme/lego/v5"
	write("main.go", string(main))
	write("ext/go.mod", "module github.com/traefik/traefik/dynamic/ext\n\ngo 1.23\n")
	write("ext/ext.go", "package ext\n\ntype (\n\tHTTP   struct{}\n\tRouter struct{}\n)\n")
	write("go.mod", "module traefik\n\ngo 1.26.0\n\nrequire "+traefik+"\n"+
		"replace github.com/abbot/go-http-auth => github.com/containous/go-http-auth v0.4.1-0.20200324110947-a37a7636d23e\n"+
		"replace github.com/gorilla/mux => github.com/containous/mux v0.0.0-20250523120546-41b6ec3aed59\n"+
		"replace github.com/traefik/traefik/dynamic/ext => ./ext\n"+
		"exclude github.com/tencentcloud/tencentcloud-sdk-go v3.0.83+incompatible\n")
	run("mod", "download", lego)
	if err := os.CopyFS(filepath.Join(dir, "lego"), os.DirFS(run("list", "-m", "-f", "{{.Dir}}", lego))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "lego/providers/dns")); err != nil {
		t.Fatal(err)
	}
	write("lego/providers/dns/dns.go", "package dns\n\nimport (\n\t\"errors\"\n\n\t\""+lego+"/challenge\"\n)\n\n"+
		"func NewDNSChallengeProviderByName(string) (challenge.Provider, error) { return nil, errors.ErrUnsupported }\n")
	run("mod", "edit", "-replace", lego+"=./lego")
	program = filepath.Join(dir, "program")
	run("build", "-o", program, ".")
	return program
}
