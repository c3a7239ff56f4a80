package stint

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/routing"
)

// KeyFunc says who a request is charged to: requests with the same key share a
// limit. It is called at most once a request, before the next handler, and has
// to be safe for concurrent use. An empty key is answered as WithEmptyKey says;
// an error goes to the error handler and never lets a request pass. It is
// answered with 500, or with the status of its StatusCode() int method.
//
// Any text of up to 4 KiB is a key: it is escaped, and hashed if it is long,
// before a store sees it. Write one inline for an identity that only the
// application knows:
//
//	func(r *http.Request) (string, error) { return sessionOf(r).UserID, nil }
//
// New calls every key function once with a request without header fields, to
// find out whether it was made with arguments that can't work.
type KeyFunc func(*http.Request) (string, error)

var (
	// ErrEmptyKey refuses a request whose key is empty, unless WithEmptyKey
	// says that such requests aren't limited.
	ErrEmptyKey = keytext.ErrEmpty
	// ErrKeyTooLong refuses a request whose key is longer than 4 KiB.
	ErrKeyTooLong = keytext.ErrTooLong
)

// configError is what a KeyFunc made with arguments that can't work returns,
// to New first of all, which reports it.
type configError struct{ mistakes mistakes }

func (e *configError) Error() string { return e.mistakes.joined().Error() }

// misconfigured is the KeyFunc of arguments that can't work. It never gives a
// key: a mistake that somehow gets past New limits nobody by accident.
func misconfigured(m ...*OptionError) KeyFunc {
	err := &configError{m}
	return func(*http.Request) (string, error) { return "", err }
}

// predicateProbe is the context key under which a probe carries the
// *configError that predicates write their mistakes to. A predicate has only a
// bool to answer with.
type predicateProbe struct{}

// predicateProblem asks a predicate whether it was made with arguments that
// can't work, by calling it with a copy of probe. What a user's own predicate
// makes of a request that never happened, a panic included, doesn't matter.
func predicateProblem(p func(*http.Request) bool, probe *http.Request) (err error) {
	report := new(configError)
	defer func() {
		_ = recover()
		if report.mistakes != nil {
			err = report
		}
	}()
	p(probe.WithContext(context.WithValue(probe.Context(), predicateProbe{}, report)))
	return nil
}

// Header keys on the value of a header field, such as an API key. It is empty
// if the request doesn't have it.
//
// Of several lines of the field the first counts, the one that
// http.Header.Get gives a handler, whatever others a client adds: whoever
// authenticates with a key is charged for that key. Nobody has checked the
// value when the limiter runs before authentication; a client that makes
// values up then gets a bucket for each, so put a limit by address beside it.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !clientip.IsFieldName(name):
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%.80q)", name),
			Write: `write the name of a header field, such as "X-API-Key"`})
	case canonical == "Host":
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%q)", name), Problem: "net/http moves this field to r.Host",
			Write: "write func(r *http.Request) (string, error) { return r.Host, nil }"})
	}
	return func(r *http.Request) (string, error) {
		if lines := r.Header[canonical]; len(lines) > 0 {
			return lines[0], nil
		}
		return "", nil
	}
}

// Cookie keys on the value of a cookie. It is empty if the request doesn't
// have it; of several cookies of that name the first counts, as in
// http.Request.Cookie. A session's cookie is as good as a password: put Hash
// around it, so that it isn't kept in a store.
func Cookie(name string) KeyFunc {
	if !clientip.IsFieldName(name) {
		return misconfigured(&OptionError{Option: fmt.Sprintf("Cookie(%.80q)", name), Write: `write the name of a cookie, such as "session"`})
	}
	return func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", nil
		}
		return c.Value, nil
	}
}

// unmatched is the key of all requests that no pattern matches. Every pattern
// has a slash in it, so none can equal it.
const unmatched = "unmatched"

// Pattern keys on the pattern that the http.ServeMux around the limiter has
// matched, so it gives every route a limit of its own. Requests that match
// none, or that reach the limiter before a ServeMux, share one key: the path
// itself would let a client make up as many keys as it likes. For a limiter
// around a ServeMux write MuxPattern.
func Pattern() KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return unmatched, nil
		}
		return r.Pattern, nil
	}
}

// MuxPattern keys on the pattern that mux is going to match, for a limiter
// that is wrapped around it. Requests that match none share one key.
func MuxPattern(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return misconfigured(&OptionError{Option: "MuxPattern(nil)", Write: "write the *http.ServeMux that the limiter is wrapped around"})
	}
	return func(r *http.Request) (string, error) {
		if pattern := routing.Pattern(mux, r); pattern != "" {
			return pattern, nil
		}
		return unmatched, nil
	}
}

// Method keys on the request's method. Methods that RFC 9110 and RFC 5789
// don't name share the key "other": a client may send any word as one.
func Method() KeyFunc {
	return func(r *http.Request) (string, error) {
		switch r.Method {
		case "":
			return http.MethodGet, nil
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
			http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
			return r.Method, nil
		}
		return "other", nil
	}
}

// Global gives every request the same key: the limit is one of the service,
// not of a client. Allow, Take, Wait and Peek charge it under that key too, whatever
// key they are given, so that requests and jobs share it.
func Global() KeyFunc { return constant(keytext.Global) }

