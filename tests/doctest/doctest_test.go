package doctest

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	c := New(t, "strings", "net/http", "other errors")
	for _, test := range []struct{ name, code, want string }{
		{"declarations", "func f() int { return n }\n", ""},
		{"statements", "a := n + 1\nn = a\n", ""},
		{"what isn't used yet", "a, _, _ := strings.Cut(s, s)\n", ""},
		{"an expression", "strings.Fields(s)", ""},
		{"a value", "http.Server{}", ""},
		{"a list", "n, s,\nstrings.ToUpper(s), // and so on\n", ""},
		{"a package by another name", "other.New(s)", ""},
		{"no such function", "strings.Filds(s)", "undefined: strings.Filds"},
		{"no such name", "m + 1", "undefined: m"},
		{"a wrong argument", "strings.ToUpper(n)", "cannot use n"},
		{"a wrong declaration", "func f() int { return s }\n", "cannot use s"},
		{"no code", "this is prose", "expected"},
	} {
		err := c.Check("var n int; var s string", test.code)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestBlocks(t *testing.T) {
	const text = "```go\na\n```\n```go\npackage main\n```\n```go dir\nb\n```\n```sh\nc\n```\n" +
		"| x | y |\n| --- | --- |\n| `d` | `e`, `f` |\n"
	for _, test := range []struct{ got, want []string }{
		{Blocks(text, ""), []string{"a\n"}},
		{Blocks(text, "dir"), []string{"b\n"}},
		{Modules(text), []string{"dir"}},
		{Column(text, 0), []string{"d"}},
		{Column(text, 1), []string{"e", "f"}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
