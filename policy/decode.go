package policy

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxSize bounds a file, in bytes. The largest real policies are lists of networks, and
// a thousand of those take 20 KB.
const maxSize = 1 << 20

// load parses data as YAML, which includes JSON, into nodes that know their position.
// It returns nil after an error.
func (d *decoder) load(data []byte) *yaml.Node {
	if len(data) > maxSize {
		d.at(1, 1, "the file has %d bytes: write at most %d", len(data), maxSize)
		return nil
	}
	// The library gives no position for bytes that aren't text.
	if line, column, found := notText(data); found {
		d.at(line, column, "a byte that isn't text: save the file as UTF-8")
		return nil
	}
	var documents []yaml.Node
	err := yaml.Load(data, &documents, yaml.WithAllDocuments())
	if le := (*yaml.LoadError)(nil); errors.As(err, &le) {
		text, mark := le.Message, le.Mark
		if mark.Line == 0 {
			mark = le.ContextMark
		}
		// The library's message about a tab doesn't say that it is one.
		if lines := bytes.Split(data, []byte("\n")); mark.Line > 0 && mark.Line <= len(lines) &&
			bytes.HasPrefix(bytes.TrimLeft(lines[mark.Line-1], " "), []byte("\t")) {
			text += ": indent with spaces, not with tabs"
		}
		d.at(mark.Line, mark.Column, "%s", text)
		return nil
	} else if err != nil {
		d.at(1, 1, "%v", err)
		return nil
	}
	switch {
	case len(documents) == 0 || len(documents[0].Content) == 0:
		d.at(1, 1, "the file is empty: write \"version: 1\" and limits")
		return nil
	case len(documents) > 1:
		d.bad(&documents[1], "a second document: a policy is one document: leave out what follows ---")
		return nil
	}
	root := documents[0].Content[0]
	before := len(d.errs)
	d.plain(root)
	if len(d.errs) > before {
		return nil
	}
	return root
}

// notText returns the position of the first byte that can't be in a text file.
func notText(data []byte) (line, column int, found bool) {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return 1, 1, true // UTF-16
	}
	line, column = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return line, column, true
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
		data = data[size:]
	}
	return 0, 0, false
}

// plain rejects the parts of YAML that JSON doesn't have. A limit that is used twice is
// written once and referred to by name, in both notations alike, and without aliases no
// file is larger than it looks.
func (d *decoder) plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		d.bad(n, "anchors and aliases are not used in a policy: name the limit or the key, and write its name where it is used again")
		return
	case n.ShortTag() == "!!merge":
		d.bad(n, "<< is not used in a policy: write the fields out")
		return
	case n.Style&yaml.TaggedStyle != 0:
		d.bad(n, "the tag %s is not used in a policy: leave it out", n.Tag)
		return
	}
	for _, c := range n.Content {
		d.plain(c)
	}
}

// field is a field of a mapping, and how its value is read into a T. A test compares
// the tables of fields with the schema.
type field[T any] struct {
	name string
	read func(d *decoder, n *yaml.Node, to *T)
}

func names[T any](fields []field[T]) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

// object reads a mapping. It reads fields in the order of the table, so what others
// refer to can come first there, wherever it is in the file.
func object[T any](d *decoder, n *yaml.Node, what, example string, fields []field[T], to *T) bool {
	values, ok := d.mapping(n, what, example)
	if !ok {
		return false
	}
	fieldNames := names(fields)
	for _, v := range values {
		found := false
		for _, name := range fieldNames {
			found = found || name == v.key.Value
		}
		if !found {
			d.bad(v.key, "unknown field %q of %s: %s", v.key.Value, what, suggestion(v.key.Value, fieldNames))
		}
	}
	for _, f := range fields {
		for _, v := range values {
			if v.key.Value == f.name {
				f.read(d, v.value, to)
			}
		}
	}
	return true
}

// pair is an entry of a mapping.
type pair struct{ key, value *yaml.Node }

// mapping returns the entries of a mapping in order. It reports and leaves out entries
// whose key is a duplicate or no text, or which have no value.
func (d *decoder) mapping(n *yaml.Node, what, example string) (all []pair, ok bool) {
	switch n.Kind {
	case yaml.MappingNode:
	case yaml.SequenceNode:
		d.bad(n, "%s can't be a list: write %s", what, example)
		return nil, false
	default:
		d.bad(n, "%s must be a mapping: write %s", what, example)
		return nil, false
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.bad(key, "a name must be text: put it in quotes")
		case first[key.Value] != nil:
			d.bad(key, "%q is set twice, first in line %d: leave one out", key.Value, first[key.Value].Line)
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			first[key.Value] = key
			d.bad(key, "%q has no value: write one, or leave it out", key.Value)
		default:
			first[key.Value] = key
			all = append(all, pair{key, value})
		}
	}
	return all, true
}

// list returns the items of a list.
func (d *decoder) list(n *yaml.Node, what, example string) ([]*yaml.Node, bool) {
	if n.Kind != yaml.SequenceNode {
		d.bad(n, "%s must be a list: write %s", what, example)
		return nil, false
	}
	return n.Content, true
}

// text reads text. A number isn't text: 1.10 would lose its last digit elsewhere.
func (d *decoder) text(n *yaml.Node, what, example string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" {
		d.bad(n, "%s must be text: write %s", what, example)
		return "", false
	}
	return n.Value, true
}

// word reads one of a set of words.
func (d *decoder) word(n *yaml.Node, what string, words ...string) (string, bool) {
	if n.Kind == yaml.ScalarNode {
		for _, w := range words {
			if n.Value == w {
				return w, true
			}
		}
		d.bad(n, "unknown %s %q: %s", what, n.Value, suggestion(n.Value, words))
		return "", false
	}
	d.bad(n, "%s must be a word: %s", what, suggestion("", words))
	return "", false
}

// boolean reads true or false. It rejects YAML 1.1's other spellings.
func (d *decoder) boolean(n *yaml.Node, what string) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.bad(n, "%s must be true or false: write one of them", what)
		return false, false
	}
	return n.Value == "true", true
}

// integer reads a whole number of at least least. Digits may be grouped, as in 10_000;
// for JSON such a number may be in quotes.
func (d *decoder) integer(n *yaml.Node, what string, least int64) (int64, bool) {
	if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!str") {
		if v, err := parseInt(n.Value); err == nil && v >= least {
			return v, true
		}
	}
	example := ""
	if least <= 1 {
		example = ", such as 100 or 10_000"
	}
	d.bad(n, "%s must be a whole number of at least %d: write one%s", what, least, example)
	return 0, false
}

// parseInt reads digits, with single underscores allowed between them. It rejects a
// leading zero, since YAML 1.1 reads 010 as eight.
func parseInt(s string) (int64, error) {
	digits := strings.ReplaceAll(s, "_", "")
	if digits == "" || len(digits) > 1 && digits[0] == '0' ||
		strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") ||
		strings.Trim(digits, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(digits, 10, 64)
}
