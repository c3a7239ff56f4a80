package policy

import (
	"bytes"
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
)

// Updater is what Watch keeps up to date: a *stint.Limiter. It is told of each change
// after the first reading, in force or refused (stint.EventPolicy), and logs it.
type Updater interface {
	Update(opts ...stint.Option) error
	Tell(stint.Event)
}

// Change is what a function given to WithObserver is told.
type Change struct {
	Path string
	// Policy is what is in force from now on; nil if Err says why the file
	// can't be used and the last good policy stays in force.
	Policy *Policy
	// Err is Errors for mistakes in the file, or why it can't be read, or what
	// Update has against it.
	Err error
}

// WithObserver calls f for every change, whether it came into force or not,
// one after the other and after the fact. Given several times, all are called
// in order.
func WithObserver(f func(Change)) Option {
	return func(c *config) {
		if f == nil {
			c.bad("WithObserver(nil): write a function, or leave it out")
			return
		}
		c.observers = append(c.observers, f)
	}
}

// WithDebounce says for how long a file has to stay as it is before it is
// read, so that one that is being written isn't read half. The default is
// 100 ms. A file that changes all the time is read after ten times that.
func WithDebounce(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.bad("WithDebounce(%v): write a positive duration, or leave it out", d)
			return
		}
		c.debounce = d
	}
}

// Watcher follows a file. It is safe for concurrent use.
type Watcher struct {
	path    string // as it was given
	file    string // the same, wherever the program moves
	to      Updater
	with    *config
	notify  *fsnotify.Watcher
	places  places
	watched []string // directories
	content []byte   // that was looked at last
	seen    bool     // there is a content
	done    chan struct{}

	mu  sync.Mutex
	err error
}

// Watch updates a limiter from a file: at once, and whenever the file changes,
// until ctx ends. A file that can't be used changes nothing: it is logged and
// observed, the last good policy stays in force, and the next good one takes
// over.
//
// The first reading has to succeed: its error is returned, and nothing is
// watched. The limiter is updated even if it was made from the same file just
// before, so no change in between is lost; what it has counted stays.
//
// Watched are the directories of the file and of the symbolic links on the way
// to it, so a file that is renamed into place, edited, deleted and made again,
// or swapped as Kubernetes swaps those of a ConfigMap, is noticed. Replace a
// file by renaming: one that is written in parts with pauses in between may be
// valid, and come into force, half. File systems that don't report changes of
// other machines (NFS), and single files mounted into a container, are not
// followed.
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

// Err returns why the file as it is now can't be used, or nil if it is in
// force: for a health page.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Done is closed when ctx has ended and the last change has been dealt with.
func (w *Watcher) Done() <-chan struct{} { return w.done }

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.notify.Close()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var since time.Time // of the first change that has not been looked at
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
				// A directory has gone, and the watch with it: whatever has
				// its name next needs a watch of its own.
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
			// An overflow has swallowed events: look. Others say little.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.tell(fmt.Errorf("policy: watch %s: %w", w.path, err))
			}
			changed()
		case <-timer.C:
			since = time.Time{}
			w.look()
		}
	}
}

// look reads the file, and tells what has come of it if it has changed.
func (w *Watcher) look() {
	p, err := w.read()
	if p == nil && err == nil {
		return
	}
	w.mu.Lock()
	before := w.err
	w.err = err
	w.mu.Unlock()
	if err != nil && before != nil && err.Error() == before.Error() {
		return // as when a file that is missing is still missing
	}
	w.tell(err)
	for _, observe := range w.with.observers {
		observe(Change{w.path, p, err})
	}
}

func (w *Watcher) tell(err error) {
	w.to.Tell(stint.Event{Kind: stint.EventPolicy, Path: w.path, Err: err})
}

// read brings the file into force, if it isn't the one looked at last. It
// returns nil and no error if it is.
func (w *Watcher) read() (*Policy, error) {
	// Watching comes before reading, so that no change falls between the two.
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

// follow watches the directories that the file's path leads through now.
func (w *Watcher) follow() error {
	var now []string
	for again := 0; ; again++ {
		var err error
		if w.places, err = placesOf(w.file); err != nil {
			return err
		}
		now = w.places.directories()
		if err = w.watch(now); err == nil {
			break
		} else if again == 10 || !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("watch: %w", err)
		}
		// A directory went in the meantime, so that the way is another now.
	}
	for _, dir := range w.watched {
		if !slices.Contains(now, dir) {
			_ = w.notify.Remove(dir) // it may have gone by itself
		}
	}
	w.watched = now
	return nil
}

// watch watches directories. One that is watched already may be another of the
// same name by now, whose predecessor took its watch with it.
func (w *Watcher) watch(directories []string) error {
	for _, dir := range directories {
		if err := w.notify.Add(dir); err != nil {
			return err
		}
	}
	return nil
}
