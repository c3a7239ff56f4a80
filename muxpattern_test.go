package stint

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Whatever a client sends, its key is one of the patterns or that of all
// requests without one.
func TestMuxPatternMakesNoKeys(t *testing.T) {
	patterns := []string{
		"/tree/{id}/", "/exact/{id}/{$}", "/rest/{path...}", "CONNECT /tunnel/{to}/", "CONNECT /two/{a}/{b}/",
		"GET /users/{id}", "api.example.com/{id}/", "api.example.com:443/port/{id}/",
	}
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.Handle(p, http.NotFoundHandler())
	}
	key := MuxPattern(mux)
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
					if k, err := key(r); err != nil || k != unmatched && !slices.Contains(patterns, k) {
						made[k] = method + " " + line
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
	for k, request := range made {
		if n++; n <= 5 {
			t.Errorf("%s: made the key %q", request, k)
		}
	}
	if n > 0 {
		t.Errorf("%d keys made by clients", n)
	}
}
