// Package lua holds the scripts that decide inside Redis or Valkey: the twins of the
// steps in package store, which they must agree with to the integer.
//
// Scripts are composed. The loops of take.lua and settle.lua know no algorithm. Each
// algorithm's file has blocks that are inlined into the loops, and a script contains
// only the blocks of the algorithms that a call needs. Making a function costs a server
// as much as a decision. So what most calls need is in blocks, and what few need is in
// functions, which a script makes when it meets the first state or charge that needs
// them.
//
// # Blocks
//
// A line that begins with --: begins a block. The blocks of an algorithm are, in the
// order in which a loop runs them:
//
//	arguments  not code: names of the arguments of a charge (ARGV), which are locals
//	           of these names in all blocks, as text
//	strings    if its keys hold no strings, so that they need not be read: sets strings,
//	           how many of the first keys may hold some
//	setup      what is the same for all charges of a column. Sets peek: the charge
//	           costs nothing
//	looks      the same, where take.lua looks and doesn't charge
//	load       reads the state v of key i (text, or false if there is none or it isn't a
//	           string) and brings it to the present, in locals. Sets dirty if the
//	           state has to be written even if the decision is denied
//	look       sets fits: how many of g equal charges fit; -1 if that isn't known
//	           without more of the calendar. Sets raw: the state found, if it isn't v
//	keep       not code: names of the locals of load and look that charge and save need.
//	           None may be nil: a table that nils are put into grows badly
//	more       others that they need only if the last of keep isn't false; else nil
//	charges    what is the same for all charges of a column that are made
//	charge     makes g charges, in the locals, or in the server if there is no save
//	denied    changes the locals because the decision was denied; sets dirty
//	save       says what to store at the key, and for how long (store.lua)
//	rest       runs if nothing is charged and there is no save
//	amend      after setup and load: makes an earlier charge cost due, which is
//	           diff more; its receipt is in charged, instant, mark and lease. Sets dirty,
//	           or writes by itself and sets left, the state left
//	functions  fields of the table rare
//
// A block that needs a function says so before it changes anything in the server:
//
//	if not rare then lacking = row break end
//
// The loop then makes the functions and looks again. The locals of blocks must not have
// names that the loops use: the ones above, and those at the top of take.lua's own
// blocks. A block must not break in any other case, and never in charge and save.
//
// # Failures
//
// A command may fail in the middle of a script: a right is missing, or the key isn't what
// it should be. What has been written by then stays. So a block that has charged or
// settled something sets wrote, and an error after that says so (outcome.lua). No key is
// left without a lifetime by a script that may not give one, and nothing is charged by a
// server that was out of memory before: store.lua says how.
//
// An algorithm is a file, and a line in the table algorithms.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// Script is the text of a script, and the SHA-1 by which a server identifies it.
type Script struct{ Source, SHA string }

// Set is a set of algorithms.
type Set uint16

// The algorithms.
const (
	TokenBucket Set = 1 << iota // LeakyBucket too
	IntervalBucket
	FixedWindow
	SlidingWindow
	SlidingCounter
	SlidingLog
	WarmUp
	Concurrency
	Ban
	WideBucket // of a wide scale
	WideWarmUp

	all = WideWarmUp<<1 - 1
)

