package policy

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stint-go/stint/store"
)

// Every algorithm of package store has a word in a file: as an algorithm, as a kind of limit, or as an option
// that selects it.
func TestEveryAlgorithmHasAWord(t *testing.T) {
	words := map[string]string{} // by the constant's name
	for _, a := range algorithms {
		words[a.alg.String()] = a.name
	}
	for _, k := range kinds {
		for a := store.Algorithm(0); known(a); a++ {
			if wordOf(a) == k.name {
				words[a.String()] = k.name
			}
		}
	}
	if option := wordOf(store.WarmUp); slices.Contains(names(limitFields()), option) {
		words[store.WarmUp.String()] = option
	}
	var missing []string
	for a := store.Algorithm(0); known(a); a++ {
		if words[a.String()] != wordOf(a) {
			missing = append(missing, a.String())
		}
	}
	if missing != nil {
		t.Errorf("%s: add a line to algorithms in check.go or to kinds in kind.go, and the word to schema.json",
			strings.Join(missing, ", "))
	}
}

func known(a store.Algorithm) bool { return !strings.HasPrefix(a.String(), "Algorithm(") }

// wordOf returns the name of an algorithm as a file writes it.
func wordOf(a store.Algorithm) string {
	var b strings.Builder
	for i, r := range a.String() {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
