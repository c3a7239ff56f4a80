package warn

import (
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keytext"
)

// looks is how many requests of a key source a watch looks at. They are a random half,
// so that consecutive requests aren't always both seen. It is asked for results after
// soon looks, later looks and all of them.
const (
	soon  = 50
	later = 500
	looks = 5000

	// fewAgents is how many User-Agents one client isn't taken to have.
	fewAgents = 5
	// fewClaims is how many requests may have a field of their own as their key: those of
	// a developer, or of a proxy that has just been moved.
	fewClaims = 5
)

// watch looks at a key source's first requests. It keeps no key. It is safe for
// concurrent use without a lock. The zero watch has seen nothing.
type watch struct {
	looked atomic.Uint32
	// The number of keys that contain the caller's port, of requests without a pattern,
	// and of requests through a proxy whose address is the key.
	ported, bare, behind atomic.Uint32
	// The number of keys that a function has made of the peer's address, and of a
	// forwarding header.
	peered, forwarded atomic.Uint32
	// The number of keys that a function has made of a forwarding header alone, which a public
	// address has sent, and of those that stand for no value.
	claimed, missing atomic.Uint32
	// The number of requests through a proxy that names clients in a list, and of those that
	// a silent proxy may have passed on.
	listed, silent atomic.Uint32
	// stands is the last of placeholders that was a key, from 1.
	stands atomic.Uint32
	// field is the last of forwarding that a proxy has named a client in, from 1.
	field atomic.Uint32
	// agents are hashes of different User-Agents of the silent requests.
	agents [fewAgents]atomic.Uint32
	// top is the hash of a key, and how many more requests had it than had others, by
	// the algorithm of Boyer and Moore: at the end it is the key of the majority, if
	// there is one.
	top   atomic.Uint64
	keys  atomic.Pointer[table]
	again atomic.Bool // a key came twice, or there is no room for a table
}

var seed = maphash.MakeSeed()

// peer returns the address of a connection's peer.
var peer = clientip.Remote()

// look looks at a request, its key, and the signs of the key's source. It reports
// whether found should be called.
func (w *watch) look(r *http.Request, key string, of *Source) (ask bool) {
	s := of.signs
	if w.looked.Load() >= looks {
		return false
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	} else if strings.Contains(key, r.RemoteAddr) {
		w.ported.Add(1)
	}
	if r.Pattern == "" {
		w.bare.Add(1)
	}
	from, _ := netip.ParseAddr(host)
	if s&(OfPeer|OfFunction) != 0 {
		w.proxy(r, key, from, of)
	}
	peered := s&OfFunction != 0 && (host != "" && strings.Contains(key, host) || joins(key, peer.Key(r)))
	if peered {
		w.peered.Add(1)
	} else if s&(OfPeer|OfFunction) == OfFunction {
		switch named, alone := forwarded(r, key); {
		case alone && public(from):
			w.claimed.Add(1)
			fallthrough
		case named:
			w.forwarded.Add(1)
		}
	}
	if s&OfFunction != 0 {
		for i, p := range placeholders {
			if joins(key, p) {
				w.missing.Add(1)
				w.stands.Store(uint32(i + 1))
			}
		}
	}
	h := maphash.String(seed, key) | 1 // none is 0, which is no key's
	if !from.IsLoopback() {            // who tries a program out is one client
		w.count(uint32(h >> 32))
	}
	n := w.looked.Add(1)
	if s.byFields() && !peered && n > soon && !w.again.Load() && w.repeats(h) {
		w.forget()
	}
	return n == soon || n == later || n == looks
}

