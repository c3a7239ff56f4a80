package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/memstore"
)

// units is a policy that lets n units pass an hour.
func units(n int) string {
	return fmt.Sprintf("version: 1\nkey: global\nlimits: [{name: calls, rate: %d/1h}]\n", n)
}

// watched is a limiter that a file keeps up to date.
type watched struct {
	t       *testing.T
	lim     *stint.Limiter
	watcher *policy.Watcher

	mu      sync.Mutex
	changes []policy.Change
	log     bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func watch(t *testing.T, path string, opts ...policy.Option) *watched {
	t.Helper()
	w := &watched{t: t}
	w.lim = stint.Must(stint.New(stint.Rate(99, time.Hour), stint.WithKey(stint.Global()),
		stint.WithLogger(slog.New(slog.NewJSONHandler(w, nil)))))
	ctx, stop := context.WithCancel(context.Background())
	var err error
	w.watcher, err = policy.Watch(ctx, path, w.lim, append([]policy.Option{
		policy.WithDebounce(20 * time.Millisecond),
		policy.WithObserver(func(c policy.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes = append(w.changes, c)
		}),
	}, opts...)...)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		<-w.watcher.Done()
	})
	return w
}

// inForce is how many units pass an hour.
func (w *watched) inForce() int {
	w.t.Helper()
	d, err := w.lim.Peek(context.Background(), "k")
	if err != nil {
		w.t.Fatal(err)
	}
	return int(d.Limits[0].Capacity)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) { // a real file is watched
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func (w *watched) becomes(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d units in force", n), func() bool { return w.inForce() == n })
	eventually(w.t, "no error", func() bool { return w.watcher.Err() == nil })
}

// rejects waits until the file is rejected.
func (w *watched) rejects() {
	w.t.Helper()
	eventually(w.t, "rejected", func() bool { return w.watcher.Err() != nil })
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes the file at once: on a busy machine, write can be seen half-way.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	do(t, os.Rename(path+".new", path))
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// However a file changes, the new one comes into force, and nothing but the old one and
// the new one ever is.
func TestChanges(t *testing.T) {
	// Every case starts with 1 in dir/policy.yaml, or what prepare makes of it.
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		change  func(t *testing.T, dir string, w *watched)
	}{
		{"written in place", nil, func(t *testing.T, dir string, _ *watched) { write(t, dir+"/policy.yaml", units(2)) }},
		{"renamed into place", nil, func(t *testing.T, dir string, _ *watched) {
			write(t, dir+"/.policy.yaml.swp", units(2))
			do(t, os.Rename(dir+"/.policy.yaml.swp", dir+"/policy.yaml"))
		}},
		{"moved away and written anew", nil, func(t *testing.T, dir string, _ *watched) {
			do(t, os.Rename(dir+"/policy.yaml", dir+"/policy.yaml~"))
			write(t, dir+"/policy.yaml", units(2))
		}},
		{"deleted, missed, and made again", nil, func(t *testing.T, dir string, w *watched) {
			do(t, os.Remove(dir+"/policy.yaml"))
			w.rejects()
			if !errors.Is(w.watcher.Err(), os.ErrNotExist) || w.inForce() != 1 {
				t.Errorf("%v, %d in force", w.watcher.Err(), w.inForce())
			}
			write(t, dir+"/policy.yaml", units(2))
		}},
		{"deleted and made again at once", nil, func(t *testing.T, dir string, _ *watched) {
			do(t, os.Remove(dir+"/policy.yaml"))
			write(t, dir+"/policy.yaml", units(2))
		}},
		{"emptied and written in two writes", nil, func(t *testing.T, dir string, w *watched) {
			f, err := os.OpenFile(dir+"/policy.yaml", os.O_WRONLY|os.O_TRUNC, 0)
			do(t, err)
			defer f.Close()
			text := units(2)
			_, err = f.WriteString(text[:20])
			do(t, err)
			w.rejects() // the first half has been read
			_, err = f.WriteString(text[20:])
			do(t, err)
		}},
		{"emptied and written in two writes at once", nil, func(t *testing.T, dir string, _ *watched) {
			f, err := os.OpenFile(dir+"/policy.yaml", os.O_WRONLY|os.O_TRUNC, 0)
			do(t, err)
			defer f.Close()
			text := units(2)
			_, err = f.WriteString(text[:20])
			do(t, err)
			_, err = f.WriteString(text[20:])
			do(t, err)
		}},
		{"a ConfigMap", func(t *testing.T, dir string) {
			do(t, os.Remove(dir+"/policy.yaml"), os.Mkdir(dir+"/..2026_1", 0o700),
				os.Symlink("..2026_1", dir+"/..data"), os.Symlink("..data/policy.yaml", dir+"/policy.yaml"))
			write(t, dir+"/..2026_1/policy.yaml", units(1))
		}, func(t *testing.T, dir string, _ *watched) {
			do(t, os.Mkdir(dir+"/..2026_2", 0o700))
			write(t, dir+"/..2026_2/policy.yaml", units(2))
			do(t, os.Symlink("..2026_2", dir+"/..data_tmp"), os.Rename(dir+"/..data_tmp", dir+"/..data"), os.RemoveAll(dir+"/..2026_1"))
		}},
		{"a link to a file elsewhere, written in place", linked, func(t *testing.T, dir string, _ *watched) {
			write(t, dir+"/elsewhere/real.yaml", units(2))
		}},
		{"a link to a file elsewhere, replaced", linked, func(t *testing.T, dir string, _ *watched) {
			write(t, dir+"/elsewhere/new", units(2))
			do(t, os.Rename(dir+"/elsewhere/new", dir+"/elsewhere/real.yaml"))
		}},
		{"a link that is pointed elsewhere", linked, func(t *testing.T, dir string, _ *watched) {
			do(t, os.Mkdir(dir+"/third", 0o700))
			write(t, dir+"/third/real.yaml", units(2))
			do(t, os.Symlink(filepath.Join(dir, "third", "real.yaml"), dir+"/new"), os.Rename(dir+"/new", dir+"/policy.yaml"))
		}},
		{"a link whose target comes back", linked, func(t *testing.T, dir string, w *watched) {
			do(t, os.RemoveAll(dir+"/elsewhere"))
			w.rejects()
			do(t, os.Mkdir(dir+"/elsewhere", 0o700))
			write(t, dir+"/elsewhere/real.yaml", units(2))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir+"/policy.yaml", units(1))
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			w := watch(t, dir+"/policy.yaml")
			if w.inForce() != 1 {
				t.Fatalf("%d in force at first", w.inForce())
			}
			tt.change(t, dir, w)
			w.becomes(2)
			w.mu.Lock()
			for _, c := range w.changes {
				if (c.Policy == nil) != (c.Err != nil) || c.Path != dir+"/policy.yaml" {
					t.Errorf("change %+v", c)
				}
			}
			w.mu.Unlock()
			// And it is still watched.
			write(t, dir+"/policy.yaml", units(3))
			w.becomes(3)
		})
	}
}

