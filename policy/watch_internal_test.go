package policy

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// told is a limiter that only hears what it is told.
type told chan error

func (told) Update(...stint.Option) error       { return nil }
func (t told) ReportPolicy(_ string, err error) { t <- err }

// An error of the watch is reported, and then that the file is in force, as it has been all
// along. All observers hear of it, even if the first of them panics.
func TestWatchRecovers(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(log)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nkey: global\nlimits: [{name: calls, rate: 1/1h}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	to, observed := make(told, 9), make(chan Change, 9)
	w, err := Watch(ctx, path, to, WithDebounce(time.Millisecond),
		WithObserver(func(Change) { panic("an observer") }), WithObserver(func(c Change) { observed <- c }))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the watch is broken")
	w.notify.Errors <- broken
	for _, want := range []error{broken, nil} {
		if err := <-to; !errors.Is(err, want) {
			t.Errorf("told %v, want %v", err, want)
		}
		if c := <-observed; !errors.Is(c.Err, want) || (c.Policy != nil) != (want == nil) {
			t.Errorf("observed %+v, want %v", c, want)
		}
	}
	stop()
	<-w.Done()
	if err := w.Err(); err != nil {
		t.Errorf("in the end: %v", err)
	}
}
