package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/background"
)

// Updater is what Watch keeps up to date: a *stint.Limiter. Each change after the first
// reading, in force or refused, is reported to it (stint.EventPolicy), and it logs the
// change.
type Updater interface {
	Update(opts ...stint.Option) error
	Tell(stint.Event)
}

// Change is the argument of functions given to WithObserver.
type Change struct {
	Path string
	// Policy is the policy now in force. It is nil if the file can't be used: Err then
	// says why, and the last good policy stays in force.
	Policy *Policy
	// Err is Errors for mistakes in the file, or the error of reading it, or the error
	// of Update.
	Err error
}

// WithObserver calls f after every change, whether it came into force or not. Calls are
// made one at a time, on a goroutine of the Watcher: a panic of f is logged. If given
// several times, all functions are called, in order. f must not be nil.
func WithObserver(f func(Change)) Option {
	return func(c *config) {
		if f == nil {
			c.bad("WithObserver(nil): write a function, or leave it out")
			return
		}
		c.observers = append(c.observers, f)
	}
}

// WithDebounce sets how long a file must stay unchanged before it is read, so that a
// half-written file isn't read. The default is 100 ms; d must be positive. A file that
// changes all the time is read after ten times d.
func WithDebounce(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.bad("WithDebounce(%v): write a positive duration, or leave it out", d)
			return
		}
		c.debounce = d
	}
}

// Watcher follows a file. Watch makes one. It is safe for concurrent use.
type Watcher struct {
	path    string // as given
	file    string // absolute, in case the program changes directory
	to      Updater
	with    *config
	notify  *fsnotify.Watcher
	places  places
	watched []string // directories
	content []byte   // what was read last
	seen    bool     // content is set
	done    chan struct{}

	mu  sync.Mutex
	err error
}

// Watch updates a limiter from a file, at once and then whenever the file changes,
// until ctx ends. If the file can't be used, nothing changes: the error is logged and
// observed, the last good policy stays in force, and the next good one replaces it.
//
// The first reading has to succeed; otherwise Watch returns its error and watches
// nothing. The limiter is updated even if it was made from the same file just before,
// so no change in between is lost. Its counts stay.
//
// Watch watches the directories of the file and of the symbolic links on the way to it.
// So it notices a file that is renamed into place, edited, deleted and created again,
// or swapped as Kubernetes swaps the files of a ConfigMap. Replace a file by renaming:
// if a file is written in parts with pauses in between, half of it may be valid and
// come into force. Watch doesn't notice changes that the file system doesn't report,
// such as those made by other machines (NFS) or to a single file mounted into a
// container.
func Watch(ctx context.Context, path string, limiter Updater, opts ...Option) (*Watcher, error) {
	c, err := newConfig(opts)
	if limiter == nil {
		err = errors.Join(err, errors.New("policy: Watch without a limiter: write the one to update"))
	}
	if err != nil {
		return nil, err
	}
	w := &Watcher{path: path, to: limiter, with: c, done: make(chan struct{})}
	if w.file, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		return nil, fmt.Errorf("policy: watch %s: %w", path, err)
	}
	if _, err = w.read(); err != nil {
		_ = w.notify.Close()
		return nil, err
	}
	go w.run(ctx)
	return w, nil
}

// Err returns why the current file can't be used, or nil if it is in force. It suits a
// health page.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Done is closed when ctx has ended and the last change has been handled.
func (w *Watcher) Done() <-chan struct{} { return w.done }

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.notify.Close()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var since time.Time // of the first change not yet looked at
	changed := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		timer.Reset(max(0, min(w.with.debounce, since.Add(10*w.with.debounce).Sub(now))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.notify.Events:
			if !open {
				return
			}
			if i := slices.Index(w.watched, e.Name); i >= 0 && e.Op&(fsnotify.Rename|fsnotify.Remove) != 0 {
				// A directory is gone, and the watch with it: a new one of the same
				// name needs a watch of its own.
				_ = w.notify.Remove(e.Name)
				w.watched = slices.Delete(w.watched, i, i+1)
				changed()
			} else if w.places.have(e.Name) {
				changed()
			}
		case err, open := <-w.notify.Errors:
			if !open {
				return
			}
			// After an overflow events are missing, so read the file. Other errors say
			// little about it, and who hears of one also hears how the file is then.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.seen = false
				background.Do(following, func() { w.report(nil, fmt.Errorf("policy: watch %s: %w", w.path, err)) })
			}
			changed()
		case <-timer.C:
			since = time.Time{}
			background.Do(following, w.look)
		}
	}
}

const following = "following a policy file"

// look reads the file and reports the outcome if it has changed.
func (w *Watcher) look() {
	if p, err := w.read(); p != nil || err != nil {
		w.report(p, err)
	}
}

// report tells whoever wants to know that a policy is in force, or why not.
func (w *Watcher) report(p *Policy, err error) {
	w.mu.Lock()
	before := w.err
	w.err = err
	w.mu.Unlock()
	if err != nil && before != nil && err.Error() == before.Error() {
		return // such as a missing file that is still missing
	}
	w.to.Tell(stint.Event{Kind: stint.EventPolicy, Path: w.path, Err: err})
	for _, observe := range w.with.observers {
		background.Do(following, func() { observe(Change{w.path, p, err}) })
	}
}

// read brings the file into force unless its content is what was read last; it then
// returns nil and no error.
func (w *Watcher) read() (*Policy, error) {
	// Watch before reading, so that no change falls between the two.
	var data []byte
	err := w.follow()
	if err == nil {
		data, err = os.ReadFile(w.file)
	}
	if err != nil {
		w.seen = false
		return nil, fmt.Errorf("policy: %w", err)
	}
	if w.seen && bytes.Equal(data, w.content) {
		return nil, nil
	}
	w.content, w.seen = data, true
	p, err := parse(w.path, data, w.with)
	if err != nil {
		return nil, err
	}
	if err := w.to.Update(p.Options()...); err != nil {
		return nil, fmt.Errorf("policy: %s: %w", w.path, err)
	}
	return p, nil
}

// follow watches the directories that the file's path leads through now, or those where it
// may change that it leads nowhere.
func (w *Watcher) follow() error {
	for again := 0; ; again++ {
		places, lost := placesOf(w.file)
		now := places.directories()
		err := w.watch(now)
		if again < 10 && errors.Is(err, os.ErrNotExist) {
			continue // a directory has gone meanwhile, so the path leads another way now
		}
		for _, dir := range w.watched {
			if !slices.Contains(now, dir) {
				_ = w.notify.Remove(dir) // it may be gone already
			}
		}
		w.places, w.watched = places, now
		if lost == nil && err != nil {
			lost = fmt.Errorf("watch: %w", err)
		}
		return lost
	}
}

// watch watches directories, as many as it can, and returns the first error. It adds those
// already watched again, since one may be a new directory of the same name, and the watch
// ended with the old one.
func (w *Watcher) watch(directories []string) (failed error) {
	for _, dir := range directories {
		failed = cmp.Or(failed, w.notify.Add(dir))
	}
	return failed
}
