package serve

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/memstore"
)

// Configurations in the manner of those in envoyproxy/ratelimit's README, by its numbers of examples.
const (
	messaging = `domain: shop
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: to_number
    rate_limit: {unit: day, requests_per_unit: 100}
`
	addresses = `domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: hour, requests_per_unit: 0}
`
	unlimited = `domain: shop
descriptors:
  - key: ldap
    rate_limit: {unlimited: true}
  - key: azure
    detailed_metric: true
    rate_limit: {unit: week, requests_per_unit: 1}
`
	shadowed = `domain: shop
descriptors:
  - key: service
    descriptors:
      - {key: user, value: user-a, shadow_mode: true, rate_limit: {unit: month, requests_per_unit: 1}}
      - {key: user, value: user-b, rate_limit: {unit: YEAR, requests_per_unit: 2}}
`
	replacing = `domain: shop
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - {key: user, value: ada, rate_limit: {name: specific_limit, unit: day, requests_per_unit: 1}}
  - key: key_2
    value: value_2
    descriptors:
      - {key: user, value: ada, rate_limit: {replaces: [{name: specific_limit}], unit: day, requests_per_unit: 3}}
`
	wildcards = `domain: shop
descriptors:
  - {key: path, value: "files/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, value: "pages/*", value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, value: pages/home, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: day, requests_per_unit: 4}}
`
)

// The rule of the deepest entry applies, by its exact value before a wildcard before the key alone.
func TestRuleOfDescriptor(t *testing.T) {
	for _, tt := range []struct {
		config, entries, of string
	}{
		{messaging, "message_type=marketing to_number=2061111111", "message_type=marketing, to_number"},
		{messaging, "to_number=2061111111", "to_number"},
		{messaging, "message_type=marketing", ""},
		{messaging, "message_type=other to_number=2061111111", ""},
		{messaging, "to_number=2061111111 message_type=marketing", ""},
		{messaging, "", ""},
		{addresses, "remote_address=50.0.0.1", "remote_address"},
		{addresses, "remote_address=50.0.0.5", "remote_address=50.0.0.5"},
		{addresses, "remote_address=50.0.0.5 subkey=x", ""},
		{addresses, "remote_address_50.0.0.5=", "remote_address=50.0.0.5"}, // as that service does, which joins key and value
		{unlimited, "ldap=x", "ldap"},
		{shadowed, "service=auth user=user-a", "service, user=user-a"},
		{shadowed, "service=auth user=user-c", ""},
		{wildcards, "path=files/a", "path=files/*"},
		{wildcards, "path=pages/home", "path=pages/home"},
		{wildcards, "path=pages/x", "path=pages/*"},
		{wildcards, "path=about", "path"},
	} {
		tree, errs := parseTree("config.yaml", []byte(tt.config))
		if errs != nil {
			t.Fatal(errs)
		}
		r, _ := tree.find(described(strings.Fields(tt.entries)...).Entries)
		got := ""
		if r != nil {
			got = r.of
		}
		if want := tt.of; got != want {
			t.Errorf("%q has the rule of %q, want %q", tt.entries, got, want)
		}
	}
}

