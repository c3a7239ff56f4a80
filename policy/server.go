package policy

import (
	"go.yaml.in/yaml/v4"
)

// WithServer makes mistakes of the parts of a file that a server for proxies, such as stint serve, can't
// apply: it doesn't see the response or the end of a request, and has no functions of an application.
// These parts are concurrency, adaptive-concurrency, bandwidth, settle, plans, and the keys given and pattern.
func WithServer() Option {
	return option(func(c *config) { c.server = true })
}

// unserved are the fields that a server for proxies can't apply, and why.
var unserved = map[string]string{
	"concurrency":          "nothing would release its slots: a server for proxies doesn't see the end of a request; leave it out, and limit concurrency in the backend",
	"adaptive-concurrency": "nothing would release its slots: a server for proxies doesn't see the end of a request; leave it out, and limit concurrency in the backend",
	"bandwidth":            "a server for proxies doesn't see the bytes of a response: leave it out, and limit bandwidth in the proxy",
	"settle":               "a server for proxies doesn't see the response: its own answer would count instead; leave it out, and settle in the backend",
	"plans":                "a server for proxies has no function that returns a request's plan: write limits, with a key for each",
	"pattern":              "a proxy's request has no pattern of a router: write routes, whose limits have counts of their own",
	"given":                "a proxy's request has no given key: write another, such as {header: X-API-Key} or remote-ip",
}

// checkServed reports a field that a server for proxies can't apply.
func (d *decoder) checkServed(n *yaml.Node, field string) {
	if why := unserved[field]; d.config.server && why != "" {
		d.bad(n, "%s: %s", field, why)
	}
}
