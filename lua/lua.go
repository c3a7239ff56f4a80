// Package lua holds the scripts that decide inside Redis or Valkey: the twins of
// the steps in package store, which must agree with them to the integer.
//
// Each algorithm is a file of its own. A script is composed of those that a
// call needs, since each function of a script costs something to make at every
// call; a call that only has token buckets needs hardly any.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// Script is a script's text, and the SHA-1 by which a server knows it.
type Script struct{ Source, SHA string }

// Set is a set of algorithms.
type Set uint16

// The algorithms, by the letter that a limit's record begins with.
const (
	TokenBucket    Set = 1 << iota // b; LeakyBucket too
	IntervalBucket                 // i
	FixedWindow                    // f
	SlidingWindow                  // s
	SlidingLog                     // g
	WarmUp                         // w
	Concurrency                    // c
	Ban                            // n

	all = Ban<<1 - 1
)

var modules = []struct {
	set          Set
	letter, name string
	files        []string
}{
	{TokenBucket, "b", "tokenbucket", []string{"tokenbucket"}},
	{IntervalBucket, "i", "intervalbucket", []string{"window", "intervalbucket"}},
	{FixedWindow, "f", "fixedwindow", []string{"window", "fixedwindow"}},
	{SlidingWindow, "s", "slidingwindow", []string{"sliding", "slidingwindow"}},
	{SlidingLog, "g", "slidinglog", []string{"sliding", "slidinglog"}},
	{WarmUp, "w", "warmup", []string{"warmup"}},
	{Concurrency, "c", "concurrency", []string{"concurrency"}},
	{Ban, "n", "ban", []string{"ban"}},
}

// Take returns the script that decides charges on limits of these algorithms.
func Take(set Set) *Script { return cached("take", set) }

// Settle returns the script that settles charges on limits of these algorithms.
func Settle(set Set) *Script { return cached("settle", set) }

// Renew returns the script that prolongs leases.
func Renew() *Script { return cached("renew", 0) }

// Reset returns the script that forgets keys.
func Reset() *Script { return cached("reset", 0) }

var cache sync.Map // of name and set, to *Script

type id struct {
	name string
	set  Set
}

func cached(name string, set Set) *Script {
	key := id{name, set & all}
	if s, ok := cache.Load(key); ok {
		return s.(*Script)
	}
	source := compose(key)
	sum := sha1.Sum([]byte(source))
	s, _ := cache.LoadOrStore(key, &Script{Source: source, SHA: hex.EncodeToString(sum[:])})
	return s.(*Script)
}

func compose(key id) string {
	return read("prelude") + strings.Replace(read(key.name), "--GENERAL--", general(key.set), 1)
}

// general is what decisions need that don't only have the plainest buckets.
func general(set Set) string {
	var b strings.Builder
	b.WriteString(read("general"))
	written := map[string]bool{}
	table := "local modules = {\n"
	for _, m := range modules {
		if set&m.set == 0 {
			continue
		}
		for _, f := range m.files {
			if !written[f] {
				written[f] = true
				b.WriteString(read(f))
			}
		}
		table += fmt.Sprintf("  %s = %s,\n", m.letter, m.name)
	}
	b.WriteString(table + "}\n")
	b.WriteString(read("states"))
	return b.String()
}

// read returns a file without its comments, which servers need not keep.
func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // embedded: can't be missing
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if t := strings.TrimSpace(line); t != "" && (!strings.HasPrefix(t, "--") || t == "--GENERAL--") {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String()
}
