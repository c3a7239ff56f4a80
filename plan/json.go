package plan

import (
	"encoding/json"
	"strconv"
	"strings"
)

// objects splits lines that are JSON objects.
type objects struct{ places []place }

// place is where a part of a request is in an object.
type place struct {
	setter
	field
	path  []string // the name, cut at dots
	found bool     // in some line
}

// compileObjects finds out where the parts are: with dots for objects and lists within.
func compileObjects(fields []field, says *Says) (*objects, error) {
	o := &objects{}
	for _, f := range fields {
		set, err := says.setter(f.part)
		if err != nil {
			return nil, err
		}
		o.places = append(o.places, place{setter: set, field: f, path: strings.Split(f.name, ".")})
	}
	return o, nil
}

// split implements splitter.
func (o *objects) split(line string, d *draft) string {
	object, ok := parseObject(line)
	if !ok {
		return "it isn't a JSON object"
	}
	for i := range o.places {
		p := &o.places[i]
		v, found := p.in(object)
		if p.found = p.found || found; found && v != "" && !p.set(d, v) {
			return wrong(p.setter.part)
		}
	}
	return ""
}

// unfound implements splitter.
func (o *objects) unfound() (names []string) {
	for _, p := range o.places {
		if p.given && !p.found {
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

// in returns the value as text, and whether the object has it.
func (p *place) in(object map[string]any) (string, bool) {
	var v any = object
	for _, name := range p.path {
		has := false
		switch in := v.(type) {
		case map[string]any:
			v, has = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if has = err == nil && i >= 0 && i < len(in); has {
				v = in[i]
			}
		}
		if !has {
			return "", false
		}
	}
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case nil:
		return "", true
	}
	return "", false
}
