package events

import (
	"strconv"
	"testing"
)

// Each kind has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]Kind{}
	for k := range kinds {
		name := k.String()
		if other, twice := seen[name]; name == "" || twice {
			t.Errorf("kind %d is called %q, as kind %d", k, name, other)
		}
		seen[name] = k
	}
	if got := kinds.String(); got != "EventKind("+strconv.Itoa(int(kinds))+")" || kinds.Decided() || kinds.Message(nil) != 0 {
		t.Errorf("a kind that there isn't is called %q", got)
	}
}
