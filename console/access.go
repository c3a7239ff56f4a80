package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// minToken is the length of the shortest token in bytes.
const minToken = 16

// WithAuthorizer sets the function that decides who may see the page and, with WithActions, use
// its actions: a request is accepted if the function returns true, for instance because the
// caller has passed single sign-on. By default, every caller that has the token may see the
// page (WithToken). All others are answered with 403. who names the caller in the log of
// actions; it may be empty. The console calls allow for every request. An open page makes a
// request every half minute. allow must be safe for concurrent use.
func WithAuthorizer(allow func(*http.Request) (who string, ok bool)) Option {
	return option(func(p *page) {
		if p.authorize = allow; allow == nil {
			p.errs = append(p.errs, errors.New("stint: console: the authorizer is nil: "+
				"use console.WithAuthorizer(func(r *http.Request) (who string, ok bool) { … }), or console.WithToken(secret)"))
		}
	})
}

// WithToken lets callers that have the secret see the page. Scripts send the secret as "Authorization:
// Bearer secret". Browsers ask for it once, or open a link that ends in ?token=secret, and keep
// a cookie. The cookie is as sensitive as the secret, and ends with the browser's session. All
// other requests are answered with 401. Without WithToken and WithAuthorizer, New makes a token
// and writes a link with it to standard error.
//
// The secret has at least 16 bytes, from a random source. Replicas behind one address need the
// same secret: the cookie and the page's links to keys are made with the secret, and are then
// valid on all replicas. If WithAuthorizer is also set, a request needs to pass only one of the
// two checks.
func WithToken(secret string) Option {
	return option(func(p *page) {
		if len(secret) < minToken {
			p.errs = append(p.errs, fmt.Errorf("stint: console: the token has %d bytes: use a random one of at least %d",
				len(secret), minToken))
			return
		}
		p.setToken(secret)
	})
}

// setToken sets the token, which is also the secret of fingerprints and links of keys.
func (p *page) setToken(secret string) {
	p.token = newToken(secret)
	p.secret = derive(secret, "keys")
}

// token is a secret that opens the page.
type token struct {
	digest [sha256.Size]byte
	// cookie and value are derived from the secret, so that every replica knows them.
	// Cookies ignore ports: each secret has a name of its own, so that two servers on
	// one host don't overwrite each other's.
	cookie, value string
}

func newToken(secret string) *token {
	derive := func(what string) string { return base64.RawURLEncoding.EncodeToString(derive(secret, what)) }
	return &token{digest: sha256.Sum256([]byte(secret)), cookie: "stint-" + derive("cookie's name")[:16],
		value: derive("cookie's value")}
}

// derive derives a secret for one purpose from another.
func derive(secret, purpose string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("stint console: " + purpose))
	return mac.Sum(nil)
}

// matches reports whether a secret is the token's.
func (t *token) matches(secret string) bool {
	digest := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(digest[:], t.digest[:]) == 1
}

// admits reports whether a request carries the token or its cookie.
func (t *token) admits(r *http.Request) bool {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") && t.matches(strings.TrimSpace(secret)) {
		return true
	}
	for _, c := range r.CookiesNamed(t.cookie) {
		if subtle.ConstantTimeCompare([]byte(c.Value), []byte(t.value)) == 1 {
			return true
		}
	}
	return false
}

// offeredSecret returns the secret of a request that signs in: by a link, or by the form of
// the page that asks for the token.
func offeredSecret(w http.ResponseWriter, r *http.Request) (secret string, signsIn bool) {
	switch {
	case r.Method == http.MethodGet:
		q := r.URL.Query()
		return q.Get("token"), q.Has("token")
	case r.Method == http.MethodPost && element(r) == "":
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		return r.PostFormValue("token"), true
	}
	return "", false
}

// admit returns the caller of a request that is authorized. Otherwise it answers the request.
func (p *page) admit(w http.ResponseWriter, r *http.Request) (who string, ok bool) {
	if t := p.token; t != nil {
		if secret, signsIn := offeredSecret(w, r); signsIn && t.matches(secret) {
			t.setCookie(w, r)
			return "", false
		}
		if t.admits(r) {
			return "", true
		}
	}
	if p.authorize != nil {
		if who, ok = p.authorize(r); ok {
			return who, true
		}
	}
	if p.token == nil {
		http.Error(w, "you may not see this page", http.StatusForbidden)
		return "", false
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	if element(r) != "" {
		http.Error(w, "this page needs a token", http.StatusUnauthorized)
		return "", false
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_ = templates.ExecuteTemplate(w, "token.html", nil)
	return "", false
}

// setCookie sets the browser's cookie, and redirects it to the same page without the token. The
// address is relative, so that it holds behind a proxy that has another one.
func (t *token) setCookie(w http.ResponseWriter, r *http.Request) {
	https := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" // a client that forges it locks out only itself
	http.SetCookie(w, &http.Cookie{
		Name: t.cookie, Value: t.value, Path: directory(r),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: https,
	})
	w.Header().Set("Location", "./"+url.PathEscape(element(r)))
	w.WriteHeader(http.StatusSeeOther)
}

// directory returns the path at which the client sees the page: a handler around this one
// may have cut the beginning off URL.Path.
func directory(r *http.Request) string {
	urlPath := r.URL.EscapedPath()
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		urlPath = u.EscapedPath()
	}
	return cmp.Or(urlPath[:strings.LastIndexByte(urlPath, '/')+1], "/")
}

// element returns the last element of a request's path, or "" for the page itself.
func element(r *http.Request) string {
	if r.URL.Path == "" || strings.HasSuffix(r.URL.Path, "/") {
		return ""
	}
	return path.Base(r.URL.Path)
}
