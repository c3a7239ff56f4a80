package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/tests/nginxtest"
)

// Every block of the README runs. A block that begins with limit := replaces that statement of the
// README's program, as a reader would, and the commands of the console block below it print what
// the README shows.
func TestREADME(t *testing.T) {
	tools(t, "bash", "curl")
	base, addr := readmeProgram(t)
	start := compile(t, base)
	ran := 0
	for _, block := range fenced.FindAllStringSubmatch(read(t, "README.md"), -1) {
		switch language, text := block[1], block[2]; {
		case language == "sh":
			for command := range strings.Lines(text) {
				start = checkCommand(t, strings.TrimSpace(command), start)
			}
		case language == "console" && strings.Contains(text, "redis-cli "):
			t.Run("Redis", func(t *testing.T) {
				tools(t, "redis-cli", "redis-server")
				follow(t, text, addr, func(addr string) (*exec.Cmd, []string) {
					server := startRedis(t)
					cmd, _ := start(addr)
					cmd.Args = append(cmd.Args, server)
					return cmd, []string{"redis-cli ", "redis-cli -p " + strings.TrimPrefix(server, "127.0.0.1:") + " "}
				})
			})
			ran++
		case language == "console":
			follow(t, text, addr, start)
			ran++
		case strings.HasPrefix(text, "package main\n"): // where start began
		case strings.Contains(text, "limit := "):
			start = compile(t, replaceLimit(t, base, text))
		case strings.Contains(text, "gin.New()"):
			runRouters(t, text)
		default:
			t.Errorf("no test runs\n%s", text)
		}
	}
	if ran != 5 {
		t.Errorf("%d console blocks ran, want 5", ran)
	}
}

// starter returns the command of a program that listens on an address, and what to replace in the
// commands that a reader types beside it.
type starter func(addr string) (*exec.Cmd, []string)

// compile compiles a program of the README, which listens on the address written in it.
func compile(t *testing.T, program string) starter {
	t.Helper()
	binary := compileFile(t, program)
	return func(string) (*exec.Cmd, []string) { return exec.Command(binary), nil }
}

// compileFile compiles a program in one file, and returns the binary's path.
func compileFile(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), program, 0o666)
	binary := filepath.Join(dir, "program")
	run(t, ".", "go", "build", "-o", binary, filepath.Join(dir, "main.go"))
	return binary
}

// checkCommand checks a command of the README. If it is go run, it returns the program's starter.
func checkCommand(t *testing.T, command string, start starter) starter {
	t.Helper()
	switch name, arg, _ := strings.Cut(command, " "); {
	case command == "go get "+module: // TestInstall runs it
	case strings.HasPrefix(command, "go run "):
		binary := filepath.Join(t.TempDir(), "program")
		run(t, ".", "go", "build", "-o", binary, strings.TrimPrefix(command, "go run "))
		return func(addr string) (*exec.Cmd, []string) { return exec.Command(binary, "-addr", addr), nil }
	case name == "make":
		run(t, ".", "make", "-n", arg)
	default:
		t.Errorf("no test runs %s", command)
	}
	return start
}

// replaceLimit returns the README's program with its statement limit := … replaced.
func replaceLimit(t *testing.T, program, statements string) string {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "main.go", program, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range ast.Preorder(f) {
		if s, ok := n.(*ast.AssignStmt); ok && s.Lhs[0].(*ast.Ident).Name == "limit" {
			at := func(p token.Pos) int { return files.Position(p).Offset }
			program = program[:at(s.Pos())] + statements + program[at(s.End()):]
			return addImports(strings.ReplaceAll(program, `"127.0.0.1:6379"`, "os.Args[1]"))
		}
	}
	t.Fatal("the program has no limit")
	return ""
}

// addImports adds the imports that blocks of the README take for granted.
func addImports(program string) string {
	head, body, _ := strings.Cut(program, "\n")
	imports := ""
	for name, path := range map[string]string{
		"os": "os", "fmt": "fmt", "http": "net/http", "httptest": "net/http/httptest", "time": "time",
		"gin": "github.com/gin-gonic/gin", "echo": "github.com/labstack/echo/v4", "redis": "github.com/redis/go-redis/v9",
		"stint": module, "stintgin": module + "/adapters/gin", "stintecho": module + "/adapters/echo",
		"failover": module + "/store/failover", "memstore": module + "/store/memstore", "redisstore": module + "/store/redisstore",
	} {
		if regexp.MustCompile(`\b`+name+`\.`).MatchString(body) && !regexp.MustCompile(`(?m)^\t`+`(`+name+` )?"`+path+`"$`).MatchString(body) {
			imports += "import " + name + " \"" + path + "\"\n"
		}
	}
	return head + "\n" + imports + body
}

// startRedis starts a redis-server, which a command of the README stops, and returns its address.
// Tests here don't import internal/test/redistest, of another module.
func startRedis(t *testing.T) string {
	t.Helper()
	addr := nginxtest.FreeAddress(t)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", strings.TrimPrefix(addr, "127.0.0.1:"), "--save", "")
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	listens(t, addr)
	return addr
}

