package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestPage is what the printed lines show: a request, and what its key has left then.
func TestPage(t *testing.T) {
	h, err := server()
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
		{"/console/key", "39 of 40 left"},
	} {
		res, err := http.PostForm(s.URL+tc.path, url.Values{"limiter": {"0"}, "key": {"me"}})
		if tc.path == "/console/" {
			res, err = http.Get(s.URL + tc.path)
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if !strings.Contains(string(body), tc.want) {
			t.Errorf("%s doesn't say %q", tc.path, tc.want)
		}
	}
}
