package policy

import (
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// WithServer rejects the parts of a file that a server for proxies, such as stint serve, can't apply, because the
// server doesn't see the response or the end of a request, and has no functions of an application. These parts are
// concurrency, adaptive-concurrency, bandwidth, settle, plans, and the keys given and pattern.
func WithServer() Option {
	return option(func(c *config) { c.server = true })
}

// WithGivenKeys lets a file use the key "given" even with WithServer, because the clients of the server pass the
// keys. By default, WithServer rejects that key.
func WithGivenKeys() Option {
	return option(func(c *config) { c.givenKeys = true })
}

// Descriptors says how a server answers Envoy's rate limit service, whose requests are lists of named
// values, called descriptors.
type Descriptors struct {
	// Key returns the key of {descriptor: [...]}: the values of these entries, or an empty key if the
	// descriptor lacks one of them.
	Key func(entries []string) stint.Key
	// ChargesAfter reports whether a limit with after: true is left out of a request, because the server
	// charges it after the request's decision.
	ChargesAfter func(*http.Request) bool
}

// WithDescriptors lets a file have limits for Envoy's rate limit service. Such a file has a domain. Its limits have
// keys by descriptor, or global, and don't apply to descriptors that lack an entry of the key. The rules of
// WithServer apply to it. Without this option, a domain is a mistake.
func WithDescriptors(s Descriptors) Option {
	return option(func(c *config) {
		if s.Key == nil || s.ChargesAfter == nil {
			c.bad("WithDescriptors: a function is nil: pass both")
			return
		}
		c.descriptors = &s
	})
}

// Domain returns the domain of a file for Envoy's rate limit service, or "".
func (p *Policy) Domain() string { return p.domain }

// WithoutRoutes returns the options of a file with a domain, without its routes. They are for
// descriptors that have no path. WithoutRoutes returns nil if all limits of the file are in
// routes.
func (p *Policy) WithoutRoutes() []stint.Option { return slices.Clone(p.base) }

// After returns the names of the limits with after: true.
func (p *Policy) After() []string { return slices.Clone(p.after) }

// unserved are the fields that a server for proxies can't apply, and why.
var unserved = map[string]string{
	"concurrency":          "nothing would release its slots: a server for proxies doesn't see the end of a request; leave it out, and limit concurrency in the backend",
	"adaptive-concurrency": "nothing would release its slots: a server for proxies doesn't see the end of a request; leave it out, and limit concurrency in the backend",
	"bandwidth":            "a server for proxies doesn't see the bytes of a response: leave it out, and limit bandwidth in the proxy",
	"settle":               "a server for proxies doesn't see the backend's response: leave it out, and settle in the backend",
	"plans":                "a server for proxies has no function that returns a request's plan: write limits, with a key for each",
	"pattern":              "a proxy's request has no pattern of a router: write routes, whose limits have counts of their own",
	"given":                "a proxy's request has no given key: write another, such as {header: X-API-Key} or remote-ip",
}

const notInDescriptors = "a descriptor has neither addresses nor header fields: write {descriptor: [...]} with the names of its entries, such as remote_address"

// undescribed are the fields that don't go with a domain, and why.
var undescribed = map[string]string{
	"cost":      "the hits_addend of the proxy's request is the cost of a descriptor: leave it out",
	"empty-key": "a limit doesn't apply to a descriptor that lacks an entry of its key: leave it out",
	"skip":      notInDescriptors,
	"block":     notInDescriptors,
	"remote-ip": notInDescriptors, "forwarded-ip": notInDescriptors, "forwarded-header-ip": notInDescriptors,
	"single-ip-header": notInDescriptors, "header": notInDescriptors, "cookie": notInDescriptors,
	"method": notInDescriptors,
}

// checkServed reports a field or a key that a server for proxies can't apply.
func (d *decoder) checkServed(n *yaml.Node, field string) {
	why := ""
	if d.domain != "" {
		why = undescribed[field]
	}
	if why == "" && (d.config.server || d.domain != "") && !(field == "given" && d.config.givenKeys && d.domain == "") {
		why = unserved[field]
	}
	if why != "" {
		d.bad(n, "%s: %s", field, why)
	}
}

// domainName is the field domain.
func (d *decoder) domainName(n *yaml.Node) {
	name, ok := d.text(n, "domain", "the domain of Envoy's rate limit filter, such as shop")
	switch {
	case !ok:
	case d.config.descriptors == nil:
		d.bad(n, "domain is for stint serve, which answers Envoy's rate limit service: leave it out")
	default:
		d.domain = name
	}
}

// descriptor reads the value of {descriptor: [...]}.
func (d *decoder) descriptor(n *yaml.Node, to *stint.Key) {
	items, ok := d.list(n, "descriptor", "[generic_key, remote_address]")
	if ok && len(items) == 0 {
		d.bad(n, "descriptor names no entry: write some, such as [generic_key, remote_address]")
		return
	}
	var entries []string
	for _, item := range items {
		name, good := d.text(item, "an entry of a descriptor", "its name, such as remote_address")
		if good && slices.Contains(entries, name) {
			d.bad(item, "the entry %q is listed twice: leave one out", name)
			good = false
		}
		entries, ok = append(entries, name), ok && good
	}
	switch {
	case !ok:
	case d.domain == "":
		d.bad(n, "descriptor is for Envoy's rate limit service: write domain: and its name at the top, or another key")
	default:
		*to = d.checkedKey(n, "descriptor", d.config.descriptors.Key(entries))
	}
}

// afterField is the field after of a limit.
func (d *decoder) afterField(n *yaml.Node, l *limit) {
	switch on, ok := d.boolean(n, "after"); {
	case !ok:
	case !on:
		d.bad(n, "after: false says nothing: leave it out")
	case d.domain == "":
		d.bad(n, "after is for Envoy's rate limit service: write domain: and its name at the top, or leave it out")
	default:
		l.after = true
		addSetting(&l.settings, "after", n, stint.WithSkip(d.config.descriptors.ChargesAfter))
	}
}