func linked(t *testing.T, dir string) {
	do(t, os.Mkdir(dir+"/elsewhere", 0o700), os.Rename(dir+"/policy.yaml", dir+"/elsewhere/real.yaml"),
		os.Symlink("elsewhere/real.yaml", dir+"/policy.yaml"))
}

// The directories and links on the way to a file change too.
func TestDirectoriesChange(t *testing.T) {
	t.Run("a release is switched", func(t *testing.T) {
		root := t.TempDir()
		do(t, os.MkdirAll(root+"/releases/1/etc", 0o700), os.MkdirAll(root+"/releases/2/etc", 0o700), os.Symlink("releases/1", root+"/current"))
		write(t, root+"/releases/1/etc/policy.yaml", units(1))
		write(t, root+"/releases/2/etc/policy.yaml", units(2))
		w := watch(t, root+"/current/etc/../etc/policy.yaml")
		do(t, os.Symlink(root+"/releases/2", root+"/next"), os.Rename(root+"/next", root+"/current"))
		w.becomes(2)
		write(t, root+"/releases/1/etc/policy.yaml", "nonsense") // no longer in use
		write(t, root+"/releases/2/etc/policy.yaml", units(3))
		w.becomes(3)
	})
	t.Run("a directory is deleted and made again", func(t *testing.T) {
		root := t.TempDir()
		do(t, os.MkdirAll(root+"/a/b", 0o700))
		write(t, root+"/a/b/policy.yaml", units(1))
		w := watch(t, root+"/a/b/policy.yaml")
		do(t, os.RemoveAll(root+"/a"))
		w.rejects()
		do(t, os.MkdirAll(root+"/a/b", 0o700))
		write(t, root+"/a/b/policy.yaml", units(2))
		w.becomes(2)
		write(t, root+"/a/b/policy.yaml", units(3))
		w.becomes(3)
	})
	t.Run("a directory is replaced at once", func(t *testing.T) {
		root := t.TempDir()
		do(t, os.Mkdir(root+"/a", 0o700), os.Mkdir(root+"/new", 0o700))
		write(t, root+"/a/policy.yaml", units(1))
		write(t, root+"/new/policy.yaml", units(2))
		w := watch(t, root+"/a/policy.yaml")
		do(t, os.Rename(root+"/a", root+"/old"), os.Rename(root+"/new", root+"/a"))
		w.becomes(2)
		write(t, root+"/a/policy.yaml", units(3))
		w.becomes(3)
	})
	t.Run("a file stands where a directory was", func(t *testing.T) {
		root := t.TempDir()
		do(t, os.MkdirAll(root+"/a/b", 0o700))
		write(t, root+"/a/b/policy.yaml", units(1))
		w := watch(t, root+"/a/b/policy.yaml")
		do(t, os.Rename(root+"/a", root+"/old"))
		write(t, root+"/a", "no directory")
		do(t, os.RemoveAll(root+"/old"))
		w.rejects()
		do(t, os.Remove(root+"/a"), os.MkdirAll(root+"/a/b", 0o700))
		write(t, root+"/a/b/policy.yaml", units(2))
		w.becomes(2)
	})
	t.Run("a link leads to itself", func(t *testing.T) {
		path := t.TempDir() + "/policy.yaml"
		write(t, path, units(1))
		w := watch(t, path)
		do(t, os.Symlink(path, path+".new"), os.Rename(path+".new", path))
		w.rejects()
		replace(t, path, units(2))
		w.becomes(2)
	})
	t.Run("a relative path, after the program has moved", func(t *testing.T) {
		dir := t.TempDir()
		t.Chdir(dir)
		write(t, "policy.yaml", units(1))
		w := watch(t, "policy.yaml")
		t.Chdir(t.TempDir())
		write(t, "policy.yaml", units(4)) // another
		write(t, dir+"/policy.yaml", units(2))
		w.becomes(2)
	})
}

