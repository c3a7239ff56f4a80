package logs

import (
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
	for m := Refused; m < messages; m++ {
		what, _, _ := strings.Cut(said[m].text, ": ")
		level := said[m].level.String()
		if row := "\n| " + what + " | " + level[:1] + strings.ToLower(level[1:]) + " |"; !strings.Contains(string(text), row) {
			t.Errorf("no line %q", row)
		}
	}
}
