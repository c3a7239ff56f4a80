// Package keyfunc has the key functions of package stint that read one thing of a request,
// recognizes those that a limiter treats differently, and keeps what is known of a key
// function in use.
package keyfunc

import (
	"errors"
	"net/http"
	"reflect"

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

// IsHeader, IsConstant and IsGiven recognize functions of Header, Constant and Given by
// their code. They share it only if those aren't inlined.
func IsHeader(k Func) bool   { return sameCode(k, Header("")) }
func IsConstant(k Func) bool { return sameCode(k, Constant("")) }
func IsGiven(k Func) bool    { return sameCode(k, Given) }

func sameCode(k, l Func) bool { return reflect.ValueOf(k).Pointer() == reflect.ValueOf(l).Pointer() }

// Folded returns k as a Constant if constant says that all that it is made of are. If k
// has no key then, it is returned as it is.
func Folded(k Func, constant bool) Func {
	if !constant {
		return k
	}
	raw, err := k(nil)
	if err != nil || raw == "" {
		return k
	}
	return Constant(raw)
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
