package policy

import (
	"slices"
	"testing"
)

// Each form that isn't a word has an example, and a file may have it.
func TestFormExamples(t *testing.T) {
	forms := names(keyForms())
	for name := range formExamples {
		if !slices.Contains(forms, name) {
			t.Errorf("%s isn't a form", name)
		}
	}
	for _, name := range forms {
		value, ok := formExamples[name]
		switch {
		case keyWords[name] != nil:
		case !ok:
			t.Errorf("%s has no example", name)
		case name == "descriptor": // only with WithDescriptors
		default:
			text := "version: 1\nkey: {" + name + ": " + value + "}\nlimits: [{rate: 1/s}]\n"
			if _, err := Parse("p.yaml", []byte(text), WithSecret([]byte("0123456789abcdef"))); err != nil {
				t.Error(err)
			}
		}
	}
}
