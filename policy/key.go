package policy

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// namedKey is an entry of keys. It is read when first needed, because keys may refer to
// each other.
type namedKey struct {
	value   *yaml.Node
	reading bool
	done    bool
	key     stint.Key
}

// keyWords are the keys that consist of a name only.
var keyWords = map[string]func() stint.Key{
	"given":     stint.GivenKey,
	"global":    stint.Global,
	"method":    stint.Method,
	"pattern":   stint.Pattern,
	"remote-ip": stint.RemoteIP,
}

const keyExample = `remote-ip, {forwarded-ip: {trusted: [10.0.0.0/8]}} or {header: X-API-Key}`

// listFields are the forms for header fields that proxies append to.
var listFields = map[string]string{"x-forwarded-for": "forwarded-ip", "forwarded": "forwarded-header-ip"}

// keyForms are the keys that take a value. It is a function because some contain keys.
func keyForms() []field[stint.Key] {
	return []field[stint.Key]{
		{"remote-ip", address("", false)},
		{"forwarded-ip", address("X-Forwarded-For", false)},
		{"forwarded-header-ip", address("Forwarded", false)},
		{"single-ip-header", address("", true)},
		{"header", func(d *decoder, n *yaml.Node, to *stint.Key) {
			name, ok := d.text(n, "a header field", "its name, such as X-API-Key")
			switch {
			case !ok:
			case strings.EqualFold(name, "Host"):
				d.bad(n, "Host isn't among the header fields of Go's requests: register a key with policy.WithKey, and write its name")
			case listFields[strings.ToLower(name)] != "":
				d.bad(n, "a client can write anything into this field: write {%s: {trusted: [...]}} with the addresses of your proxies", listFields[strings.ToLower(name)])
			default:
				*to = d.checkedKey(n, "header", stint.Header(name))
			}
		}},
		{"cookie", func(d *decoder, n *yaml.Node, to *stint.Key) {
			if name, ok := d.text(n, "a cookie", "its name, such as session"); ok {
				*to = d.checkedKey(n, "cookie", stint.Cookie(name))
			}
		}},
		{"join", func(d *decoder, n *yaml.Node, to *stint.Key) {
			parts, ok := d.list(n, "join", "[{header: X-Tenant}, pattern]")
			if ok && len(parts) == 0 {
				d.bad(n, "join is empty: write keys, such as [{header: X-Tenant}, pattern]")
				ok = false
			}
			if all, valid := d.keyParts(parts); ok && valid {
				*to = d.checkedKey(n, "join", stint.Join(all...))
			}
		}},
		{"first-of", func(d *decoder, n *yaml.Node, to *stint.Key) {
			parts, ok := d.list(n, "first-of", "[{header: X-API-Key}, remote-ip]")
			if ok && len(parts) == 0 {
				d.bad(n, "first-of is empty: write keys, such as [{header: X-API-Key}, remote-ip]")
				ok = false
			}
			if all, valid := d.keyParts(parts); ok && valid {
				*to = d.checkedKey(n, "first-of", stint.FirstOf(all...))
			}
		}},
		{"descriptor", func(d *decoder, n *yaml.Node, to *stint.Key) { d.descriptor(n, to) }},
		{"hash", func(d *decoder, n *yaml.Node, to *stint.Key) {
			k := d.key(n)
			switch {
			case d.config.secret == nil && d.config.server:
				d.bad(n, "hash needs a secret, which doesn't belong in a file: give --secret-file")
			case d.config.secret == nil:
				d.bad(n, "hash needs a secret, which doesn't belong in a file: set it with policy.WithSecret")
			case k != noKey:
				*to = d.checkedKey(n, "hash", stint.Hash(d.config.secret, k))
			}
		}},
	}
}

// formExamples has a value for each of the keyForms that can't be a word.
var formExamples = map[string]string{
	"forwarded-ip":        "{trusted: [10.0.0.0/8]}",
	"forwarded-header-ip": "{trusted: [10.0.0.0/8]}",
	"single-ip-header":    "{name: X-Real-IP, trusted: [10.0.0.0/8]}",
	"header":              "X-API-Key",
	"cookie":              "session",
	"join":                "[{header: X-Tenant}, pattern]",
	"first-of":            "[{header: X-API-Key}, remote-ip]",
	"hash":                "{cookie: session}",
	"descriptor":          "[remote_address]",
}

