package project

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stint-go/stint"

// rule says what a package may import beside the standard library: packages
// of this module, relative to its root, and other modules. A name that ends in
// /... stands for everything below it.
type rule struct {
	own      []string
	external []string
	// notEven names packages of the standard library that must not be reached,
	// however indirectly.
	notEven []string
	// tests says that only tests import it.
	tests bool
}

// imports lists what each package may import; docs/architecture.md has the picture. Every package of
// the module is matched by exactly one line, so a new package is put in its
// place on purpose or the test fails.
var imports = map[string]rule{
	"internal/algorithm":                 {notEven: []string{"net/http", "net"}},
	"internal/inside":                    {own: []string{"internal/algorithm", "store"}, notEven: []string{"net/http"}},
	"store":                              {own: []string{"internal/algorithm"}, notEven: []string{"net/http", "net"}},
	"store/memstore":                     {own: []string{"internal/memory", "store"}, notEven: []string{"net/http"}},
	"internal/memory":                    {own: []string{"internal/algorithm", "internal/inside", "internal/background", "store"}, notEven: []string{"net/http"}},
	"store/storetest":                    {own: []string{"internal/inside", "store"}, notEven: []string{"net/http"}},
	"store/failover":                     {own: []string{"internal/inside", "internal/background", "internal/optionerror", "store"}},
	"internal/test/adaptertest":          {tests: true, own: []string{".", "internal/test/limitertest", "internal/test/storefake", "store"}},
	"internal/test/limitertest":          {tests: true, own: []string{"."}},
	"internal/test/sitetest":             {tests: true, own: []string{"."}},
	"internal/test/storefake":            {tests: true, own: []string{"store", "store/memstore"}},
	"internal/test/redistest":            {tests: true, external: []string{"github.com/redis/go-redis/v9"}},
	"internal/test/versionstest":         {tests: true, own: []string{"store"}},
	"lua":                                {},
	"lua/print":                          {own: []string{"internal/scripts"}},
	"internal/scripts":                   {own: []string{"lua"}, notEven: []string{"net/http", "net"}},
	"store/redisstore":                   {own: []string{"internal/inside", "internal/optionerror", "internal/background", "internal/scripts", "store", "store/redisstore/internal/batch", "store/redisstore/internal/fault", "store/redisstore/internal/wire"}, external: []string{"github.com/redis/go-redis/v9", "github.com/google/uuid"}},
	"internal/adaptive":                  {own: []string{"internal/inside", "store"}, notEven: []string{"net/http", "net"}},
	"internal/test/explore":              {tests: true},
	"internal/test/explore/steps":        {tests: true},
	"internal/clientip":                  {},
	"internal/failure":                   {},
	"internal/field":                     {},
	"internal/routing":                   {},
	"internal/logs":                      {own: []string{"internal/background"}, notEven: []string{"net/http", "net"}},
	"internal/optionerror":               {own: []string{"internal/algorithm", "internal/inside", "store"}, notEven: []string{"net/http", "net"}},
	"internal/mistakes":                  {own: []string{"internal/inside", "internal/compile", "internal/mistakes/keysample", "internal/limit", "internal/read", "store"}},
	"internal/mistakes/keysample":        {own: []string{"internal/clientip", "internal/keytext"}},
	"internal/keys":                      {own: []string{"internal/clientip", "internal/keytext", "internal/optionerror", "internal/routing", "internal/mistakes/keysample"}},
	"internal/keytext":                   {notEven: []string{"net/http", "net"}},
	"internal/background":                {notEven: []string{"net/http", "net"}},
	"internal/lines":                     {own: []string{"internal/inside", "store"}, notEven: []string{"net/http", "net"}},
	"internal/limit":                     {own: []string{"internal/inside", "internal/adaptive", "internal/keytext", "internal/lines", "store"}, notEven: []string{"net/http", "net"}},
	"internal/near":                      {own: []string{"internal/inside", "internal/limit", "store"}, notEven: []string{"net/http", "net"}},
	"internal/decide":                    {own: []string{"internal/inside", "internal/adaptive", "internal/background", "internal/limit", "internal/lines", "store"}, notEven: []string{"net/http", "net"}},
	"internal/permit":                    {own: []string{"internal/inside", "internal/adaptive", "internal/decide", "internal/limit", "internal/read", "internal/respond", "store"}},
	"internal/read":                      {own: []string{"internal/decide", "internal/failure", "internal/keys", "internal/keytext", "internal/limit", "internal/routing", "internal/mistakes/keysample", "store"}},
	"internal/compile":                   {own: []string{"internal/inside", "internal/adaptive", "internal/field", "internal/keys", "internal/limit", "internal/optionerror", "internal/read", "internal/routing", "internal/lines", "internal/mistakes/keysample", "store"}},
	"internal/respond":                   {own: []string{"internal/inside", "internal/decide", "internal/limit", "internal/lines", "store"}},
	".":                                  {own: []string{"internal/inside", "store", "store/memstore", "internal/adaptive", "internal/background", "internal/clientip", "internal/compile", "internal/algorithm", "internal/decide", "internal/failure", "internal/field", "internal/keys", "internal/keytext", "internal/limit", "internal/logs", "internal/memory", "internal/mistakes", "internal/near", "internal/optionerror", "internal/permit", "internal/read", "internal/respond", "internal/lines", "internal/mistakes/keysample"}},
	"internal/topkeys":                   {notEven: []string{"net/http", "net"}},
	"console":                            {own: []string{".", "internal/keytext", "internal/read", "internal/topkeys", "store", "store/failover", "store/memstore"}},
	"tenants":                            {own: []string{".", "internal/keytext", "internal/optionerror"}},
	"adapters/internal/client":           {own: []string{".", "internal/background", "internal/keytext", "store"}},
	"adapters/internal/pattern":          {},
	"adapters/internal/frameworkcontext": {},
	"adapters/std":                       {own: []string{".", "adapters/internal/client", "internal/optionerror", "store"}},
	"adapters/gin":                       {own: []string{".", "adapters/internal/frameworkcontext", "adapters/internal/pattern"}, external: []string{"github.com/gin-gonic/gin"}},
	"adapters/echo":                      {own: []string{".", "adapters/internal/frameworkcontext", "adapters/internal/pattern"}, external: []string{"github.com/labstack/echo/v4"}},

	"store/redisstore/internal/batch": {own: []string{"internal/background", "store/redisstore/internal/fault"}, notEven: []string{"net/http", "net", "github.com/redis/go-redis/v9"}},
	"store/redisstore/internal/wire":  {own: []string{"internal/inside", "internal/algorithm", "internal/scripts", "store"}, notEven: []string{"net/http", "net", "github.com/redis/go-redis/v9"}},
	"store/redisstore/internal/fault": {own: []string{"store"}, notEven: []string{"net/http", "net", "github.com/redis/go-redis/v9"}},

	"internal/test/explore/steps/...": {
		tests: true,
		own:   []string{"internal/test/explore/steps", "internal/test/explore/steps/..."},
	},
	"examples/...": {
		own:      []string{".", "store/...", "adapters/...", "console", "tenants"},
		external: []string{"github.com/gin-gonic/gin", "github.com/labstack/echo/v4", "github.com/redis/go-redis/v9"},
	},
}

