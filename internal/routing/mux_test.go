package routing

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// muxed is what an http.ServeMux makes of patterns.
type muxed struct{ mux *http.ServeMux }

// number is the handler of a pattern.
type number int

func (number) ServeHTTP(http.ResponseWriter, *http.Request) {}

// add adds a pattern, and returns the mux's error.
func (m muxed) add(n int, pattern string) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprint(p)
		}
	}()
	m.mux.Handle(pattern, number(n))
	return ""
}

// find returns the number of the pattern that a mux finds for an escaped path, or -1.
func (m muxed) find(method, host, path string) int {
	u := &url.URL{Host: host, RawPath: path}
	u.Path, _ = url.PathUnescape(path)
	h, pattern := m.mux.Handler(&http.Request{Method: method, Host: host, URL: u})
	if n, ok := h.(number); ok {
		return int(n)
	}
	if pattern == "" || strings.HasSuffix(path, "/") {
		return -1
	}
	return m.find(method, host, path+"/") // the mux redirects
}

// A router takes the patterns that a mux takes, except those that it corrects, and finds the same for each request.
func TestAsAMux(t *testing.T) {
	segments := []string{"a", "b", "a.b", "{x}", "{y}", "{$}", "{z...}", "", "%61", "%zz", "a%2Fb", "a%20b"}
	requested := []string{"a", "b", "a.b", "%61", "a%2Fb", "c", "a%20b"}
	hosts := []string{"", "", "h", "i.test"}
	methods := []string{"", "GET", "HEAD", "POST", "CONNECT"}
	pick := func(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }
	r := rand.New(rand.NewPCG(1, 2))
	conflicts, matches := 0, 0
	for range 5_000 {
		m := muxed{http.NewServeMux()}
		var patterns []string
		for range 1 + r.IntN(6) {
			pattern := written(pick(r, methods), pick(r, hosts), "/")
			for i := range 1 + r.IntN(3) {
				if i > 0 {
					pattern += "/"
				}
				pattern += pick(r, segments)
			}
			if what, _ := correct(pattern); what != "" {
				continue
			}
			_, problems := New(append(patterns, pattern))
			problem := m.add(len(patterns), pattern)
			if (problem == "") != (problems == nil) {
				t.Fatalf("%q beside %q: %v, a mux says %q", pattern, patterns, problems, problem)
			}
			if problem == "" {
				patterns = append(patterns, pattern)
			} else {
				conflicts++
			}
		}
		rt, _ := New(patterns)
		for range 30 {
			method, host, path := pick(r, methods[1:]), pick(r, append(hosts, "other")), ""
			for range 1 + r.IntN(4) {
				path += "/" + pick(r, requested)
			}
			if r.IntN(3) == 0 {
				path += "/"
			}
			got, want := rt.find(method, host, path, true).number, m.find(method, host, path)
			if want < 0 {
				want = len(patterns)
			} else {
				matches++
			}
			if got != want {
				t.Fatalf("%q: %s %s%s finds %d, a mux %d", patterns, method, host, path, got, want)
			}
		}
	}
	if conflicts < 300 || matches < 5_000 {
		t.Errorf("only %d conflicts and %d matches", conflicts, matches)
	}
}

// A pattern that isn't corrected is one that a mux takes.
func FuzzPatterns(f *testing.F) {
	for _, p := range mistakenPatterns {
		f.Add(p)
	}
	for _, p := range []string{"POST /login", "/a/{b}/{c...}", "/{$}", "a.test/", "GET [::1]/x", "/a}", "/%zz", "/a b"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		what, write := correct(pattern)
		problem := muxed{http.NewServeMux()}.add(0, pattern)
		if what == "" && problem != "" {
			t.Errorf("%q isn't corrected, and a mux says %s", pattern, problem)
		}
		if (what == "") != (write == "") {
			t.Errorf("%q: %q, %q", pattern, what, write)
		}
		checkProposals(t, pattern, write)
	})
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// checkProposals fails the test if a pattern that a correction proposes is wrong, too.
func checkProposals(t *testing.T, pattern, write string) {
	t.Helper()
	if write == "" {
		return
	}
	all := quoted.FindAllString(write, -1)
	if len(all) != 1 {
		t.Errorf("%q: %s proposes %q", pattern, write, all)
	}
	for _, q := range all {
		proposed := ""
		if _, err := fmt.Sscanf(q, "%q", &proposed); err != nil {
			t.Errorf("%q: %s: %v", pattern, write, err)
		}
		if _, problems := New([]string{proposed}); problems != nil {
			t.Errorf("%q: %s, and that is wrong, too: %v", pattern, write, problems)
		}
	}
}

