// Package keys has the keys of package stint: what each of them is, and how it is read
// from a request.
package keys

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/routing"
)

// Func reads a key from a request.
type Func = func(*http.Request) (string, error)

// Key is a key and what is known of it. There is one Key for each description, except for
// those of an application's functions and those with mistakes. So keys are compared by
// their addresses.
type Key struct {
	// Read reads the key.
	Read Func
	// Name is the key as Go code has it, without a package: Header("X-API-Key").
	Name string
	// Constant is the encoded key of one that every request has, or "".
	Constant string
	// Given: only Take is given such a key.
	Given bool
	// NeverEmpty: every request's key has a text.
	NeverEmpty bool
	// Adapters are those whose framework's context the key is read from.
	Adapters []string
	// Signs are what the key consists of.
	Signs keysample.Signs
	// Reads lists the parts of a request that the key is read from.
	Reads Reads
	// Client finds the client's address, if the key is one; or it is nil.
	Client *clientip.Resolver
	// fromText returns the keys of the callers that an operator knows as a text; nil: the text itself.
	fromText func(text string) []string
	// Problems are those of the arguments that it was made with. Read then returns an error.
	Problems optionerror.List

	id uint64 // of no other key, now or ever
}

// KeysOf returns the keys that a caller may have whom an operator knows as text: an address is the
// network that is limited, and each part of a FirstOf may be the one that the caller's requests have.
func (k *Key) KeysOf(text string) []string {
	if k.fromText == nil {
		return []string{text}
	}
	return k.fromText(text)
}

// Invalid returns a key made with arguments that can't work. Its Read returns an error, so that a
// mistake that somehow gets past New doesn't limit callers by a wrong key.
func Invalid(all optionerror.List) *Key {
	err := &optionerror.Error{Problems: all}
	return &Key{Name: all[0].Option, Problems: all, Read: func(*http.Request) (string, error) { return "", err },
		id: lastID.Add(1)}
}

// FromFunc returns the key of an application's function, which equals no other.
func FromFunc(name string, read Func) *Key {
	return &Key{Name: name, Read: read, Signs: keysample.OfFunction, Reads: Reads{Function: true}, id: lastID.Add(1)}
}

// FromAdapterFunc returns the key of a function of an adapter's framework's context, which equals no
// other.
func FromAdapterFunc(adapter string, read Func) *Key {
	k := FromFunc(adapter+".Key", read)
	k.Adapters = []string{adapter}
	return k
}

// The keys without arguments.
var (
	Global = &Key{Name: "Global()", Read: constantFunc(keytext.Global), Constant: keytext.GlobalText, NeverEmpty: true,
		id: lastID.Add(1)}
	Given = &Key{Name: "GivenKey()", Read: func(*http.Request) (string, error) { return "", errGiven }, Given: true,
		Reads: Reads{Given: true}, id: lastID.Add(1)}
	Pattern = &Key{Name: "Pattern()", Read: pattern, NeverEmpty: true, Signs: keysample.OfPattern,
		Reads: Reads{Router: true}, id: lastID.Add(1)}
	Method   = &Key{Name: "Method()", Read: method, NeverEmpty: true, id: lastID.Add(1)}
	RemoteIP = addressKey("RemoteIP()", clientip.Remote())
)

var errGiven = errors.New("stint: the limit's key is GivenKey, which a request doesn't have")

func constantFunc(raw string) Func { return func(*http.Request) (string, error) { return raw, nil } }

func addressKey(name string, client *clientip.Resolver) *Key {
	reads := Reads{Peer: true}
	if field := client.Header(); field != "" {
		reads.Fields = []string{field}
	}
	return &Key{Name: name, Read: func(r *http.Request) (string, error) { return client.Key(r), nil }, Reads: reads,
		Client:     client,
		NeverEmpty: true, Signs: keysample.OfPeer, id: lastID.Add(1), fromText: func(text string) []string {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return []string{text}
			}
			return []string{client.Key(&http.Request{RemoteAddr: netip.AddrPortFrom(a, 0).String(), Header: http.Header{}})}
		}}
}

// Address returns the key of a client's address, or what is wrong with its source.
func Address(s clientip.Source) (*Key, []clientip.Problem) {
	client, problems := clientip.New(s)
	if problems != nil {
		return nil, problems
	}
	name := client.String()
	if name == RemoteIP.Name {
		return RemoteIP, nil
	}
	return unique(description{name: name}, func() *Key { return addressKey(name, client) }), nil
}

// Header returns the key of the first line of a field. canonical is the field's name in
// canonical form.
func Header(canonical string) *Key {
	name := fmt.Sprintf("Header(%q)", canonical)
	return unique(description{name: name}, func() *Key {
		return &Key{Name: name, Signs: keysample.SignsOfField(canonical), Reads: Reads{Fields: []string{canonical}},
			Read: func(r *http.Request) (string, error) {
				if lines := r.Header[canonical]; len(lines) > 0 {
					return lines[0], nil
				}
				return "", nil
			}}
	})
}

