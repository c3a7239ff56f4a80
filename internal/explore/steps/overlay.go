package steps

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Variant is a package to explore: as it is shipped, or with a mistake in it.
type Variant struct {
	Name  string
	Edits []Edit
}

// Edit replaces a text that a package's file has once.
type Edit struct{ File, Was, Is string }

const here = "github.com/stint-go/stint/internal/explore/steps/"

// twins are what stands for an import.
var twins = map[string]string{
	"sync":         here + "sync",
	"sync/atomic":  here + "atomic",
	"hash/maphash": here + "maphash",
	"github.com/stint-go/stint/internal/clock": here + "clock",
}

// Overlay is for a test that explores the package it stands beside. It makes a package of
// each variant, in directories that only the go command's -overlay sees, by the names
// that Import gives.
type Overlay struct {
	t       *testing.T
	dir     string // the package's
	to      string // what the files say
	Replace map[string]string
}

// NewOverlay has the variants of the package in the current directory, each with what is
// added: files by name.
func NewOverlay(t *testing.T, variants []Variant, added map[string]string) *Overlay {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	o := &Overlay{t: t, dir: dir, to: t.TempDir(), Replace: map[string]string{}}
	shipped, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range variants {
		text := map[string]string{}
		for _, name := range shipped {
			if !strings.HasSuffix(name, "_test.go") {
				text[name] = o.read(name)
			}
		}
		for _, e := range v.Edits {
			if n := strings.Count(text[e.File], e.Was); n != 1 {
				t.Fatalf("%s: %s has this %d times, want once:\n%s", v.Name, e.File, n, e.Was)
			}
			text[e.File] = strings.Replace(text[e.File], e.Was, e.Is, 1)
		}
		for name, source := range added {
			text[name] = source
		}
		for name, source := range text {
			o.Add(path.Join(variantDir(i), name), o.twinned(name, source))
		}
	}
	return o
}

func variantDir(i int) string { return fmt.Sprint("variant", i) }

// Import is the path by which the variant i of the package at a path is imported.
func Import(pkg string, i int) string { return pkg + "/" + variantDir(i) }

// Add has the go command see a file by a name in the package's directory.
func (o *Overlay) Add(name, source string) {
	o.t.Helper()
	file := filepath.Join(o.to, fmt.Sprint(len(o.Replace), ".go"))
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[filepath.Join(o.dir, filepath.FromSlash(name))] = file
}

// Flag is the go command's.
func (o *Overlay) Flag() string {
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

func (o *Overlay) read(name string) string {
	o.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(text)
}

// twinned has a file import the twins.
func (o *Overlay) twinned(name, source string) string {
	o.t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := len(f.Imports) - 1; i >= 0; i-- {
		s := f.Imports[i].Path
		imported, err := strconv.Unquote(s.Value)
		if err != nil {
			o.t.Fatal(err)
		}
		if twin := twins[imported]; twin != "" {
			at := int(s.Pos()) - 1
			source = source[:at] + strconv.Quote(twin) + source[at+len(s.Value):]
		}
	}
	return source
}