// noKey is the zero Key: the result for a key with a mistake.
var noKey stint.Key

// keyParts reads the parts of a key. valid is false after an error.
func (d *decoder) keyParts(nodes []*yaml.Node) (all []stint.Key, valid bool) {
	valid = true
	for _, n := range nodes {
		k := d.key(n)
		valid = valid && k != noKey
		all = append(all, k)
	}
	return all, valid
}

// key reads a key: a word, a name, or a mapping with a single form. It returns noKey after
// an error.
func (d *decoder) key(n *yaml.Node) stint.Key {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		return d.keyByName(n)
	}
	values, ok := d.mapping(n, "a key", keyExample)
	if !ok {
		return noKey
	}
	if len(values) != 1 {
		d.bad(n, "a key must have one form, and this has %d: write one, such as %s; to key on several things at once, {join: [...]}", len(values), keyExample)
		return noKey
	}
	if word := values[0].key; d.isName(word.Value) && !slices.Contains(names(keyForms()), word.Value) {
		d.bad(word, "the key %q takes no value: write it alone, as in key: %s", word.Value, word.Value)
		return noKey
	}
	d.checkServed(n, values[0].key.Value)
	var k stint.Key
	if !object(d, n, "a key", keyExample, keyForms(), &k) {
		return noKey
	}
	return k
}

// keyByName returns the key with that name: one of keyWords, of the file's keys, or of
// those registered in Go.
func (d *decoder) keyByName(n *yaml.Node) stint.Key {
	name := n.Value
	if named := d.namedKeys[name]; named != nil {
		switch {
		case named.reading:
			d.bad(n, "the key %q refers to itself: write another", name)
		case !named.done:
			named.reading = true
			named.key = d.key(named.value)
			named.reading, named.done = false, true
		}
		return named.key
	}
	k := d.config.keys[name]
	if word := keyWords[name]; word != nil {
		d.checkServed(n, name)
		k = word()
	}
	if k == noKey {
		candidates := slices.Concat(slices.Collect(maps.Keys(keyWords)), slices.Collect(maps.Keys(d.namedKeys)),
			slices.Collect(maps.Keys(d.config.keys)))
		slices.Sort(candidates)
		what := suggestion(name, candidates)
		if nearest(name, candidates) == "" {
			what += ", or a form such as {header: X-API-Key}"
		}
		if value, isForm := formExamples[name]; isForm {
			d.bad(n, "the key %q needs a value: write it, as in {%[1]s: %s}", name, value)
			return noKey
		}
		d.unknown(n, "unknown key %q: %s; keys of the application are registered with policy.WithKey", name, what)
	}
	return k
}

// isName reports whether a key has that name.
func (d *decoder) isName(name string) bool {
	return keyWords[name] != nil || d.namedKeys[name] != nil || d.config.keys[name] != noKey
}

// keys reads the names that the file gives to keys.
func (d *decoder) keys(n *yaml.Node) {
	values, _ := d.mapping(n, "keys", "{client: {header: X-API-Key}}")
	for _, v := range values {
		name := v.key.Value
		switch {
		case name == "":
			d.bad(v.key, "a key without a name: write one, such as client")
		case keyWords[name] != nil || slices.Contains(names(keyForms()), name):
			d.bad(v.key, "%q is a key already: write another name", name)
		case d.config.keys[name] != noKey:
			d.bad(v.key, "%q is registered with policy.WithKey: write another name", name)
		default:
			d.namedKeys[name] = &namedKey{value: v.value}
		}
	}
	// All are read, whether used or not: a mistake must not wait until its first use.
	for _, v := range values {
		if named := d.namedKeys[v.key.Value]; named != nil && !named.done {
			d.keyByName(v.key)
		}
	}
}

