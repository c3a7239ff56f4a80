package logs

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// docs/observing.md lists each message with its level.
func TestDocumentedMessages(t *testing.T) {
	text, err := os.ReadFile("../../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	for m := Denied; m < messages; m++ {
		what, _, _ := strings.Cut(messageInfos[m].text, ": ")
		level := messageInfos[m].level.String()
		if row := "\n| " + what + " | " + level[:1] + strings.ToLower(level[1:]) + " |"; !strings.Contains(string(text), row) {
			t.Errorf("no line %q", row)
		}
	}
}

// written keeps the lines that it is given.
type written struct {
	slog.Handler
	mu    sync.Mutex // some lines come from a timer
	lines []string
	does  func() // at the next line
}

func (w *written) Enabled(context.Context, slog.Level) bool { return true }

func (w *written) Handle(_ context.Context, r slog.Record) error {
	line := strings.TrimPrefix(r.Message, "stint: ")
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.mu.Lock()
	w.lines = append(w.lines, line)
	w.mu.Unlock()
	if do := w.does; do != nil {
		w.does = nil
		do()
	}
	return nil
}

// line is a Line with a text of its own.
func line(m Message, text string) Line {
	return Line{Message: m, Text: text, About: "x", Attrs: func(bool) []slog.Attr { return nil }}
}

var named = map[string]Message{
	"fails": StoreFailed, "answers": StoreAnswers, "bad": PolicyRejected, "good": PolicyInForce,
	"empty": KeyFailed, "denied": Denied,
	"call": CallFailed, "down": PrimaryFailed, "wrong": PrimaryMisconfigured, "up": PrimaryAnswers, "lost": SettleFailed,
}

// A message about one subject has a line at once, and then one a minute: the latest, with the
// number of those before it. A number is so many seconds.
func TestOnceAMinute(t *testing.T) {
	for says, want := range map[string]string{
		"empty":                          "empty",
		"empty empty":                    "empty, empty",
		"empty empty empty 61 empty":     "empty, empty suppressed=1, empty",
		"empty 61 empty":                 "empty, empty",
		"denied denied denied":           "denied, denied, denied",
		"bad good 60":                    "bad, good",
		"bad good bad 60":                "bad, good, bad",
		"bad bad 20 good good 120":       "bad, good suppressed=1, good",
		"bad 20 good 20 bad 40 good 120": "bad, good, bad, good",
		"good good":                      "good, good",
		"answers":                        "",
		"fails answers answers":          "fails, answers",
		"fails fails fails answers":      "fails, answers suppressed=2",
		"fails fails 59 answers 59":      "fails, answers suppressed=1",
		"fails fails 61 answers":         "fails, fails, answers",
		"fails fails fails 61 fails":     "fails, fails suppressed=1, fails",
		"fails answers fails":            "fails, answers, fails",
		"call call down call 90 up call": "call, down, up, call",
		"call call up 60":                "call, call",
		"down wrong wrong down 50 up":    "down, wrong, up suppressed=2",
		"call wrong down down 70 up":     "call, wrong, down suppressed=1, up",
		"down down wrong 70 up":          "down, wrong suppressed=1, up",
		"lost lost down lost 50 up":      "lost, down, up",
		"fails 300 answers answers":      "fails, answers",
		"fails 300 answers 300 answers":  "fails, answers",
		"fails 300 answers 300 fails":    "fails, answers, fails",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := new(written)
			l, other := New(slog.New(w), false), New(slog.New(w), true)
			for i, what := range strings.Fields(says) {
				if n, err := strconv.Atoi(what); err == nil {
					time.Sleep(time.Duration(n) * time.Second)
					continue
				}
				[...]*Log{l, other}[i%2].Write(t.Context(), line(named[what], what))
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if got := strings.Join(w.lines, ", "); got != want {
				t.Errorf("%s: written %q, want %q", says, got, want)
			}
		})
	}
}

// What several Logs are notified of is written once.
func TestOnceForSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(written)
		for _, what := range []any{new(int), new(int)} {
			for range 3 {
				same := line(PrimaryFailed, "fails")
				same.Incident = what
				New(slog.New(w), false).Write(t.Context(), same)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := strings.Join(w.lines, ", "); got != "fails, fails" {
			t.Errorf("written: %s", got)
		}
	})
}

// What is forgotten when its minute is over doesn't keep its subject.
func TestSubjectsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(written)
		l := New(slog.New(w), false)
		subjects.mu.Lock()
		before := len(subjects.all)
		subjects.mu.Unlock()
		for i := range 100 {
			some := line(KeyFailed, "empty")
			some.About = i
			l.Write(t.Context(), some)
			l.Write(t.Context(), some)
		}
		time.Sleep(2 * Interval)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		subjects.mu.Lock()
		defer subjects.mu.Unlock()
		if n := len(subjects.all) - before; n != 0 || len(w.lines) != 200 {
			t.Errorf("%d subjects are kept, and %d lines written", n, len(w.lines))
		}
	})
}

// A handler may panic, or log itself: no lock is held, and later messages are written.
func TestMoodyHandler(t *testing.T) {
	w := new(written)
	l := New(slog.New(w), false)
	w.does = func() { panic("moody") }
	func() {
		defer func() { _ = recover() }()
		l.Write(t.Context(), line(StoreFailed, "panics"))
	}()
	w.does = func() { l.Write(t.Context(), line(SettleFailed, "within")) }
	l.Write(t.Context(), line(LeaseLost, "last"))
	if got := strings.Join(w.lines, ", "); got != "panics, last, within" {
		t.Errorf("written: %s", got)
	}
}
