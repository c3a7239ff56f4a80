package routing

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Whatever a client sends, the pattern is one of the mux's or none.
func TestPatternIsNoPath(t *testing.T) {
	patterns := []string{
		"/tree/{id}/", "/exact/{id}/{$}", "/rest/{path...}", "CONNECT /tunnel/{to}/", "CONNECT /two/{a}/{b}/",
		"GET /users/{id}", "api.example.com/{id}/", "api.example.com:443/port/{id}/",
	}
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.Handle(p, http.NotFoundHandler())
	}
	pieces := []string{"/", "tree", "tunnel", "exact", "rest", "port", "x", "..", ".", "%2F", "%2f", "%2e%2e", "%25", "%00", "%20", "//", ";", "*"}
	hosts := []string{"api.example.com", "api.example.com:443", "API.example.com.", "x"}
	made := map[string]string{}
	var ask func(target string, depth int)
	ask = func(target string, depth int) {
		for _, method := range []string{"CONNECT", "GET", "POST", "X"} {
			for _, host := range hosts {
				for _, line := range []string{"/" + target, host + "/" + target, "http://" + host + "/" + target} {
					r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + line + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
					if err != nil {
						continue
					}
					if p := Pattern(mux, r); p != "" && !slices.Contains(patterns, p) {
						made[p] = method + " " + line
					}
				}
			}
		}
		if depth == 0 {
			return
		}
		for _, p := range pieces {
			ask(target+p, depth-1)
		}
	}
	ask("tree/", 2)
	ask("tunnel/", 2)
	ask("two/", 2)
	ask("", 2)
	n := 0
	for p, request := range made {
		if n++; n <= 5 {
			t.Errorf("%s: made the pattern %q", request, p)
		}
	}
	if n > 0 {
		t.Errorf("%d patterns made by clients", n)
	}
}
