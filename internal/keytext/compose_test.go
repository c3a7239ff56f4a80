package keytext

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestJoinTellsPartsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{"t1:u", "x"}, {"t1", "u:x"}, {"t1:u:x"}, {"t1", "u", "x"},
		{"1:a", "b"}, {"1", "a", "b"}, {"1:a1:b"}, {"a1:b"}, {"a", "b"}, {"ab"}, {"b", "a"},
		{"12", "3"}, {"1", "23"}, {"a", "1:b"}, {"a", "1:b", "c"}, {"a", "1", "b1:c"},
	} {
		got, err := Join(parts)
		if err != nil || got == "" {
			t.Errorf("%q: %q, %v", parts, got, err)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q have the same key %q", parts, other, got)
		}
		seen[got] = parts
	}
}

func TestJoin(t *testing.T) {
	half := strings.Repeat("x", MaxRaw/2)
	for _, tc := range []struct {
		name  string
		parts []string
		want  string
		err   error
	}{
		{"as it is written", []string{"t1", "GET /"}, "2:t15:GET /", nil},
		{"longest", []string{half, half}, "2048:" + half + "2048:" + half, nil},
		{"too long together", []string{half, half + "x"}, "", ErrTooLong},
		{"too long, but empty", []string{half, half + "x", ""}, "", nil},
	} {
		if got, err := Join(tc.parts); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// The parts of a joined key are found again, and of no other text.
func TestCut(t *testing.T) {
	key, _ := Join([]string{"t1", "GET /", "1:x"})
	for _, want := range []string{"t1", "GET /", "1:x"} {
		part, rest, ok := Cut(key)
		if part != want || !ok {
			t.Errorf("%q: %q, %v; want %q", key, part, ok, want)
		}
		key = rest
	}
	for _, other := range []string{"", ":", "0:", "2:a", "a", "1a", "99999999999999999999:a", "1", "-1:a"} {
		if part, rest, ok := Cut(other); ok {
			t.Errorf("%q: %q, %q", other, part, rest)
		}
	}
}

// No key of one choice is a key of another, whatever a client sends.
func TestChoice(t *testing.T) {
	raws := []string{"", "a", "1~a", "2~a", "1~1~a", "2~2~a", "~a", "12~a", "2", "2~", "192.0.2.7", "2~192.0.2.7"}
	type choice struct {
		i   int
		raw string
	}
	seen := map[string]choice{}
	for i := range 12 {
		for _, raw := range raws {
			got := Choice(i, raw)
			if raw == "" {
				if got != "" {
					t.Errorf("an empty key of choice %d is %q", i, got)
				}
				continue
			}
			if other, taken := seen[got]; taken {
				t.Errorf("%+v and %+v have one key, %q", choice{i, raw}, other, got)
			}
			seen[got] = choice{i, raw}
		}
	}
	if got := Choice(0, "k1"); got != "k1" {
		t.Errorf("the usual key became %q", got)
	}
	if got := Choice(1, "192.0.2.7"); got != "2~192.0.2.7" || Chosen(got) != "192.0.2.7" {
		t.Errorf("the second key became %q", got)
	}
}

func FuzzJoin(f *testing.F) {
	f.Add("t1:u", "x", "t1", "u:x")
	f.Add("1:a", "b", "1", "a1:b")
	f.Add("", "a", "a", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		ab, errAB := Join([]string{a, b})
		cd, errCD := Join([]string{c, d})
		if errAB != nil || errCD != nil {
			return
		}
		if (ab == "") != (a == "" || b == "") {
			t.Fatalf("%q, %q: %q", a, b, ab)
		}
		if ab != "" && ab == cd && (a != c || b != d) {
			t.Fatalf("%q, %q and %q, %q are both %q", a, b, c, d, ab)
		}
	})
}

func TestHash(t *testing.T) {
	secret := []byte("0123456789abcdef")
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("k1"))
	want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	h := NewHash(secret)
	for range 3 {
		if got, err := h.Of("k1"); got != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	if key, err := Encode(want); key != want || err != nil {
		t.Errorf("a hash is not plain: %q became %q, %v", want, key, err)
	}
	if got, _ := h.Of("k2"); got == want || len(got) != len(want) {
		t.Errorf("another key: %q", got)
	}
	if got, _ := NewHash([]byte("another secret!!")).Of("k1"); got == want {
		t.Error("the secret makes no difference")
	}
	if got, err := h.Of(""); got != "" || err != nil {
		t.Errorf("empty key: %q, %v", got, err)
	}
	if got, err := h.Of(strings.Repeat("x", MaxRaw+1)); got != "" || !errors.Is(err, ErrTooLong) {
		t.Errorf("long key: %q, %v", got, err)
	}
}

func TestHashConcurrently(t *testing.T) {
	h := NewHash([]byte("0123456789abcdef"))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("k", g)
			want, _ := h.Of(key)
			for range 200 {
				if got, err := h.Of(key); got != want || err != nil {
					t.Errorf("%q, %v; want %q", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}
