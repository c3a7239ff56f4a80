package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// What a server for proxies can't apply is a mistake with its line, and nothing else is.
func TestServer(t *testing.T) {
	const file = `version: 1
key: remote-ip
settle: failed-only
limits:
  - {name: slots, concurrency: 3}
  - {name: adaptive, adaptive-concurrency: 1-9}
  - {name: bytes, bandwidth: 1MB/s}
  - {name: jobs, rate: 1/1s, key: given}
  - {name: each, rate: 1/1s, key: {join: [pattern, remote-ip]}}
  - {name: hashed, rate: 1/1s, key: {hash: {cookie: session}}}
routes:
  POST /login: {limits: [{name: login, rate: 1/1s, settle: {refund-on: [304]}}]}
plans:
  free: {limits: [{name: free, rate: 1/1s}]}
`
	_, err := policy.Parse("p.yaml", []byte(file), policy.WithServer())
	var all policy.Errors
	if !errors.As(err, &all) {
		t.Fatalf("%v, want mistakes", err)
	}
	wants := []string{
		"p.yaml:3:9: settle: a server for proxies doesn't see the backend's response",
		"p.yaml:5:32: concurrency: nothing would release its slots",
		"p.yaml:6:44: adaptive-concurrency: nothing would release its slots",
		"p.yaml:7:30: bandwidth: a server for proxies doesn't see the bytes",
		"p.yaml:8:35: given: a proxy's request has no given key",
		"p.yaml:9:43: pattern: a proxy's request has no pattern",
		"p.yaml:10:44: hash needs a secret, which doesn't belong in a file: give --secret-file",
		"p.yaml:12:60: settle: a server for proxies doesn't see the backend's response",
		"p.yaml:14:3: plans: a server for proxies has no function that returns a request's plan",
	}
	if len(all) != len(wants) {
		t.Errorf("%d mistakes, want %d: %v", len(all), len(wants), err)
	}
	for i, want := range wants {
		if i < len(all) && !strings.HasPrefix(all[i].Error(), want) {
			t.Errorf("mistake %d is %q, want %q", i+1, all[i], want)
		}
	}

	_, err = policy.Parse("p.yaml", []byte(file), policy.WithServer(), policy.WithGivenKeys())
	if !errors.As(err, &all) || len(all) != len(wants)-1 || strings.Contains(err.Error(), "given:") {
		t.Errorf("WithGivenKeys: %v", err)
	}

	const served = "version: 1\nkey: {hash: remote-ip}\nlimits: [{name: a, rate: 1/1s, max-wait: 1s}, {ban: 3/1m, for: 1h}]\nroutes: {GET /healthz: {exempt: true}}\n"
	if _, err := policy.Parse("p.yaml", []byte(served), policy.WithServer(), policy.WithSecret(secret)); err != nil {
		t.Error(err)
	}
}

type entriesKey struct{}

// descriptors read entries from a request's context.
var descriptors = policy.WithDescriptors(policy.Descriptors{
	Key: func(entries []string) stint.Key {
		return stint.KeyFunc(func(r *http.Request) (string, error) {
			all, _ := r.Context().Value(entriesKey{}).(map[string]string)
			key := ""
			for _, name := range entries {
				if all[name] == "" {
					return "", nil
				}
				key += all[name] + "/"
			}
			return key, nil
		})
	},
	ChargesAfter: func(*http.Request) bool { return true },
})

const shopDomain = `version: 1
domain: shop
limits:
  - {name: client, rate: 1/1h, key: {descriptor: [remote_address]}}
  - {name: pair, rate: 1/1h, key: {descriptor: [generic_key, remote_address]}}
  - {name: tokens, quota: 10/daily, after: true, key: {descriptor: [user]}}
  - {name: all, rate: 3/1h, key: global}
`

