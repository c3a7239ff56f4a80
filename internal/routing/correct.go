package routing

import (
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// correct returns what is wrong with a pattern and what to write instead, or "". Wrong is what no ServeMux takes,
// and what no request can match. A pattern that is proposed is right.
func correct(pattern string) (what, write string) {
	m := mistake(pattern)
	if m == nil {
		return "", ""
	}
	what, write = m.what, m.write
	if write == "" {
		write = "use %q"
	}
	for range 20 { // each removes a mistake
		next := mistake(m.meant)
		if next == nil {
			return what, fmt.Sprintf(write, m.meant)
		}
		m = next
	}
	return what, `use a pattern of http.ServeMux, such as "POST /login"`
}

// A mistaken is a mistake in a pattern, and the pattern that is meant.
type mistaken struct {
	what, meant string
	write       string // how meant is proposed; "": write it
}

// mistake returns a mistake in a pattern, or nil.
func mistake(pattern string) *mistaken {
	method, host, path := split(pattern)
	for _, check := range [...]func(method, host, path string) *mistaken{wrongMethod, missingPath, wrongHost, wrongPath} {
		if m := check(method, host, path); m != nil {
			return m
		}
	}
	return nil
}

// written returns the pattern with these parts.
func written(method, host, path string) string {
	if method == "" {
		return host + path
	}
	return method + " " + host + path
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace}

func wrongMethod(method, host, path string) *mistaken {
	upper := strings.ToUpper(method)
	switch {
	case strings.Contains(method, "/") && strings.Trim(host+path, " \t") == "":
		return &mistaken{what: "it ends in a space", meant: method}
	case strings.Contains(method, "/"):
		return &mistaken{what: "a space in a path is written as %20",
			meant: method + "%20" + strings.ReplaceAll(host+path, " ", "%20")}
	case strings.ContainsFunc(method, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}):
		return &mistaken{what: fmt.Sprintf("no request has the method %.80q", method), meant: host + path,
			write: "use a method such as POST, or %q for every method"}
	case method != upper:
		return &mistaken{what: "the method must be in upper case", meant: written(upper, host, path)}
	}
	return nil
}

// missingPath reports a pattern without a slash, whose rest is in host.
func missingPath(method, host, path string) *mistaken {
	if path != "" {
		return nil
	}
	meant := written(method, "", "/"+host)
	switch {
	case method == "" && host == "":
		return &mistaken{what: "the pattern of a route is empty", meant: "/"}
	case method == "" && slices.Contains(methods, strings.ToUpper(host)):
		meant = written(host, "", "/")
	case strings.Trim(host, "*^$.") == "":
		meant = written(method, "", "/")
	case strings.ContainsAny(host, ".:") && !strings.ContainsAny(host, "{"):
		meant = written(method, host, "/")
	}
	return &mistaken{what: "the path is missing", meant: meant}
}

