package serve

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// Proxies are the names of the proxies whose forward auth is served.
var Proxies = []string{"nginx", "traefik", "caddy", "envoy"}

// proxy is where a proxy's forward auth says what the client's request is.
type proxy struct {
	method, uri, host, proto string // the names of fields; "" for what is in the request itself

	only403 bool // the proxy passes on no other denial
}

var proxies = map[string]*proxy{
	"nginx":   {"X-Original-Method", "X-Original-Uri", "X-Forwarded-Host", "X-Forwarded-Proto", true},
	"traefik": {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-Proto", false},
	"caddy":   {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-Proto", false},
	"envoy":   {"", "", "", "X-Forwarded-Proto", false},
}

// forwarding lists the fields that proxies write. The client's request is rebuilt without them: keys by address
// find the client in RemoteAddr.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Port", "X-Forwarded-Proto",
	"X-Forwarded-Server", "X-Forwarded-Uri", "X-Original-Method", "X-Original-Uri", "Content-Length", "Connection",
}

// auth answers the requests of a proxy's forward auth.
type auth struct {
	proxy   *proxy
	prefix  string // of the path, for envoy
	trusted *trusted
	limiter *stint.Limiter
	log     *occasionally
}

func (a *auth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leaveBody(w, r)
	if !a.trusted.has(r.RemoteAddr) {
		a.log.warn("forward auth: a peer that isn't trusted: add its network to --trust, if it is a proxy",
			"peer", r.RemoteAddr)
		http.Error(w, "this address isn't a trusted proxy's", http.StatusForbidden)
		return
	}
	client, err := a.clientRequest(r)
	if err != nil {
		a.log.warn("forward auth: the request doesn't say what the client's is: check --forward-auth, and the proxy's"+
			" configuration", "peer", r.RemoteAddr, "error", err)
		http.Error(w, "the proxy's request is incomplete", http.StatusInternalServerError)
		return
	}
	if a.proxy.only403 {
		w = &only403{ResponseWriter: w}
	}
	a.limiter.Serve(w, client, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
}

// leaveBody bounds how long the server reads a request's body before it answers. No proxy sends a body here. If a client
// announces one that never comes, net/http would wait for it without end.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == http.NoBody {
		return
	}
	w.Header().Set("Connection", "close")
	// Closing the connection with unread bytes resets it, and the client could lose the answer. So the server reads for a
	// second.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // a server has deadlines
}

// clientRequest returns the request that the proxy asks about.
func (a *auth) clientRequest(r *http.Request) (*http.Request, error) {
	p := a.proxy
	var errs []error
	one := func(name, otherwise string) string {
		if name == "" {
			return otherwise
		}
		switch values := r.Header[name]; {
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("%s is there %d times", name, len(values)))
		case len(values) == 0 || values[0] == "":
			errs = append(errs, fmt.Errorf("%s is missing", name))
		default:
			return values[0]
		}
		return ""
	}
	method, uri, host, proto := one(p.method, r.Method), one(p.uri, r.RequestURI), one(p.host, r.Host), one(p.proto, "")
	addr, err := a.trusted.client(r)
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	if a.prefix != "" {
		rest, ok := strings.CutPrefix(uri, a.prefix)
		if !ok {
			return nil, fmt.Errorf("the path %.200q doesn't begin with --path-prefix %s", uri, a.prefix)
		}
		uri = rest
	}
	u, err := url.ParseRequestURI(uri)
	switch {
	case err != nil || uri[0] != '/' && (uri != "*" || method != http.MethodOptions):
		return nil, fmt.Errorf("%s %.200q isn't a path", cmp.Or(p.uri, "the URI"), uri)
	case !token(method):
		return nil, fmt.Errorf("%s %.200q isn't a method", cmp.Or(p.method, "the method"), method)
	case strings.ContainsFunc(host,
		func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`/\@?#,`, c) }):
		return nil, fmt.Errorf("%s %.200q isn't a host", cmp.Or(p.host, "Host"), host)
	}
	client := (&http.Request{
		Method: method, URL: u, RequestURI: uri, Host: host, Header: r.Header.Clone(),
		RemoteAddr: net.JoinHostPort(addr.String(), "0"),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(r.Context())
	for _, name := range forwarding {
		delete(client.Header, name)
	}
	switch proto {
	case "https", "wss":
		client.TLS = &tls.ConnectionState{}
	case "http", "ws":
	default:
		return nil, fmt.Errorf("%s %.200q isn't http or https", p.proto, proto)
	}
	return client, nil
}

// token reports whether s is one, as methods are.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	})
}

// only403 writes a denial as 403, whose real status is in X-Stint-Status: nginx's auth_request makes a 500 of
// other statuses than 2xx, 401 and 403.
type only403 struct{ http.ResponseWriter }

func (w *only403) WriteHeader(status int) {
	if status >= 300 {
		w.Header().Set("X-Stint-Status", strconv.Itoa(status))
		status = http.StatusForbidden
	}
	w.ResponseWriter.WriteHeader(status)
}

// trusted are the networks of proxies.
type trusted struct {
	networks []netip.Prefix
	address  stint.Key // of clients behind them
}

// Private are the networks that are trusted by default: loopback and private ones.
var Private = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"),
}

func newTrusted(networks []netip.Prefix) (*trusted, error) {
	key := stint.IP{Header: "X-Forwarded-For", Trusted: networks, IPv6Bits: 128}.Key()
	if err := stint.Check(stint.Rate(1, 1e9), stint.WithKey(key)); err != nil {
		return nil, fmt.Errorf("--trust: %w", err)
	}
	return &trusted{networks, key}, nil
}

// has reports whether a peer is a proxy.
func (t *trusted) has(peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	for _, p := range t.networks {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// client returns the client's address: the first in X-Forwarded-For, from the right, that isn't a proxy's. If
// all are, it is the leftmost.
func (t *trusted) client(r *http.Request) (netip.Addr, error) {
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 {
		return netip.Addr{}, errors.New("X-Forwarded-For is missing")
	}
	last := lines[len(lines)-1]
	last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
	if !isAddress(last) { // the proxy's own element
		return netip.Addr{}, fmt.Errorf("X-Forwarded-For doesn't end in an address: %.200q", last)
	}
	text, err := t.address.Of(r)
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(strings.TrimSuffix(text, "/128"))
}

// isAddress reports whether an element of X-Forwarded-For is an address, with or without a port.
func isAddress(s string) bool {
	if _, err := netip.ParseAddrPort(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return err == nil
}
