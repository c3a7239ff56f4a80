//go:build unix

package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A change that the file system doesn't report, as here one through mapped memory, is found
// when the file is next read.
func TestUnreportedChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := []byte("version: 1\nkey: global\nlimits: [{name: calls, rate: 1/1h}]\n")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, len(text), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	to := make(told, 9)
	if _, err := Watch(t.Context(), path, to, WithDebounce(time.Millisecond), option(func(c *config) { c.readEvery = 20 * time.Millisecond })); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(text, []byte("1/1h"))
	mapped[at] = '2'
	if err := <-to; err != nil {
		t.Error(err)
	}
	mapped[at] = '0'
	if err := <-to; err == nil {
		t.Error("a rate of 0 is in force")
	}
}

// A pipe, whose reading would never end, is an error at the start and instead of a file.
func TestWatchReadsNoPipe(t *testing.T) {
	dir := t.TempDir()
	path, pipe := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	to := make(told, 9)
	want := pipe + " isn't a regular file"
	if _, err := Watch(t.Context(), pipe, to); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("at the start: %v", err)
	}
	write := func(units string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte("version: 1\nkey: global\nlimits: [{name: calls, rate: "+units+"/1h}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	if _, err := Watch(t.Context(), path, to, WithDebounce(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pipe, path); err != nil {
		t.Fatal(err)
	}
	if err := <-to; err == nil || !strings.Contains(err.Error(), path+" isn't a regular file") {
		t.Errorf("in place of the file: %v", err)
	}
	write("2")
	if err := <-to; err != nil {
		t.Errorf("a file again: %v", err)
	}
}