// Directories above the file's own change in one step: renamed away and replaced, swapped
// again and again, and swapped by what they are beside a link.
func TestDirectoriesAboveChange(t *testing.T) {
	for _, tt := range []struct {
		name  string
		file  string // below root
		swaps []string
	}{
		{"the file's own", "current", []string{"current"}},
		{"the one above", "current/etc", []string{"current"}},
		{"three above", "current/a/b/c", []string{"current"}},
		{"two of them in turn", "current/a/b", []string{"current", "current/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			do(t, os.MkdirAll(root+"/"+tt.file, 0o700))
			write(t, root+"/"+tt.file+"/policy.yaml", units(1))
			w := watch(t, root+"/"+tt.file+"/policy.yaml")
			for i := range 4 {
				dir := root + "/" + tt.swaps[i%len(tt.swaps)]
				below := strings.TrimPrefix(root+"/"+tt.file, dir)
				do(t, os.MkdirAll(dir+".next"+below, 0o700))
				write(t, dir+".next"+below+"/policy.yaml", units(10*i+12))
				do(t, os.Rename(dir, fmt.Sprint(dir, ".old", i)), os.Rename(dir+".next", dir))
				w.becomes(10*i + 12)
				// What has been moved away isn't watched any more, and what is there is.
				write(t, fmt.Sprint(dir, ".old", i, below, "/policy.yaml"), "nonsense")
				replace(t, root+"/"+tt.file+"/policy.yaml", units(10*i+13))
				w.becomes(10*i + 13)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.changes {
				if errors.As(c.Err, new(policy.Errors)) {
					t.Errorf("read what was moved away: %v", c.Err)
				}
			}
		})
	}
}

// Each change that can't be used is observed, also if its mistake reads like the last one's.
func TestEachBadFileIsObserved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path)
	observed := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d changes observed", n), func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.changes) == n
		})
	}
	bad := "version: 1\nkey: global\nlimits: [{rate: 5/1h, brust: 5}]\n"
	replace(t, path, bad)
	observed(1)
	replace(t, path, bad+"# another\n")
	observed(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, b := w.changes[0].Err, w.changes[1].Err; a == nil || b == nil || a.Error() != b.Error() {
		t.Errorf("%v, then %v: want one message twice", a, b)
	}
}

