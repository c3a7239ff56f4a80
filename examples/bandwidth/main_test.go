package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store/memstore"
)

func app(t *testing.T, rate int64, dir string) http.Handler {
	t.Helper()
	l, err := limits(rate, memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	return stinthttp.Middleware(l)(files(dir))
}

func TestPaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 3_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		method, path string
		fields       string
		size         int
		want         time.Duration
	}{
		{"GET", "/file", "", 3_000_000, 2750 * time.Millisecond},
		{"GET", "/file", "bytes=1000000-1999999", 1_000_000, 750 * time.Millisecond},
		{"GET", "/file", "bytes=0-249999", 250_000, 0},
		{"GET", "/zeros?bytes=3000000", "", 3_000_000, 2750 * time.Millisecond},
		{"HEAD", "/file", "", 0, 0},
		{"GET", "/nothing", "", 19, 0},
		{"POST", "/count", "", 8, 750 * time.Millisecond},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			h := app(t, 1_000_000, dir)
			r := httptest.NewRequest(tt.method, tt.path, nil)
			if tt.method == "POST" {
				r = httptest.NewRequest("POST", tt.path, strings.NewReader(strings.Repeat("x", 1_000_000)))
			}
			r.Header.Set("X-API-Key", "k1")
			if tt.fields != "" {
				r.Header.Set("Range", tt.fields)
			}
			w := httptest.NewRecorder()
			start := time.Now()
			h.ServeHTTP(w, r)
			if took := time.Since(start); took < tt.want || took > tt.want+time.Millisecond || w.Body.Len() != tt.size {
				t.Errorf("%s %s %s: %d bytes in %v, want %d in %v", tt.method, tt.path, tt.fields, w.Body.Len(), took, tt.size, tt.want)
			}
		})
	}
}

// curl is how users will look at it. STINT_CURL=long in the environment makes it
// the ten megabytes at one a second that the documentation speaks of; without,
// it is a short form, of which only the least time is looked at.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	rate, size, long := int64(1_000_000), 1_000_000, os.Getenv("STINT_CURL") == "long"
	if long {
		size = 10_000_000
	}
	srv := httptest.NewServer(app(t, rate, "."))
	defer srv.Close()
	took := func(keys ...string) time.Duration {
		var all sync.WaitGroup
		start := time.Now()
		for _, key := range keys {
			all.Go(func() {
				out, err := exec.Command(curl, "-sSf", "-o", os.DevNull, "-w", "%{size_download}", "-H", "X-API-Key: "+key,
					fmt.Sprintf("%s/zeros?bytes=%d", srv.URL, size)).CombinedOutput()
				if err != nil || string(out) != fmt.Sprint(size) {
					t.Errorf("curl: %v %s", err, out)
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	alone, shared := took("a"), took("b", "b")
	t.Logf("%d bytes at %d a second: %v alone, %v two at once", size, rate, alone, shared)
	switch {
	case long:
		if alone < 9*time.Second || alone > 11*time.Second || shared < 18*time.Second || shared > 22*time.Second {
			t.Error("want 10 s and 20 s, give or take a tenth")
		}
	case alone < 740*time.Millisecond || shared < 1740*time.Millisecond: // a slow machine takes longer
		t.Errorf("one alone took %v, want 750ms at least; two at once %v, want 1.75s at least", alone, shared)
	}
}
