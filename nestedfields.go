package stint

import (
	"slices"
	"strconv"
	"strings"
)

// outdone looks for items of limiters further out under the names of the call's
// own limits. Of two under one name a client can read but one, so the one with
// less left stays: outdone takes theirs out of the fields, or says which of the
// call's own to leave out; nil is none.
func (c *call) outdone(f *fieldWriter) (own []bool) {
	if c.twice {
		own = c.outdoneByOwn()
	}
	if len(f.h[fieldRateLimit]) == 0 {
		return own
	}
	for i := range c.results {
		if c.charges[i].DryRun || c.entries[i].bans || own != nil && own[i] {
			continue
		}
		name := c.charges[i].Limit.Name()
		switch left, there := f.left(name); {
		case !there:
		case left > c.results[i].Remaining:
			f.strike(fieldRateLimit, name)
			f.strike(fieldPolicy, name)
		default:
			if own == nil {
				own = make([]bool, len(c.results))
			}
			own[i] = true
		}
	}
	return own
}

// outdoneByOwn says which of the call's charges are of a limit that another key
// has less left of.
func (c *call) outdoneByOwn() []bool {
	own := make([]bool, len(c.results))
	for i, e := range c.entries {
		for j, o := range c.entries[:i] {
			if o.limit != e.limit || c.charges[i].DryRun || c.charges[j].DryRun {
				continue
			}
			if c.results[j].Remaining > c.results[i].Remaining {
				own[j] = true
			} else {
				own[i] = true
			}
		}
	}
	return own
}

// nameOf is the name in an item of either field, which appendRateLimit or
// policyItem has written.
func nameOf(item string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(item, `"`), `"`)
	return name
}

// left is what RateLimit says is left under a name already.
func (f *fieldWriter) left(name string) (n int64, there bool) {
	for _, line := range f.h[fieldRateLimit] {
		for item := range strings.SplitSeq(line, ", ") {
			if nameOf(item) != name {
				continue
			}
			_, number, _ := strings.Cut(item, ";r=")
			number, _, _ = strings.Cut(number, ";")
			if n, err := strconv.ParseInt(number, 10, 64); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}

// strike takes the item of a name out of a field.
func (f *fieldWriter) strike(key, name string) {
	var lines []string
	for _, line := range f.h[key] {
		items := slices.DeleteFunc(strings.Split(line, ", "), func(item string) bool { return nameOf(item) == name })
		if len(items) > 0 {
			lines = append(lines, strings.Join(items, ", "))
		}
	}
	if f.h[key] = lines; lines == nil {
		delete(f.h, key)
	}
}