// busy rejects the updates from its second on until it is free.
type busy struct {
	mu      sync.Mutex
	updates int
	free    bool
}

func (b *busy) Update(...stint.Option) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.updates++; b.updates > 1 && !b.free {
		return errors.New("conflict")
	}
	return nil
}

func (b *busy) ReportPolicy(string, error) {}

// A policy that the limiter has rejected is tried again when its file is next looked at, and
// observers learn only that the outcome is another.
func TestUpdateIsTriedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	changes := make(chan policy.Change, 10)
	to := &busy{}
	w, err := policy.Watch(t.Context(), path, to,
		policy.WithDebounce(time.Millisecond), policy.WithObserver(func(c policy.Change) { changes <- c }))
	if err != nil {
		t.Fatal(err)
	}
	replace(t, path, units(2))
	if c := <-changes; c.Err == nil {
		t.Errorf("observed %+v", c)
	}
	tried := func(n int) func() bool {
		return func() bool {
			do(t, os.Chmod(path, 0o600)) // which changes nothing
			to.mu.Lock()
			defer to.mu.Unlock()
			return to.updates >= n
		}
	}
	eventually(t, "tried again", tried(4))
	to.mu.Lock()
	to.free = true
	n := to.updates
	to.mu.Unlock()
	eventually(t, "and again", tried(n+1))
	if c := <-changes; c.Err != nil || c.Policy == nil {
		t.Errorf("observed %+v", c)
	}
	eventually(t, "no error", func() bool { return w.Err() == nil })
}

// The last good policy stays in force, and the log and observers get the error.
func TestBadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path)
	if w.watcher.Err() != nil {
		t.Fatal(w.watcher.Err())
	}
	replace(t, path, "version: 1\nkey: global\nlimits: [{rate: 5/1h, brust: 5}]\n")
	w.rejects()
	want := path + ":3:23: unknown field \"brust\" of a limit: write burst"
	if err := w.watcher.Err(); err.Error() != want || !errors.As(err, new(policy.Errors)) {
		t.Errorf("%v, want %s", err, want)
	}
	if w.inForce() != 1 {
		t.Errorf("%d in force, want the last good 1", w.inForce())
	}
	// Whatever else happens there, it is said once.
	write(t, filepath.Join(filepath.Dir(path), "other"), "x")
	do(t, os.Chmod(path, 0o644))
	replace(t, path, units(2))
	w.becomes(2)

	eventually(t, "two changes observed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.changes) == 2
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.changes[0]; c.Policy != nil || c.Err == nil || c.Err.Error() != want {
		t.Errorf("observed %+v", c)
	}
	if c := w.changes[1]; c.Policy == nil || c.Err != nil {
		t.Errorf("observed %+v", c)
	}
	var levels, changes []string
	for line := range strings.Lines(w.log.String()) {
		var record struct{ Level, Msg, Path, Error, Changes string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record.Changes != "" {
			changes = append(changes, record.Changes)
			continue
		}
		if record.Path != path || record.Level == "ERROR" && record.Error != want {
			t.Errorf("logged %s", line)
		}
		levels = append(levels, record.Level)
	}
	if len(changes) != 1 || changes[0] != "limit calls added: TokenBucket: 1 per hour, burst 1, by Global(); limit rate removed" {
		t.Errorf("logged the changes %q", changes)
	}
	// The beginning of a failure and its end are each logged at once.
	if !slices.Equal(levels, []string{"ERROR", "INFO"}) {
		t.Errorf("logged %q", levels)
	}
}

// A file that was missing or wrong, and is as it was before.
func TestPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path)
	do(t, os.Rename(path, path+"~"))
	w.rejects()
	do(t, os.Rename(path+"~", path))
	w.becomes(1)
	write(t, path, "")
	w.rejects()
	write(t, path, units(1))
	w.becomes(1)
}

