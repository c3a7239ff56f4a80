package serve

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// descriptor is a descriptor of a request of Envoy's rate limit service.
type descriptor struct {
	entries []*ratelimit.RateLimitDescriptor_Entry
	hits    int64 // 0: it only asks

	// In a configuration of envoyproxy/ratelimit:
	rule *rule  // or nil
	key  string // under which it counts
	left bool   // no rule is for it
}

// value returns the value of the first entry of a name.
func (d *descriptor) value(name string) string {
	for _, e := range d.entries {
		if e.GetKey() == name {
			return e.GetValue()
		}
	}
	return ""
}

type descriptorKey struct{}

// descriptorOf returns the descriptor that a limiter's request stands for.
func descriptorOf(r *http.Request) *descriptor {
	d, _ := r.Context().Value(descriptorKey{}).(*descriptor)
	return d
}

// request returns the request that stands for the descriptor. It has a path if the descriptor has one.
func (d *descriptor) request(ctx context.Context) *http.Request {
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}, Body: http.NoBody}
	if d.rule != nil {
		r.URL.Path = d.rule.path()
	} else if path := d.value("path"); path != "" {
		r.URL = urlOf(path)
		r.Host = d.value("host")
		if m := d.value("method"); token(m) {
			r.Method = m
		}
	}
	r.RequestURI = r.URL.RequestURI()
	return r.WithContext(context.WithValue(ctx, descriptorKey{}, d))
}

// urlOf returns the URL of a path, which may have a query. If its escapes are invalid, they are part of the path, so that
// they can't choose which routes apply. A text that isn't a path is "/".
func urlOf(path string) *url.URL {
	u, err := url.ParseRequestURI(path)
	switch literal, query, _ := strings.Cut(path, "?"); {
	case err == nil && strings.HasPrefix(u.Path, "/"):
		return u
	case err != nil && strings.HasPrefix(literal, "/"):
		return &url.URL{Path: literal, RawQuery: query}
	}
	return &url.URL{Path: "/"}
}

// hasPath reports whether routes apply to the descriptor.
func (d *descriptor) hasPath() bool { return d.value("path") != "" }

// Descriptors is how a policy file's keys read descriptors.
var Descriptors = policy.WithDescriptors(policy.Descriptors{
	Key: func(entries []string) stint.Key {
		var parts []stint.Key
		for _, name := range entries {
			parts = append(parts, stint.KeyFunc(func(r *http.Request) (string, error) {
				if d := descriptorOf(r); d != nil {
					return d.value(name), nil
				}
				return "", nil
			}))
		}
		if len(parts) == 1 {
			return parts[0]
		}
		return stint.Join(parts...)
	},
	ChargesAfter: func(r *http.Request) bool {
		d := descriptorOf(r)
		return d != nil && d.hits > 0
	},
})

// hitsCost makes a descriptor cost as many units as it has hits.
var hitsCost = stint.WithCost(func(r *http.Request) int64 {
	if d := descriptorOf(r); d != nil && d.hits > 0 {
		return d.hits
	}
	return 1
})
