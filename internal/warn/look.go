// Package warn finds signs that a key isn't what its author meant: in what it consists of, and in the
// first requests that have it. It also recognizes limiters that are built again and again. It reports
// facts; package stint makes warnings of them.
package warn

import (
	"hash/maphash"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keytext"
)

const (
	// soon is how many requests are looked at for an address as the key.
	soon = 100
	// looks is how many requests are looked at.
	looks = 10_000
	// mostKept bounds the memory of a look. A key that changes with each request is as likely to
	// differ from the first of them as from all.
	mostKept = 1000
)

// Look looks at the first requests that have a key, over all callers. It keeps no key, and a hash
// of some until one of them comes again. It is safe for concurrent use. The zero Look looks at
// nothing.
type Look struct {
	open  atomic.Bool // it looks at requests
	signs Signs

	mu    sync.Mutex
	ask   func() // nil until Begin
	n     int    // requests looked at
	proxy int    // those with the address of a proxy as their key
	port  bool   // the key of some contains the port of their peer
	// top is the hash of a key, and lead how many more requests had it than had others, by the
	// algorithm of Boyer and Moore: in the end it is the key of the majority, if there is one.
	top  uint64
	lead int
	kept map[uint64]bool // hashes of the first keys, until one has come twice
	same bool            // one has
}

// NewLook returns the Look at a key with these signs. It looks at nothing until Begin.
func NewLook(s Signs) *Look { return &Look{signs: s} }

// Begin begins to look at requests, if they can show something, and if that wasn't begun before. ask
// is called, on a goroutine of its own, when Found may return something new.
func (l *Look) Begin(ask func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signs != 0 && l.ask == nil {
		l.ask = ask
		l.open.Store(true)
	}
}

// Open reports whether requests are looked at.
func (l *Look) Open() bool { return l.open.Load() }

// See looks at a request and its key. No request waits for another: it isn't looked at then.
func (l *Look) See(r *http.Request, key string) {
	if key == "" || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if l.n == looks {
		return
	}
	l.n++
	ask := l.n == soon || l.n == looks
	if l.n <= soon {
		ask = l.address(r, key) || ask
	}
	h := maphash.String(seed, key)
	l.count(h, l.signs&OfPattern != 0 && r.Pattern != "")
	if l.signs&(OfPeer|OfForwarded) == 0 { // a service may see each address once
		l.keep(h)
	}
	if l.n == looks {
		l.open.Store(false)
	}
	if ask {
		go l.ask()
	}
}

// address looks at the address in a key. It reports whether that has shown something.
func (l *Look) address(r *http.Request, key string) (ask bool) {
	if l.signs&OfFunction != 0 && !l.port && portIn(r, key) {
		l.port, ask = true, true
	}
	if l.signs&(OfPeer|OfFunction) != 0 && ofProxy(r, key) {
		l.proxy++
	}
	return ask
}

var seed = maphash.MakeSeed()

// count counts a key. One of the request's pattern is apart: a service may have a single route.
func (l *Look) count(h uint64, apart bool) {
	switch {
	case !apart && h == l.top:
		l.lead++
	case l.lead > 0:
		l.lead--
	case !apart:
		l.top, l.lead = h, 1
	}
}

// keep finds out whether a key comes twice.
func (l *Look) keep(h uint64) {
	switch {
	case l.same:
	case l.kept[h]:
		l.kept, l.same = nil, true
	case len(l.kept) < mostKept:
		if l.kept == nil {
			l.kept = map[uint64]bool{}
		}
		l.kept[h] = true
	}
}

// Found is a set of what a key, and the requests looked at so far, have shown.
type Found uint8

const (
	// Forwarding: the key is a forwarding header, which any client can write.
	Forwarding Found = 1 << iota
	// Port: the key contains the caller's port.
	Port
	// Proxy: the key is the address of a proxy, through which most requests come.
	Proxy
	// NeverRepeats: no key came twice, for another reason than its port.
	NeverRepeats
	// OneKey: almost all requests have the same key.
	OneKey
)

// Found returns what was found so far.
func (l *Look) Found() (all Found) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signs&OfForwarded != 0 {
		all |= Forwarding
	}
	if l.port {
		all |= Port
	}
	proxy := l.n >= soon && l.proxy >= soon/10*9
	if proxy {
		all |= Proxy
	}
	if l.n < looks {
		return all
	}
	if l.kept != nil && !l.port {
		all |= NeverRepeats
	}
	if !proxy && l.lead >= looks/100*98 {
		all |= OneKey
	}
	return all
}

// portIn reports whether a key contains the address and port of a request's peer.
func portIn(r *http.Request, key string) bool {
	_, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && strings.Contains(key, r.RemoteAddr)
}

// forwarding are the fields in which proxies name the client.
var forwarding = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Azure-Clientip",
	"X-Envoy-External-Address", "Cf-Connecting-Ipv6", "X-Appengine-User-Ip", "X-Original-Forwarded-For",
}

// peer returns the address of a connection's peer.
var peer = clientip.Remote()

// ofProxy reports whether a proxy that names a request's client has its own address as the key, or
// another proxy's that it names.
func ofProxy(r *http.Request, key string) bool {
	named := false
	for _, name := range forwarding {
		lines := r.Header[name]
		if clientip.Names(name, lines, r.RemoteAddr) {
			return false // the server has put the client's address into RemoteAddr: it knows of the proxy
		}
		named = named || len(lines) > 0
	}
	return named && (joins(key, peer.Key(r)) || further(r, key))
}

// further reports whether a key is an address of X-Forwarded-For, and addresses stand to the
// left of it: the key is then that of a proxy, or the client has written those.
func further(r *http.Request, key string) bool {
	lines := r.Header["X-Forwarded-For"]
	if len(lines) != 1 {
		return false
	}
	_, rest, found := strings.Cut(lines[0], ",")
	for found {
		var address string
		if address, rest, found = strings.Cut(rest, ","); joins(key, strings.TrimSpace(address)) {
			return true
		}
	}
	return false
}

// joins reports whether a key is a part, or stint.Join or stint.FirstOf has made it of that
// part.
func joins(key, part string) bool {
	if key = keytext.Chosen(key); key == part {
		return true
	}
	found := false
	for key != "" {
		first, rest, ok := keytext.Cut(key)
		if !ok {
			return false // no key of Join's
		}
		found = found || joins(first, part)
		key = rest
	}
	return found
}