// A change of the file resets no counts.
func TestCountsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(5))
	w := watch(t, path)
	for range 5 {
		if _, err := w.lim.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path, units(6))
	w.becomes(6)
	var passed int
	for range 6 {
		if _, err := w.lim.Take(t.Context(), "k", 1); err == nil {
			passed++
		} else if !errors.As(err, new(*stint.DeniedError)) {
			t.Fatal(err)
		}
	}
	if passed > 1 {
		t.Errorf("%d passed after the change from 5 to 6, want one at most", passed)
	}
}

// Options given in Go stay in force when the file changes.
func TestGoOptionsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(5))
	var updates, decisions atomic.Int64
	opts := []policy.Option{
		policy.WithOptions(stint.WithStore(memstore.New()), stint.WithObserver(func(e stint.Event) {
			switch e.Kind {
			case stint.EventUpdated:
				updates.Add(1)
			case stint.EventAdmitted:
				decisions.Add(1)
			}
		})),
		policy.WithDebounce(time.Millisecond),
	}
	p, err := policy.Load(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	lim := stint.Must(stint.New(p.Options()...))
	ctx, stop := context.WithCancel(context.Background())
	w, err := policy.Watch(ctx, path, lim, opts...)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, units(6))
	eventually(t, "two updates observed", func() bool { return updates.Load() >= 2 })
	stop()
	<-w.Done()
	if _, err := lim.Take(t.Context(), "k", 1); err != nil || decisions.Load() != 1 || w.Err() != nil {
		t.Errorf("%v, %d decisions observed, Err %v", err, decisions.Load(), w.Err())
	}
}

// A file is complete: what it doesn't mention is cleared, whoever has set it.
func TestAFileIsComplete(t *testing.T) {
	options := func(content string) []stint.Option {
		p, err := policy.Parse("policy.yaml", []byte("version: 1\nkey: global\n"+content))
		if err != nil {
			t.Fatal(err)
		}
		return p.Options()
	}
	all := options("limits: [{name: a, rate: 5/1h}]\nskip: [preflight]\nroutes: {/a: {limits: [{name: b, rate: 6/1h}]}}")
	lim := stint.Must(stint.New(append(all, stint.WithBlock(func(r *http.Request) bool { return r.Method == http.MethodPut }))...))
	if err := lim.Update(options("limits: [{name: a, rate: 7/1h}]")...); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodOptions, http.MethodPut, http.MethodGet} {
		r := httptest.NewRequest(method, "/a", nil)
		r.Header.Set("Origin", "https://example.com")
		r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		w := httptest.NewRecorder()
		lim.Serve(w, r, func(http.ResponseWriter, *http.Request) {})
		if got := w.Header().Get("RateLimit-Policy"); w.Code != http.StatusOK || got != `"a";q=7;w=3600` {
			t.Errorf("%s: %d, limits %s", method, w.Code, got)
		}
	}
}

// Observers of the limiter stay whatever its file does. They learn of each reload, and
// of events of limiters derived from it.
func TestObserversStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(5))
	w := watch(t, path)
	derived := stint.Must(w.lim.With(stint.Rate(9, time.Hour, stint.WithName("derived"))))
	var mu sync.Mutex
	var told []string
	defer w.lim.Observe(func(e stint.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Kind == stint.EventPolicy:
			told = append(told, fmt.Sprint(e.Kind, " ", filepath.Base(e.Path), " ", e.Err != nil))
		case e.Kind == stint.EventAdmitted:
			told = append(told, fmt.Sprint(e.Kind, " ", e.Decision.Limit, " ", e.Key(0)))
		}
	})()
	so := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == n }
	}
	replace(t, path, units(6))
	eventually(t, "the reload is told", so(1))
	for _, l := range []*stint.Limiter{w.lim, derived} {
		if err := l.Allow(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, path, "limits: nonsense")
	eventually(t, "the rejection is told", so(4))
	want := "[Policy policy.yaml false Admitted calls %00global Admitted calls %00global Policy policy.yaml true]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// rejecting takes no update after the first.
type rejecting struct {
	mu sync.Mutex
	n  int
}

func (r *rejecting) Update(...stint.Option) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n > 1 {
		return errors.New("conflict")
	}
	return nil
}