// listed is a package in the output of `go list -json`. Imports leaves the tests'
// own imports out: those may point the other way.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func TestImportDirections(t *testing.T) {
	packages := goList(t, "-deps", "./...")
	standard := map[string]bool{"C": true}
	for _, p := range packages {
		if p.Standard {
			standard[p.ImportPath] = true
		}
	}
	used := map[string]bool{} // lines, and what they allow
	for _, p := range packages {
		name, ours := relative(p.ImportPath)
		if !ours {
			continue
		}
		line, r, found := ruleOf(name)
		if !found {
			t.Errorf("%s has no line in the import rules: say there what it may import", name)
			continue
		}
		used[line] = true
		for _, path := range p.Imports {
			if standard[path] {
				continue
			}
			if own, ours := relative(path); ours {
				by, may := allowed(r.own, own)
				if !may {
					t.Errorf("%s imports %s: imports run examples, adapters, stint, memstore, store, one way only", name, own)
				}
				used[line+" "+by] = true
			} else if !allowedBelow(r.external, path) {
				t.Errorf("%s imports %s: the default answer to a new dependency is no", name, path)
			}
		}
		for _, path := range r.notEven {
			if slices.Contains(p.Deps, path) {
				t.Errorf("%s reaches %s", name, path)
			}
		}
	}
	for line, r := range imports {
		if !used[line] {
			t.Errorf("there is no package %s: leave its line out", line)
		}
		for _, own := range r.own {
			if !used[line+" "+own] {
				t.Errorf("%s doesn't import %s: leave that out", line, own)
			}
			if imports[own].tests && !r.tests {
				t.Errorf("%s may import %s, which is for tests only", line, own)
			}
		}
	}
}

