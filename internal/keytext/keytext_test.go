package keytext

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

func TestEncode(t *testing.T) {
	long := strings.Repeat("a", maxText)
	for _, tc := range []struct{ name, raw, want string }{
		{"IPv4", "192.0.2.7", "192.0.2.7"},
		{"IPv6 network", "2001:db8:1:2::/64", "2001:db8:1:2::/64"},
		{"all that is plain", "AZaz09._~:/-", "AZaz09._~:/-"},
		{"space", "GET /a", "GET%20/a"},
		{"hash tag of Redis Cluster", "{x}y", "%7Bx%7Dy"},
		{"control characters", "a\r\nb\x00", "a%0D%0Ab%00"},
		{"not UTF-8", "\xff", "%FF"},
		{"UTF-8", "é", "%C3%A9"},
		{"percent, as if escaped already", "a%20b", "a%2520b"},
		{"as if hashed already", "%h", "%25h"},
		{"glob", "*?[a]", "%2A%3F%5Ba%5D"},
		{"longest plain", long, long},
		{"longest escaped", strings.Repeat(" ", 42) + "ab", strings.Repeat("%20", 42) + "ab"},
		{"global", Global, GlobalText},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Encode(tc.raw)
			if got != tc.want || err != nil {
				t.Errorf("Encode(%q) = %q, %v; want %q", tc.raw, got, err, tc.want)
			}
		})
	}
}

// Wherever a byte stands in a key, it is escaped or not as it is alone.
func TestEncodeEachByteAnywhere(t *testing.T) {
	for length := 1; length <= 33; length++ {
		for at := range length {
			for c := range 256 {
				raw, want := []byte(strings.Repeat("a", length)), strings.Repeat("a", length)
				raw[at] = byte(c)
				if one := escape(string(raw[at : at+1])); one != "a" {
					want = want[:at] + one + want[at+1:]
				}
				if got, err := Encode(string(raw)); got != want || err != nil {
					t.Fatalf("Encode(%q) = %q, %v; want %q", raw, got, err, want)
				}
			}
		}
	}
}

// GlobalText is Encode's result for Global.
func TestGlobal(t *testing.T) {
	if escaped := escape(Global); escaped != GlobalText {
		t.Errorf("GlobalText is %q, but the key escapes to %q", GlobalText, escaped)
	}
}

func TestEncodeHashes(t *testing.T) {
	a := strings.Repeat("a", maxText)
	keys := map[string]string{}
	for _, raw := range []string{
		a + "a", a + "b", a + "aa", // plain, too long by one
		strings.Repeat(" ", 43), strings.Repeat(" ", 42) + "abc", // too long once escaped
		strings.Repeat("a", MaxRaw), strings.Repeat("\x00", MaxRaw),
	} {
		key, err := Encode(raw)
		if err != nil || len(key) != 45 || !strings.HasPrefix(key, hashMark) {
			t.Errorf("Encode(%d bytes) = %q, %v", len(raw), key, err)
		}
		if other, taken := keys[key]; taken {
			t.Errorf("%q and %q have one key", raw, other)
		}
		keys[key] = raw
	}
	// SHA-256 of 129 times "a", by sha256sum.
	if got, _ := Encode(a + "a"); got != "%hwSywJKLlVRzKDgj86PHF4xRVXMP-9jKe6ZSj23UhZq4" {
		t.Errorf("the hash of a key has changed to %q: stores keep keys, so no release may do that", got)
	}
}

func TestEncodeDenies(t *testing.T) {
	if key, err := Encode(""); key != "" || !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %q, %v", key, err)
	}
	for _, n := range []int{MaxRaw + 1, 1 << 20} {
		if key, err := Encode(strings.Repeat("a", n)); key != "" || !errors.Is(err, ErrTooLong) {
			t.Errorf("%d bytes: %q, %v", n, key, err)
		}
	}
	huge := strings.Repeat(" ", 1<<20)
	if n := testing.AllocsPerRun(100, func() { _, _ = Encode(huge) }); n != 0 {
		t.Errorf("a key of 1 MB costs %v allocations before it is denied", n)
	}
}

func TestEncodeAllocs(t *testing.T) {
	for _, tc := range []struct {
		raw  string
		most float64
	}{
		{"192.0.2.7", 0},
		{strings.Repeat("a", maxText), 0},
		{Global, 0},
		{"GET /users/{id}", 1},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = Encode(tc.raw) }); n > tc.most {
			t.Errorf("Encode(%q): %v allocations, want %v", tc.raw, n, tc.most)
		}
	}
}

var encodedKey = regexp.MustCompile(`^(?:([A-Za-z0-9._~:/-]|%[0-9A-F]{2})+|%h[A-Za-z0-9_-]{43})$`)

func FuzzEncode(f *testing.F) {
	f.Add("192.0.2.7", "192.0.2.7 ")
	f.Add("%h", "%25h")
	f.Add("a%20b", "a b")
	f.Add(strings.Repeat("a", 128), strings.Repeat("a", 129))
	f.Add("\x00global", "%00global")
	f.Fuzz(func(t *testing.T, a, b string) {
		keyA, errA := Encode(a)
		keyB, errB := Encode(b)
		for _, x := range []struct {
			raw, key string
			err      error
		}{{a, keyA, errA}, {b, keyB, errB}} {
			if x.err != nil {
				if x.key != "" || x.raw != "" && len(x.raw) <= MaxRaw {
					t.Fatalf("%q: %q, %v", x.raw, x.key, x.err)
				}
				continue
			}
			if len(x.key) > maxText || !encodedKey.MatchString(x.key) {
				t.Fatalf("%q became %q", x.raw, x.key)
			}
			if strings.HasPrefix(x.key, hashMark) {
				continue
			}
			// What can be undone is injective.
			if back, err := url.PathUnescape(x.key); back != x.raw || err != nil {
				t.Fatalf("%q became %q, which is %q, %v", x.raw, x.key, back, err)
			}
		}
		if errA == nil && errB == nil && (keyA == keyB) != (a == b) {
			t.Fatalf("%q and %q became %q and %q", a, b, keyA, keyB)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, bench := range []struct{ name, raw string }{
		{"IPv4", "203.0.113.7"},
		{"IPv6", "2001:db8:1:2::/64"},
		{"UUID", "0b2f9c66-2f5a-4e0e-9d4b-5d1d4b8a7c11"},
		{"escaped", "GET /users/{id}"},
		{"hashed", strings.Repeat("a", 200)},
		{"hashed 4K", strings.Repeat("a", MaxRaw)},
		{"global", Global},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Encode(bench.raw)
			}
		})
	}
}
