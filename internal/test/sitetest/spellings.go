package sitetest

import (
	"fmt"
	"strings"
)

// spelling is a request as a client may write it.
type spelling struct{ Method, Target, Host string }

func (s spelling) String() string { return fmt.Sprintf("%s %.60s (%s)", s.Method, s.Target, s.Host) }

func (s spelling) text() string {
	return s.Method + " " + s.Target + " HTTP/1.1\r\nHost: " + s.Host + "\r\nConnection: close\r\n\r\n"
}

// allSpellings are requests that routers read in different ways.
var allSpellings = spellings(`
	POST /api
	POST /api/
	POST /api/auth/login
	POST /api/auth%2flogin
	POST /api/auth%2Flogin
	POST /api%2fauth%2flogin
	POST /api%2Fauth/login
	POST /%61pi/auth/login
	POST /api/%61uth/login
	POST /api/auth/%6cogin
	POST /api/auth/%6Cogin
	POST /api/auth/login/
	POST /api/auth/login//
	POST /api/auth%2flogin/
	POST /api/auth/login%2f
	POST /api/auth/login%2F/
	POST //api/auth/login
	POST /api//auth/login
	POST /api/auth//login
	POST /api/./auth/login
	POST /api/auth/./login
	POST /api/x/../auth/login
	POST /x/../api/auth/login
	POST /../api/auth/login
	POST /api/x/%2e%2e/auth/login
	POST /api/x/%2E%2e/auth/login
	POST /api/%2e/auth/login
	POST /api/x%2f..%2fauth/login
	POST /api/x/..%2fauth%2flogin
	POST /api/auth/login/.
	POST /api/auth/login/x/..
	POST /api/auth/login/%2e
	POST /api/auth/login;x=1
	POST /api/auth/login%3bx
	POST /api/auth/login%20
	POST /api/auth/login%00
	POST /api/auth%5clogin
	POST /api\auth\login
	POST /api/auth/login?x=/../..
	POST /api/auth/login%3f
	POST /api/auth/login#x
	POST /api/auth/LOGIN
	POST http://example.com/api/auth/login
	POST http://example.com/api/auth%2flogin
	POST http://example.com//api/auth/login/
	POST http://user@example.com/api/auth/login
	HEAD /api/auth/login
	POST /login
	POST /login/
	POST /login//
	POST //login
	POST //login/
	POST /.//login
	POST /%6cogin
	POST /%6cogin/
	POST /%6Cogin%2f
	POST /login%2f
	POST /login/.
	POST /login/..
	POST /login/x/..
	POST /login.json
	POST /login.
	POST /login.tar.gz
	POST /login.json/
	POST /login/.json
	POST /login/x/...json
	POST //login.json
	POST /%6cogin%2ejson
	POST /login%2ejson
	POST /health/../login.json
	POST /health/..%2flogin.json
	POST /api/auth/login.json
	POST /api/auth%2flogin.json
	GET /users/me.json
	GET /users/7.json
	GET /users/.json
	GET /users/7/posts.json
	GET /files/a.json
	GET /files.json
	POST /login/%2e%2e
	POST %2flogin
	POST /%2flogin
	POST /%2Flogin/
	POST /%2e%2flogin
	POST /health/../login
	POST /health/..%2flogin
	POST /health/..%2Flogin/
	POST /health/%2e%2e/login
	POST /health/%2e%2e%2flogin
	POST /health/x/../../login
	POST /health//../login
	POST /health/..%2f..%2flogin
	POST /health/..%2fapi%2fauth%2flogin
	POST /health%2f..%2flogin
	GET /health
	GET /health/
	GET /health/live
	GET /health//
	GET /health/../
	GET /health/..
	GET /health/%2e%2e
	GET /health/../nowhere
	GET /nowhere/../health/x
	GET /files/a%2f..%2f..%2fhealth/x
	GET /files/../health/x
	GET /files/..%2fhealth/x
	GET /files/a b
	GET /files/
	GET /files
	GET /files//
	GET /files/a/b/../../..
	GET /files/a!b(c)
	GET /files/caf%c3%a9
	GET /files/caf%C3%A9
	GET /files/..%2fusers%2fme
	GET /files/../users/me
	GET /users/me
	GET /users/m%65
	GET /users/%6d%65
	GET /users/me/
	GET /users/%6de/
	GET /users//me
	GET /users/./me
	GET /users/7
	GET /users/7/
	GET /users/%37
	GET /users/a%2fb
	GET /users/me%2fposts
	GET /users/7/posts
	GET /users/7%2fposts
	GET /users/7/posts/
	GET /users/7/%70osts
	GET /users/7//posts
	GET /users//posts
	GET /users/%2fposts
	GET /users/./posts
	GET /users/../posts
	GET /users/%2e%2e/posts
	GET /users/7/x/../posts
	HEAD /users/7
	GET /other
	GET /%6fther
	GET /
	GET //
	GET /.
	GET /..
	GET /%2e%2e
	GET /%2f
	GET /x/y
	GET /x%2fy
	GET /x/
	GET //x
	GET /x//y
	GET http://example.com
	GET http://example.com?x
	OPTIONS *
	CONNECT example.com:443
	CONNECT /tunnel/a
	CONNECT /tunnel/a/
	CONNECT /tunnel/%61
	CONNECT //tunnel/a
	CONNECT /tunnel/../tunnel/a
	CONNECT /tunnel%2fa
	CONNECT /tunnel/a%2f
	CONNECT example.com/tunnel/a
	post /login
	POST /LOGIN
`)

func spellings(lines string) (all []spelling) {
	for line := range strings.Lines(lines) {
		method, target, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		if target[0] == '%' {
			target = "/" + target
		}
		all = append(all, spelling{method, target, "example.com"})
	}
	for _, path := range []string{
		"/" + strings.Repeat("x/../", 1000) + "login",
		strings.Repeat("/", 2000) + "login",
		"/" + strings.Repeat("%2e%2f", 1000) + "login",
		"/login" + strings.Repeat("/", 2000),
	} {
		all = append(all, spelling{"POST", path, "example.com"})
	}
	for _, host := range []string{
		"api.example.com", "API.example.com", "api.Example.COM", "api.example.com.", "api.example.com..", "API.EXAMPLE.COM.",
		"api.example.com:80", "API.example.com.:80", "api.example.com:", "api.example.com.:", "example.com.", "[::1]", "[::1]:80", "",
		"api.example.com:80:80", "api.example.com::", "API.example.com.::80", "[api.example.com]", "[api.example.com]:80", "[api.example.com",
	} {
		for _, path := range []string{"/login", "/login/", "//login", "/%6cogin", "http://" + host + "/login",
			"http://" + host + "//login"} {
			all = append(all, spelling{"POST", path, host})
		}
	}
	return all
}
