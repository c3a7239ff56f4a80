package replay

import (
	"encoding/json"
	"strconv"
	"strings"
)

// jsonSplitter splits lines that are JSON objects.
type jsonSplitter struct {
	fields []jsonField
	values []jsonValue // of the line, for each field
	buffer []byte
}

// jsonField is where a part of a request is in an object.
type jsonField struct {
	setter
	field
	path  []string // the name, cut at dots
	parts []pathPart
	found bool // in some line
}

// pathPart is a name of a path, and its index if it may be one of a list, or -1.
type pathPart struct {
	name  string
	index int
}

func pathParts(path []string) (parts []pathPart) {
	for _, name := range path {
		index, err := strconv.Atoi(name)
		if err != nil {
			index = -1
		}
		parts = append(parts, pathPart{name, index})
	}
	return parts
}

// newJSONSplitter finds out where the parts are: with dots for objects and lists within.
func newJSONSplitter(fields []field, says *Says) (*jsonSplitter, error) {
	o := &jsonSplitter{}
	for _, f := range fields {
		set, err := says.setter(f.part)
		if err != nil {
			return nil, err
		}
		path := strings.Split(f.name, ".")
		o.fields = append(o.fields, jsonField{setter: set, field: f, path: path, parts: pathParts(path)})
	}
	o.values = make([]jsonValue, len(o.fields))
	return o, nil
}

// split implements splitter.
func (o *jsonSplitter) split(line string, d *draft) string {
	if !o.scan(line) && !o.decode(line) {
		return "it isn't a JSON object"
	}
	why := ""
	for i := range o.fields {
		p, v := &o.fields[i], &o.values[i]
		if p.found = p.found || v.found; why == "" && v.found && v.text != "" && !p.set(d, v.text) {
			why = unreadable(p.setter.part)
		}
	}
	return why
}

// decode finds the values of the fields as scan does, in any object.
func (o *jsonSplitter) decode(line string) bool {
	object, ok := parseObject(line)
	for i := range o.fields {
		o.values[i].text, o.values[i].found = o.fields[i].lookup(object)
	}
	return ok
}

// missingFields implements splitter.
func (o *jsonSplitter) missingFields() (names []string) {
	for _, p := range o.fields {
		if p.required && !p.found {
			names = append(names, p.name)
		}
	}
	return names
}

func parseObject(line string) (object map[string]any, ok bool) {
	if !strings.HasPrefix(line, "{") {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber() // times have more digits than a float64
	return object, d.Decode(&object) == nil
}

// lookup returns the value as text, and whether the object has it.
func (p *jsonField) lookup(object map[string]any) (string, bool) {
	v, found := valueAt(object, p.path)
	if !found {
		return "", false
	}
	switch v := v.(type) {
	case []any:
		return listText(p.field, v)
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case nil:
		return "", true
	}
	return "", false
}

// valueAt returns what an object has at a path.
func valueAt(object map[string]any, path []string) (v any, found bool) {
	v = object
	for _, name := range path {
		switch container := v.(type) {
		case map[string]any:
			v, found = container[name]
		case []any:
			i, err := strconv.Atoi(name)
			if found = err == nil && i >= 0 && i < len(container); found {
				v = container[i]
			}
		default:
			found = false
		}
		if !found {
			return nil, false
		}
	}
	return v, found
}

// listText returns the value of a header field that is logged as a list of lines: the first line, and of
// X-Forwarded-For all. For a field of WithField, the name says which one is meant.
func listText(f field, lines []any) (string, bool) {
	if f.required || !strings.HasPrefix(f.part, "header.") || len(lines) == 0 {
		return "", false
	}
	var all []string
	for _, line := range lines {
		text, ok := line.(string)
		if !ok {
			return "", false
		}
		all = append(all, text)
	}
	if f.part == "header."+forwardedFor {
		return strings.Join(all, ", "), true
	}
	return all[0], true
}
