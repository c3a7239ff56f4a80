package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestPage checks what the printed lines show: a request, and what its key has left then.
func TestPage(t *testing.T) {
	const token = "a token of sixteen bytes"
	h, err := server(token)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	r, _ := http.NewRequest("GET", s.URL+"/items", nil)
	r.Header.Set("X-Api-Key", "me")
	if res, err := http.DefaultClient.Do(r); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	for _, tc := range []struct{ path, want string }{
		{"/console/", "allowed</dt><dd>1</dd>"},
		{"/console/key", "(39|40) of 40 left"},
	} {
		r, _ := http.NewRequest("GET", s.URL+tc.path, nil)
		if tc.path == "/console/key" {
			r, _ = http.NewRequest("POST", s.URL+tc.path, strings.NewReader("key=me"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if !regexp.MustCompile(tc.want).Match(body) { // a unit comes back after 50 ms
			t.Errorf("%s doesn't say %q", tc.path, tc.want)
		}
	}
}
