package project

import (
	"cmp"
	"regexp"
	"strings"
	"testing"
)

// The picture of the packages matches the code: each arrow is an import, and each
// import is an arrow or a path of arrows. Packages that only tests import are left out.
func TestPictureOfPackages(t *testing.T) {
	arrows := picture(t)
	drawn := func(name string) string {
		if matches("examples/...", name) {
			return "examples"
		}
		return name
	}
	imported := map[string]bool{}
	for _, p := range goList(t, "./...") {
		name, _ := relative(p.ImportPath)
		if _, r, _ := ruleOf(name); r.tests {
			continue
		}
		from := drawn(name)
		if _, in := arrows[from]; !in {
			t.Errorf("%s isn't in the picture", name)
		}
		for _, path := range p.Imports {
			to, ours := relative(path)
			if !ours {
				continue
			}
			imported[from+" "+to] = true
			if !leads(arrows, from, drawn(to)) {
				t.Errorf("%s imports %s, and no arrow leads there", name, to)
			}
		}
	}
	for from, all := range arrows {
		for to := range all {
			if !imported[from+" "+to] {
				t.Errorf("an arrow runs from %s to %s, which it doesn't import", from, to)
			}
		}
	}
}

// picture reads the arrows between packages off the first picture of the
// architecture: lines of nodes, alone or several, with arrows between. A node's label
// begins with the package.
func picture(t *testing.T) map[string]map[string]bool {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "docs/architecture.md"), "```mermaid\ngraph TD\n")
	text, _, _ = strings.Cut(text, "```")
	label := map[string]string{}
	for _, m := range regexp.MustCompile(`(\w+)\[([\w/]+)`).FindAllStringSubmatch(text, -1) {
		label[m[1]] = m[2]
	}
	label["stint"] = "."
	arrows := map[string]map[string]bool{}
	for line := range strings.Lines(regexp.MustCompile(`\[.*?\]`).ReplaceAllString(text, "")) {
		var from []string
		for side := range strings.SplitSeq(line, "-->") {
			var to []string
			for node := range strings.SplitSeq(side, "&") {
				node = strings.TrimSpace(node)
				name := cmp.Or(label[node], node)
				if arrows[name] == nil {
					arrows[name] = map[string]bool{}
				}
				for _, f := range from {
					arrows[f][name] = true
				}
				to = append(to, name)
			}
			from = to
		}
	}
	if len(arrows) < 10 {
		t.Fatalf("%d packages in the picture", len(arrows))
	}
	return arrows
}

// leads reports whether arrows lead from one to the other.
func leads(arrows map[string]map[string]bool, from, to string) bool {
	for next := range arrows[from] {
		if next == to || leads(arrows, next, to) {
			return true
		}
	}
	return false
}
