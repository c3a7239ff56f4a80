// Package scripts composes the scripts of package lua: the loops, with the blocks of the
// algorithms that a call needs.
package scripts

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/stint-go/stint/lua"
)

// Script is the text of a script, and the SHA-1 by which a server identifies it.
type Script struct {
	Source, SHA string
	// Arg is SHA, as an argument of a command: converting a string to one allocates.
	Arg any
}

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

	// Several says that decisions have several charges.
	Several

	all = Several<<1 - 1
)

// algorithms are the letters by which a script identifies algorithms, and the files of
// their blocks. A block in several files is the concatenation of them.
var algorithms = []struct {
	set    Set
	letter byte
	files  []string
}{
	{TokenBucket, 'b', []string{"levels", "tokenbucket"}},
	{IntervalBucket, 'i', []string{"window", "levels", "intervalbucket"}},
	{FixedWindow, 'f', []string{"window", "fixedwindow"}},
	{SlidingWindow, 's', []string{"slidingwindow"}},
	{SlidingCounter, 'k', []string{"slidingcounter"}},
	{SlidingLog, 'g', []string{"slidinglog"}},
	{WarmUp, 'w', []string{"warmup"}},
	{Concurrency, 'c', []string{"concurrency"}},
	{Ban, 'n', []string{"ban"}},
}

// Names are the algorithms' names, which are those of their files.
func Names() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.files[len(a.files)-1]
	}
	return names
}

// Named returns the algorithm of a name, or none.
func Named(name string) Set {
	if i := slices.Index(Names(), name); i >= 0 {
		return algorithms[i].set
	}
	return 0
}

// Take returns the script that decides charges on limits of these algorithms.
func Take(set Set) *Script { return cached("take", set) }

// Settle returns the script that settles charges on limits of these algorithms.
func Settle(set Set) *Script { return cached("settle", set) }

// Renew returns the script that prolongs leases.
func Renew() *Script { return cached("renew", Concurrency) }

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
	source := compose(key, false)
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s, _ := cache.LoadOrStore(key, &Script{Source: source, SHA: sha, Arg: sha})
	return s.(*Script)
}

// Explained returns the script "take" or "settle" for limits of these algorithms with the comments
// that servers don't get: first the heads of its files, then the script.
func Explained(name string, set Set) string {
	var heads strings.Builder
	files := []string{name}
	if set&Several != 0 {
		files = append(files, "several")
	}
	files = append(files, "store")
	for _, a := range algorithms {
		if set&a.set != 0 {
			files = append(files, a.files[len(a.files)-1])
		}
	}
	for _, f := range files {
		heads.WriteString("-- " + f + ".lua\n--\n" + head(f) + "\n")
	}
	return heads.String() + compose(id{name, set}, true)
}

// compose inserts the blocks of the algorithms into the loop of a script.
func compose(key id, explained bool) string {
	read := func(name string) blocks { return read(name, explained) }
	loop, common := read(key.name), read("store")
	if key.set&Several != 0 {
		maps.Copy(loop, read("several"))
	}
	functions := read("general")["script"]
	var chosen []blocks
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
		chosen = append(chosen, all)
	}
	in := blocks{"functions": "rare = {}\n" + functions}
	maps.Copy(in, common)
	denies := ""
	if slices.ContainsFunc(chosen, func(b blocks) bool { return b["denied"] != "" }) {
		denies = loop["denies"] // the caller asks which limit denies
	}
	for _, b := range chosen {
		b.complete(common)
		b["denies"] = denies
		if b["strings"] != "" {
			in["strings"] = b["strings"] // the same wherever there is one
		}
	}
	for name, template := range loop {
		if !strings.Contains(template, "LETTER") {
			in[name] = template
			continue
		}
		for _, b := range chosen {
			in[name] += strings.ReplaceAll(fill(template, b), "LETTER", b["letter"])
		}
	}
	text := fill(read("outcome")["script"], blocks{"script": read("prelude")["script"] + fill(loop["script"], in)})
	return strings.Replace(text, "COMMANDS", "'"+strings.Join(Commands(text), "', '")+"'", 1)
}

// called finds the commands in a script's text.
var called = regexp.MustCompile(`call\('([A-Z]+)'`)

// Commands returns the commands in a script's text, each once.
func Commands(text string) (all []string) {
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	return all
}