// algorithms are the letters by which a script identifies algorithms, and the files of
// their blocks. A block in several files is the concatenation of them.
var algorithms = []struct {
	set    Set
	letter byte
	files  []string
}{
	{TokenBucket, 'b', []string{"wide", "levels", "bucketstate", "tokenbucket"}},
	{IntervalBucket, 'i', []string{"window", "levels", "intervalviews", "intervalbucket"}},
	{FixedWindow, 'f', []string{"window", "fixedwindow"}},
	{SlidingWindow, 's', []string{"versions", "slidingwindow"}},
	{SlidingCounter, 'k', []string{"slidingcounter"}},
	{SlidingLog, 'g', []string{"versions", "slidinglog"}},
	{WarmUp, 'w', []string{"wide", "warmupstate", "warmup"}},
	{Concurrency, 'c', []string{"concurrency"}},
	{Ban, 'n', []string{"versions", "ban"}},
	{WideBucket, 'd', []string{"wide", "levels", "bucketstate", "widebucket"}},
	{WideWarmUp, 'v', []string{"wide", "warmupstate", "widewarmup"}},
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

// compose inserts the blocks of the algorithms into the loop of a script.
func compose(key id) string {
	loop, common := read(key.name), read("store")
	functions := read("general")["script"]
	var own []blocks
	written := map[string]bool{}
	for _, a := range algorithms {
		if key.set&a.set == 0 {
			continue
		}
		all := blocks{"letter": fmt.Sprint(a.letter)}
		for _, f := range a.files {
			file := read(f)
			for name, text := range file {
				all[name] += text
			}
			if !written[f] {
				written[f] = true
				functions += file["functions"]
			}
		}
		own = append(own, all)
	}
	in := blocks{"functions": "rare = {}\n" + functions}
	maps.Copy(in, common)
	denies := ""
	if slices.ContainsFunc(own, func(b blocks) bool { return b["denied"] != "" }) {
		denies = loop["denies"] // somebody wants to know who does
	}
	for _, b := range own {
		b.complete(common)
		b["denies"] = denies
		for name, template := range loop {
			if name != "script" && name != "denies" {
				in[name] += strings.ReplaceAll(fill(template, b), "LETTER", b["letter"])
			}
		}
	}
	return fill(read("outcome")["script"], blocks{"script": read("prelude")["script"] + fill(loop["script"], in)})
}

// blocks are the blocks of a file or of an algorithm.
type blocks map[string]string

// complete adds what follows from an algorithm's own blocks: how its arguments are
// read, what is kept of a look, and how its states are written.
func (b blocks) complete(common blocks) {
	names := strings.Fields(b["arguments"])
	from := make([]string, len(names))
	for i := range names {
		from[i] = fmt.Sprintf("ARGV[p + %d]", i)
	}
	b["arguments"] = fmt.Sprintf("local %s = %s\np = p + %d\n", strings.Join(names, ", "), strings.Join(from, ", "), len(names))

	keeps, more := append([]string{"fits"}, strings.Fields(b["keep"])...), strings.Fields(b["more"])
	b["keep"] = assign(places(keeps), keeps)
	b["kept"] = "local " + strings.Join(slices.Concat(keeps, more), ", ") + "\n" + assign(keeps, places(keeps))
	if len(more) > 0 {
		only := "if " + keeps[len(keeps)-1] + " then\n"
		b["keep"] += only + assign(places(more), more) + "end\n"
		b["kept"] += only + assign(more, places(more)) + "end\n"
	}

	for name, text := range common {
		if b["save"] != "" || name != "rest" {
			b[name] = text
		}
	}
}

// places returns the next places of the table kept, one for each name.
func places(names []string) []string {
	all := make([]string, len(names))
	for i := range all {
		all[i] = fmt.Sprintf("kept[x + %d]", i+1)
	}
	return all
}

// assign assigns to or from places of the table kept, and goes on behind them.
func assign(to, from []string) string {
	return fmt.Sprintf("%s = %s\nx = x + %d\n", strings.Join(to, ", "), strings.Join(from, ", "), len(to))
}

// fill inserts blocks into the places of a template, each a line of its own: --NAME--,
// and into the places of those blocks. Places without a block are removed.
func fill(template string, in blocks) string {
	var b strings.Builder
	for line := range strings.Lines(template) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--"); ok {
			line = fill(in[strings.ToLower(strings.TrimSuffix(name, "--"))], in)
		}
		b.WriteString(line)
	}
	return b.String()
}

// read returns a file's blocks, without comments, which servers need not store. The
// part before the first block is the block script.
func read(name string) blocks {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // embedded: can't be missing
	}
	out, in := blocks{}, "script"
	for line := range strings.Lines(string(text)) {
		t := strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(t, "--:"); ok {
			block, rest, _ := strings.Cut(head, " ")
			if in = block; rest != "" {
				out[in] += rest + "\n"
			}
			continue
		}
		place := strings.HasPrefix(t, "--") && strings.HasSuffix(t, "--")
		if t != "" && (!strings.HasPrefix(t, "--") || place) {
			out[in] += t + "\n"
		}
	}
	return out
}