// A module of ours is built by what its users have too: nothing of it imports an internal package
// of another module. Tests of adapters and of directory tests run here alone, with what only tests import. The
// command decides the requests of a log as a limiter does: it may import the root's internal packages.
func TestModulesImportNoInternals(t *testing.T) {
	for _, file := range tree(t, "*/go.mod") {
		dir := path.Dir(file)
		for _, name := range tree(t, dir+"/*.go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				own, ours := relative(strings.Trim(i.Path.Value, `"`))
				table := strings.HasSuffix(name, "_test.go") && (strings.HasPrefix(name, "adapters/") || strings.HasPrefix(name, "tests/")) && imports[own].tests
				if ours && !table && dir != "cmd/stint" && strings.Contains("/"+own+"/", "/internal/") && !strings.HasPrefix(own, dir+"/") {
					t.Errorf("%s imports %s, of another module", name, own)
				}
			}
		}
	}
}

// docs/internals/root.md has each file of the root package in a row, and a type refers only to types of its own
// row and of rows above it.
func TestRootRows(t *testing.T) {
	rows, n := map[string]int{}, 0
	for _, line := range strings.Split(read(t, "docs/internals/root.md"), "\n") {
		if n++; !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range regexp.MustCompile("`(\\w+\\.go)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			rows[m[1]] = n
		}
	}
	declared := map[string]string{} // the file of each type
	specs := map[*ast.TypeSpec]string{}
	for _, name := range tree(t, ":(glob)*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if rows[name] == 0 {
			t.Errorf("docs/internals/root.md has no %s", name)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				spec := spec.(*ast.TypeSpec)
				declared[spec.Name.Name], specs[spec] = name, name
			}
		}
	}
	for spec, file := range specs {
		var check func(n ast.Node) bool
		check = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // of another package
				return false
			case *ast.Field: // whose name is no type
				ast.Inspect(n.Type, check)
				return false
			case *ast.Ident:
				if of := declared[n.Name]; rows[of] > rows[file] {
					t.Errorf("type %s of %s refers to %s of %s, a lower row of docs/internals/root.md", spec.Name, file, n, of)
				}
			}
			return true
		}
		ast.Inspect(spec.Type, check)
	}
}

// goList runs in the test's own directory, the module's root.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
}

// relative is path without the module's, and whether it belongs to the module.
func relative(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// ruleOf returns the line that a package stands in.
func ruleOf(name string) (line string, r rule, found bool) {
	if r, found := imports[name]; found {
		return name, r, true
	}
	for pattern, r := range imports {
		if matches(pattern, name) {
			return pattern, r, true
		}
	}
	return "", rule{}, false
}

// allowed returns the pattern that a package matches, if there is one.
func allowed(patterns []string, name string) (by string, ok bool) {
	i := slices.IndexFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
	if i < 0 {
		return "", false
	}
	return patterns[i], true
}

func matches(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "/..."); wild {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

// allowedBelow holds for a module's root package and everything inside it.
func allowedBelow(modules []string, path string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return path == m || strings.HasPrefix(path, m+"/")
	})
}