func wrongHost(method, host, path string) *mistaken {
	if host == "" {
		return nil
	}
	meant := func(what, host string) *mistaken { return &mistaken{what: what, meant: written(method, host, path)} }
	name, _, colon := strings.Cut(host, ":")
	address := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	i := strings.IndexFunc(host,
		func(c rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", c) })
	switch {
	case method == "" && slices.Contains(methods, strings.ToUpper(host)):
		return &mistaken{what: "there is no space between the method and the path",
			meant: written(strings.ToUpper(host), "", path)}
	case colon && strings.HasSuffix(host, ":") && strings.HasPrefix(path, "//"):
		return &mistaken{what: "a pattern can't contain a scheme", meant: written(method, "", path[2:])}
	case host[0] == '^':
		return &mistaken{what: "a pattern isn't a regular expression",
			meant: written(method, host[1:], strings.TrimSuffix(path, "$"))}
	case strings.HasPrefix(host, "*.") && len(host) > 2:
		return &mistaken{what: "a host can't contain a wildcard", meant: written(method, "www"+host[1:], path),
			write: "use each host, such as %q"}
	case strings.ContainsAny(host, "*{"):
		return &mistaken{what: "a host can't contain a wildcard", meant: written(method, "", path),
			write: "use each host, or %q for all hosts"}
	case isAddress(address):
		if host[0] == '[' && host[len(host)-1] == ']' || !strings.Contains(host, ":") {
			break // as below
		}
		return meant("an address with colons is written in brackets", "["+address+"]")
	case host[0] == '[' && strings.Contains(host, "]:"):
		return meant("a pattern's host can't contain a port", host[:strings.Index(host, "]:")+1])
	case colon:
		return meant("a pattern's host can't contain a port", name)
	}
	if lower := strings.ToLower(host); lower != host {
		return meant("hosts are compared in lower case", lower)
	}
	switch {
	case host[0] == '[' && isAddress(address) && strings.Contains(address, ":"):
		return nil
	case strings.Trim(host, ".") == "":
		return meant("a host can't consist of dots alone", "")
	case strings.ContainsFunc(host, func(c rune) bool { return c >= 0x80 }):
		return &mistaken{what: "a host is sent in ASCII", meant: written(method, "xn--bcher-kva.example", path),
			write: "use it in Punycode, such as %q"}
	case i >= 0:
		return &mistaken{what: fmt.Sprintf("a host can't contain %q", host[i:i+1]), meant: written(method, "", path),
			write: "use a valid host name, or %q for all hosts"}
	}
	return nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func wrongPath(method, host, text string) *mistaken {
	meant := func(what, path string) *mistaken { return &mistaken{what: what, meant: written(method, host, path)} }
	if i := strings.IndexAny(text, "?#"); i >= 0 && !inBraces(text, i) {
		return meant("a pattern is compared with the path alone, without a query or a fragment", text[:i])
	}
	if short := strings.TrimRight(text, " \t"); short != text {
		return meant("it ends in a space", short)
	}
	if all, expression := wildcards(text); expression {
		return meant("a pattern isn't a regular expression", all)
	} else if all != text {
		return meant("segments such as :id or * aren't wildcards here, but plain text", all)
	}
	if what, right := wrongBraces(text); what != "" {
		return meant(what, right)
	}
	clean := path.Clean(text)
	if strings.HasSuffix(text, "/") && clean != "/" {
		clean += "/"
	}
	if clean != text {
		return meant("no path has empty segments or dot segments once it is cleaned", clean)
	}
	return nil
}

// inBraces reports whether a byte of a path stands in braces of its segment.
func inBraces(path string, i int) bool {
	open := strings.LastIndexAny(path[:i], "{}/")
	return open >= 0 && path[open] == '{'
}

// wildcardNames makes names of wildcards distinct.
type wildcardNames map[string]bool

func (n wildcardNames) unique(name string) string {
	one := name
	for i := 2; n[one]; i++ {
		one = name + strconv.Itoa(i)
	}
	n[one] = true
	return one
}

// wildcards returns path with the wildcards of other routers (:id, *rest) and of regular expressions rewritten as
// http.ServeMux writes them. expression reports whether there is one of these.
func wildcards(path string) (meant string, expression bool) {
	segments := strings.Split(path, "/")
	names := wildcardNames{}
	for _, s := range segments {
		names[strings.TrimSuffix(strings.Trim(s, "{}"), "...")] = true
	}
	for i, s := range segments {
		several := s == ".*" || s == "(.*)" || s == ".+" || s == "(.+)"
		expression = expression || several
		if !several && (s == "" || s[0] != ':' && s[0] != '*') {
			continue
		}
		name := strings.TrimPrefix(s[1:], "*") // **
		if !isName(name) {
			name = "rest"
			if s[0] == ':' {
				name = "name"
			}
		}
		name = names.unique(name)
		if (s[0] == '*' || several) && i == len(segments)-1 {
			name += "..."
		}
		segments[i] = "{" + name + "}"
	}
	return strings.Join(segments, "/"), expression
}

// wrongBraces returns what is wrong with the braces of a path, and the path without that.
func wrongBraces(path string) (what, meant string) {
	segments := strings.Split(path, "/")
	names := wildcardNames{}
	for i, s := range segments {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			continue
		}
		last := i == len(segments)-1
		if s == "{$}" && last {
			continue
		}
		name, wrong := s[open+1:], ""
		if end := strings.LastIndexByte(name, '}'); open > 0 || end < 0 || end != len(name)-1 {
			wrong, name = "a wildcard must be a whole segment", name[:max(end, 0)]
		} else {
			name = name[:end]
		}
		name, several := strings.CutSuffix(name, "...")
		if before, expression, ok := strings.Cut(name, ":"); ok {
			name, several = before, several || expression == ".*" || expression == ".+"
		}
		if star, ok := strings.CutPrefix(name, "*"); ok {
			name, several = star, true
		}
		if end := strings.IndexFunc(name,
			func(c rune) bool { return !unicode.IsLetter(c) && c != '_' && !unicode.IsDigit(c) }); end >= 0 {
			name = name[:end]
		}
		switch {
		case name == "":
			name = "name"
		case !isName(name):
			name = "n" + name
		}
		unused := names.unique(name)
		if segments[i] = "{" + unused; several && last {
			segments[i] += "..."
		}
		segments[i] += "}"
		switch {
		case s == segments[i]:
			continue
		case wrong != "":
		case strings.HasSuffix(s, "...}") || s == "{$}":
			wrong = "{name...} and {$} are allowed only at the end"
		case name != unused:
			wrong = "two wildcards have the same name"
		default:
			wrong = "a wildcard must be a name in braces"
		}
		if what == "" {
			what = wrong
		}
	}
	return what, strings.Join(segments, "/")
}

// isName reports whether a wildcard can have that name.
func isName(s string) bool {
	for i, c := range s {
		if !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != ""
}