// checkedKey returns k, or noKey if New would reject it.
func (d *decoder) checkedKey(n *yaml.Node, form string, k stint.Key) stint.Key {
	if d.rejects(n, form, probe, stint.WithKey(k)) {
		return noKey
	}
	return k
}

// addressFields are the fields of the forms that identify a client by its address.
var addressFields = []field[addressKey]{
	{"name", func(d *decoder, n *yaml.Node, to *addressKey) {
		to.name = n
		if name, ok := d.text(n, "a header field", "its name, such as CF-Connecting-IP"); ok {
			to.ip.Header = name
		} else {
			to.failed = true
		}
	}},
	{"trusted", func(d *decoder, n *yaml.Node, to *addressKey) {
		to.ip.Trusted = d.networks(n, "trusted")
		to.failed = to.failed || to.ip.Trusted == nil
	}},
	{"trust-unix", func(d *decoder, n *yaml.Node, to *addressKey) {
		var ok bool
		to.ip.TrustUnix, ok = d.boolean(n, "trust-unix")
		to.failed = to.failed || !ok
	}},
	{"ipv6-bits", func(d *decoder, n *yaml.Node, to *addressKey) {
		bits, ok := d.integer(n, "ipv6-bits", 48)
		if ok && bits > 128 {
			d.bad(n, "%d bits of an IPv6 address: write 48 to 128", bits)
			ok = false
		}
		to.ip.IPv6Bits = int(bits)
		to.failed = to.failed || !ok
	}},
}

type addressKey struct {
	ip     stint.IP
	name   *yaml.Node
	failed bool
}

// addressFieldsOf returns the addressFields that a form has.
func addressFieldsOf(header string, single bool) []field[addressKey] {
	switch {
	case single:
		return addressFields
	case header == "":
		return addressFields[3:]
	}
	return addressFields[1:]
}

// address reads the value of a form that identifies a client by its address: from the
// header field given, from the one that the file names, or from the connection.
func address(header string, single bool) func(*decoder, *yaml.Node, *stint.Key) {
	example := "{trusted: [10.0.0.0/8]}"
	switch {
	case single:
		example = "{name: CF-Connecting-IP, trusted: [10.0.0.0/8]}"
	case header == "":
		example = "{ipv6-bits: 56}"
	}
	return func(d *decoder, n *yaml.Node, to *stint.Key) {
		k := addressKey{ip: stint.IP{Header: header}}
		if !object(d, n, "a key by address", example, addressFieldsOf(header, single), &k) || k.failed {
			return
		}
		if single {
			switch {
			case k.name == nil:
				d.bad(n, "no header field: write its name, such as %s", example)
				return
			case http.CanonicalHeaderKey(k.ip.Header) == "X-Forwarded-For":
				d.bad(k.name, "%s is a list: write {forwarded-ip: {trusted: [...]}}", k.ip.Header)
				return
			case http.CanonicalHeaderKey(k.ip.Header) == "Forwarded":
				d.bad(k.name, "%s is a list: write {forwarded-header-ip: {trusted: [...]}}", k.ip.Header)
				return
			}
		}
		*to = d.checkedKey(n, "a key by address", k.ip.Key())
	}
}

// networks reads networks in CIDR notation, and single addresses as networks of one
// address. It returns nil after an error.
func (d *decoder) networks(n *yaml.Node, what string) []netip.Prefix {
	items, ok := d.list(n, what, "[10.0.0.0/8, 2001:db8::/32]")
	if !ok {
		return nil
	}
	if len(items) == 0 {
		d.bad(n, "%s names no network: write some, such as [10.0.0.0/8]", what)
	}
	var all []netip.Prefix
	for _, item := range items {
		p, err := netip.ParsePrefix(item.Value)
		if addr, single := netip.ParseAddr(item.Value); err != nil && single == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil || item.Kind != yaml.ScalarNode {
			d.bad(item, "%.80q isn't a network: write one such as 10.0.0.0/8, or an address", item.Value)
			ok = false
			continue
		}
		all = append(all, p)
	}
	if !ok {
		return nil
	}
	return all
}