// GODEBUG=httpmuxgo121=1 changes what a ServeMux makes of patterns. Routes stay as they are.
func TestOldMux(t *testing.T) {
	const setting = "httpmuxgo121=1"
	if os.Getenv("GODEBUG") != setting {
		c := exec.Command(os.Args[0], "-test.run=^(TestOldMux|TestFind|TestChains)$")
		c.Env = append(os.Environ(), "GODEBUG="+setting)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	m := muxed{http.NewServeMux()}
	if m.add(1, "GET /{x}"); m.find("GET", "", "/a") == 1 {
		t.Skip("the setting has no effect any more")
	}
	rt, _ := New([]string{"GET /{x}"})
	if rt.find("GET", "", "/a", true).number != 0 {
		t.Error("no request matches GET /{x}")
	}
}

// mistakenPatterns are patterns that no request can match, or that mean something else than they seem to.
var mistakenPatterns = []string{
	"", " ", "*", "^", ".", "login", "GET", "get", "POST login", "POST", "GET ", "example.com", "GET example.com", "localhost:8080", "{id}",
	"POST/login", "post/login", "DELETE/a/{id}", "get /x", "Post  a.test/:x", "GET,POST /x", "(GET) /x", "GET: /x", "/x y", "/X y", "a.test/x y", "/a b c/:d",
	"^/api/.*", "^/login$", "^/api/(.*)$", "^/users/:id$", "GET ^/x", "/api/.*", "/a/.+/b", "*.example.com/", "*.a.test/x", "*/login", "a.*/x", "{tenant}.a.test/x",
	"API.example.com/", "Api.Test./x", "a.test:8080/x", "[::1]:8080/", "::1/x", "2001:db8::1/", "[2001:DB8::1]/", "[::1/x", "[a.test]/", "user@a.test/x", "bücher.example/",
	"a,b.test/x", "a.test$/x", "./login", "../x", "https://a.test/x", "https://a.test", "HTTP://A.test:80/x", "http:///x",
	"/search?q=1", "/a#b", "/login ", "/login\t", "//login", "/a//b", "/a/../b", "/./", "/a/.", "/{x}/..",
	"/users/:id", "/files/*", "/*path", "/a/*/b", "/:a/:a", "/:/:", "/*/*", "/**", "/a/**/b", "/{a}/:a",
	"/{id:[0-9]+}", "/{id:[0-9]{3}}/x", "/{rest:.*}", "/{*rest}", "/{id?}", "/{}", "/{id}.json", "/a{id}", "/{a}/{a}", "/{a...}/b", "/{$}/b", "/{1}", "/{a b}", "/{", "/a{", "/{a", "/}{",
}

// Each mistake has a correction, which is no mistake.
func TestCorrections(t *testing.T) {
	for _, pattern := range mistakenPatterns {
		_, problems := New([]string{pattern})
		if len(problems) != 1 || problems[0].What == "" {
			t.Errorf("%q: %v", pattern, problems)
			continue
		}
		checkProposals(t, pattern, problems[0].Write)
	}
	for _, tt := range []struct{ pattern, what, write string }{
		{"POST/login", "there is no space between the method and the path", `use "POST /login"`},
		{"^/api/.*", "a pattern isn't a regular expression", `use "/api/{rest...}"`},
		{"^/login$", "a pattern isn't a regular expression", `use "/login"`},
		{"/x y", "a space in a path is written as %20", `use "/x%20y"`},
		{"/x ", "it ends in a space", `use "/x"`},
		{"GET /x ", "it ends in a space", `use "GET /x"`},
		{"*", "the path is missing", `use "/"`},
		{"login", "the path is missing", `use "/login"`},
		{"GET example.com", "the path is missing", `use "GET example.com/"`},
		{"GET", "the path is missing", `use "GET /"`},
		{"API.example.com/x", "hosts are compared in lower case", `use "api.example.com/x"`},
		{"*.example.com/x", "a host can't contain a wildcard", `use each host, such as "www.example.com/x"`},
		{"*/x", "a host can't contain a wildcard", `use each host, or "/x" for all hosts`},
		{"bücher.example/x", "a host is sent in ASCII", `use it in Punycode, such as "xn--bcher-kva.example/x"`},
		{"user@a.test/x", `a host can't contain "@"`, `use a valid host name, or "/x" for all hosts`},
		{"::1/x", "an address with colons is written in brackets", `use "[::1]/x"`},
		{"[::1]:80/x", "a pattern's host can't contain a port", `use "[::1]/x"`},
		{"HTTPS://A.test:80/:x", "a pattern can't contain a scheme", `use "a.test/{x}"`},
		{"get /users/:id?x=1", "the method must be in upper case", `use "GET /users/{id}"`},
		{"GET,POST /x", `no request has the method "GET,POST"`, `use a method such as POST, or "/x" for every method`},
		{"/a/../b/", "no path has empty segments or dot segments once it is cleaned", `use "/b/"`},
		{"/{id:[0-9]+}/x", "a wildcard must be a name in braces", `use "/{id}/x"`},
		{"/{rest:.*}", "a wildcard must be a name in braces", `use "/{rest...}"`},
		{"/{id}.json", "a wildcard must be a whole segment", `use "/{id}"`},
		{"/{a}/{a}", "two wildcards have the same name", `use "/{a}/{a2}"`},
		{"/{a...}/b", "{name...} and {$} are allowed only at the end", `use "/{a}/b"`},
		{"/:a/:a", "segments such as :id or * aren't wildcards here, but plain text", `use "/{a}/{a2}"`},
	} {
		if what, write := correct(tt.pattern); what != tt.what || write != tt.write {
			t.Errorf("%q: %s: %s\nwant %s: %s", tt.pattern, what, write, tt.what, tt.write)
		}
	}
	for _, pattern := range []string{"/", "GET /", "a.test/", "a.test./x", "a_b-c.test/", "[::1]/", "192.0.2.1/", "/a}", "/a:b", "/a*", "/odata/Products('x')", "/ü", "/{ü}", "FETCH /x", "GET /a b", " /x", "GET\t/x", "localhost/", "get.test/"} {
		if what, write := correct(pattern); write != "" {
			t.Errorf("%q: %s: %s", pattern, what, write)
		}
	}
}
