// Package keysample samples the first requests that have a key, for signs that the key isn't what its
// author meant. It reports facts; package mistakes makes likely mistakes of them.
package keysample

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
	// early is how many requests are examined for an address as the key.
	early = 100
	// size is how many requests are examined.
	size = 10_000
	// mostKept bounds the memory of a sample. A key that changes with each request is as likely to
	// differ from the first of them as from all.
	mostKept = 1000
)

// Sample examines the first requests that have a key, over all callers. It keeps no key, and a hash
// of some until one of them comes again. It is safe for concurrent use. The zero Sample examines
// nothing.
type Sample struct {
	open  atomic.Bool // it takes requests
	signs Signs

	mu      sync.Mutex
	notify  func() // nil until Start
	first   int    // requests examined for a key at all, up to early
	missing int    // those without one
	n       int    // requests with a key examined
	proxied int    // those with the address of a proxy as their key
	port    bool   // the key of some contains the port of their peer
	// majority is the hash of a key, and votes how many more requests had it than had others, by the
	// algorithm of Boyer and Moore: in the end it is the key of the majority, if there is one.
	majority uint64
	votes    int
	kept     map[uint64]bool // hashes of the first keys, until one has come twice
	repeated bool            // one has come twice
}

// New returns the sample of a key with these signs. It takes no request until Start.
func New(s Signs) *Sample { return &Sample{signs: s} }

// Start opens the sample, if requests can show something and it hasn't been started before. notify is
// called, on a goroutine of its own, when Findings may return something new.
func (s *Sample) Start(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signs != 0 && s.notify == nil {
		s.notify = notify
		s.open.Store(true)
	}
}

// Open reports whether the sample takes requests.
func (s *Sample) Open() bool { return s.open.Load() }

// Add examines a request and its key. No request waits for another: it is left out instead.
func (s *Sample) Add(r *http.Request, key string) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.n == size {
		return
	}
	if s.first < early {
		s.first++
		if key == "" {
			s.missing++
		}
		if s.first == early && s.mostMiss() {
			go s.notify()
		}
	}
	if key == "" {
		return
	}
	s.n++
	news := s.n == early || s.n == size
	if s.n <= early {
		news = s.examineAddress(r, key) || news
	}
	hash := maphash.String(seed, key)
	s.vote(hash, s.signs&OfPattern != 0 && r.Pattern != "")
	if s.signs&(OfPeer|OfForwarded) == 0 { // a service may see each address once
		s.keep(hash)
	}
	if s.n == size {
		s.open.Store(false)
	}
	if news {
		go s.notify()
	}
}

// mostMiss reports whether nine tenths of the first requests have no key.
func (s *Sample) mostMiss() bool { return s.first == early && s.missing >= early/10*9 }

// examineAddress examines the address in a key. It reports whether there is a new finding.
func (s *Sample) examineAddress(r *http.Request, key string) (news bool) {
	if s.signs&OfFunction != 0 && !s.port && portIn(r, key) {
		s.port, news = true, true
	}
	if s.signs&(OfPeer|OfFunction) != 0 && ofProxy(r, key) {
		s.proxied++
	}
	return news
}

var seed = maphash.MakeSeed()

// vote counts a key for or against the majority. The key of a request's pattern only counts against
// it: a service may have a single route.
func (s *Sample) vote(hash uint64, ofPattern bool) {
	switch {
	case !ofPattern && hash == s.majority:
		s.votes++
	case s.votes > 0:
		s.votes--
	case !ofPattern:
		s.majority, s.votes = hash, 1
	}
}

// keep finds out whether a key comes twice.
func (s *Sample) keep(hash uint64) {
	switch {
	case s.repeated:
	case s.kept[hash]:
		s.kept, s.repeated = nil, true
	case len(s.kept) < mostKept:
		if s.kept == nil {
			s.kept = map[uint64]bool{}
		}
		s.kept[hash] = true
	}
}

// Findings is a set of what a key, and the requests examined so far, have shown.
type Findings uint8

const (
	// Forwarding: the key is a forwarding header, which any client can write.
	Forwarding Findings = 1 << iota
	// Port: the key contains the caller's port.
	Port
	// Proxy: the key is the address of a proxy, through which most requests come.
	Proxy
	// NeverRepeats: no key came twice, for another reason than its port.
	NeverRepeats
	// OneKey: almost all requests have the same key.
	OneKey
	// Missing: nine tenths of the first requests have no key.
	Missing
)

// Findings returns the findings so far.
func (s *Sample) Findings() (all Findings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signs&OfForwarded != 0 {
		all |= Forwarding
	}
	if s.port {
		all |= Port
	}
	if s.mostMiss() {
		all |= Missing
	}
	proxy := s.n >= early && s.proxied >= early/10*9
	if proxy {
		all |= Proxy
	}
	if s.n < size {
		return all
	}
	if s.kept != nil && !s.port {
		all |= NeverRepeats
	}
	if !proxy && s.votes >= size/100*98 {
		all |= OneKey
	}
	return all
}

// portIn reports whether a key contains the address and port of a request's peer.
func portIn(r *http.Request, key string) bool {
	_, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && strings.Contains(key, r.RemoteAddr)
}

// forwardingFields are those in which proxies name the client.
var forwardingFields = [...]string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Cluster-Client-Ip", "X-Azure-Clientip",
	"X-Envoy-External-Address", "Cf-Connecting-Ipv6", "X-Appengine-User-Ip", "X-Original-Forwarded-For",
}

// peer returns the address of a connection's peer.
var peer = clientip.Remote()

// ofProxy reports whether a request came through a proxy that names the client, and the key is the
// proxy's address, or that of another proxy in X-Forwarded-For.
func ofProxy(r *http.Request, key string) bool {
	named := false
	for _, name := range forwardingFields {
		lines := r.Header[name]
		if clientip.NamePeer(name, lines, r.RemoteAddr) {
			return false // the server has put the client's address into RemoteAddr: it knows of the proxy
		}
		named = named || len(lines) > 0
	}
	return named && (contains(key, peer.Key(r)) || inForwardedFor(r, key))
}

// inForwardedFor reports whether a key is an address of X-Forwarded-For that isn't the leftmost one: it
// is then a proxy's, or the client has written the addresses before it.
func inForwardedFor(r *http.Request, key string) bool {
	lines := r.Header["X-Forwarded-For"]
	if len(lines) != 1 {
		return false
	}
	_, rest, found := strings.Cut(lines[0], ",")
	for found {
		var address string
		if address, rest, found = strings.Cut(rest, ","); contains(key, strings.TrimSpace(address)) {
			return true
		}
	}
	return false
}

// contains reports whether a key equals part, or is made of it by stint.Join or stint.FirstOf.
func contains(key, part string) bool {
	if key = keytext.Chosen(key); key == part {
		return true
	}
	found := false
	for key != "" {
		first, rest, ok := keytext.Cut(key)
		if !ok {
			return false // stint.Join hasn't made it
		}
		found = found || contains(first, part)
		key = rest
	}
	return found
}
