package steps

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Variant is a package to explore: as it is shipped, or with a mistake in it.
type Variant struct {
	Name  string
	Edits []Edit
}

// Edit replaces a text that a package's file has once. Whoever changes the text there
// changes it in the edit.
type Edit struct{ File, Was, Is string }

// Shipped is the name of the variant without a mistake.
const Shipped = "as shipped"

// Elsewhere runs the test that calls it once more, where there are packages to explore: in
// directories that only the go command's -overlay sees, one for each variant of the package
// that the test stands beside, at a path.
type Elsewhere struct {
	// Path is the import path of the package.
	Path string
	// Beside are the names of packages in the directory beside, which the package imports: each
	// variant has copies of its own, so that what they do is explored, too. An Edit's File has the
	// name before it: "turns/line.go".
	Beside []string
	// Below are paths of packages below it, such as internal/line, which are explored likewise. An
	// Edit's File has the path before it.
	Below []string
	// Added are files that each variant has beside the shipped ones, by name, which has the path of a
	// package below before it.
	Added map[string]string
	// Edits are made in all variants, also the one without a mistake.
	Edits []Edit
	// Mutants are the variants with a mistake. They are compiled and explored if
	// STINT_MUTANTS is set, as "make test-mutants" does: compiling a copy of the package for
	// each takes most of the time. That their edits still fit is checked always.
	Mutants []Variant
	// Entry is the value of each variant in a map of the test, by the variant's name: an expression of a
	// variant V.
	Entry string
	// Into is the name of that map, by default variants.
	Into string
}

var withMutants = os.Getenv("STINT_MUTANTS") != ""

// Run runs the test, and fails t as that fails.
func (e *Elsewhere) Run(t *testing.T) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "test")
	build(t, bin, e)
	again(t, bin)
}

// Together is what several tests of a package run Elsewhere, beside each other, in a test binary
// that they share: the first of them builds it. Building it takes little longer than one of each
// test's own would.
type Together struct {
	all   []*Elsewhere
	mu    sync.Mutex
	tests int    // that use the binary, or are about to
	dir   string // with the binary, or nothing if that couldn't be built; "" if there is none
}

// NewTogether returns what the tests of all those call Run of.
func NewTogether(all ...*Elsewhere) *Together { return &Together{all: all} }

// Run runs the test in parallel with the others, and fails t as that fails.
func (g *Together) Run(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	g.tests++ // before any of them goes on
	g.mu.Unlock()
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.tests--; g.tests == 0 {
			os.RemoveAll(g.dir)
			g.dir = ""
		}
	})
	t.Parallel()
	again(t, g.built(t))
}

// built is the binary.
func (g *Together) built(t *testing.T) string {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dir == "" {
		dir, err := os.MkdirTemp("", "stint-explored-")
		if err != nil {
			t.Fatal(err)
		}
		g.dir = dir
		build(t, filepath.Join(dir, "test"), g.all...)
	}
	return filepath.Join(g.dir, "test")
}

