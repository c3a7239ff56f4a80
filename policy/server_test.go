package policy_test

import (
	"errors"
	"strings"
	"testing"

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
		"p.yaml:3:9: settle: a server for proxies doesn't see the response",
		"p.yaml:5:32: concurrency: nothing would release its slots",
		"p.yaml:6:44: adaptive-concurrency: nothing would release its slots",
		"p.yaml:7:30: bandwidth: a server for proxies doesn't see the bytes",
		"p.yaml:8:35: given: a proxy's request has no given key",
		"p.yaml:9:43: pattern: a proxy's request has no pattern",
		"p.yaml:10:44: hash needs a secret, which doesn't belong in a file: give --secret-file",
		"p.yaml:12:60: settle: a server for proxies doesn't see the response",
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

	const served = "version: 1\nkey: {hash: remote-ip}\nlimits: [{name: a, rate: 1/1s, max-wait: 1s}, {ban: 3/1m, for: 1h}]\nroutes: {GET /healthz: {exempt: true}}\n"
	if _, err := policy.Parse("p.yaml", []byte(served), policy.WithServer(), policy.WithSecret(secret)); err != nil {
		t.Error(err)
	}
}
