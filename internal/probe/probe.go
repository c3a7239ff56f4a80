// Package probe calls an application's functions once with a request that never was, for
// what only a call can show. An error or a panic of theirs is about the request: a
// function may rely on what comes before it in a server.
package probe

import (
	"context"
	"net/http"
	"net/url"

	"github.com/stint-go/stint/internal/framework"
	"github.com/stint-go/stint/internal/warn"
)

// Request returns a request like one that a server gets.
func Request() *http.Request {
	return &http.Request{
		Method: "GET", URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Host: "192.0.2.2", RemoteAddr: "192.0.2.1:1", RequestURI: "/",
	}
}

// Key calls a key function. It returns the function's error, what the function has asked
// a framework's context for, and what its key consists of. After a panic err is nil.
func Key(k func(*http.Request) (string, error)) (asked *framework.Probe, signs warn.Signs, err error) {
	asked = new(framework.Probe)
	r := Request()
	warn.Mark(r)
	var key string
	defer func() {
		_ = recover()
		signs = warn.SignsOf(r, key)
	}()
	key, err = k(r.WithContext(framework.Lead(context.Background(), asked)))
	return asked, signs, err
}

// reportKey is the context key under which a request carries where a predicate reports.
type reportKey struct{}

// Predicate calls a predicate with a copy of r. A predicate can only answer with a bool,
// so one that was made with wrong arguments says so to the report that Report returns.
func Predicate(p func(*http.Request) bool, r *http.Request, report any) {
	defer func() { _ = recover() }()
	p(r.WithContext(context.WithValue(r.Context(), reportKey{}, report)))
}

// Report returns the report of Predicate, or nil if r is another request.
func Report(r *http.Request) any { return r.Context().Value(reportKey{}) }
