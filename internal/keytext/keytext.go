// Package keytext writes keys as text that stores, logs and labels may hold: whatever a
// client sends, its key stays short, printable and distinct.
package keytext

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
)

var (
	// ErrEmpty is the error for an empty key.
	ErrEmpty = errors.New("stint: the key is empty")
	// ErrTooLong is the error for a key of more than MaxRaw bytes. Its StatusCode is 403.
	ErrTooLong error = tooLong{}
)

type tooLong struct{}

func (tooLong) Error() string   { return "stint: the key is longer than 4096 bytes" }
func (tooLong) StatusCode() int { return 403 } // http.StatusForbidden

const (
	// MaxRaw bounds how many bytes a client can make us escape or hash. A header of a
	// megabyte identifies no caller.
	MaxRaw = 4 << 10

	// Global is the key that everybody shares. No header field can contain it, so it
	// never equals a client's key.
	Global = "\x00global"
	// GlobalText is Global encoded.
	GlobalText = "%00global"

	// maxText bounds what a store keeps for a key, in bytes.
	maxText = 128
	// hashMark begins a key that stands for a longer one. In an escaped key a percent
	// sign is followed by two hexadecimal digits, so none can equal it.
	hashMark = "%h"
)

// special is 1 for the bytes that are escaped: braces, which are Redis Cluster's hash
// tags, and everything that could break out of a log line, a label or a store's own
// syntax. It is a number so that looking and counting take no branch.
var special = func() (t [256]uint8) {
	const plain = "._~:/-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for c := range t {
		t[c] = 1
	}
	for _, c := range []byte(plain) {
		t[c] = 0
	}
	return t
}()

// Encode turns what a key function returned into a key for a store: at most maxText
// bytes of A-Z a-z 0-9 . _ ~ : / - and %XX, and never empty. Different raw keys give
// different results; for long ones, as surely as SHA-256 does. A short key that needs
// no escaping is returned unchanged, without an allocation.
func Encode(raw string) (string, error) {
	if raw == "" {
		return "", ErrEmpty
	}
	if len(raw) > MaxRaw {
		return "", ErrTooLong
	}
	if len(raw) <= maxText {
		if plain(raw) {
			return raw, nil
		}
		if raw == Global {
			return GlobalText, nil
		}
		escapes := 0
		for i := 0; i < len(raw); i++ {
			escapes += int(special[raw[i]])
		}
		if len(raw)+2*escapes <= maxText {
			return escape(raw), nil
		}
	}
	// Cutting off a long key would put strangers who share a prefix into one bucket, so
	// the whole key is hashed.
	sum := sha256.Sum256([]byte(raw))
	var b [len(hashMark) + 43]byte
	copy(b[:], hashMark)
	base64.RawURLEncoding.Encode(b[len(hashMark):], sum[:])
	return string(b[:]), nil
}

// plain reports whether nothing of s is escaped. Every request's key comes here, and by single
// bytes a UUID would take as long as a decision in memory.
func plain(s string) bool {
	found := uint8(0)
	if len(s) < 8 {
		for i := 0; i < len(s); i++ {
			found |= special[s[i]]
		}
		return found == 0
	}
	found = eight(s[len(s)-8:])
	for ; len(s) > 8; s = s[8:] {
		found |= eight(s)
	}
	return found == 0
}

// eight returns 0 if none of the first eight bytes of s is escaped.
func eight(s string) uint8 {
	return special[s[0]] | special[s[1]] | special[s[2]] | special[s[3]] |
		special[s[4]] | special[s[5]] | special[s[6]] | special[s[7]]
}

// escape returns raw, percent-escaped. The result fits in maxText bytes.
func escape(raw string) string {
	const hex = "0123456789ABCDEF"
	var room [maxText]byte
	b := room[:0]
	for i := 0; i < len(raw); i++ {
		if c := raw[i]; special[c] == 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}