// runRouters runs a block that mounts limiters on r, of gin, and e, of echo.
func runRouters(t *testing.T, block string) {
	t.Helper()
	cmd, _ := compile(t, addImports("package main\nfunc main() {\n"+block+`
		r.GET("/", func(*gin.Context) {})
		e.GET("/", func(echo.Context) error { return nil })
		for _, h := range []http.Handler{r, e} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			fmt.Println(w.Code, w.Header().Get("RateLimit"))
		}
	}`))("")
	cmd.Env = append(os.Environ(), "GIN_MODE=release")
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), `200 "rate";r=9;t=`) != 2 {
		t.Errorf("it prints %s (%v)\n%s", out, err, block)
	}
}

// follow starts a program and runs a session's commands, which print what the session shows. On a busy
// machine a command may take so long that the limit has more again: then all of them run again.
func follow(t *testing.T, session, addr string, start starter) {
	t.Helper()
	var got string
	for range 5 {
		cmd, replace := start(addr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := sync.OnceFunc(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		t.Cleanup(stop) // if a command fails
		listens(t, addr)
		got = ""
		own := strings.NewReplacer(append(replace, "127.0.0.1:8080", addr)...)
		for line := range strings.Lines(session) {
			if command, is := strings.CutPrefix(line, "$ "); is {
				got += line + shell(t, own.Replace(command))
			}
		}
		stop()
		if shows(session, got) {
			return
		}
	}
	t.Errorf("the session shows\n%s\nand its commands print\n%s", session, got)
}

// listens waits until a program listens on an address.
func listens(t *testing.T, addr string) {
	t.Helper()
	eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// shows reports whether a session matches what was printed: a line of dots stands for any
// number of lines, and r, the number left, t, the seconds until more is, and an instant may differ.
func shows(session, printed string) bool {
	number := regexp.MustCompile(`\b([rt]=|Reset: 1)[0-9]+`)
	var pattern strings.Builder
	for line := range strings.Lines(session) {
		line = strings.TrimRight(line, "\n")
		if line == "..." {
			pattern.WriteString(`(?:(?:[^$\n].*)?\n)*`)
			continue
		}
		pattern.WriteString(number.ReplaceAllString(regexp.QuoteMeta(line), `${1}[0-9]+`) + `\r?\n?`)
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(printed)
}

// Each document in Chinese has the sections, blocks, lists, tables and links of the English one.
func TestTranslation(t *testing.T) {
	for _, translated := range []string{"README.zh-CN.md", "docs/first-service.zh-CN.md"} {
		original := strings.Replace(translated, ".zh-CN", "", 1)
		english, chinese := outline(t, original), outline(t, translated)
		for i := range min(len(english), len(chinese)) {
			if english[i] != chinese[i] {
				t.Errorf("%s has\n%s\n%s\n%s", original, english[i], translated, chinese[i])
				break
			}
		}
		if len(english) != len(chinese) {
			t.Errorf("%s has %d parts, %s %d", original, len(english), translated, len(chinese))
		}
	}
}

// outline lists the parts of a document that don't depend on its language: levels of headings, blocks
// of code, items, rows, and each section's links in alphabetical order.
func outline(t *testing.T, name string) (parts []string) {
	t.Helper()
	code, link := regexp.MustCompile("(?s)^```.*?\n```\n"), regexp.MustCompile(`\]\(([^)]*)\)`)
	var links []string
	section := func() {
		slices.Sort(links)
		parts = append(parts, "links "+strings.Join(links, " "))
		links = nil
	}
	for text := read(t, name); text != ""; {
		line, rest, _ := strings.Cut(text, "\n")
		switch block := code.FindString(text); {
		case block != "":
			parts, rest = append(parts, block), text[len(block):]
		case strings.HasPrefix(line, "#"):
			section()
			parts = append(parts, line[:strings.Index(line, " ")])
		case strings.HasPrefix(line, "- "), strings.HasPrefix(line, "| "):
			parts = append(parts, line[:1])
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			to := strings.Replace(m[1], ".zh-CN.md", ".md", 1)
			if strings.HasPrefix(to, "#") { // a heading of the same document
				to = "#"
			}
			links = append(links, to)
		}
		text = rest
	}
	section()
	return parts
}

// What names the duration of make test names the same one.
func TestMinutesOfMakeTest(t *testing.T) {
	minutes := regexp.MustCompile(`(\d+) (?:to|到) (\d+) (?:minutes|分钟)`)
	for _, file := range []string{"Makefile", "README.md", "README.zh-CN.md", "CONTRIBUTING.md", ".ci/run"} {
		all := minutes.FindAllStringSubmatch(read(t, file), -1)
		if len(all) == 0 {
			t.Errorf("%s doesn't say how long make test takes", file)
		}
		for _, m := range all {
			if m[1] != "2" || m[2] != "5" {
				t.Errorf("%s says %q, want 2 to 5 minutes", file, m[0])
			}
		}
	}
}