// constant is the key function of limits that have one key. Its functions have
// one body, by which isConstant knows them; inlined, each caller's would be
// another.
//
//go:noinline
func constant(raw string) KeyFunc {
	return func(*http.Request) (string, error) { return raw, nil }
}

func isConstant(k KeyFunc) bool { return sameBody(k, constant("")) }

func sameBody(k, l KeyFunc) bool { return reflect.ValueOf(k).Pointer() == reflect.ValueOf(l).Pointer() }

// folded is k, made of parts: constant if all of them are.
func folded(k KeyFunc, parts ...KeyFunc) KeyFunc {
	for _, p := range parts {
		if !isConstant(p) {
			return k
		}
	}
	raw, err := k(nil)
	if err != nil || raw == "" {
		return k
	}
	return constant(raw)
}

// errGivenKey refuses a request where only Take has a key.
var errGivenKey = errors.New("stint: the limit's key is GivenKey, which a request doesn't have")

// GivenKey is the key that Allow, Take, Wait and Peek are given: for limiters of jobs,
// queues and outgoing calls. Requests don't have one. Adapters panic when they
// are mounted with such a limiter, and Admit refuses its requests. It can't be a
// part of Join or Hash: give Take a key that is joined or hashed already.
func GivenKey() KeyFunc { return givenKey }

func givenKey(*http.Request) (string, error) { return "", errGivenKey }

func isGiven(k KeyFunc) bool { return sameBody(k, givenKey) }

// Join keys on several things at once, such as a tenant and a route. The parts
// are joined with their lengths, so that no two lists of parts give the same
// key, whatever is in them. If one part is empty the joined key is empty: half
// an identity is none. Every part is asked, also after an empty one.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		return misconfigured(&OptionError{Option: "Join()", Write: `write the key functions to join, such as stint.Header("X-Tenant"), stint.Pattern()`})
	}
	if i := slices.IndexFunc(keys, func(k KeyFunc) bool { return k == nil }); i >= 0 {
		return misconfigured(&OptionError{Option: "Join", Problem: fmt.Sprintf("key function %d is nil", i+1), Write: "write one, or leave it out"})
	}
	if slices.ContainsFunc(keys, isGiven) {
		return misconfigured(&OptionError{Option: "Join", Problem: "GivenKey() can't be a part of a key", Write: "give Take one that is joined"})
	}
	keys = slices.Clone(keys)
	return folded(func(r *http.Request) (string, error) {
		var room [8]string
		parts := room[:0]
		size, empty := 0, false
		var failed error
		var wrong mistakes
		for _, k := range keys {
			part, err := k(r)
			if err != nil {
				// All mistakes are to be reported at once, and before anything
				// that merely this request lacks.
				if bad := (*configError)(nil); errors.As(err, &bad) {
					wrong = append(wrong, bad.mistakes...)
				} else if failed == nil {
					failed = err
				}
			}
			parts = append(parts, part)
			size += len(part)
			empty = empty || part == ""
		}
		switch {
		case wrong != nil:
			return "", &configError{wrong}
		case failed != nil:
			return "", failed
		case empty:
			return "", nil
		case size > keytext.MaxRaw:
			return "", ErrKeyTooLong
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
	}, keys...)
}

// minSecret is the least secret that can't be found by trying.
const minSecret = 16

// Hash keys on a keyed hash of another key, for identities that should not be
// readable in a store: addresses, cookies, API keys. It is the first 16 bytes
// of HMAC-SHA256 under secret, in base64url. Instances that share a store
// share the secret; a new secret starts all counts anew. The secret has at
// least 16 bytes, and better 32 random ones: without a secret every IPv4
// address could be hashed and compared. An empty key stays empty.
func Hash(secret []byte, k KeyFunc) KeyFunc {
	var wrong mistakes
	if len(secret) < minSecret {
		wrong.bad("Hash", fmt.Sprintf("a secret of %d bytes can be guessed", len(secret)),
			fmt.Sprintf("write %d random ones or more, the same on every instance", minSecret))
	}
	if k == nil {
		wrong.bad("Hash", "the key function is nil", "write the one to hash, such as stint.RemoteIP()")
	}
	if k != nil && isGiven(k) {
		wrong.bad("Hash", "GivenKey() can't be hashed", "give Take a key that is")
	}
	if wrong != nil {
		return misconfigured(wrong...)
	}
	secret = bytes.Clone(secret)
	pool := sync.Pool{New: func() any { return &keyedHash{mac: hmac.New(sha256.New, secret)} }}
	return folded(func(r *http.Request) (string, error) {
		raw, err := k(r)
		if err != nil || raw == "" {
			return "", err
		}
		if len(raw) > keytext.MaxRaw {
			return "", ErrKeyTooLong
		}
		h := pool.Get().(*keyedHash)
		defer pool.Put(h)
		return h.of(raw), nil
	}, k)
}

// keyedHash is a hash with its scratch room, reused because setting up an HMAC
// costs more than hashing a key.
type keyedHash struct {
	mac hash.Hash
	buf []byte
}

func (h *keyedHash) of(raw string) string {
	h.mac.Reset()
	h.buf = append(h.buf[:0], raw...)
	h.mac.Write(h.buf)
	h.buf = h.mac.Sum(h.buf[:0])
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], h.buf[:16])
	return string(text[:])
}
