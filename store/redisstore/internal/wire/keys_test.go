package wire

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

func mustLimit(t testing.TB, spec store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeys(t *testing.T) {
	bucket := mustLimit(t, store.Spec{Name: "api", Units: 1, Period: 1e9})
	slots := mustLimit(t, store.Spec{Name: "api", Units: 1, Algorithm: store.Concurrency})
	for _, row := range []struct {
		identity string
		limit    *store.Limit
		want     string
	}{
		{"user-42", bucket, "p:{user-42}:api/t"},
		{"user-42", slots, "p:{user-42}:api/c"},
		{"", bucket, "p:{%}:api/t"},
		{"%", bucket, "p:{%25}:api/t"},
		{"{}", bucket, "p:{%7B%7D}:api/t"},
		{"a}:api", bucket, "p:{a%7D:api}:api/t"},
		{"{other}", bucket, "p:{%7Bother%7D}:api/t"},
		{"\x00\r\n\xff", bucket, "p:{\x00\r\n\xff}:api/t"},
		{strings.Repeat("x", 512), bucket, "p:{" + strings.Repeat("x", 512) + "}:api/t"},
		{strings.Repeat("abc", 1<<18), bucket, "p:{%h5d2e148f8695865e2f51e7bcf16d04d18032bff51df59d9f657379dbe1dc07b8}:api/t"},
	} {
		got := StorageKey("p:", row.identity, row.limit)
		if got != row.want {
			t.Errorf("%.80q: %q, want %q", row.identity, got, row.want)
		}
	}
}

// Every algorithm has a key of its own: a limit that is given another one must
// not read what the old one wrote.
func TestKeysOfAlgorithms(t *testing.T) {
	seen := map[string]store.Algorithm{}
	for _, spec := range versionstest.Kinds(t) {
		spec.Name = "n"
		key := StorageKey("", "k", mustLimit(t, spec))
		if of, is := seen[key]; is && of != spec.Algorithm {
			t.Errorf("a %v and a %v have the key %q", of, spec.Algorithm, key)
		}
		seen[key] = spec.Algorithm
	}
}

// The text of Redis's own documentation, and of an RFC's check value.
func TestSlots(t *testing.T) {
	for tag, want := range map[string]uint16{"123456789": 0x31C3, "foo": 12182, "user1000": 3443, "": 0} {
		if got := SlotOf(tag); got != want%clusterSlots {
			t.Errorf("slot of %q is %d, want %d", tag, got, want)
		}
	}
	for _, slot := range []uint16{0, 1, 12182, clusterSlots - 1} {
		if tag := SlotTag(slot); SlotOf(tag) != slot || SlotTag(slot) != tag {
			t.Errorf("slot %d: tag %q", slot, tag)
		}
	}
}

// Different identities have different keys, equal ones equal keys, and a server
// finds the tag that was meant.
func FuzzKeys(f *testing.F) {
	hash := "%h" + strings.Repeat("ab", 32)
	for _, pair := range [][2]string{
		{"", "%"}, {"%", "%25"}, {"{", "%7B"}, {"a}", "a"}, {"a\x00", "a"}, {hash, hash[1:]},
		{strings.Repeat("x", 512), strings.Repeat("x", 513)}, {strings.Repeat("{", 600), strings.Repeat("{", 601)},
	} {
		f.Add(pair[0], pair[1])
	}
	l := mustLimit(f, store.Spec{Name: "api", Units: 1, Period: 1e9})
	f.Fuzz(func(t *testing.T, a, b string) {
		ka, kb := StorageKey("stint:", a, l), StorageKey("stint:", b, l)
		if (a == b) != (ka == kb) {
			t.Errorf("%q and %q: %q and %q", a, b, ka, kb)
		}
		// As Redis finds it: the first {, and the first } after it.
		i := strings.IndexByte(ka, '{')
		n := strings.IndexByte(ka[i+1:], '}')
		if tag := string(appendTag(nil, a)); i != len("stint:") || n < 1 || ka[i+1:i+1+n] != tag || TagIn(ka) != tag {
			t.Errorf("the tag of %q is not %q", ka, tag)
		}
		if ka[i+n+2:] != ":api/t" || len(ka) > 3*longestTag+20 {
			t.Errorf("key %q", ka)
		}
	})
}
