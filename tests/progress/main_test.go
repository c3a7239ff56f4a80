package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each package has its line at once, also while an earlier one runs. What failed says why.
func TestProgress(t *testing.T) {
	events, write := io.Pipe()
	lines := make(chan string)
	go show(lineWriter(lines), events)
	send := func(event string) { fmt.Fprintln(write, event) }
	send(`{"Action":"start","Package":"slow"}`)
	send(`{"Action":"start","Package":"quick"}`)
	send(`{"Action":"output","Package":"quick","Test":"TestA","Output":"quiet\n"}`)
	send(`{"Action":"pass","Package":"quick","Test":"TestA"}`)
	go send(`{"Action":"pass","Package":"quick","Elapsed":1.5}`)
	if got := <-lines; got != "ok    quick  1.5s\n" {
		t.Errorf("the first line is %q", got)
	}
	send(`{"Action":"output","Package":"slow","Test":"TestB","Output":"b_test.go:1: wrong\n"}`)
	send(`{"Action":"fail","Package":"slow","Test":"TestB"}`)
	go send(`{"Action":"fail","Package":"slow"}`)
	if got := <-lines + <-lines; !strings.HasPrefix(got, "b_test.go:1: wrong\n") {
		t.Errorf("a failed test prints %q", got)
	}
}

// lineWriter sends each text that is written, unless it is empty.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	if len(b) > 0 {
		w <- string(b)
	}
	return len(b), nil
}

// A package that doesn't compile, and a test that fails, are shown and fail the command.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n", "good/x_test.go": "package x\nimport \"testing\"\nfunc TestGood(*testing.T) {}\n",
		"bad/x_test.go":    "package x\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"because\") }\n",
		"broken/x_test.go": "package x\nimport \"testing\"\nfunc TestBroken(*testing.T) { undefined() }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "progress")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(packages ...string) (string, error) {
		cmd := exec.Command(program, append([]string{"go", "test", "-json"}, packages...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("./good"); err != nil || !strings.HasPrefix(out, "ok    x/good") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := run("./...")
	if err == nil {
		t.Error("no error")
	}
	for _, want := range []string{"ok    x/good", "FAIL  x/bad", "because", "FAIL  x/broken", "undefined: undefined"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
