package replay

import (
	"net/url"
	"slices"
	"strings"
)

// columnSplitter splits lines by a separator. A line that begins with #Fields: names the columns of those
// behind it.
type columnSplitter struct {
	fields  []field
	says    *Says
	names   []string // of the columns
	setters []column
	started bool // the first line that names columns has been read, so says is final
}

// column is the setter of a column.
type column struct {
	setter
	index   int
	encoded bool
}

// directive takes a line that isn't a request's.
func (c *columnSplitter) directive(line string) {
	names, ok := strings.CutPrefix(line, "#Fields:")
	if !ok {
		return
	}
	c.names = strings.Fields(names)
	c.setters = nil
	defer func() { c.started = true }()
	for at, name := range c.names {
		part := ""
		if i := slices.IndexFunc(c.fields, func(f field) bool { return strings.EqualFold(f.name, name) }); i >= 0 {
			part = c.fields[i].part
		} else if head, ok := strings.CutPrefix(name, "cs("); ok {
			part = "header." + strings.TrimSuffix(head, ")")
		}
		if part == "" {
			continue
		}
		says := c.says
		if c.started { // a field that is new in the middle of the log isn't known before
			if field, ok := strings.CutPrefix(part, "header."); ok &&
				!slices.ContainsFunc(says.Fields, func(known string) bool { return strings.EqualFold(known, field) }) {
				continue
			}
			says = &Says{Fields: c.says.Fields}
		}
		set, err := says.setter(part)
		if err != nil {
			continue // a header field without a name
		}
		c.setters = append(c.setters, column{set, at, strings.HasPrefix(part, "header.")})
	}
}

// split implements splitter.
func (c *columnSplitter) split(line string, d *draft) string {
	if c.names == nil {
		return "no line before it names the columns (#Fields:)"
	}
	values := d.values[:0]
	separator := " "
	if strings.IndexByte(line, '\t') >= 0 { // CloudFront names its columns with spaces between, and separates them by tabs
		separator = "\t"
	}
	for value := range strings.SplitSeq(line, separator) {
		values = append(values, value)
	}
	if d.values = values; len(values) != len(c.names) {
		return otherFormat
	}
	for i := range c.setters {
		s := &c.setters[i]
		v := values[s.index]
		if s.encoded && strings.ContainsAny(v, "%+") {
			if text, err := url.QueryUnescape(v); err == nil {
				v = text
			}
		}
		if !s.set(d, v) {
			return unreadable(s.part)
		}
	}
	return ""
}

// missingFields implements splitter.
func (c *columnSplitter) missingFields() (names []string) {
	for _, f := range c.fields {
		if f.required && !slices.ContainsFunc(c.names, func(name string) bool { return strings.EqualFold(name, f.name) }) {
			names = append(names, f.name)
		}
	}
	return names
}
