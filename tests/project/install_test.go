package project

import (
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// A release of all modules, one after the other: users get each from a proxy that has the modules tagged before
// it, without anything else of this repository. The README's program runs and the commands of every other
// module install.
func TestInstall(t *testing.T) {
	if os.Getenv("STINT_SUITE") != "install" {
		t.Skip("make test-install runs it")
	}
	repository := ready(t)
	proxy := t.TempDir()
	elsewhere(t, proxy)
	modules := 0
	for line := range strings.Lines(run(t, repository, "scripts/release", "--tag", released)) {
		tag, found := strings.CutPrefix(line, "git tag -a -m ")
		if !found {
			continue
		}
		tag, _, _ = strings.Cut(tag, " ")
		name := publish(t, proxy, repository, tag)
		modules++
		t.Run(name, func(t *testing.T) {
			user := t.TempDir()
			run(t, user, "go", "mod", "init", "example.com/user")
			if name == module {
				run(t, user, "go", "get", name+"@"+released)
				text, addr := readmeProgram(t)
				write(t, filepath.Join(user, "main.go"), text, 0o666)
				program := filepath.Join(t.TempDir(), "program")
				run(t, user, "go", "build", "-o", program)
				serves(t, program, addr)
				weighs(t, user)
				return
			}
			run(t, user, "go", "get", name+"/...@"+released)
			run(t, user, "go", "build", "-o", os.DevNull, name+"/...")
			t.Setenv("GOBIN", t.TempDir())
			for _, program := range strings.Fields(run(t, user, "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, name+"/...")) {
				run(t, t.TempDir(), "go", "install", program+"@"+released)
			}
		})
	}
	if modules < 6 {
		t.Errorf("%d modules are released", modules)
	}
}

// weighs holds what a module that uses net/http alone gets along with its go.mod. go mod
// tidy takes what the tests of imported packages import, too.
func weighs(t *testing.T, user string) {
	t.Helper()
	run(t, user, "go", "mod", "tidy")
	if n := len(strings.Fields(run(t, user, "go", "list", "-m", "-f", "{{.Path}}", "all"))); n > 40 {
		t.Errorf("a user of net/http gets %d modules, want at most 40", n)
	}
	sums, err := os.ReadFile(filepath.Join(user, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(sums), "\n"); n > 40 {
		t.Errorf("a user of net/http gets %d lines of go.sum, want at most 40:\n%s", n, sums)
	}
}

// publish puts the module of a tag into a proxy, and returns its path. The tree of a
// module ends where another's begins.
func publish(t *testing.T, proxy, repository, tag string) string {
	t.Helper()
	dir := path.Dir(tag)
	name := path.Join(module, dir)
	at := filepath.Join(proxy, name, "@v")
	write(t, filepath.Join(at, "list"), released+"\n", 0o666)
	write(t, filepath.Join(at, released+".info"), `{"Version":"`+released+`"}`, 0o666)
	write(t, filepath.Join(at, released+".mod"), run(t, repository, "git", "show", tag+":"+path.Join(dir, "go.mod")), 0o666)
	archive := []string{"archive", "-o", filepath.Join(at, released+".zip"), "--prefix=" + name + "@" + released + "/", tag + ":" + strings.TrimPrefix(dir, "."), "."}
	for _, below := range strings.Fields(run(t, filepath.Join(repository, dir), "git", "ls-files", "*/go.mod")) {
		archive = append(archive, ":(exclude)"+path.Dir(below))
	}
	run(t, repository, "git", archive...)
	return name
}

// elsewhere has the go commands of a test know nothing of this repository or of what
// they have fetched before: modules come from proxy, else from what is downloaded
// here, else from where the environment says.
func elsewhere(t *testing.T, proxy string) {
	t.Helper()
	env := func(name string) string { return strings.TrimSpace(run(t, ".", "go", "env", name)) }
	downloaded := filepath.Join(env("GOMODCACHE"), "cache", "download")
	t.Setenv("GOPROXY", strings.Join([]string{"file://" + proxy, "file://" + downloaded, env("GOPROXY")}, ","))
	// go.sum has vouched for what is downloaded, and only we for our own.
	t.Setenv("GOSUMDB", "off")
	for _, name := range []string{"GOPRIVATE", "GONOPROXY"} {
		t.Setenv(name, "")
	}
	t.Setenv("GOENV", "off")
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
}

// serves runs a program that readmeProgram was built to, and asks it.
func serves(t *testing.T, program, addr string) {
	t.Helper()
	cmd := exec.Command(program)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if !strings.Contains(said.String(), "curl -i http://"+addr) {
			t.Errorf("it says %q, want the command to try", said.String())
		}
	}()
	var resp *http.Response
	eventually(t, func() bool {
		var err error
		resp, err = http.Get("http://" + addr)
		return err == nil
	})
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit") == "" || resp.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("a plain request gets %s %v, want 200 and what is left", resp.Status, resp.Header)
	}
}