// proxy looks at what a request shows of a proxy: one that names clients, although the key is
// the proxy's address, or one that doesn't, although it passes on those of several programs.
func (w *watch) proxy(r *http.Request, key string, from netip.Addr, of *Source) {
	field := 0
	for i, name := range forwarding {
		lines := r.Header[name]
		if clientip.Names(name, lines, r.RemoteAddr) {
			return // the server has put the client's address into RemoteAddr: it knows of the proxy
		}
		if len(lines) > 0 && field == 0 {
			field = i + 1
		}
	}
	switch own := joins(key, peer.Key(r)); {
	case field > 0 && (own || of.signs&OfPeer != 0 && further(r, key)):
		w.behind.Add(1)
		if w.field.Store(uint32(field)); field <= lists {
			w.listed.Add(1)
		}
	case field == 0 && own && (from.IsLoopback() || of.trusts != nil && of.trusts(r)):
		w.silent.Add(1)
		w.agent(r.UserAgent())
	}
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

// agent records a User-Agent, if there is room.
func (w *watch) agent(name string) {
	if name == "" || w.agents[fewAgents-1].Load() != 0 {
		return
	}
	h := uint32(maphash.String(seed, name)) | 1
	for i := range w.agents {
		if at := &w.agents[i]; at.CompareAndSwap(0, h) || at.Load() == h {
			return
		}
	}
}

// forwarded reports whether a key contains what a request's forwarding headers name first:
// what a client has written, unless a proxy replaces the field. alone says that it is the key,
// or a part of one that stint.Join has made.
func forwarded(r *http.Request, key string) (named, alone bool) {
	for _, name := range forwarding {
		for _, line := range r.Header[name] {
			first, _, _ := strings.Cut(line, ",")
			if first = strings.TrimSpace(first); first != "" && strings.Contains(key, first) {
				return true, joins(key, first)
			}
		}
	}
	return false, false
}

// public reports whether an address is one of the Internet's.
func public(a netip.Addr) bool {
	return a.IsValid() && a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}

// shared is what providers give their own networks.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// placeholders are texts that languages and formats have for a value that isn't there.
var placeholders = [...]string{"<nil>", "%!s(<nil>)", "%!v(<nil>)", "%!d(<nil>)", "null", "undefined", "00000000-0000-0000-0000-000000000000"}

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

func (w *watch) count(h uint32) {
	for {
		was := w.top.Load()
		next := was - 1
		switch {
		case uint32(was>>32) == h:
			next = was + 1
		case uint32(was) == 0:
			next = uint64(h)<<32 | 1
		}
		if w.top.CompareAndSwap(was, next) {
			return
		}
	}
}

// repeats records a key, and reports whether it has come before, or there is no room for
// it.
func (w *watch) repeats(h uint64) bool {
	t := w.keys.Load()
	if t == nil {
		t = newTable()
		if w.keys.CompareAndSwap(nil, t) {
			tables.add(t)
		} else if t = w.keys.Load(); t == nil {
			return true
		}
	}
	return t.repeats(h)
}

// forget drops the keys when they are no longer needed.
func (w *watch) forget() {
	w.again.Store(true)
	if t := w.keys.Swap(nil); t != nil {
		tables.remove(t)
	}
}

// found returns what the looks so far have shown, and whether the watch is over.
func (w *watch) found(s Signs) (found Found, over bool) {
	n := w.looked.Load()
	over = n >= looks
	n = min(n, looks)
	if w.peered.Load() >= n/10*9 && s&OfFunction != 0 {
		s |= OfPeer
	}
	proxy := w.behind.Load() >= n/10*9
	field := ""
	if i := w.field.Load(); proxy && i > 0 && w.listed.Load() == 0 {
		field = forwarding[i-1]
	}
	missing := ""
	if i := w.stands.Load(); i > 0 && w.missing.Load() >= n/10*9 {
		missing = placeholders[i-1]
	}
	claimed := w.claimed.Load() >= fewClaims && w.peered.Load() >= fewClaims
	found = Found{
		Claimed:    claimed,
		Missing:    missing,
		Field:      field,
		Silent:     over && w.silent.Load() >= n/2 && w.agents[fewAgents-1].Load() != 0,
		Forwarding: claimed || w.forwarded.Load() >= n/10*9,
		Port:       w.ported.Load() >= n,
		Proxy:      proxy,
		Bare:       s&OfPattern != 0 && w.bare.Load() >= n,
		Unique:     over && s.byFields() && !w.again.Load(),
		Single:     over && s&(OfPeer|OfField) != 0 && !proxy && uint32(w.top.Load()) >= n/100*98,
	}
	if over {
		w.forget()
	}
	return found, over
}
