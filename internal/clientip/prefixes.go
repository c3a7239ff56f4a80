package clientip

import (
	"cmp"
	"fmt"
	"net/netip"
	"sort"
)

// Prefixes is a set of networks in ascending order. None is within another, and no two
// are the halves of a third, so the only one that can contain an address is the last at
// or below it.
type Prefixes []netip.Prefix

// Problem describes a mistake in an address or a source of addresses, and what to write
// instead. If it has names of Go's, both are formats of them.
type Problem struct {
	What, Write string
	Names       []any
}

// NewPrefixes normalizes prefixes: netip accepts 10.1.2.3/8 and ::ffff:10.0.0.0/104 as
// they are, and then Contains doesn't do what one expects. It reports the prefixes that
// can't be normalized, and what to write instead.
func NewPrefixes(prefixes []netip.Prefix) (s Prefixes, problems []Problem) {
	for i, p := range prefixes {
		switch {
		case !p.IsValid():
			problems = append(problems, Problem{What: fmt.Sprintf("prefix %d is invalid", i+1),
				Write: `pass a prefix such as netip.MustParsePrefix("10.0.0.0/8"), and check the error of netip.ParsePrefix`})
			continue
		case p.Addr().Is4In6() && p.Bits() < 96:
			problems = append(problems, Problem{
				What:  fmt.Sprintf("%v contains all of IPv4 and more", p),
				Write: "use IPv4 notation, such as 10.0.0.0/8",
			})
			continue
		case p.Addr().Is4In6():
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		s = append(s, p.Masked())
	}
	sort.Sort(ascending(s))
	return mergeSorted(s), problems
}

// mergeSorted drops the prefixes that are within others, and merges halves, in place.
func mergeSorted(s Prefixes) Prefixes {
	merged := s[:0]
	for _, p := range s {
		if n := len(merged); n > 0 && merged[n-1].Overlaps(p) { // it is within the other, which sorts first
			continue
		}
		merged = append(merged, p)
		// The whole may be half of another in turn.
		for n := len(merged); n > 1; n-- {
			whole, ok := join(merged[n-2], merged[n-1])
			if !ok {
				break
			}
			merged[n-2] = whole
			merged = merged[:n-1]
		}
	}
	return merged
}

// join returns the prefix of which two are the halves, if there is one.
func join(low, high netip.Prefix) (whole netip.Prefix, ok bool) {
	if low.Bits() == 0 || low.Bits() != high.Bits() {
		return netip.Prefix{}, false
	}
	whole = netip.PrefixFrom(low.Addr(), low.Bits()-1).Masked()
	return whole, whole.Contains(high.Addr())
}

// ascending is for package sort: slices.SortFunc would be compiled anew for a type of
// this size, which adds 17 KB to every program.
type ascending []netip.Prefix

func (a ascending) Len() int      { return len(a) }
func (a ascending) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a ascending) Less(i, j int) bool {
	return cmp.Or(a[i].Addr().Compare(a[j].Addr()), a[i].Bits()-a[j].Bits()) < 0
}

// contains takes an address as parseNode returns it: unmapped, without a zone.
func (s Prefixes) contains(a netip.Addr) bool {
	low, high := 0, len(s)
	for low < high {
		if mid := int(uint(low+high) >> 1); s[mid].Addr().Compare(a) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && s[low-1].Contains(a)
}

// nat64 is the network in which gateways put the IPv4 addresses of their clients (RFC
// 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address embedded in a NAT64 address, and other addresses
// unchanged. Without it all IPv4 clients of a gateway would share one /64.
func embedded(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