// build builds the package's test with what is explored.
func build(t *testing.T, bin string, all ...*Elsewhere) {
	t.Helper()
	o, n := newOverlay(t), 0
	imports, entries := "", ""
	for _, e := range all {
		shipped := fmt.Sprint("variant", n)
		for _, v := range append([]Variant{{Name: Shipped}}, e.Mutants...) {
			below := slices.ContainsFunc(v.Edits, e.isBelow)
			v.Edits = append(e.Edits[:len(e.Edits):len(e.Edits)], v.Edits...)
			text := o.edited(v, e)
			if v.Name != Shipped && !withMutants {
				continue
			}
			dir, dirBelow := shipped, shipped
			if v.Name != Shipped {
				dir = fmt.Sprint("mutant", n)
			}
			if below {
				dirBelow = dir
			}
			o.addTwins(e, dir, dirBelow, text)
			imports += fmt.Sprintf("import v%d %q\n", n, e.Path+"/"+dir)
			entries += fmt.Sprintf("%s[%q] = %s\n", cmp.Or(e.Into, "variants"), v.Name, strings.ReplaceAll(e.Entry, "V.", fmt.Sprintf("v%d.", n)))
			n++
		}
	}
	pkg := path.Base(all[0].Path) + "_test"
	o.add("variants_test.go", "package "+pkg+"\n"+imports+"func init() {\n"+entries+"}\n")
	args := []string{"test", "-c", "-o", bin, o.flag(), "-vet=off"}
	if withMutants { // which run until they are found: compiling them well takes longer
		args = append(args, "-gcflags="+all[0].Path+"/mutant...=-N -l")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// again runs the test in another binary.
func again(t *testing.T, bin string) {
	t.Helper()
	left := time.Duration(0) // as long as it takes
	if end, ends := t.Deadline(); ends {
		left = time.Until(end)
	}
	cmd := exec.Command(bin, "-test.timeout="+left.String(), "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "GOGC=400")
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
}

// overlay is files that the go command sees in the package's directory.
type overlay struct {
	t       *testing.T
	dir     string // the package's
	to      string // what the files say
	Replace map[string]string
}

func newOverlay(t *testing.T) *overlay {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return &overlay{t: t, dir: dir, to: t.TempDir(), Replace: map[string]string{}}
}

// edited returns the files of a variant, by name.
func (o *overlay) edited(v Variant, e *Elsewhere) map[string]string {
	o.t.Helper()
	text := o.shipped(".", "")
	for _, name := range e.Beside {
		maps.Copy(text, o.shipped(filepath.Join("..", name), name))
	}
	for _, name := range e.Below {
		maps.Copy(text, o.shipped(filepath.FromSlash(name), name))
	}
	maps.Copy(text, e.Added)
	for _, e := range v.Edits {
		if n := strings.Count(text[e.File], e.Was); n != 1 {
			o.t.Fatalf("%s: %s has this %d times, want once:\n%s", v.Name, e.File, n, e.Was)
		}
		text[e.File] = strings.Replace(text[e.File], e.Was, e.Is, 1)
	}
	return text
}

// shipped is the text of the files of a package in dir, by name, which has a path before it.
func (o *overlay) shipped(dir, under string) map[string]string {
	o.t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		o.t.Fatal(err)
	}
	text := map[string]string{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			text[path.Join(under, filepath.Base(name))] = o.read(name)
		}
	}
	return text
}

// isBelow reports whether an edit is of a package below.
func (e *Elsewhere) isBelow(edit Edit) bool { return slices.Contains(e.Below, path.Dir(edit.File)) }

// addTwins adds files that import the twins, and the copies of the packages beside and below. Those
// below are in dirBelow: mutants that don't change any have those of the variant without a mistake,
// which saves compiling them for each. Their names there don't say internal, so that mutants may
// import them.
func (o *overlay) addTwins(e *Elsewhere, dir, dirBelow string, text map[string]string) {
	o.t.Helper()
	to := maps.Clone(twins)
	for _, name := range e.Beside {
		to[path.Join(path.Dir(e.Path), name)] = path.Join(e.Path, dir, name)
	}
	for _, name := range e.Below {
		to[path.Join(e.Path, name)] = path.Join(e.Path, dirBelow, path.Base(name))
	}
	for name, source := range text {
		file := path.Join(dir, name)
		if slices.Contains(e.Below, path.Dir(name)) {
			if dir != dirBelow {
				continue
			}
			file = path.Join(dir, path.Base(path.Dir(name)), path.Base(name))
		}
		twin, err := withTwins(name, source, to)
		if err != nil {
			o.t.Fatal(err)
		}
		o.add(file, twin)
	}
}

// add has the go command see a file by a name in the package's directory.
func (o *overlay) add(name, source string) {
	o.t.Helper()
	file := filepath.Join(o.to, fmt.Sprint(len(o.Replace), ".go"))
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[filepath.Join(o.dir, filepath.FromSlash(name))] = file
}

// flag is the go command's.
func (o *overlay) flag() string {
	o.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		o.t.Fatal(err)
	}
	file := filepath.Join(o.to, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		o.t.Fatal(err)
	}
	return "-overlay=" + file
}

func (o *overlay) read(name string) string {
	o.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// Explore explores scenes: none breaks a promise as the package is shipped, and one at
// least with each mutant, if STINT_MUTANTS is set. A mutant is looked for in the scenes of the fewest runs first.
func Explore[S any](t *testing.T, mutants []Variant, scenes []S, scenario func(variant string, scene S) func(*Run)) {
	order, runsOf := make([]int, len(scenes)), make([]int, len(scenes))
	for i := range order {
		order[i] = i
	}
	t.Run(Shipped, func(t *testing.T) {
		all := 0
		for i, s := range scenes {
			runs, trace := Find(scenario(Shipped, s))
			runsOf[i] = runs
			if all += runs; trace != "" {
				t.Fatalf("%v: run %d breaks a promise:\n%s", s, runs, trace)
			}
		}
		t.Logf("%d runs of %d scenes", all, len(scenes))
	})
	if !withMutants {
		return
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(runsOf[i], runsOf[j]) })
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			for _, i := range order {
				s := scenes[i]
				if runs, trace := Find(scenario(m.Name, s)); trace != "" {
					_, broken, _ := strings.Cut(trace, "\n=> ")
					t.Logf("%v: run %d: %s", s, runs, broken)
					return
				}
			}
			t.Error("no scene finds it")
		})
	}
}
