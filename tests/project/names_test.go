package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// names are the names that the code of the repository has.
type names struct {
	all      map[string]bool                       // each identifier
	packages map[string]map[string]bool            // what packages of this repository declare, by package name
	members  map[string]map[string]map[string]bool // fields and methods, by package name and type
	embeds   map[string]bool                       // types with embedded fields, as package.Type
}

// Comments and the documents of internals name functions, fields and methods that there are.
func TestNames(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range tree(t, "*.go") {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	n := &names{all: map[string]bool{}, packages: map[string]map[string]bool{}, members: map[string]map[string]map[string]bool{}, embeds: map[string]bool{}}
	for _, f := range files {
		if !strings.HasPrefix(fset.Position(f.Pos()).Filename, twins) || f.Name.Name == path.Base(twins) {
			n.add(f)
		}
	}
	for _, script := range tree(t, "lua/*.lua") { // comments on stores name what the scripts have
		for line := range strings.Lines(read(t, script)) {
			code, _, _ := strings.Cut(line, "--")
			n.addWords(code)
		}
	}
	for _, f := range files {
		own := strings.TrimSuffix(f.Name.Name, "_test")
		for _, group := range f.Comments {
			for _, line := range group.List {
				for _, name := range n.missing(own, line.Text) {
					t.Errorf("%s: there is no %s", fset.Position(line.Pos()), name)
				}
			}
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil {
				if first := strings.TrimRight(strings.Fields(f.Doc.Text())[0], ":,."); looksLikeAnother(first, f.Name.Name) && !n.all[first] {
					t.Errorf("%s: the comment of %s is about %s", fset.Position(f.Pos()), f.Name.Name, first)
				}
			}
		}
	}
	for _, doc := range append(tree(t, "docs/internals/*.md"), "docs/architecture.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
				if strings.ContainsAny(code[1], " /{=\"-") || path.Ext(code[1]) == ".go" {
					continue // a command, a path or a text
				}
				for _, name := range n.missing("stint", code[1]) {
					t.Errorf("%s:%d: there is no %s", doc, i+1, name)
				}
			}
		}
	}
}

// Rows of tables that begin with files name what these files have.
func TestNamesInRows(t *testing.T) {
	code, name := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^[A-Za-z_][\w.]*$`)
	for _, doc := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/internals/root.md"} {
		for i, line := range strings.Split(read(t, doc), "\n") {
			cells := strings.Split(line, "|")
			if len(cells) < 4 {
				continue
			}
			text := ""
			for _, file := range code.FindAllStringSubmatch(cells[1], -1) {
				if info, err := os.Stat(file[1]); err != nil { // of an algorithm to come, or a word
					continue
				} else if !info.IsDir() {
					text += read(t, file[1])
					continue
				}
				for _, inside := range tree(t, file[1]+"/*.go") {
					text += read(t, inside)
				}
			}
			for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
				last := m[1][strings.LastIndex(m[1], ".")+1:]
				if text != "" && name.MatchString(m[1]) && !slices.Contains(words.FindAllString(text, -1), last) {
					t.Errorf("%s:%d: there is no %s in the files of its row", doc, i+1, m[1])
				}
			}
		}
	}
}

// add adds the names of a file.
func (n *names) add(f *ast.File) {
	pkg := strings.TrimSuffix(f.Name.Name, "_test")
	if n.packages[pkg] == nil {
		n.packages[pkg], n.members[pkg] = map[string]bool{}, map[string]map[string]bool{}
	}
	member := func(of, name string) {
		if n.members[pkg][of] == nil {
			n.members[pkg][of] = map[string]bool{}
		}
		n.members[pkg][of][name] = true
	}
	for _, i := range f.Imports {
		n.all[path.Base(strings.Trim(i.Path.Value, `"`))] = true
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.Ident:
			n.all[x.Name] = true
		case *ast.BasicLit: // names in texts, such as those of tests, scripts and JSON
			n.addWords(x.Value)
		case *ast.FuncDecl:
			if x.Recv == nil {
				n.packages[pkg][x.Name.Name] = true
				break
			}
			of := x.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if generic, ok := of.(*ast.IndexExpr); ok {
				of = generic.X
			}
			if id, ok := of.(*ast.Ident); ok {
				member(id.Name, x.Name.Name)
			}
		case *ast.TypeSpec:
			n.packages[pkg][x.Name.Name] = true
			var fields *ast.FieldList
			switch t := x.Type.(type) {
			case *ast.StructType:
				fields = t.Fields
			case *ast.InterfaceType:
				fields = t.Methods
			default:
				n.embeds[pkg+"."+x.Name.Name] = true // it may have what its type has
				return true
			}
			for _, field := range fields.List {
				for _, name := range field.Names {
					member(x.Name.Name, name.Name)
				}
				if len(field.Names) == 0 {
					n.embeds[pkg+"."+x.Name.Name] = true
				}
			}
		case *ast.ValueSpec:
			for _, name := range x.Names {
				n.packages[pkg][name.Name] = true
			}
		}
		return true
	})
}

