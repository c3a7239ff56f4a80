package keytext

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"
	"strings"
	"sync"
)

// Join writes parts as one key, each preceded by its length: two different lists of
// parts never give the same key. If a part is empty, so is the key.
func Join(parts []string) (string, error) {
	size := 0
	for _, part := range parts {
		if part == "" {
			return "", nil
		}
		size += len(part)
	}
	if size > MaxRaw {
		return "", ErrTooLong
	}
	var b strings.Builder
	b.Grow(size + len("4096:")*len(parts))
	for _, part := range parts {
		var digits [4]byte
		b.Write(strconv.AppendInt(digits[:0], int64(len(part)), 10))
		b.WriteByte(':')
		b.WriteString(part)
	}
	return b.String(), nil
}

// Cut returns the first part of a key that Join may have made, and the rest of the key.
func Cut(key string) (part, rest string, ok bool) {
	size := 0
	for i := 0; i < len(key) && size <= MaxRaw; i++ {
		switch c := key[i]; {
		case c >= '0' && c <= '9':
			size = 10*size + int(c-'0')
		case c == ':' && size > 0 && size < len(key)-i:
			i++
			return key[i : i+size], key[i+size:], true
		default:
			return "", "", false
		}
	}
	return "", "", false
}

// choiceMark follows the number of a choice.
const choiceMark = '~'

// Choice returns the key of a choice among several keys: that of choice i, from 0 on. What
// one choice may return, another can't. The first choice is the usual one: its key stays as
// it is, unless it looks like another's.
func Choice(i int, raw string) string {
	if raw == "" || i == 0 && Chosen(raw) == raw {
		return raw
	}
	return strconv.Itoa(i+1) + string(choiceMark) + raw
}

// Chosen returns what Choice was given, as far as the key shows it.
func Chosen(key string) string {
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == choiceMark && i > 0:
			return key[i+1:]
		case c < '0' || c > '9':
			return key
		}
	}
	return key
}

// MinSecret is the length, in bytes, of the shortest secret that can't be found by
// trying.
const MinSecret = 16

// Hash makes keyed hashes of keys. It is safe for concurrent use.
type Hash struct{ pool sync.Pool }

// NewHash returns the Hash under a secret, which must have at least MinSecret bytes.
func NewHash(secret []byte) *Hash {
	secret = bytes.Clone(secret)
	return &Hash{sync.Pool{New: func() any { return &keyed{mac: hmac.New(sha256.New, secret)} }}}
}

// Of returns the first 16 bytes of the HMAC-SHA256 of a key, in base64url. An empty key
// stays empty.
func (h *Hash) Of(raw string) (string, error) {
	switch {
	case raw == "":
		return "", nil
	case len(raw) > MaxRaw:
		return "", ErrTooLong
	}
	k := h.pool.Get().(*keyed)
	defer h.pool.Put(k)
	return k.of(raw), nil
}

// keyed is a hash and its scratch space. It is reused because setting up an HMAC costs
// more than hashing a key.
type keyed struct {
	mac hash.Hash
	buf []byte
}

func (k *keyed) of(raw string) string {
	k.mac.Reset()
	k.buf = append(k.buf[:0], raw...)
	k.mac.Write(k.buf)
	k.buf = k.mac.Sum(k.buf[:0])
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], k.buf[:16])
	return string(text[:])
}
