package clientip

import (
	"net/netip"
	"testing"
)

func TestPrefixes(t *testing.T) {
	var list []netip.Prefix
	for i := range 256 {
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i * 37), byte(i * 101), byte(i), 0}), 8+i%25))
		list = append(list, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, byte(i * 37), byte(i)}), 9+i%50))
	}
	set, problems := NewPrefixes(list)
	if problems != nil || len(set) >= len(list) {
		t.Fatalf("%d of %d, %v", len(set), len(list), problems)
	}
	in := 0
	for i := range 1 << 16 {
		for _, a := range []netip.Addr{
			netip.AddrFrom4([4]byte{byte(i >> 8), byte(i), byte(i * 7), byte(i * 13)}),
			netip.AddrFrom16([16]byte{0x20, byte(i >> 8), byte(i), byte(i * 7), byte(i * 13)}),
		} {
			want := false
			for _, p := range list {
				want = want || p.Masked().Contains(a)
			}
			if got := set.contains(a); got != want {
				t.Fatalf("%v: %v, want %v", a, got, want)
			}
			if want {
				in++
			}
		}
	}
	if in == 0 || in == 2<<16 {
		t.Errorf("%d addresses are in the set: nothing was compared", in)
	}
}