// blocks are the blocks of a file or of an algorithm.
type blocks map[string]string

// complete adds what follows from an algorithm's own blocks: how its arguments are
// read, how locals are carried from a look to a charge, and how its states are written.
func (b blocks) complete(common blocks) {
	names := strings.Fields(b["arguments"])
	from := make([]string, len(names))
	for i := range names {
		from[i] = fmt.Sprintf("ARGV[p + %d]", i)
	}
	b["arguments"] = fmt.Sprintf("local %s = %s\np = p + %d\n", strings.Join(names, ", "), strings.Join(from, ", "),
		len(names))

	locals, optional := strings.Fields(b["carry"]), strings.Fields(b["carryif"])
	// Only a dry run is granted more than fits.
	fits := group{"dry", []string{"fits"}}
	if slices.Contains(locals, "fits") {
		fits = group{}
	}
	var all []string
	save, load := "", ""
	for _, g := range []group{fits, {names: locals}, {locals[len(locals)-1], optional}} {
		all = append(all, g.names...)
		save += g.under(assign(places(g.names), g.names))
		load += g.under(assign(g.names, places(g.names)))
	}
	b["carry"], b["carried"] = save, "local "+strings.Join(all, ", ")+"\n"+load

	for name, text := range common {
		if b["save"] != "" || name != "rest" {
			b[name] = text
		}
	}
}

// group is the names of locals that are carried if a condition holds, or always.
type group struct {
	condition string
	names     []string
}

// under puts lines under the condition.
func (g group) under(lines string) string {
	if g.condition == "" || lines == "" {
		return lines
	}
	return "if " + g.condition + " then\n  " + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n",
		"\n  ") + "\nend\n"
}

// places returns the next places of the table carried, one for each name.
func places(names []string) []string {
	all := make([]string, len(names))
	for i := range all {
		all[i] = fmt.Sprintf("carried[x + %d]", i+1)
	}
	return all
}

// assign assigns to or from places of the table carried, and goes on behind them. The places come
// one after the other: in one assignment Lua would fill the last first, and move the table.
func assign(to, from []string) string {
	if len(to) == 0 {
		return ""
	}
	var b strings.Builder
	for i := range to {
		fmt.Fprintf(&b, "%s = %s\n", to[i], from[i])
	}
	fmt.Fprintf(&b, "x = x + %d\n", len(to))
	return b.String()
}

// fill inserts blocks into the places of a template, each a line of its own: --NAME--,
// and into the places of those blocks. They are indented as their place is. Places without a
// block are removed.
func fill(template string, in blocks) string {
	var b strings.Builder
	for line := range strings.Lines(template) {
		name, ok := place(line)
		if !ok {
			b.WriteString(line)
			continue
		}
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for line := range strings.Lines(fill(in[strings.ToLower(name)], in)) {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}

// place returns the name in a line that is a place.
func place(line string) (name string, ok bool) {
	t := strings.TrimSpace(line)
	name = strings.TrimSuffix(strings.TrimPrefix(t, "--"), "--")
	return name, len(t) == len(name)+4 && name == strings.ToUpper(name) && !strings.ContainsAny(name, " -")
}

// text is a file of package lua.
func text(name string) string {
	text, err := lua.Files.ReadFile(name + ".lua")
	if err != nil {
		panic("scripts: " + err.Error()) // embedded: can't be missing
	}
	return string(text)
}

// head returns the comment at the beginning of a file.
func head(name string) string {
	var b strings.Builder
	for line := range strings.Lines(text(name)) {
		if !strings.HasPrefix(line, "--") || strings.HasPrefix(line, "--:") {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

// read returns a file's blocks, without its head, and without other comments unless it is to be
// explained: servers need not store those. The part before the first block is the block script.
func read(name string, explained bool) blocks {
	out, in := blocks{}, "script"
	for line := range strings.Lines(strings.TrimPrefix(text(name), head(name))) {
		t := strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(t, "--:"); ok {
			block, rest, _ := strings.Cut(head, " ")
			if in = block; rest != "" {
				out[in] += rest + "\n"
			}
			continue
		}
		_, isPlace := place(t)
		if t != "" && (explained || isPlace || !strings.HasPrefix(t, "--")) {
			out[in] += strings.TrimRight(line, " \n") + "\n"
		}
	}
	return out
}
