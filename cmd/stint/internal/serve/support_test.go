package serve

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// file writes a policy file.
func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// written is what a server logs.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// start starts a server on loopback, until the test ends. change may change its configuration.
func start(t testing.TB, text string, change func(*Config)) (*Server, *written) {
	t.Helper()
	log := &written{}
	c := Config{
		Policies: []string{file(t, text)}, Proxy: "nginx", AuthAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0",
		Trust:  []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")},
		Logger: slog.New(slog.NewJSONHandler(log, nil)),
	}
	if change != nil {
		change(&c)
	}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

// client is a request of a client, as a proxy gets it.
type client struct {
	method, uri, host, proto, address string
	header                            http.Header
}

func (c client) with(name, value string) client {
	h := c.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Add(name, value)
	c.header = h
	return c
}

func get(uri string) client {
	return client{method: "GET", uri: uri, host: "shop.example", proto: "https", address: "192.0.2.7"}
}

// forwarded returns the request that a proxy makes of a client's.
func (c client) forwarded(t testing.TB, name, prefix string) *http.Request {
	t.Helper()
	method, uri := "GET", "/verify"
	if name == "envoy" {
		method, uri = c.method, prefix+c.uri
	}
	r, err := http.NewRequest(method, "http://stint.test"+uri, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range c.header {
		r.Header[name] = append(r.Header[name], values...)
	}
	r.RequestURI, r.RemoteAddr = uri, "127.0.0.1:4242"
	set := func(name, value string) { r.Header[http.CanonicalHeaderKey(name)] = []string{value} }
	switch name {
	case "nginx":
		set("X-Original-Method", c.method)
		set("X-Original-URI", c.uri)
		set("X-Forwarded-Host", c.host)
	case "envoy":
		r.Host = c.host
	default:
		set("X-Forwarded-Method", c.method)
		set("X-Forwarded-Uri", c.uri)
		set("X-Forwarded-Host", c.host)
	}
	set("X-Forwarded-Proto", c.proto)
	r.Header.Add("X-Forwarded-For", c.address)
	return r
}
