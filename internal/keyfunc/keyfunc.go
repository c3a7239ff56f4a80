// Package keyfunc has the key functions of package stint that read one thing of a request,
// recognizes those that a limiter treats differently, and keeps what is known of a key
// function in use.
package keyfunc

import (
	"errors"
	"net/http"
	"reflect"
	"slices"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/routing"
)

// Func is a stint.KeyFunc.
type Func = func(*http.Request) (string, error)

// Header returns a function of the first line of a field. canonical is the field's name
// in canonical form.
//
//go:noinline
func Header(canonical string) Func {
	return func(r *http.Request) (string, error) {
		if lines := r.Header[canonical]; len(lines) > 0 {
			return lines[0], nil
		}
		return "", nil
	}
}

// Constant returns a function with one key.
//
//go:noinline
func Constant(raw string) Func {
	return func(*http.Request) (string, error) { return raw, nil }
}

// Given is the key that only Take is given.
func Given(*http.Request) (string, error) { return "", errGiven }

var errGiven = errors.New("stint: the limit's key is GivenKey, which a request doesn't have")

// IsHeader reports whether k is a function of Header. Functions are recognized by their
// code, which those of Header and Constant share only if these aren't inlined.
func IsHeader(k Func) bool { return sameCode(k, Header("")) }

// IsConstant reports whether k is a function of Constant.
func IsConstant(k Func) bool { return sameCode(k, Constant("")) }

// IsGiven reports whether k is Given.
func IsGiven(k Func) bool { return sameCode(k, Given) }

func sameCode(k, l Func) bool { return reflect.ValueOf(k).Pointer() == reflect.ValueOf(l).Pointer() }

// folded returns k as a Constant if constant says that all that it is made of are. If k
// has no key then, it is returned as it is.
func folded(k Func, constant bool) Func {
	if !constant {
		return k
	}
	raw, err := k(nil)
	if err != nil || raw == "" {
		return k
	}
	return Constant(raw)
}

// Join returns a function of the keys of several, joined. All mistakes in their arguments
// are reported at once, and before anything that only this request lacks.
func Join(keys []Func) Func {
	varies := slices.ContainsFunc(keys, func(k Func) bool { return !IsConstant(k) })
	return folded(func(r *http.Request) (string, error) {
		var room [8]string
		parts := room[:0]
		var failed error
		var wrong mistake.List
		for _, k := range keys {
			part, err := k(r)
			if err != nil {
				if bad := (*mistake.Error)(nil); errors.As(err, &bad) {
					wrong = append(wrong, bad.Mistakes...)
				} else if failed == nil {
					failed = err
				}
			}
			parts = append(parts, part)
		}
		switch {
		case wrong != nil:
			return "", &mistake.Error{Mistakes: wrong}
		case failed != nil:
			return "", failed
		}
		return keytext.Join(parts)
	}, !varies)
}

// Hash returns a function of the keyed hash of a key.
func Hash(secret []byte, k Func) Func {
	hash := keytext.NewHash(secret)
	return folded(func(r *http.Request) (string, error) {
		raw, err := k(r)
		if err != nil {
			return "", err
		}
		return hash.Of(raw)
	}, IsConstant(k))
}

// Cookie returns a function of the value of the first cookie of a name.
func Cookie(name string) Func {
	return func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", nil
		}
		return c.Value, nil
	}
}

// unmatched is the key of all requests that no pattern matches. Every pattern contains a
// slash, so none can equal it.
const unmatched = "unmatched"

// Pattern returns the pattern that a mux has matched.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return unmatched, nil
	}
	return r.Pattern, nil
}

// MuxPattern returns a function of the pattern that a mux will match.
func MuxPattern(mux *http.ServeMux) Func {
	return func(r *http.Request) (string, error) {
		if pattern := routing.Pattern(mux, r); pattern != "" {
			return pattern, nil
		}
		return unmatched, nil
	}
}

// Method returns the request's method, or "other" for one that no standard defines.
func Method(r *http.Request) (string, error) {
	switch r.Method {
	case "":
		return http.MethodGet, nil
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method, nil
	}
	return "other", nil
}