func (r *rejecting) ReportPolicy(string, error) {}

func TestUpdateRejects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	changes := make(chan policy.Change, 10)
	ctx, stop := context.WithCancel(t.Context())
	w, err := policy.Watch(ctx, path, &rejecting{},
		policy.WithDebounce(time.Millisecond), policy.WithObserver(func(c policy.Change) { changes <- c }))
	if err != nil {
		t.Fatal(err)
	}
	write(t, path+".new", units(2))
	do(t, os.Rename(path+".new", path))
	if c := <-changes; c.Err == nil || c.Err.Error() != "policy: "+path+": conflict" || w.Err() == nil {
		t.Errorf("observed %+v, Err %v", c, w.Err())
	}
	stop()
	<-w.Done()
	if len(changes) > 0 {
		t.Errorf("once more: %+v", <-changes)
	}
}

// A file that never stops changing is read all the same.
func TestBusyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path, policy.WithDebounce(200*time.Millisecond))
	i := 2
	eventually(t, "a change in force while the file changes", func() bool {
		write(t, path+".new", units(i))
		do(t, os.Rename(path+".new", path))
		i++
		return w.inForce() > 1
	})
}

func TestWatchSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	write(t, good, units(1))
	write(t, bad, "version: 1\n")
	circle := filepath.Join(dir, "circle")
	do(t, os.Symlink(circle, circle))
	lim := stint.Must(stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.Global())))
	for _, tt := range []struct {
		path string
		to   policy.Updater
		opts []policy.Option
		want string
	}{
		{filepath.Join(dir, "none"), lim, nil, "no such file"},
		{filepath.Join(dir, "no", "way", "none"), lim, nil, "no such file"},
		{filepath.Join(good, "none"), lim, nil, "not a directory"},
		{circle, lim, nil, "too many symbolic links"},
		{bad, lim, nil, bad + ":1:1: nothing is limited"},
		{good, nil, nil, "policy: Watch without a limiter: pass the limiter to update"},
		{good, lim, []policy.Option{nil}, "policy: option 1 is nil: leave it out"},
		{good, lim, []policy.Option{policy.WithDebounce(0)}, "policy: WithDebounce(0s): pass a positive duration, or leave it out"},
		{good, lim, []policy.Option{policy.WithObserver(nil)}, "policy: WithObserver(nil): pass a function, or leave it out"},
		{good, lim, []policy.Option{policy.WithKey("global", stint.KeyFunc(tenant))}, `policy: WithKey("global")`},
	} {
		w, err := policy.Watch(t.Context(), tt.path, tt.to, tt.opts...)
		if w != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.path, err, tt.want)
		}
	}
}

// Observers run on the watcher's goroutine, where no other code could recover a panic: it
// is logged, and the next change comes into force.
func TestWatchSurvivesPanics(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(log)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path, policy.WithObserver(func(policy.Change) { panic("the policy's observer") }))
	for i := range 3 {
		if i == 1 {
			w.lim.Observe(func(stint.Event) { panic("the limiter's observer") })
		}
		replace(t, path, units(i+2))
		w.becomes(i + 2)
	}
}

// A policy that is in force is reported as such, even if an observer of the limiter panics
// when it hears of it.
func TestWatchSaysWhatIsInForce(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(log)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, units(1))
	w := watch(t, path)
	write(t, path, "version: 1\n")
	w.rejects()
	w.lim.Observe(func(e stint.Event) {
		if e.Kind == stint.EventUpdated {
			panic("the limiter's observer")
		}
	})
	replace(t, path, units(2))
	w.becomes(2)
	eventually(t, "the change is observed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		last := w.changes[len(w.changes)-1]
		return last.Err == nil && last.Policy != nil
	})
}
