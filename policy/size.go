package policy

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// sizes are the units of bytes, each with a single spelling. KB is missing, because
// some read it as 1000 and others as 1024; so are all units with a small b, which
// networks use for bits.
var sizes = map[string]int64{
	"B":  1,
	"kB": 1e3, "MB": 1e6, "GB": 1e9,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

const sizeWords = "B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)"

// parseSize reads a whole number and its unit, such as 512KiB. The unit is required: a
// reader can't tell whether a bare number means bytes, kilobytes or bits.
func parseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "BkKMGi")
	v, err := parseInt(number)
	if err != nil {
		return 0, err
	}
	unit, found := sizes[s[len(number):]]
	if !found || v > math.MaxInt64/unit {
		return 0, strconv.ErrSyntax
	}
	return v * unit, nil
}

// size reads a number of bytes.
func (d *decoder) size(n *yaml.Node, what string) (int64, bool) {
	if n.Kind == yaml.ScalarNode {
		if v, err := parseSize(n.Value); err == nil {
			return v, true
		}
	}
	d.bad(n, "%s must be a number of bytes, with its unit: write it like 64KiB, in %s", what, sizeWords)
	return 0, false
}
