package main

import (
	"strings"
	"testing"
	"time"
)

// What stint serve can't do, it says before it listens.
func TestServeRejects(t *testing.T) {
	files(t, map[string]string{
		"good.yaml":  tight,
		"slots.yaml": "version: 1\nkey: remote-ip\nlimits: [{name: a, concurrency: 2}]\n",
		"named.yaml": "version: 1\nkey: tenant\nlimits: [{name: a, rate: 1/1s, cost: rows}]\n",
		"hash.yaml":  "version: 1\nkey: {hash: remote-ip}\nlimits: [{name: a, rate: 1/1s}]\n",
		"empty":      "\n",
		"short":      "short\n",
		"long":       "a secret of sixteen bytes\n",
	})
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"good.yaml", 2, "nothing to serve: give --forward-auth"},
		{"--rls :0", 2, "no policy"},
		{"--rls :0 --ratelimit-config x good.yaml", 2, "leave one of both out"},
		{"--ratelimit-config x", 2, "--ratelimit-config without --rls"},
		{"--rls :0 --forward-auth nginx --ratelimit-config x", 2, "--forward-auth beside"},
		{"--rls 127.0.0.1:0 --ratelimit-config good.yaml", 1, "good.yaml:1:1: unknown field \"version\" of the configuration"},
		{"--forward-auth apache good.yaml", 2, "write nginx, traefik, caddy or envoy"},
		{"--forward-auth nginx --path-prefix /a good.yaml", 2, "--path-prefix is for --forward-auth envoy"},
		{"--forward-auth envoy --path-prefix a good.yaml", 2, "write a path, such as /auth"},
		{"--forward-auth nginx --trust 10.0.0.0/33 good.yaml", 2, "--trust 10.0.0.0/33: write a network"},
		{"--forward-auth nginx --trust 0.0.0.0/0 good.yaml", 2, "every client"},
		{"--forward-auth nginx --redis redis://:pass@10.0.0.7 good.yaml", 2, "--redis has a password"},
		{"--forward-auth nginx --trust= good.yaml", 2, "--trust is empty: give it a value, or leave it out"},
		{"--forward-auth nginx --redis= good.yaml", 2, "--redis is empty: give it a value, or leave it out"},
		{"--forward-auth nginx --redis 10.0.0.7 good.yaml", 2, "write a URL such as redis://"},
		{"--forward-auth nginx --redis-password-file short good.yaml", 2, "without --redis"},
		{"--forward-auth nginx --redis-timeout 1s good.yaml", 2, "--redis-timeout without --redis"},
		{"--forward-auth nginx --redis redis://10.0.0.7 --redis-timeout 0s good.yaml", 2, "write a millisecond or more"},
		{"--forward-auth nginx --drain -1s good.yaml", 2, "write 0s or more"},
		{"--forward-auth nginx --secret-file empty good.yaml", 2, "empty is empty"},
		{"--forward-auth nginx --secret-file missing good.yaml", 2, "missing"},
		{"--forward-auth nginx --secret-file short hash.yaml", 2, "WithSecret"},
		{"--forward-auth nginx --token-file short --admin 127.0.0.1:0 good.yaml", 2, "at least 16"},
		{"--forward-auth nginx --log-format xml good.yaml", 2, "write json or text"},
		{"--listen-api 127.0.0.1:0 good.yaml", 2, "--listen-api without a secret for tokens: give --secret-file"},
		{"--listen-api 127.0.0.1:0 --secret-file short good.yaml", 2, "the secret for tokens has 5 bytes: write at least 16"},
		{"--listen-api 127.0.0.1:0 --secret-file long --token-life 25h good.yaml", 2, "--token-life 25h0m0s: write a second to 24h0m0s"},
		{"--listen-api 127.0.0.1:0 --secret-file long --token-life 0s good.yaml", 2, "--token-life 0s: write a second"},
		{"--listen-api 127.0.0.1:0 --secret-file long slots.yaml", 1, "slots.yaml:3:33: concurrency: nothing would release its slots"},
		{"--listen-api :0 --ratelimit-config x", 2, "--listen-api beside"},
		{"--forward-auth nginx --token-life 2h good.yaml", 2, "--token-life without --listen-api"},
		{"--forward-auth nginx missing.yaml", 2, "missing.yaml"},
		{"--forward-auth nginx slots.yaml", 1, "slots.yaml:3:33: concurrency: nothing would release its slots"},
		{"--forward-auth nginx named.yaml", 1, `named.yaml:2:6: unknown key "tenant"`},
		{"--forward-auth nginx named.yaml", 1, "stint serve has no functions of an application"},
		{"--forward-auth nginx hash.yaml", 1, "give --secret-file"},
	} {
		code, _, errs := command(t, "", append([]string{"serve"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(errs, tt.want) || strings.Contains(errs, "pass@") || strings.Contains(errs, "are registered with") {
			t.Errorf("serve %s: exit code %d, want %d, and %q in %s", tt.args, code, tt.code, tt.want, errs)
		}
	}
}

// A Redis client doesn't end a call before --redis-timeout, unless the URL says so.
func TestRedisTimeout(t *testing.T) {
	for _, tt := range []struct {
		url        string
		timeout    time.Duration
		read, dial time.Duration // 0: go-redis's defaults, of 5 s
	}{
		{"redis://10.0.0.7", 100 * time.Millisecond, 0, 0},
		{"redis://10.0.0.7", time.Minute, time.Minute, time.Minute},
		{"redis://10.0.0.7?read_timeout=2s", time.Minute, 2 * time.Second, time.Minute},
	} {
		options, err := redisOptions(tt.url, "")
		if err != nil {
			t.Fatal(err)
		}
		if allow(options, tt.timeout); options.ReadTimeout != tt.read || options.DialTimeout != tt.dial {
			t.Errorf("%s, %v: read %v, dial %v", tt.url, tt.timeout, options.ReadTimeout, options.DialTimeout)
		}
	}
}