func TestRateLimitConfig(t *testing.T) {
	type request struct {
		entries []string // of each descriptor
		want    string
	}
	for _, tt := range []struct {
		name, config string
		requests     []request
	}{
		{"no requests pass", addresses, []request{{[]string{"remote_address=50.0.0.5"}, "OVER: OVER"}, {[]string{"remote_address=50.0.0.1"}, "OK: OK"}}},
		{"a count for each value", messaging, []request{
			{[]string{"message_type=marketing to_number=1", "to_number=1"}, "OK: OK OK"}, {[]string{"message_type=marketing to_number=1"}, "OK: OK"},
			{[]string{"message_type=marketing to_number=1"}, "OK: OK"}, {[]string{"message_type=marketing to_number=1"}, "OK: OK"},
			{[]string{"message_type=marketing to_number=1"}, "OK: OK"}, {[]string{"message_type=marketing to_number=1", "to_number=1"}, "OVER: OVER OK"},
			{[]string{"message_type=marketing to_number=2"}, "OK: OK"},
		}},
		{"unlimited", unlimited, []request{{[]string{"ldap=x", "other=x"}, "OK: OK OK"}, {[]string{"azure=x"}, "OK: OK"}, {[]string{"azure=x"}, "OVER: OVER"}}},
		{"shadow mode only counts", shadowed, []request{
			{[]string{"service=s user=user-a"}, "OK: OK"}, {[]string{"service=s user=user-a"}, "OK: OK"},
			{[]string{"service=s user=user-b"}, "OK: OK"}, {[]string{"service=s user=user-b"}, "OK: OK"}, {[]string{"service=s user=user-b"}, "OVER: OVER"}, {[]string{"service=t user=user-b"}, "OK: OK"},
		}},
		{"a rule replaces another of the request", replacing, []request{
			{[]string{"key_1=value_1 user=ada", "key_2=value_2 user=ada"}, "OK: OK OK"}, {[]string{"key_1=value_1 user=ada", "key_2=value_2 user=ada"}, "OK: OK OK"},
			{[]string{"key_1=value_1 user=ada"}, "OK: OK"}, {[]string{"key_1=value_1 user=ada"}, "OVER: OVER"}, {[]string{"key_2=value_2 user=ada"}, "OK: OK"}, {[]string{"key_2=value_2 user=ada"}, "OVER: OVER"},
		}},
		{"values of a wildcard share a count, or don't", wildcards, []request{
			{[]string{"path=files/a"}, "OK: OK"}, {[]string{"path=files/b"}, "OK: OK"}, {[]string{"path=files/c"}, "OVER: OVER"},
			{[]string{"path=pages/a"}, "OK: OK"}, {[]string{"path=pages/a"}, "OK: OK"}, {[]string{"path=pages/b"}, "OK: OK"}, {[]string{"path=pages/a"}, "OVER: OVER"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, _, _ := startRLS(t, tt.config, func(c *Config) { c.RateLimitConfigs, c.Policies = c.Policies, nil })
			for i, r := range tt.requests {
				var all []*ratelimit.RateLimitDescriptor
				for _, entries := range r.entries {
					all = append(all, described(strings.Fields(entries)...))
				}
				resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, all...))
				if err != nil {
					t.Fatal(err)
				}
				if got := codesOf(resp); got != r.want {
					t.Errorf("request %d gets %s, want %s", i+1, got, r.want)
				}
				if s := resp.Statuses[0]; (s.LimitRemaining == math.MaxUint32) != (r.entries[0] == "ldap=x") {
					t.Errorf("request %d has %d left", i+1, s.LimitRemaining)
				}
			}
		})
	}
}

// A configuration that has changed comes into force, one with a mistake doesn't, and counts stay.
func TestRateLimitConfigReload(t *testing.T) {
	var path string
	client, _, log := startRLS(t, unlimited, func(c *Config) { path, c.RateLimitConfigs, c.Policies = c.Policies[0], c.Policies, nil })
	send := func() string {
		t.Helper()
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, described("azure=x")))
		if err != nil {
			t.Fatal(err)
		}
		return codesOf(resp)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := send(); got != "OK: OK" {
		t.Errorf("the first request gets %s", got)
	}
	write(strings.Replace(unlimited, "unit: week", "unit: fortnight", 1))
	eventually(t, "the mistake is logged", func() bool { return strings.Contains(log.String(), "write second, minute") })
	if got := send(); got != "OVER: OVER" {
		t.Errorf("the second request gets %s", got)
	}
	write(strings.Replace(unlimited, "requests_per_unit: 1", "requests_per_unit: 2", 1))
	eventually(t, "the limit rises", func() bool { return send() == "OK: OK" })
	if got := send(); got != "OVER: OVER" {
		t.Errorf("the count is gone: %s", got)
	}
}

