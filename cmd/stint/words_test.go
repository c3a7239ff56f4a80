package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/keys"
)

// A file's users read a file's words.
func TestWordsOfFiles(t *testing.T) {
	for from, want := range map[string]string{
		"RemoteIP()":                            "remote-ip",
		`Header("X-Api-Key")`:                   "{header: X-Api-Key}",
		"ForwardedIP(10.0.0.0/8, 192.0.2.1/32)": "{forwarded-ip: {trusted: [10.0.0.0/8, 192.0.2.1/32]}}",
		`Join(Method(), FirstOf(Hash(Cookie("a")), RemoteIP()))`: "{join: [method, {first-of: [{hash: {cookie: a}}, remote-ip]}]}",
		"KeyFunc":    "a function of the application",
		"MuxPattern": "MuxPattern",
	} {
		if got := keyInFile(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	for rule, want := range map[string]string{
		"TokenBucket: 10 per 1m0s, burst 20":        "token-bucket: 10 per 1m, burst 20",
		"SlidingWindow: 10 per 24h0m0s, buckets 10": "sliding-window: 10 per 24h, buckets 10",
		"LeakyBucket: 10 per 1m30s":                 "leaky-bucket: 10 per 1m30s",
		"FixedWindow: 10 per 1h30m0s":               "fixed-window: 10 per 1h30m",
		"FixedWindow: 100 daily":                    "fixed-window: 100 daily",
	} {
		if got := ruleInFile(rule); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

// The limits of a plan are planned, explained and checked like those at the top.
func TestPlanOfAPolicy(t *testing.T) {
	policy := "version: 1\nkey: remote-ip\nlimits: [{name: per-client, rate: 100/1m}]\nplans:\n" +
		"  free: {limits: [{name: allowance, quota: 4/daily}]}\n  paid: {limits: [{name: allowance, quota: 1000000/daily}]}\n  none: {limits: []}\n"
	files(t, map[string]string{"p.yaml": policy, "plain.yaml": tight, "log": access(10, "192.0.2.1")})
	for _, tt := range []struct {
		args  []string
		code  int
		wants []string
	}{
		{[]string{"plan", "--policy", "p.yaml", "log"}, 0, []string{"10 requests judged, 0 denied", "not judged: the limits of the request's plan, which only the application knows: give --plan NAME"}},
		{[]string{"plan", "--policy", "p.yaml", "--plan", "free", "log"}, 0, []string{"10 requests judged, 6 denied", "allowance"}},
		{[]string{"plan", "--policy", "p.yaml", "--plan", "none", "log"}, 0, []string{"10 requests judged, 0 denied"}},
		{[]string{"plan", "--policy", "p.yaml", "--plan", "fre", "log"}, 2, []string{`p.yaml:5:3: no plan is called "fre": write free`}},
		{[]string{"plan", "--policy", "plain.yaml", "--plan", "free", "log"}, 2, []string{`the file has no plans, but the plan "free" is asked for`}},
		{[]string{"plan", "--policy", "p.yaml", "--window", "1us", "--top", "-1", "log"}, 2, []string{"--window 1µs: use 1ms or more", "--top -1: write 0 or more"}},
		{[]string{"explain", "p.yaml", "GET", "/"}, 0, []string{"unknown: the limits of the request's plan"}},
		{[]string{"explain", "--plan", "free", "p.yaml", "GET", "/"}, 0, []string{"limit allowance: fixed-window: 4 daily\n  key:  192.0.2.1, from remote-ip\n"}},
		{[]string{"check", "--plan", "free", "p.yaml"}, 0, []string{"1 without a mistake"}},
		{[]string{"check", "--plan", "paid", "p.yaml"}, 1, []string{`p.yaml:6:19: limit "allowance": it never denies first`}},
	} {
		code, out, errs := command(t, "", tt.args...)
		for _, want := range tt.wants {
			if code != tt.code || !strings.Contains(out+errs, want) {
				t.Errorf("%v: exit code %d, and %q isn't in %s%s", tt.args, code, want, out, errs)
			}
		}
	}
}

// What an entry of skip or block looks at is known by its name in the file.
func TestPredicateReads(t *testing.T) {
	funcs := functions{names: []string{"internal"}}
	got := funcs.predicateReads([]byte(`version: 1
keys: {client: {forwarded-ip: {trusted: [10.0.0.0/8]}}}
key: client
limits: [{name: a, rate: 1/1s}]
block: [{key: {forwarded-header-ip: {trusted: [10.0.0.0/8]}}, cidr: [192.0.2.0/24]}]
skip: [preflight, internal, {cidr: [192.0.2.0/24]}, {key: client, cidr: [192.0.2.0/24]}]
`))
	want := []keys.Reads{
		{Method: "OPTIONS", Fields: []string{"Origin", "Access-Control-Request-Method"}}, {Function: true}, {Peer: true},
		{Peer: true, Fields: []string{"X-Forwarded-For"}}, {Peer: true, Fields: []string{"Forwarded"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
