package logs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// docs/observing.md lists each message with its level.
func TestDocumentedMessages(t *testing.T) {
	text, err := os.ReadFile("../../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	for m := Denied; m < messages; m++ {
		what, _, _ := strings.Cut(said[m].text, ": ")
		level := said[m].level.String()
		if row := "\n| " + what + " | " + level[:1] + strings.ToLower(level[1:]) + " |"; !strings.Contains(string(text), row) {
			t.Errorf("no line %q", row)
		}
	}
}

// moody is a handler that panics at a message, and logs while it writes another.
type moody struct {
	slog.Handler
	log   *Log
	lines []string
}

func (m *moody) Enabled(context.Context, slog.Level) bool { return true }

func (m *moody) Handle(ctx context.Context, r slog.Record) error {
	switch m.lines = append(m.lines, r.Message); r.Message {
	case "stint: panics":
		panic(errors.New(r.Message))
	case "stint: logs":
		m.log.Say(ctx, SettleFailed, "within", nothing)
	}
	return nil
}

func nothing(bool) []slog.Attr { return nil }

// A handler may panic, or be what something is to be logged about: what comes later is
// written.
func TestMoodyHandler(t *testing.T) {
	m := new(moody)
	m.log = New(slog.New(m), false)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the handler's panic went no further")
			}
		}()
		m.log.Say(t.Context(), StoreFailed, "panics", nothing)
	}()
	m.log.Say(t.Context(), Banned, "logs", nothing)
	m.log.Say(t.Context(), LeaseLost, "last", nothing)
	if got := strings.Join(m.lines, ", "); got != "stint: panics, stint: logs, stint: within, stint: last" {
		t.Errorf("written: %s", got)
	}
}