// A configuration comes into force once it is the same at two looks: it may be half written at the first.
func TestRateLimitConfigHalfWritten(t *testing.T) {
	path := file(t, unlimited)
	c := &configured{paths: []string{path}, logger: slog.New(slog.DiscardHandler)}
	c.last = c.read()
	for i, tt := range []struct {
		text string // "": the file is gone
		want bool
	}{
		{unlimited, false}, {unlimited[:20], false}, {addresses, false}, {addresses, true}, {addresses, false},
		{messaging, false}, {addresses, false}, {addresses, false}, {messaging, false}, {"", false}, {messaging, false}, {messaging, true},
	} {
		err := os.Remove(path)
		if tt.text != "" {
			err = os.WriteFile(path, []byte(tt.text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := c.changed(); got != tt.want {
			t.Errorf("look %d reports %v, want %v", i+1, got, tt.want)
		}
	}
}

// A configuration that is gone leaves the last one in force, and the log says so, once.
func TestRateLimitConfigDeleted(t *testing.T) {
	var path string
	client, _, log := startRLS(t, unlimited, func(c *Config) { path, c.RateLimitConfigs, c.Policies = c.Policies[0], c.Policies, nil })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	const said = "a configuration can't be read, so the last one stays in force"
	eventually(t, "the error is logged", func() bool { return strings.Contains(log.String(), said) })
	for i, want := range []string{"OK: OK", "OVER: OVER"} {
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, described("azure=x")))
		if got := codesOf(resp); err != nil || got != want {
			t.Errorf("request %d gets %s (%v), want %s", i+1, got, err, want)
		}
	}
	changed := strings.Replace(unlimited, "requests_per_unit: 1", "requests_per_unit: 2", 1)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the limit rises", func() bool {
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, described("azure=x")))
		return err == nil && codesOf(resp) == "OK: OK"
	})
	if n := strings.Count(log.String(), said); n != 1 {
		t.Errorf("the error is logged %d times", n)
	}
}

// Rules whose names would be equal count apart, and a rule's limit and route stay the same when other rules change.
func TestNamesOfRules(t *testing.T) {
	dots := func(domain string) string {
		return "domain: " + domain + `
descriptors:
  - {key: a.b, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: "a, b", rate_limit: {unit: day, requests_per_unit: 1}}
  - key: a
    descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]
  - {key: 50.0.0.5, value: "1", rate_limit: {unit: day, requests_per_unit: 1}}
`
	}
	trees, err := readTrees([]string{file(t, dots("shop")), file(t, dots("shop.a"))})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, tree := range trees {
		for _, r := range tree.rules {
			if other := names[r.limit]; other != "" || !algorithm.ValidName(r.limit) {
				t.Errorf("%s and %s have the name %s", other, r.id, r.limit)
			}
			names[r.limit] = r.id
		}
	}
	client, _, _ := startRLS(t, dots("shop"), func(c *Config) { c.RateLimitConfigs, c.Policies = c.Policies, nil })
	for i, want := range []string{"OK: OK OK OK", "OVER: OVER OVER OVER"} {
		spaced := described("=x")
		spaced.Entries[0].Key = "a, b"
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, described("a.b=x"), spaced, described("a=x", "b=x")))
		if got := codesOf(resp); err != nil || got != want {
			t.Errorf("request %d gets %s (%v), want %s", i+1, got, err, want)
		}
	}
	fewer, errs := parseTree("config.yaml", []byte(strings.Replace(wildcards, `  - {key: path, value: "files/*", share_threshold: true`, `  - {key: file`, 1)))
	all, errs2 := parseTree("config.yaml", []byte(wildcards))
	if errs != nil || errs2 != nil {
		t.Fatal(errs, errs2)
	}
	for i := range all.rules[1:] {
		if was, is := all.rules[i+1], fewer.rules[i+1]; was.path() != is.path() {
			t.Errorf("the route of %s was %s, and is %s", was.of, was.path(), is.path())
		}
	}
}

