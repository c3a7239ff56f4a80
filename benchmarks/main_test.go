package main

import (
	"os/exec"
	"testing"
	"time"
)

// It runs: every subject answers at every load.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server on the PATH")
	}
	if err := run(1, 10*time.Millisecond, "redis-server"); err != nil {
		t.Fatal(err)
	}
}
