package steps

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

const ownPath = "github.com/stint-go/stint/internal/test/explore/steps/"

// twins are the packages that replace imports.
var twins = map[string]string{
	"context":      ownPath + "context",
	"sync":         ownPath + "sync",
	"sync/atomic":  ownPath + "atomic",
	"time":         ownPath + "time",
	"hash/maphash": ownPath + "maphash",
	"github.com/stint-go/stint/internal/background": ownPath + "background",
}

// withTwins has a file import other packages, by path, and call package lang for each statement about
// goroutines and channels. It knows only the syntax, so a range over a channel isn't rewritten, and would block for
// ever.
func withTwins(name, source string, to map[string]string) (string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	r := &rewriting{source: source, base: fset.File(f.Pos()).Base()}
	for _, i := range f.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return "", err
		}
		if twin := to[imported]; twin != "" {
			r.replace(i.Path.Pos(), i.Path.End(), strconv.Quote(twin))
		}
	}
	imports := len(r.changes)
	ast.Inspect(f, r.node)
	if len(r.changes) > imports {
		r.replace(f.Name.End(), f.Name.End(), "; import lang "+strconv.Quote(ownPath+"lang"))
	}
	return r.String(), nil
}

// rewriting is a source with the changes to be made in it.
type rewriting struct {
	source  string
	base    int
	changes []change
}

type change struct {
	from, to int
	text     string
}

func (r *rewriting) replace(from, to token.Pos, text string) {
	r.changes = append(r.changes, change{int(from) - r.base, int(to) - r.base, text})
}

func (r *rewriting) text(n ast.Node) string {
	return r.source[int(n.Pos())-r.base : int(n.End())-r.base]
}

func (r *rewriting) String() string {
	slices.SortStableFunc(r.changes, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	at := 0
	for _, c := range r.changes {
		b.WriteString(r.source[at:c.from] + c.text)
		at = c.to
	}
	return b.String() + r.source[at:]
}

// node rewrites a statement or expression, and reports whether its children are to be rewritten.
func (r *rewriting) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		suffix := ""
		if k := len(n.Call.Args); k > 0 {
			suffix = fmt.Sprint(k)
		}
		r.replace(n.Go, n.Call.Pos(), "lang.Go"+suffix+"(")
		comma := ""
		if suffix != "" {
			comma = ", "
		}
		r.replace(n.Call.Lparen, n.Call.Lparen+1, comma)
	case *ast.SendStmt:
		r.replace(n.Pos(), n.Pos(), "lang.Send(")
		r.replace(n.Arrow, n.Arrow+2, ",")
		r.replace(n.End(), n.End(), ")")
	case *ast.AssignStmt:
		if from, ok := isReceive(n.Rhs[0]); ok && len(n.Lhs) == 2 && len(n.Rhs) == 1 {
			r.receive(from, "Receive2")
			return false
		}
	case *ast.UnaryExpr:
		if from, ok := isReceive(n); ok {
			r.receive(from, "Receive")
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "close" {
			r.replace(f.Pos(), f.End(), "lang.Close")
		}
	case *ast.SelectStmt:
		r.choose(n)
		return false
	}
	return true
}

// isReceive reports whether an expression receives.
func isReceive(e ast.Expr) (*ast.UnaryExpr, bool) {
	u, ok := e.(*ast.UnaryExpr)
	return u, ok && u.Op == token.ARROW
}

func (r *rewriting) receive(from *ast.UnaryExpr, by string) {
	r.replace(from.OpPos, from.OpPos+2, "lang."+by+"(")
	r.replace(from.End(), from.End(), ")")
}

// choose makes a select a switch over which case lang.Select does.
func (r *rewriting) choose(s *ast.SelectStmt) {
	var names, made []string
	orElse := false
	for _, clause := range s.Body.List {
		c := clause.(*ast.CommClause)
		name := fmt.Sprint("case", len(names))
		if c.Comm == nil {
			orElse = true
		} else {
			made = append(made, r.comm(c, name, len(names)))
			names = append(names, name)
		}
		for _, stmt := range c.Body {
			ast.Inspect(stmt, r.node)
		}
	}
	assigned := strings.Join(names, ", ") + " := " + strings.Join(made, ", ") + "; "
	if len(names) == 0 {
		assigned = ""
	}
	r.replace(s.Select, s.Select+token.Pos(len("select")), fmt.Sprintf("switch %slang.Select(%s) ", assigned,
		strings.Join(append([]string{fmt.Sprint(orElse)}, names...), ", ")))
	if !orElse {
		r.replace(s.Body.Rbrace, s.Body.Rbrace, "default: panic(\"no case\")\n")
	}
}

// comm rewrites a case, and returns the expression that makes it.
func (r *rewriting) comm(c *ast.CommClause, name string, n int) (made string) {
	header := fmt.Sprintf("case %d:", n)
	switch comm := c.Comm.(type) {
	case *ast.SendStmt:
		made = fmt.Sprintf("lang.Out(%s, %s)", r.text(comm.Chan), r.text(comm.Value))
	case *ast.ExprStmt:
		from, _ := isReceive(comm.X)
		made = fmt.Sprintf("lang.In(%s)", r.text(from.X))
	case *ast.AssignStmt:
		from, _ := isReceive(comm.Rhs[0])
		made = fmt.Sprintf("lang.In(%s)", r.text(from.X))
		var to []string
		for _, e := range comm.Lhs {
			to = append(to, r.text(e))
		}
		got := ".Got()"
		if len(to) == 2 {
			got = ".Got2()"
		}
		header += " " + strings.Join(to, ", ") + " " + comm.Tok.String() + " " + name + got + ";"
	}
	r.replace(c.Case, c.Colon+1, header)
	return made
}
