package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint"
)

// Updater is the limiter that Watch keeps up to date: a *stint.Limiter. Each change after the first
// reading, in force or rejected, is reported to it (stint.EventPolicy), and it logs the
// change.
type Updater interface {
	Update(opts ...stint.Option) error
	ReportPolicy(file string, err error)
}

// Change is the argument of functions given to WithObserver.
type Change struct {
	Path string
	// Policy is the policy now in force. Policy is nil if the file is invalid: Err is then the
	// reason, and the last valid policy stays in force.
	Policy *Policy
	// Err is Errors for mistakes in the file, or the error of reading it, or the error
	// of Update.
	Err error
}

// WithObserver calls f after every change of the file, whether the change came into force or was
// rejected. By default nothing is called. Calls are made one at a time, on a goroutine of the
// Watcher: a panic of f is logged. If given several times, all functions are called, in order. f
// must not be nil.
func WithObserver(f func(Change)) Option {
	return option(func(c *config) {
		if f == nil {
			c.bad("WithObserver(nil): pass a function, or leave it out")
			return
		}
		c.observers = append(c.observers, f)
	})
}

// WithDebounce sets how long a file must stay unchanged before it is read, so that a
// half-written file isn't read. The default is 100 ms. d is 1 ms or more. A file that changes
// all the time is read after ten times d.
func WithDebounce(d time.Duration) Option {
	return option(func(c *config) {
		if d <= 0 {
			c.bad("WithDebounce(%v): pass a positive duration, or leave it out", d)
			return
		}
		if d < time.Millisecond { // its unit is missing
			c.bad("WithDebounce(%v): use %d*time.Millisecond", d, int64(d))
			return
		}
		c.debounce = d
	})
}

// Watcher follows a file. Watch makes one. It is safe for concurrent use.
type Watcher struct {
	path    string // as given
	file    string // absolute, in case the program changes directory
	limiter Updater
	config  *config
	notify  *fsnotify.Watcher
	places  places
	watched []string // directories
	done    chan struct{}

	mu   sync.Mutex
	last outcome // of the latest look; only the watcher's goroutine sets it
}

// outcome is the result of one look at the file.
type outcome struct {
	content []byte // nil if it couldn't be read
	err     error
	// final says that the same content has the same outcome: it is in force, or it has a
	// mistake. What the limiter has rejected it may take later.
	final bool
}

// equal reports whether o tells nothing new after p, such as a file that is still missing.
func (o outcome) equal(p outcome) bool {
	return bytes.Equal(o.content, p.content) && (o.err == nil) == (p.err == nil) &&
		(o.err == nil || o.err.Error() == p.err.Error())
}

// Watch updates a limiter from a file, at once and then whenever the file changes,
// until ctx ends. If the file can't be used, nothing changes: the error is logged and
// observed, the last good policy stays in force, and the next good one replaces it.
//
// A pipe, a socket or a device isn't read: that is an error.
//
// The first reading has to succeed; otherwise Watch returns its error and watches
// nothing. The limiter is updated even if it was made from the same file just before,
// so no change in between is lost. Its counts stay.
//
// Watch watches every directory and symbolic link on the way to the file. So it notices
// at once when the file is renamed into place, edited, deleted and created again, or
// swapped together with any directory above it, as deployments and Kubernetes do. It also
// reads the file every 10 seconds, for changes that the file system doesn't report: those
// made by other machines (NFS), within a single file mounted into a container, or in a
// directory that the process may not read. What the limiter has rejected is tried again
// then. If a file mounted into a container is replaced, the container keeps the old
// version: mount the file's directory instead.
//
// Replace a file by renaming: if a file is written in parts with pauses in between, half
// of it may be valid and come into force.
func Watch(ctx context.Context, path string, limiter Updater, opts ...Option) (*Watcher, error) {
	c, err := newConfig(opts)
	if limiter == nil {
		err = errors.Join(err, errors.New("policy: Watch without a limiter: pass the limiter to update"))
	}
	if err != nil {
		return nil, err
	}
	w := &Watcher{path: path, limiter: limiter, config: c, done: make(chan struct{})}
	if w.file, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		return nil, fmt.Errorf("policy: watch %s: %w", path, err)
	}
	if _, w.last = w.read(); w.last.err != nil {
		_ = w.notify.Close()
		return nil, w.last.err
	}
	go w.run(ctx)
	return w, nil
}

// Err returns why the current file can't be used, or nil if it is in force. It suits a
// health page.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.err
}

