package replay

import (
	"net/url"
	"strconv"
	"strings"
)

// ginSplitter splits lines of gin's logger: "[GIN] 2026/03/10 - 13:55:36 | 200 |     1.2345ms |       192.0.2.7 |
// GET      "/items?page=2"", with colors or without.
type ginSplitter struct{ setters []setter }

func newGinSplitter(says *Says) splitter {
	g := &ginSplitter{}
	for _, part := range []string{"end", "status", "took", "peer", "method", "target"} {
		set, err := says.setter(part)
		if err != nil {
			panic(err)
		}
		g.setters = append(g.setters, set)
	}
	return g
}

// split implements splitter. A line that gin's logger hasn't written is another message of the program.
func (g *ginSplitter) split(line string, d *draft) string {
	if strings.IndexByte(line, 0x1b) >= 0 { // the path is quoted, so that a client's are escaped
		line = string(colors.ReplaceAll([]byte(line), nil))
	}
	line, ok := strings.CutPrefix(line, "[GIN] ")
	if !ok {
		return otherLine
	}
	var values [6]string
	for i := range 4 {
		if values[i], line, ok = strings.Cut(line, "|"); !ok {
			return otherFormat
		}
		values[i] = strings.TrimSpace(values[i])
	}
	method, quoted, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
	quoted, err := strconv.QuotedPrefix(strings.TrimLeft(quoted, " "))
	if err != nil {
		return otherFormat
	}
	values[4] = method
	target, err := strconv.Unquote(quoted)
	if err != nil {
		return otherFormat
	}
	path, query, hasQuery := strings.Cut(target, "?")
	values[5] = (&url.URL{Path: path}).EscapedPath() // gin has decoded it
	if hasQuery {
		values[5] += "?" + query
	}
	for i := range g.setters {
		if s := &g.setters[i]; !s.set(d, values[i]) {
			return unreadable(s.part)
		}
	}
	return ""
}

// missingFields implements splitter.
func (g *ginSplitter) missingFields() []string { return nil }
