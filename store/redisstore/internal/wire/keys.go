package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint/store"
)

// A key is
//
//	prefix {tag}:name
//
// without the space. The tag is the identity, so all limits of one identity are in one
// slot of a cluster, and the name is Limit.StateName. The user's text appears in the tag only,
// escaped, so that it can neither end the tag nor be empty: a brace in it could choose a slot,
// or make one key out of two.

// longestTag is the length of the longest identity that appears in its key unhashed. A
// longer one would cost the server more memory than its counts do.
const longestTag = 512

const (
	emptyTag = "%"  // escaped text has two digits after each %,
	hashTag  = "%h" // and h isn't a digit
)

// StorageKey returns the server's key for the limit's state of identity.
func StorageKey(prefix, identity string, l *store.Limit) string {
	if identity != "" && len(identity) <= longestTag && plain(identity) {
		return prefix + "{" + identity + "}:" + l.StateName()
	}
	var few [192]byte
	key := append(few[:0], prefix...)
	key = append(key, '{')
	key = appendTag(key, identity)
	key = append(key, '}', ':')
	return string(append(key, l.StateName()...))
}

// plain reports whether nothing in the text has to be escaped.
func plain(text string) bool {
	for i := range len(text) {
		switch text[i] {
		case '{', '}', '%':
			return false
		}
	}
	return true
}

func appendTag(key []byte, identity string) []byte {
	switch {
	case identity == "":
		return append(key, emptyTag...)
	case len(identity) > longestTag:
		sum := sha256.Sum256([]byte(identity))
		return hex.AppendEncode(append(key, hashTag...), sum[:])
	case plain(identity):
		return append(key, identity...)
	}
	for i := range len(identity) {
		switch c := identity[i]; c {
		case '{':
			key = append(key, "%7B"...)
		case '}':
			key = append(key, "%7D"...)
		case '%':
			key = append(key, "%25"...)
		default:
			key = append(key, c)
		}
	}
	return key
}

// TagIn returns the tag in a key. The prefix has no braces.
func TagIn(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

// ResetKey returns the key that remembers for a while when the limit at key was last
// reset. No limit's name contains a %.
func ResetKey(key string) string { return key + "%reset" }

const clusterSlots = 16384

// SlotOf returns a cluster's slot for keys with this tag: its CRC16 (XMODEM) modulo the
// number of slots.
func SlotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return crc % clusterSlots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// SlotTag returns a tag that falls into a slot, always the same, for what is kept per
// slot rather than per identity.
func SlotTag(slot uint16) string {
	if tag, ok := slotTags.Load(slot); ok {
		return tag.(string)
	}
	for i := 0; ; i++ { // about 16384 tries
		if tag := strconv.Itoa(i); SlotOf(tag) == slot {
			slotTags.Store(slot, tag)
			return tag
		}
	}
}

var slotTags sync.Map // uint16 to string
