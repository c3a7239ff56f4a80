package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/redisstore"
)

const running = `version: 1
key: given
limits:
  - {name: daily, quota: 10/500d}
  - {name: all, quota: 1000/500d, key: global}
  - {name: bans, ban: 5/1h, for: 1h}
routes:
  POST /login: {limits: [{name: login, quota: 3/500d, key: {header: X-User}}]}
  GET /slow: {limits: [{name: backend, adaptive-concurrency: 1-9}]}
`

// written returns what a command writes about keys, without the spaces and the times.
func written(out string) string {
	out = regexp.MustCompile(`\b\d+h\d+m\d+s\b|\b\d+m\d+s\b|\b\d+s\b`).ReplaceAllString(out, "T")
	return regexp.MustCompile(` *\n`).ReplaceAllString(regexp.MustCompile(` {2,}`).ReplaceAllString(out, " "), "\n")
}

// The commands see and change the counts of a running limiter.
func TestOperate(t *testing.T) {
	server := redistest.Start(t)
	files(t, map[string]string{"policy.yaml": running})
	shared := redisstore.New(server.Client(), redisstore.WithTimeout(time.Minute))
	t.Cleanup(func() { _ = shared.Close() })
	p, err := policy.Load("policy.yaml", policy.WithOptions(stint.WithStore(shared)))
	if err != nil {
		t.Fatal(err)
	}
	l := stint.Must(stint.New(p.Options()...))
	if err := l.Allow(t.Context(), "tenant-7", 4); err != nil {
		t.Fatal(err)
	}
	run := func(stdin, args string) (int, string, string) {
		t.Helper()
		all := append(strings.Fields(args), "--policy", "policy.yaml", "--redis", "redis://"+server.Addr())
		code, out, errs := command(t, stdin, all...)
		return code, written(out), errs
	}
	const header = "limit used left of all again in\n"
	used := header + "daily 4 6 10 T\nall 4 996 1000 T of all keys together\nbans 0 5 5 -\nlogin 0 3 3 -\nbackend - - - - in each process, not on Redis\n"
	fresh := strings.Replace(used, "daily 4 6 10 T", "daily 0 10 10 -", 1)
	banned := strings.Replace(used, "bans 0 5 5 -", "bans 5 0 5 T denies for T", 1)
	for _, tt := range []struct {
		stdin, args string
		code        int
		out, errs   string
	}{
		{"", "usage tenant-7", 0, used, ""},
		{"n\n", "reset tenant-7", 2, "before:\n" + used + "reset the key tenant-7? [y/N] ", "nothing has changed"},
		{"", "ban tenant-7 1h", 2, "before:\n" + used + "ban the key tenant-7 for 1h? [y/N] ", "nothing has changed"},
		{"", "usage tenant-7", 0, used, ""},
		{"y\n", "ban tenant-7 1h", 0, "before:\n" + used + "ban the key tenant-7 for 1h? [y/N] banned\nafter:\n" + banned, ""},
		{"", "reset tenant-7 --yes --limit bans", 0, "before:\n" + banned + "reset\nafter:\n" + used, ""},
		{"", "reset tenant-7 --yes", 0, "before:\n" + used + "reset\nafter:\n" + fresh, ""},
		{"", "reset tenant-7 --yes", 0,
			"before:\n" + fresh + "there was nothing to reset: no limit has counted anything for this key\nafter:\n" + fresh, ""},
		{"", "ban tenant-7 1h --yes --limit daily", 2, "before:\n" + fresh, `stint: Ban: "daily" is no ban: name a ban`},
		{"", "ban tenant-7 1x --yes", 2, "", `"1x": write how long`},
		{"", "ban tenant-7 9000h --yes", 2, "", `"9000h": write how long`},
	} {
		code, out, errs := run(tt.stdin, tt.args)
		if code != tt.code || out != tt.out || !strings.Contains(errs, tt.errs) || tt.errs == "" && errs != "" {
			t.Errorf("%s: exit code %d, want %d\n%s\nwant\n%s\nerrors %q, want %q", tt.args, code, tt.code, out,
				tt.out, errs, tt.errs)
		}
	}
	if err := l.Ban(t.Context(), "tenant-7", time.Hour); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := run("yes\n", "reset tenant-7"); code != 0 || !strings.Contains(out, "after:\n"+fresh) {
		t.Errorf("a reset of a ban: exit code %d: %s", code, out)
	}
	if err := l.Allow(t.Context(), "tenant-7", 1); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}

func TestOperateErrors(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret of Redis")
	files(t, map[string]string{
		"policy.yaml": running, "unnamed.yaml": "version: 1\nkey: tenant\nlimits: [{name: a, rate: 1/1s}]\n",
		"dry.yaml":       "version: 1\nkey: given\nlimits: [{name: a, rate: 1/1s}, {name: b, ban: 5/1h, for: 1h, dry-run: true}]\n",
		"bandwidth.yaml": "version: 1\nkey: remote-ip\nlimits: [{name: a, bandwidth: 64KiB/s}]\n",
		"unbanned.yaml":  "version: 1\nkey: given\nlimits: [{name: a, rate: 1/1s}]\n", "password": "secret of Redis\n",
	})
	at := " --redis redis://" + server.Addr()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"usage k", 2, `required flag(s) "policy", "redis" not set`},
		{"usage k --policy policy.yaml --redis 10.0.0.7", 2, "write a URL such as redis://"},
		{"usage k --policy policy.yaml --redis redis://:pass@10.0.0.7", 2, "--redis has a password"},
		{"usage k --policy missing.yaml --redis-password-file password" + at, 2, "missing.yaml"},
		{"usage k --policy unnamed.yaml --redis-password-file password" + at, 1,
			`unnamed.yaml:2:6: unknown key "tenant"`},
		{"usage k --policy unnamed.yaml --func tenant --redis-password-file password" + at, 0, ""},
		{"usage k --policy policy.yaml" + at, 2, "NOAUTH"},
		{"usage k --policy policy.yaml --redis redis://127.0.0.1:1", 2, "refused"},
		{"reset k --yes --limit x --policy policy.yaml --redis-password-file password" + at, 2, `no limit "x"`},
		{"reset k --yes --limit all --policy policy.yaml --redis-password-file password" + at, 2,
			`the key of "all" is constant, so it can't be reset for one caller`},
		{"ban k 1h --yes --policy unbanned.yaml --redis-password-file password" + at, 2,
			"stint: Ban: there is no ban whose key isn't constant: add one"},
		{"ban k 1h --yes --policy dry.yaml --redis-password-file password" + at, 2,
			"stint: Ban: a ban in a dry run denies nobody: remove the dry run\n"},
		{"reset k --yes --policy bandwidth.yaml --redis-password-file password" + at, 2,
			"stint: there is no limit that a key can be charged for (bandwidths and limits of functions are left out): " +
				"add a limit outside the routes, such as a rate\n"},
		{"usage --policy policy.yaml --redis-password-file password" + at + " ", 2, "stint: accepts 1 arg(s)"},
	} {
		code, _, errs := command(t, "", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: exit code %d, want %d, and %q in %s", tt.args, code, tt.code, tt.want, errs)
		}
	}
}
