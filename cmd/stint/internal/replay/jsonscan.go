package replay

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// scan finds the values of the fields in an object, without decoding the rest of it. It reports false for what it
// leaves to parseObject: lines that aren't one JSON value, names with escapes, and text that isn't UTF-8. Otherwise, it
// finds the same values.
func (o *jsonSplitter) scan(line string) bool {
	if len(o.fields) > maxScanned || line == "" || line[0] != '{' {
		return false
	}
	o.buffer = append(o.buffer[:0], line...)
	if !json.Valid(o.buffer) || !utf8.Valid(o.buffer) {
		return false
	}
	clear(o.values)
	c := cursor{text: line}
	return o.scanObject(&c, 0, 1<<len(o.fields)-1)
}

// maxScanned is how many fields scan finds: fieldSet has a bit for each.
const maxScanned = 63

type fieldSet uint64

// jsonValue is the value of a field in a line.
type jsonValue struct {
	text  string
	found bool
}

// cursor is a place in a text that is JSON.
type cursor struct {
	text string
	at   int
}

// scanObject scans the object at the cursor for those of the fields whose paths have so many names.
func (o *jsonSplitter) scanObject(c *cursor, depth int, fields fieldSet) bool {
	c.at++
	for {
		c.space()
		switch c.text[c.at] {
		case '}':
			c.at++
			return true
		case ',':
			c.at++
			continue
		}
		name, escaped := c.string()
		if escaped {
			return false
		}
		c.space()
		c.at++ // the colon
		c.space()
		if !o.scanValue(c, depth+1, o.matching(fields, depth, func(part *pathPart) bool { return part.name == name })) {
			return false
		}
	}
}

// scanList is scanObject for a list.
func (o *jsonSplitter) scanList(c *cursor, depth int, fields fieldSet) bool {
	c.at++
	for n := 0; ; {
		c.space()
		switch c.text[c.at] {
		case ']':
			c.at++
			return true
		case ',':
			c.at++
			n++
			continue
		}
		if !o.scanValue(c, depth+1, o.matching(fields, depth, func(part *pathPart) bool { return part.index == n })) {
			return false
		}
	}
}

// matching returns the fields whose path goes on so.
func (o *jsonSplitter) matching(fields fieldSet, depth int, is func(*pathPart) bool) (some fieldSet) {
	for i := range o.fields {
		if path := o.fields[i].parts; fields&(1<<i) != 0 && depth < len(path) && is(&path[depth]) {
			some |= 1 << i
		}
	}
	return some
}

// scanValue reads the value at the cursor, for fields whose paths lead to it or into it. depth is the number of names
// that led to it.
func (o *jsonSplitter) scanValue(c *cursor, depth int, fields fieldSet) bool {
	if fields == 0 {
		c.skip()
		return true
	}
	from, ok := c.at, true
	v := jsonValue{found: true}
	var list []any
	deeper := fieldSet(0)
	for i := range o.fields {
		if fields&(1<<i) != 0 {
			if o.values[i] = (jsonValue{}); len(o.fields[i].parts) > depth { // of several of one name, the last counts
				deeper |= 1 << i
			}
		}
	}
	switch c.text[from] {
	case '{':
		v.found = false
		ok = o.scanObject(c, depth, deeper)
	case '[':
		v.found = false
		if ok = o.scanList(c, depth, deeper); ok && deeper != fields {
			ok = json.Unmarshal([]byte(c.text[from:c.at]), &list) == nil
		}
	case '"':
		text, escaped := c.string()
		if v.text = text; escaped {
			ok = json.Unmarshal([]byte(c.text[from:c.at]), &v.text) == nil
		}
	case 't', 'f':
		v.found = false
		c.skip()
	case 'n':
		c.skip()
	default:
		c.skip()
		v.text = c.text[from:c.at]
	}
	for i := range o.fields {
		if fields&^deeper&(1<<i) == 0 {
			continue
		}
		if o.values[i] = v; list != nil {
			o.values[i].text, o.values[i].found = listText(o.fields[i].field, list)
		}
	}
	return ok
}

func (c *cursor) space() {
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return
		}
	}
}

// string reads the string at the cursor, and reports whether it has escapes, which it leaves.
func (c *cursor) string() (text string, escaped bool) {
	c.at++
	from := c.at
	for {
		n := strings.IndexByte(c.text[c.at:], '"')
		at := c.at + n
		slashes := 0
		for at-slashes > from && c.text[at-slashes-1] == '\\' {
			slashes++
		}
		c.at = at + 1
		if slashes%2 == 0 {
			text = c.text[from:at]
			return text, strings.IndexByte(text, '\\') >= 0
		}
	}
}

// skip goes behind the value at the cursor.
func (c *cursor) skip() {
	for depth := 0; ; {
		switch c.text[c.at] {
		case '"':
			c.string()
		case '{', '[':
			depth++
			c.at++
			continue
		case '}', ']':
			depth--
			c.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			c.at++
			continue
		default: // a number or a word
			for c.at < len(c.text) && strings.IndexByte(",:]} \t\r\n", c.text[c.at]) < 0 {
				c.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}