// Done is closed when ctx has ended and the last change has been handled.
func (w *Watcher) Done() <-chan struct{} { return w.done }

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.notify.Close()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	ticker := time.NewTicker(w.config.readEvery)
	defer ticker.Stop()
	var since time.Time // of the first change not yet looked at
	changed := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		timer.Reset(max(0, min(w.config.debounce, since.Add(10*w.config.debounce).Sub(now))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.notify.Events:
			if !open {
				return
			}
			name := filepath.Clean(e.Name)
			if e.Op&(fsnotify.Rename|fsnotify.Remove) != 0 {
				w.dropWatches(name)
			}
			if w.places.have(name) {
				changed()
			}
		case err, open := <-w.notify.Errors:
			if !open {
				return
			}
			// After an overflow events are missing, so read the file. Other errors are reported, and the
			// file is read then, too.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				logPanics(func() { w.report(nil, outcome{err: fmt.Errorf("policy: watch %s: %w", w.path, err)}) })
			}
			changed()
		case <-ticker.C:
			if since.IsZero() {
				changed()
			}
		case <-timer.C:
			since = time.Time{}
			logPanics(func() { w.report(w.read()) })
		}
	}
}

// logPanics calls f, which may call an observer or the limiter, and logs its panic, which
// would end the process.
func logPanics(f func()) {
	defer func() {
		if v := recover(); v != nil {
			slog.Error("stint: panic while following a policy file", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// report notifies the limiter and the observers of an outcome, unless it is the one before.
func (w *Watcher) report(p *Policy, o outcome) {
	w.mu.Lock()
	before := w.last
	w.last = o
	w.mu.Unlock()
	if o.equal(before) {
		return
	}
	w.limiter.ReportPolicy(w.path, o.err)
	for _, observe := range w.config.observers {
		logPanics(func() { observe(Change{w.path, p, o.err}) })
	}
}

// read reads the file and updates the limiter, unless the content has had its final outcome.
func (w *Watcher) read() (*Policy, outcome) {
	// Watch before reading, so that no change falls between the two.
	var data []byte
	err := w.updateWatches()
	if err == nil {
		data, err = readRegular(w.file)
	}
	if err != nil {
		return nil, outcome{err: fmt.Errorf("policy: %w", err)}
	}
	if w.last.final && bytes.Equal(data, w.last.content) {
		return nil, w.last
	}
	p, err := parse(w.path, data, w.config)
	if err != nil {
		return nil, outcome{data, err, true}
	}
	// A policy file is complete, so a limit that it no longer has was removed on purpose.
	if err := w.limiter.Update(append(p.Options(), stint.WithoutWarnings("update-drops"))...); err != nil {
		return nil, outcome{data, fmt.Errorf("policy: %s: %w", w.path, err), false}
	}
	return p, outcome{data, nil, true}
}

// readRegular reads a file, unless it is a pipe, a socket or a device: reading one might never end.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%s isn't a regular file: write the policy to a file, because Watch reads it again and again", path)
	}
	return os.ReadFile(path)
}

// dropWatches ends the watches of a directory that was removed or renamed, and of those below it.
// New directories of the same names need watches of their own.
func (w *Watcher) dropWatches(name string) {
	w.watched = slices.DeleteFunc(w.watched, func(dir string) bool {
		_, below := strings.CutPrefix(dir, name+string(filepath.Separator))
		if dir != name && !below {
			return false
		}
		_ = w.notify.Remove(dir) // it may be gone already
		return true
	})
}

// updateWatches watches the directories that the file's path leads through now or, if the file is
// missing, those in which it may appear.
func (w *Watcher) updateWatches() error {
	for attempt := 0; ; attempt++ {
		places, err := placesOf(w.file)
		now := places.directories()
		watchErr := w.watch(now)
		if attempt < 10 && errors.Is(watchErr, os.ErrNotExist) {
			continue // a directory has gone meanwhile, so the path leads another way now
		}
		for _, dir := range w.watched {
			if !slices.Contains(now, dir) {
				_ = w.notify.Remove(dir) // it may be gone already
			}
		}
		w.places, w.watched = places, now
		if err == nil && watchErr != nil {
			err = fmt.Errorf("watch: %w", watchErr)
		}
		return err
	}
}

// watch watches directories, as many as it can, and returns the first error. It adds those
// already watched again, since one may be a new directory of the same name, and the watch
// ended with the old one. A directory that the process may pass but not read can't be
// watched; /home often is one.
func (w *Watcher) watch(directories []string) (first error) {
	for _, dir := range directories {
		if err := w.notify.Add(dir); !errors.Is(err, fs.ErrPermission) {
			first = cmp.Or(first, err)
		}
	}
	return first
}