// A limit applies to the descriptors that have the entries of its key.
func TestDescriptors(t *testing.T) {
	p, err := policy.Parse("p.yaml", []byte(shopDomain), descriptors)
	if err != nil {
		t.Fatal(err)
	}
	if p.Domain() != "shop" || !slices.Equal(p.After(), []string{"tokens"}) {
		t.Errorf("the domain is %q, after are %q", p.Domain(), p.After())
	}
	l, err := stint.New(p.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		entries map[string]string
		want    string // the limits
	}{
		{map[string]string{"remote_address": "192.0.2.7"}, "[client all]"},
		{map[string]string{"remote_address": "192.0.2.7", "generic_key": "k"}, "[client pair all]"},
		{map[string]string{"user": "ada"}, "[all]"},
		{nil, "[all]"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		d, err := l.PeekRequest(r.WithContext(context.WithValue(r.Context(), entriesKey{}, tt.entries)))
		var names []string
		for _, s := range d.Limits {
			names = append(names, s.Name)
		}
		if got := fmt.Sprint(names); err != nil || got != tt.want {
			t.Errorf("descriptor %d has the limits %s (%v), want %s", i, got, err, tt.want)
		}
	}
	if err := compiled(t).Validate(valueOf(t, shopDomain)); err != nil {
		t.Error(err)
	}
}

func valueOf(t *testing.T, text string) any {
	t.Helper()
	v, err := value(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What doesn't go with a domain, and what needs one, is a mistake.
func TestDescriptorMistakes(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"domain: shop\nkey: remote-ip\nlimits: [{name: a, rate: 1/1s}]", "3:6: remote-ip: a descriptor has neither addresses nor header fields"},
		{"domain: shop\nkey: {header: X-Key}\nlimits: [{name: a, rate: 1/1s}]", "3:6: header: a descriptor has neither"},
		{"domain: shop\nkey: {join: [{descriptor: [a]}, {forwarded-ip: {trusted: [10.0.0.0/8]}}]}\nlimits: [{name: a, rate: 1/1s}]", "forwarded-ip: a descriptor has neither"},
		{"domain: shop\nkey: {descriptor: [a, a]}\nlimits: [{name: a, rate: 1/1s}]", `3:23: the entry "a" is listed twice`},
		{"domain: shop\nkey: {descriptor: []}\nlimits: [{name: a, rate: 1/1s}]", "3:19: descriptor names no entry"},
		{"domain: shop\nkey: global\nlimits: [{name: a, concurrency: 1}]", "concurrency: nothing would release its slots"},
		{"domain: shop\nkey: global\nlimits: [{name: a, rate: 1/1s, cost: 2}]", "4:38: cost: the hits_addend of the proxy"},
		{"domain: shop\nkey: global\nempty-key: deny\nlimits: [{name: a, rate: 1/1s}]", "4:12: empty-key: a limit doesn't apply"},
		{"domain: shop\nkey: global\nskip: [{cidr: [10.0.0.0/8]}]\nlimits: [{name: a, rate: 1/1s}]", "4:7: skip: a descriptor has neither"},
		{"domain: shop\nkey: global\nlimits: [{name: a, rate: 1/1s}, {ban: 3/1m, for: 1h, after: true}]", "after doesn't go with ban"},
		{"domain: shop\nkey: global\nlimits: [{name: a, rate: 1/1s, after: false}]", "after: false says nothing"},
		{"key: {descriptor: [a]}\nlimits: [{name: a, rate: 1/1s}]", "2:19: descriptor is for Envoy's rate limit service: write domain:"},
		{"key: global\nlimits: [{name: a, rate: 1/1s, after: true}]", "after is for Envoy's rate limit service: write domain:"},
	} {
		_, err := policy.Parse("p.yaml", []byte("version: 1\n"+tt.text+"\n"), descriptors)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
	if _, err := policy.Parse("p.yaml", []byte(shopDomain)); err == nil || !strings.Contains(err.Error(), "2:9: domain is for stint serve") {
		t.Errorf("an application reads a domain: %v", err)
	}
	if _, err := policy.Parse("p.yaml", []byte(shopDomain), policy.WithDescriptors(policy.Descriptors{})); err == nil || !strings.Contains(err.Error(), "a function is nil") {
		t.Errorf("without functions: %v", err)
	}
}
