package clientip

import "strings"

// trim returns s without the white space that RFC 9110 allows around an element of a
// list.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// trimEmpty returns list without empty elements at its end.
func trimEmpty(list string) string {
	n := len(list)
	for n > 0 && (list[n-1] == ',' || list[n-1] == ' ' || list[n-1] == '\t') {
		n--
	}
	return list[:n]
}

// cutLast splits off the last element of a list.
func cutLast(list string) (rest, element string) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], list[i+1:]
}

// cutLastQuoted is cutLast for a list whose elements contain quoted strings, in which a
// comma isn't a separator.
//
// It reads backwards. A proxy appends its element to whatever the client has sent, and
// a client that sends a single quote must not be able to swallow it. Read from the end,
// what the proxy wrote means the same whatever comes before it. On lists in which all
// quotes are paired, both directions agree.
func cutLastQuoted(list string) (rest, element string) {
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case ',':
			return list[:i], list[i+1:]
		case '"':
			i = openingQuote(list[:i])
		}
	}
	return "", list
}

// openingQuote returns the index of the last quote in s that no backslash escapes, or
// -1.
func openingQuote(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != '"' {
			continue
		}
		run := i
		for run > 0 && s[run-1] == '\\' {
			run--
		}
		if (i-run)%2 == 0 {
			return i
		}
		i = run
	}
	return -1
}

// parseForwarded parses the for parameter of one element of Forwarded. An element
// without one, or a malformed one, yields no address. Skipping it instead would trust
// what comes before it, which the client may have sent.
func parseForwarded(element string) node {
	value, found := "", false
	for rest := element; rest != ""; {
		if rest[0] == ';' || rest[0] == ' ' || rest[0] == '\t' {
			rest = rest[1:]
			continue
		}
		i := strings.IndexByte(rest, '=')
		if i < 0 || !IsFieldName(rest[:i]) {
			return node{}
		}
		name := rest[:i]
		v, after, ok := cutValue(rest[i+1:])
		if !ok {
			return node{}
		}
		if strings.EqualFold(name, "for") {
			if found {
				return node{}
			}
			value, found = v, true
		}
		rest = after
	}
	return parseNode(withoutHiddenPort(value))
}

// cutValue splits off a parameter's value, unquoted. The rest is empty or starts with a
// semicolon. Unquoted values may contain the colons and brackets of an address: RFC
// 7239 requires quotes around those, but not all proxies write them.
func cutValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		i := strings.IndexByte(s, ';')
		if i < 0 {
			i = len(s)
		}
		value = trim(s[:i])
		return value, s[i:], strings.IndexByte(value, '"') < 0
	}
	end := 1
	for ; end < len(s) && s[end] != '"'; end++ {
		if s[end] == '\\' {
			end++
		}
	}
	if end >= len(s) {
		return "", "", false
	}
	value, rest = s[1:end], trim(s[end+1:])
	if strings.IndexByte(value, '\\') >= 0 {
		b := make([]byte, 0, len(value))
		for i := 0; i < len(value); i++ {
			if value[i] == '\\' {
				i++ // a byte follows: the closing quote wasn't escaped
			}
			b = append(b, value[i])
		}
		value = string(b)
	}
	return value, rest, rest == "" || rest[0] == ';'
}

// withoutHiddenPort drops a port that a proxy obfuscates ("_" and an arbitrary word):
// the address beside it is still valid.
func withoutHiddenPort(s string) string {
	i := strings.LastIndex(s, ":_")
	if i < 0 || i+2 == len(s) {
		return s
	}
	for _, c := range []byte(s[i+2:]) {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '.', c == '_', c == '-':
		default:
			return s
		}
	}
	return s[:i]
}

// IsFieldName reports whether s is a token of RFC 9110, as names of header fields and
// cookies are.
func IsFieldName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
