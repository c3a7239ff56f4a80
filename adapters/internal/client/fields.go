package client

import (
	"strings"
	"time"
)

// maxField bounds the length of a line that is parsed. An honest server sends a few
// dozen bytes for each of its policies.
const maxField = 8 << 10

// policyLeft is what a server's field says about one policy: left requests may follow within pause,
// which is 0 if the field doesn't say.
type policyLeft struct {
	left  int64
	pause time.Duration
}

// parseRateLimit parses a RateLimit field of draft-ietf-httpapi-ratelimit-headers: the
// list of revisions 08 and later, with its parameters under the names of revision 11
// (r, t) or those proposed since (a, w), or the dictionary of revision 07 (limit,
// remaining, reset). An upstream and a gateway may send different revisions, so each line
// is parsed by itself.
//
// A malformed line is ignored as a whole, like a malformed field in RFC 9651 §4.2. An item
// whose parameters make no sense is ignored alone.
func parseRateLimit(lines []string) (all []policyLeft) {
	for _, line := range lines {
		if len(line) > maxField {
			continue
		}
		if items, ok := parseList(line); ok {
			all = append(all, items...)
		} else if item, ok := parseDictionary(line); ok {
			all = append(all, item)
		}
	}
	return all
}

// parseList parses a list whose members are strings or tokens with parameters. Inner
// lists aren't allowed in this field and make it malformed.
func parseList(text string) (items []policyLeft, ok bool) {
	s := scanner{rest: text}
	s.skip(" ")
	for s.rest != "" {
		name, ok := s.bareItem()
		if !ok {
			return nil, false
		}
		var left, seconds alternative
		ok = s.parameters(func(key string, v value) {
			switch key {
			case "r":
				left.published = v
			case "a":
				left.other = v
			case "t":
				seconds.published = v
			case "w":
				seconds.other = v
			}
		})
		if !ok {
			return nil, false
		}
		if name.kind == kindString || name.kind == kindToken {
			if item, ok := newPolicyLeft(left.value(), seconds.value()); ok {
				items = append(items, item)
			}
		}
		if !s.nextMember() {
			return nil, false
		}
	}
	return items, true
}

// parseDictionary parses limit=100, remaining=0, reset=30.
func parseDictionary(text string) (item policyLeft, ok bool) {
	var left, seconds value
	s := scanner{rest: text}
	s.skip(" ")
	for s.rest != "" {
		key, ok := s.key()
		if !ok {
			return item, false
		}
		v := value{kind: kindBoolean}
		if s.accept('=') {
			if v, ok = s.bareItem(); !ok {
				return item, false
			}
		}
		if !s.parameters(func(string, value) {}) {
			return item, false
		}
		switch key {
		case "remaining":
			left = v
		case "reset":
			seconds = v
		}
		if !s.nextMember() {
			return item, false
		}
	}
	return newPolicyLeft(left, seconds)
}

// alternative is a parameter with two names: the published one, and one of another revision.
type alternative struct{ published, other value }

// value returns the parameter under its published name, if an answer has it.
func (s alternative) value() value {
	if s.published.kind != kindNone {
		return s.published
	}
	return s.other
}

// newPolicyLeft checks the numbers against the draft: integers, not decimals, and none
// below 0.
func newPolicyLeft(left, seconds value) (policyLeft, bool) {
	if left.kind != kindInteger || left.integer < 0 {
		return policyLeft{}, false
	}
	item := policyLeft{left: left.integer}
	switch seconds.kind {
	case kindNone:
	case kindInteger:
		if seconds.integer < 0 {
			return policyLeft{}, false
		}
		item.pause = clamp(seconds.integer, time.Second)
	default:
		return policyLeft{}, false
	}
	return item, true
}

type kind uint8

const (
	kindNone kind = iota
	kindInteger
	kindDecimal
	kindString
	kindToken
	kindBytes
	kindBoolean
	kindDate
	kindDisplay
)

// value is a bare item of RFC 9651. Only integers are ever used; the other kinds are
// parsed to find where they end.
type value struct {
	kind    kind
	integer int64
}