// Cookie returns the key of the value of the first cookie of a name.
func Cookie(cookie string) *Key {
	name := fmt.Sprintf("Cookie(%q)", cookie)
	return unique(description{name: name}, func() *Key {
		return &Key{Name: name, Signs: keysample.OfField, Reads: Reads{Fields: []string{"Cookie"}},
			Read: func(r *http.Request) (string, error) {
				c, err := r.Cookie(cookie)
				if err != nil {
					return "", nil
				}
				return c.Value, nil
			}}
	})
}

// unmatched is the key of all requests that no pattern matches. Every pattern contains a
// slash, so none can equal it.
const unmatched = "unmatched"

func pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return unmatched, nil
	}
	return r.Pattern, nil
}

// MuxPattern returns the key of the pattern that a mux will match.
func MuxPattern(mux *http.ServeMux) *Key {
	return unique(description{name: "MuxPattern", mux: mux}, func() *Key {
		return &Key{Name: "MuxPattern", NeverEmpty: true, Reads: Reads{Host: true},
			Read: func(r *http.Request) (string, error) {
				if pattern := routing.Pattern(mux, r); pattern != "" {
					return pattern, nil
				}
				return unmatched, nil
			}}
	})
}

// method returns the request's method, or "other" for one that no standard defines.
func method(r *http.Request) (string, error) {
	switch r.Method {
	case "":
		return http.MethodGet, nil
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method, nil
	}
	return "other", nil
}

// Join returns the key of several keys, joined.
func Join(parts []*Key) *Key {
	parts = slices.Clone(parts)
	return composed("Join", "", parts, func() *Key {
		never := !slices.ContainsFunc(parts, func(k *Key) bool { return !k.NeverEmpty })
		return &Key{NeverEmpty: never, Read: func(r *http.Request) (string, error) {
			var room [8]string
			texts := room[:0]
			var failed error
			for _, k := range parts {
				text, err := k.Read(r)
				if err != nil && failed == nil {
					failed = err
				}
				texts = append(texts, text)
			}
			if failed != nil {
				return "", failed
			}
			return keytext.Join(texts)
		}}
	})
}

// FirstOf returns the key of the first of several keys that isn't empty.
func FirstOf(parts []*Key) *Key {
	parts = slices.Clone(parts)
	return composed("FirstOf", "", parts, func() *Key {
		return &Key{NeverEmpty: parts[len(parts)-1].NeverEmpty, Read: func(r *http.Request) (string, error) {
			for i, k := range parts {
				if text, err := k.Read(r); err != nil || text != "" {
					return keytext.Choice(i, text), err
				}
			}
			return "", nil
		}, fromText: func(text string) (all []string) {
			for i, k := range parts {
				if k.Constant != "" {
					continue
				}
				for _, key := range k.KeysOf(text) {
					all = append(all, keytext.Choice(i, key))
				}
			}
			return all
		}}
	})
}

// Hash returns the key of the keyed hash of a key.
func Hash(secret []byte, k *Key) *Key {
	sum := sha256.Sum256(secret)
	return composed("Hash", string(sum[:]), []*Key{k}, func() *Key {
		hash := keytext.NewHash(secret)
		return &Key{NeverEmpty: k.NeverEmpty, Read: func(r *http.Request) (string, error) {
			raw, err := k.Read(r)
			if err != nil {
				return "", err
			}
			return hash.Of(raw)
		}, fromText: func(text string) (all []string) {
			for _, key := range k.KeysOf(text) {
				if hashed, err := hash.Of(key); err == nil {
					all = append(all, hashed)
				}
			}
			return append(all, text) // or it is the hash
		}}
	})
}

// composed returns the key that build makes of parts. It has the signs of all of them. If
// all are constant, so is the key; a constant key that is too long isn't one.
func composed(maker, args string, parts []*Key, build func() *Key) *Key {
	d, names, varies := description{name: maker, args: args}, make([]string, len(parts)), false
	for i, k := range parts {
		d.args += fmt.Sprint(",", k.id)
		names[i] = k.Name
		varies = varies || k.Constant == ""
	}
	return unique(d, func() *Key {
		c := build()
		c.Name = maker + "(" + strings.Join(names, ", ") + ")"
		for _, k := range parts {
			c.Signs |= k.Signs
			c.Reads.add(k.Reads)
			for _, a := range k.Adapters {
				if !slices.Contains(c.Adapters, a) {
					c.Adapters = append(c.Adapters, a)
				}
			}
		}
		if !varies {
			if raw, err := c.Read(nil); err == nil && raw != "" {
				// Worked out once: keys around it don't work it out again, level by level.
				c.Read = constantFunc(raw)
				c.Constant, _ = keytext.Encode(raw)
			}
		}
		return c
	})
}

// ForGiven returns the key to charge if Take is given a key that encodes to encoded, or
// that can't be encoded because of err. A constant key takes the place of either.
func (k *Key) ForGiven(encoded string, err error) (string, error) {
	if k.Constant != "" {
		return k.Constant, nil
	}
	return encoded, err
}