// Each mistake has its line.
func TestRateLimitConfigMistakes(t *testing.T) {
	limit := "rate_limit: {unit: day, requests_per_unit: 1}"
	for _, tt := range []struct{ text, want string }{
		{"", "1:1: the file is empty"},
		{"a: [", "1:1: "},
		{"descriptors: []", "1:1: no domain"},
		{"domain: a\ndescriptor: []", `2:1: unknown field "descriptor" of the configuration`},
		{"domain: a\ndescriptors: {}", "2:14: descriptors must be a list"},
		{"domain: a\ndescriptors: [{key: k}, x]", "2:25: a descriptor must be a mapping"},
		{"domain: a\ndescriptors:\n- value: k", "3:3: a descriptor without a key"},
		{"domain: a\ndescriptors:\n- {key: k, value: v}\n- {key: k_v}", "4:3: k_v is described twice"},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}", `3:31: unknown unit "fortnight"`},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {requests_per_unit: 1}}", `unknown unit ""`},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, unlimited: true}}", "3:31: a unit beside unlimited"},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: -1}}", `requests_per_unit "-1": write a number`},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}", `requests_per_unit "4294967296"`},
		{"domain: a\ndescriptors:\n- {key: k, quota_mode: true, " + limit + "}", "3:24: quota_mode isn't supported"},
		{"domain: a\ndescriptors:\n- {key: k, value: v, share_threshold: true, " + limit + "}", "3:39: share_threshold is for values that end in *"},
		{"domain: a\ndescriptors:\n- {key: k, shadow_mode: 3, " + limit + "}", "3:25: shadow_mode must be true or false"},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {name: n, replaces: [{name: n}], unit: day}}", "replaces names its own rate_limit"},
		{"domain: a\ndescriptors:\n- {key: k, rate_limit: {replaces: [{}], unit: day}}", "replaces without a name"},
	} {
		_, errs := parseTree("config.yaml", []byte(tt.text))
		if errs == nil || !strings.Contains(errs.Error(), tt.want) || !strings.HasPrefix(errs.Error(), "config.yaml:") {
			t.Errorf("%q: %v, want %q", tt.text, errs, tt.want)
		}
	}
	var mistakes policy.Errors
	if _, err := readTrees([]string{file(t, messaging), file(t, addresses)}); !errors.As(err, &mistakes) || !strings.Contains(err.Error(), `has the domain "shop" too: write all`) {
		t.Errorf("two files of a domain: %v", err)
	}
}

// Rules in words say what applies.
func TestRules(t *testing.T) {
	others := strings.ReplaceAll(wildcards, "domain: shop", "domain: files")
	lines, err := Rules([]string{file(t, shadowed), file(t, others)})
	want := `domain shop, service, user=user-a: 1 per month, dry run
domain shop, service, user=user-b: 2 per year
domain files, path=files/*: 2 per day, one count for all of path=files/*
domain files, path=pages/*: 2 per day
domain files, path=pages/home: 1 per day
domain files, path: 4 per day`
	if got := strings.Join(lines, "\n"); err != nil || got != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
}

// A configuration is read or has mistakes, whatever it holds, and what is read makes a limiter.
func FuzzRateLimitConfig(f *testing.F) {
	for _, text := range []string{messaging, addresses, unlimited, shadowed, replacing, wildcards, "domain: &a b\ndescriptors: [{key: *a, descriptors: &l [{key: x}]}, {key: y, descriptors: *l}]"} {
		f.Add([]byte(text), "remote_address", "50.0.0.5")
	}
	f.Fuzz(func(t *testing.T, data []byte, key, value string) {
		tree, errs := parseTree("config.yaml", data)
		if (tree == nil) == (errs == nil) {
			t.Fatalf("%v and %v", tree, errs)
		}
		if tree == nil || len(tree.rules) > 100 {
			return
		}
		tree.assign([]*descriptor{{entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}, {Key: key, Value: value}}}})
		c := &configured{paths: []string{file(t, string(data))}, counts: memstore.New(), logger: slog.New(slog.DiscardHandler)}
		if err := c.load(); err != nil {
			t.Fatal(err)
		}
	})
}