// scanner reads structured field values (RFC 9651 §4.2) from the front of
// rest. Its methods report whether what they found was well formed.
type scanner struct{ rest string }

func (s *scanner) skip(set string) { s.rest = strings.TrimLeft(s.rest, set) }

func (s *scanner) accept(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// nextMember skips what separates two members, or ends the list.
func (s *scanner) nextMember() bool {
	s.skip(" \t")
	if s.rest == "" {
		return true
	}
	if !s.accept(',') {
		return false
	}
	s.skip(" \t")
	return s.rest != "" // no trailing comma
}

func (s *scanner) parameters(each func(key string, v value)) bool {
	for s.accept(';') {
		s.skip(" ")
		key, ok := s.key()
		if !ok {
			return false
		}
		v := value{kind: kindBoolean}
		if s.accept('=') {
			if v, ok = s.bareItem(); !ok {
				return false
			}
		}
		each(key, v)
	}
	return true
}

// take cuts off the longest prefix whose bytes all satisfy in.
func (s *scanner) take(in func(byte) bool) string {
	n := 0
	for n < len(s.rest) && in(s.rest[n]) {
		n++
	}
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	return taken
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

func (s *scanner) key() (string, bool) {
	if s.rest == "" || !isLower(s.rest[0]) && s.rest[0] != '*' {
		return "", false
	}
	return s.take(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

func (s *scanner) bareItem() (value, bool) {
	if s.rest == "" {
		return value{}, false
	}
	switch c := s.rest[0]; {
	case c == '-' || isDigit(c):
		return s.number()
	case c == '"':
		s.accept('"')
		return value{kind: kindString}, s.quoted()
	case c == '*' || isAlpha(c):
		s.take(isTokenByte)
		return value{kind: kindToken}, true
	case c == ':':
		s.accept(':')
		s.take(func(c byte) bool {
			return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0
		})
		return value{kind: kindBytes}, s.accept(':')
	case c == '?':
		s.accept('?')
		return value{kind: kindBoolean}, s.accept('0') || s.accept('1')
	case c == '@':
		s.accept('@')
		v, ok := s.number()
		return value{kind: kindDate}, ok && v.kind == kindInteger
	case c == '%':
		s.accept('%')
		return value{kind: kindDisplay}, s.accept('"') && s.display()
	}
	return value{}, false
}

// isTokenByte reports whether c may follow in a token: tchar of RFC 9110, ":" and "/".
func isTokenByte(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

// number reads an integer of up to 15 digits, or a decimal of up to 12 and 3 digits.
func (s *scanner) number() (value, bool) {
	negative := s.accept('-')
	digits := s.take(isDigit)
	if digits == "" {
		return value{}, false
	}
	if s.accept('.') {
		fraction := s.take(isDigit)
		return value{kind: kindDecimal}, len(digits) <= 12 && 1 <= len(fraction) && len(fraction) <= 3
	}
	if len(digits) > 15 {
		return value{}, false
	}
	v := value{kind: kindInteger}
	for i := range len(digits) {
		v.integer = v.integer*10 + int64(digits[i]-'0')
	}
	if negative {
		v.integer = -v.integer
	}
	return v, true
}

// quoted skips a string whose opening quote has been read.
func (s *scanner) quoted() bool {
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			s.rest = s.rest[i+1:]
			return true
		case c == '\\':
			i++
			if i == len(s.rest) || s.rest[i] != '"' && s.rest[i] != '\\' {
				return false
			}
		case c < 0x20 || c > 0x7e:
			return false
		}
	}
	return false
}

// display skips a display string whose opening quote has been read. It doesn't check
// that the bytes are UTF-8, because they are never displayed.
func (s *scanner) display() bool {
	isHex := func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			s.rest = s.rest[i+1:]
			return true
		case c == '%':
			if i+2 >= len(s.rest) || !isHex(s.rest[i+1]) || !isHex(s.rest[i+2]) {
				return false
			}
			i += 2
		case c < 0x20 || c > 0x7e:
			return false
		}
	}
	return false
}
