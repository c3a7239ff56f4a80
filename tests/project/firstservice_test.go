package project

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/tests/nginxtest"
)

// docs/first-service.md as its reader follows it: each step's program is the one before with the
// functions that the step shows, the commands print what the page shows, and the whole program at the
// end is that of the last step.
func TestFirstService(t *testing.T) {
	tools(t, "bash", "curl", "redis-cli", "redis-server")
	const page = "docs/first-service.md"
	var (
		program  grown
		whole    string
		start    func(t *testing.T, redis string) *service
		sessions int
	)
	for _, block := range fenced.FindAllStringSubmatch(read(t, page), -1) {
		switch language, text := block[1], block[2]; {
		case strings.HasPrefix(language, "go") && program.source() == strings.TrimSpace(text):
			whole = text
		case strings.HasPrefix(language, "go"):
			program.grow(t, text)
		case language == "sh" && strings.Contains(text, "go run ."):
			start = program.starter(t, text)
		case language == "sh": // go mod init, go get: of modules that aren't released yet
		case language == "console":
			sessions++
			t.Run(fmt.Sprintf("session %d", sessions), func(t *testing.T) { followService(t, text, start) })
		default:
			t.Errorf("no test runs\n%s", text)
		}
	}
	if sessions != 6 {
		t.Errorf("%d sessions ran, want 6", sessions)
	}
	if whole == "" {
		t.Errorf("the page doesn't end with the program of its steps:\n%s", program.source())
	}
	if n := strings.Count(whole, "\n"); n > 130 {
		t.Errorf("the program has %d lines", n)
	}
}

// A grown program is a file to which blocks of a page add declarations, and whose declarations they replace.
type grown struct {
	imports map[string]bool
	names   []string          // of declarations, in order
	decls   map[string]string // their text, with comments
}

// grow adds the declarations of a block.
func (g *grown) grow(t *testing.T, block string) {
	t.Helper()
	if !strings.HasPrefix(block, "package main\n") {
		block = "package main\n" + block
	}
	if g.decls == nil {
		g.imports, g.decls = map[string]bool{}, map[string]string{}
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "main.go", block, parser.ParseComments)
	if err != nil {
		t.Fatalf("%v\n%s", err, block)
	}
	for _, i := range f.Imports {
		line := i.Path.Value
		if i.Name != nil {
			line = i.Name.Name + " " + line
		}
		g.imports[line] = true
	}
	text := func(doc *ast.CommentGroup, d ast.Decl) string {
		from := d.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		return block[files.Position(from).Offset:files.Position(d.End()).Offset]
	}
	for _, d := range f.Decls {
		var name, code string
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, code = d.Name.Name, text(d.Doc, d)
		case *ast.GenDecl:
			switch s := d.Specs[0].(type) {
			case *ast.ImportSpec:
				continue
			case *ast.TypeSpec:
				name = s.Name.Name
			case *ast.ValueSpec:
				name = s.Names[0].Name
			}
			code = text(d.Doc, d)
		}
		if g.decls[name] == "" {
			g.names = append(g.names, name)
		}
		g.decls[name] = code
	}
}

// source is the program, formatted.
func (g *grown) source() string {
	text := "package main\n\nimport (\n"
	body := ""
	for _, name := range g.names {
		body += "\n" + g.decls[name] + "\n"
	}
	groups := make([][]string, 3) // the standard library, other modules, this one
	for _, line := range slices.Sorted(maps.Keys(g.imports)) {
		path := line[strings.Index(line, `"`)+1 : len(line)-1]
		name, _, named := strings.Cut(line, ` "`)
		if !named {
			name = regexp.MustCompile(`/v[0-9]+$`).ReplaceAllString(path, "")
			name = strings.TrimPrefix(filepath.Base(name), "go-")
		}
		switch {
		case !regexp.MustCompile(`\b` + name + `\.`).MatchString(body): // a step that was replaced used it
		case !strings.Contains(path, "."):
			groups[0] = append(groups[0], line)
		case !strings.HasPrefix(path, module):
			groups[1] = append(groups[1], line)
		default:
			groups[2] = append(groups[2], line)
		}
	}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b string) int { return strings.Compare(a[strings.Index(a, `"`):], b[strings.Index(b, `"`):]) })
		text += "\t" + strings.Join(group, "\n\t") + "\n\n"
	}
	formatted, err := format.Source([]byte(text + ")\n" + body))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(formatted))
}

// A service is a program of the page that runs beside a Redis of its own.
type service struct {
	*exec.Cmd
	addresses []string          // where it listens
	replace   *strings.Replacer // of the page's addresses and files in commands
}

// starter compiles the program, which the command starts.
func (g *grown) starter(t *testing.T, command string) func(*testing.T, string) *service {
	t.Helper()
	source, addresses := g.source(), []string{"127.0.0.1:6379", "127.0.0.1:8080", "127.0.0.1:8081"}
	for i, address := range addresses {
		source = strings.ReplaceAll(source, `"`+address+`"`, fmt.Sprintf("os.Args[%d]", i+1))
	}
	binary := compileFile(t, addImports(source))
	_, command, _ = strings.Cut("\n"+strings.TrimPrefix(command, "go mod tidy # adds go-redis\n"), "\n")
	environment, rest, _ := strings.Cut(command, "go run .")
	return func(t *testing.T, redis string) *service {
		t.Helper()
		own := []string{redis, nginxtest.FreeAddress(t), nginxtest.FreeAddress(t)}
		log := filepath.Join(t.TempDir(), "log")
		s := &service{Cmd: exec.Command(binary, own...), addresses: own[1:2], replace: strings.NewReplacer(
			addresses[1], own[1], addresses[2], own[2], "service.log", log,
			"redis-cli ", "redis-cli -p "+strings.TrimPrefix(redis, "127.0.0.1:")+" ")}
		if strings.Contains(source, "os.Args[3]") {
			s.addresses = own[1:]
		}
		s.Env = append(os.Environ(), strings.Fields(environment)...)
		switch strings.TrimSpace(rest) {
		case "":
		case "2>service.log":
			f, err := os.Create(log)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			s.Stderr = f
		default:
			t.Errorf("no test runs %s", command)
		}
		return s
	}
}

// followService runs a session's commands beside a service, as follow does.
func followService(t *testing.T, session string, start func(*testing.T, string) *service) {
	t.Helper()
	var got string
	for range 5 {
		s := start(t, startRedis(t))
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Wait() }()
		t.Cleanup(func() { _ = s.Process.Kill() }) // if a command fails
		for _, address := range s.addresses {
			listens(t, address)
		}
		got = ""
		for line := range strings.Lines(session) {
			if command, is := strings.CutPrefix(line, "$ "); is {
				got += line + shell(t, s.replace.Replace(command))
			}
		}
		if err := s.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil && strings.Contains(session, "DryRun") { // from step 5 on, it shuts down
			t.Errorf("interrupted, it ends with %v", err)
		}
		if shows(session, strings.ReplaceAll(got, "127.0.0.2", "127.0.0.1")) { // the address of shell
			return
		}
	}
	t.Errorf("the session shows\n%s\nand its commands print\n%s", session, got)
}
