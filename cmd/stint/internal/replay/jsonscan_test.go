package replay

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// randomJSON returns a value whose names and texts are few, so that paths often lead somewhere.
func randomJSON(rnd *rand.Rand, depth int) string {
	space := []string{"", "", " ", "\t"}[rnd.IntN(4)]
	n := 9
	if depth == 0 {
		n = 7
	}
	switch rnd.IntN(n) {
	case 0:
		return `"` + []string{"a", "", "GET", `x\"y`, `\\`, `\\\"`, `\u00e9\n`, "é", "\xff", `{"a":1}`, "]"}[rnd.IntN(11)] + `"`
	case 1:
		return "null"
	case 2:
		return "true"
	case 3:
		return "-12.50e3"
	case 4:
		return "17" + space
	case 5, 6:
		return `"b"`
	case 7:
		var all []string
		for range rnd.IntN(4) {
			all = append(all, randomJSON(rnd, depth-1))
		}
		return "[" + space + strings.Join(all, space+",") + "]" + space
	}
	return randomObject(rnd, depth)
}

func randomObject(rnd *rand.Rand, depth int) string {
	var all []string
	for range rnd.IntN(6) {
		name := []string{"a", "b", "c", "0", "1", `\u0061`, "X"}[rnd.IntN(7)]
		if rnd.IntN(5) > 0 && name == `\u0061` {
			name = "a"
		}
		all = append(all, fmt.Sprintf(`"%s" :%s`, name, randomJSON(rnd, depth-1)))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// What scan finds in a line is what decoding it finds.
func TestScanEqualsDecode(t *testing.T) {
	o, err := newJSONSplitter([]field{{part: "peer", name: "a"}, {part: "method", name: "a.b"}, {part: "target", name: "a.b.0"}, {part: "header.X", name: "b"},
		{part: "header.X-Forwarded-For", name: "b"}, {part: "header.Y", name: "b.1", required: true}, {part: "header.Z", name: "c", required: true},
		{part: "host", name: "1.0"}, {part: "status", name: "c.a.b"}, {part: "bytes", name: "c.+1"}}, &Says{})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 52))
	scanned, found := 0, 0
	for range 100_000 {
		line := randomObject(rnd, 4)
		switch rnd.IntN(20) {
		case 0:
			line = line[:rnd.IntN(len(line))]
		case 1:
			line += " " + line
		}
		if !o.scan(line) {
			continue
		}
		scanned++
		got := slices.Clone(o.values)
		if !o.decode(line) || !reflect.DeepEqual(got, o.values) {
			t.Fatalf("%s: %+v, decoded: %+v", line, got, o.values)
		}
		for _, v := range got {
			if v.found && v.text != "" {
				found++
			}
		}
	}
	if scanned < 50_000 || found < 50_000 {
		t.Errorf("%d lines scanned, %d values found", scanned, found)
	}
}