// addWords adds the words of a text.
func (n *names) addWords(text string) {
	for _, word := range words.FindAllString(text, -1) {
		n.all[word] = true
	}
}

var (
	words = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	// qualified is a name of a package or type, and one that it has.
	qualified = regexp.MustCompile(`(?:^|[^\w./"'$:{<-])([A-Za-z]\w*)\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?`)
	// camel is a name such as setFields.
	camel = regexp.MustCompile(`(?:^|[^\w./"'$<%-])([a-z][a-z0-9]*[A-Z]\w*)`)
	// called is a name such as end().
	called = regexp.MustCompile(`(?:^|[^\w./"'$-])([a-zA-Z_]\w*)\(\)`)
)

// missing returns the names in a text of a package that there aren't.
func (n *names) missing(pkg, text string) (all []string) {
	if strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//\t") || strings.Contains(text, "://") {
		return nil // of a compiler, code, or an address
	}
	for _, m := range qualified.FindAllStringSubmatch(text, -1) {
		if m[2] == "go" || slices.Contains(foreign, m[1]+"."+m[2]) { // a file
			continue
		}
		if !n.has(pkg, m[1], m[2]) || m[3] != "" && n.packages[m[1]] != nil && !n.has(m[1], m[2], m[3]) {
			all = append(all, strings.TrimSuffix(m[1]+"."+m[2]+"."+m[3], "."))
		}
	}
	for _, re := range []*regexp.Regexp{camel, called} {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			if !n.all[m[1]] && !slices.Contains(foreign, m[1]) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// has reports whether a package or a type has a name. It is true of names that it doesn't know.
func (n *names) has(pkg, of, name string) bool {
	if declared := n.packages[of]; declared != nil && n.members[pkg][of] == nil {
		return declared[name] || !ast.IsExported(name) && n.all[name] || n.all[name] && of == "main"
	}
	members := n.members[pkg][of]
	if members == nil && n.packages[pkg][of] { // a type without fields and methods, or a variable
		return n.all[name]
	}
	if members != nil {
		return members[name] || n.embeds[pkg+"."+of] && n.all[name]
	}
	known := false // a type of another package
	for other, types := range n.members {
		if types[of] != nil && ast.IsExported(of) {
			if known = true; types[of][name] || n.embeds[other+"."+of] && n.all[name] {
				return true
			}
		}
	}
	return !known
}

// foreign are names of other programs and libraries: of Apache's formats, and of net/http.
var foreign = []string{"xXX", "Request.Pattern"}

// twins has packages that are named as those of the standard library.
const twins = "internal/test/explore/steps"

// looksLikeAnother reports whether the first word of a comment is a name, and not the one of its function.
func looksLikeAnother(first, name string) bool {
	return first != name && camel.MatchString(fmt.Sprint(" ", first))
}
