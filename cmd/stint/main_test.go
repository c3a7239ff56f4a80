package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint/policy"
)

// command runs stint in a directory of the test's, and returns its exit code and what it
// writes.
func command(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

// files writes files into a directory that becomes the working directory.
func files(t *testing.T, contents map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range contents {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const tight = `version: 1
key: remote-ip
limits:
  - {name: per-client, rate: 1/10s, burst: 2}
`

const loose = `version: 1
key: remote-ip
limits:
  - {name: per-client, rate: 1/10s, burst: 3}
`

// access returns a combined log of one request a second of each of some addresses.
func access(seconds int, addresses ...string) string {
	var b strings.Builder
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for i := range seconds {
		for _, a := range addresses {
			fmt.Fprintf(&b, "%s - - [%s] \"GET /items/%d HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n", a, at.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), i)
		}
	}
	return b.String()
}

func TestCheck(t *testing.T) {
	example, err := filepath.Abs("../../examples/policy/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files(t, map[string]string{
		"good.yaml":    tight,
		"bad.yaml":     "version: 1\nkey: remote-ip\nlimits:\n  - {name: a, rate: 10/1s, brst: 2}\n  - {name: b, rate: x}\n",
		"idle.yaml":    "version: 1\nkey: remote-ip\nlimits:\n  - {name: rate, rate: 1/1s}\n  - {name: daily, quota: 1000000/daily}\n",
		"routes.yaml":  "version: 1\nkey: remote-ip\nlimits: [{name: own, rate: 1/1s}]\nroutes:\n  /: {only: [{name: all, rate: 1/1s}]}\n",
		"unclean.yaml": "version: 1\nkey: remote-ip\nroutes:\n  /find//all: {limits: [{name: find, rate: 1/1s}]}\n",
		"query.yaml":   "version: 1\nkey: remote-ip\nroutes:\n  GET /find?q=1: {limits: [{name: find, rate: 1/1s}]}\n",
		"shadow.yaml":  "version: 1\nkey: remote-ip\nlimits: [{name: own, rate: 1/1s}]\nroutes:\n  /a/: {exempt: true}\n  /a/{$}: {exempt: true}\n  /a/{x}: {exempt: true}\n  /a/{x}/{rest...}: {exempt: true}\n",
		"named.yaml":   "version: 1\nlimits:\n  - {name: a, rate: 10/1s, key: tenant, cost: rows, settle: tokens}\nskip: [internal]\npriority: class\nkey: {hash: remote-ip}\n",
		"domain.yaml":  "version: 1\ndomain: shop\nlimits: [{name: a, rate: 10/1s, key: {descriptor: [remote_address]}}]\n",
		"served.yaml":  "version: 1\nkey: remote-ip\nlimits: [{rate: 1/s}, {concurrency: 3}]\n",
		"given.yaml":   "version: 1\nkey: given\nlimits: [{name: a, rate: 1/s}]\n",
		"envoy.yaml":   "domain: shop\ndescriptors: [{key: user, value: ada, rate_limit: {unit: day, requests_per_unit: 5}}]\n",
		"plans.yaml":   "version: 1\nkey: remote-ip\nplans:\n  free: {limits: [{name: a, rate: 10/1s}]}\n",
	})
	for _, tt := range []struct {
		args  []string
		code  int
		wants []string
	}{
		{[]string{"good.yaml", "plans.yaml", "domain.yaml"}, 0, []string{"3 without a mistake\n"}},
		{[]string{"bad.yaml"}, 1, []string{"bad.yaml:4:", "brst", "write burst", "bad.yaml:5:"}},
		{[]string{"idle.yaml", "good.yaml"}, 1, []string{"idle.yaml:5:5: limit \"daily\": it never denies first", "90001"}},
		{[]string{"routes.yaml"}, 1, []string{"routes.yaml:3:10: limit \"own\": it applies to no request: all requests match \"/\", with only or exempt"}},
		{[]string{"unclean.yaml"}, 1, []string{"unclean.yaml:4:3: ", "use \"/find/all\""}},
		{[]string{"query.yaml"}, 1, []string{"query.yaml:4:3: ", "without a query or a fragment: use \"GET /find\""}},
		{[]string{"shadow.yaml"}, 1, []string{"shadow.yaml:5:3: route \"/a/\": it never applies: all of its requests match \"/a/{$}\" or"}},
		{[]string{"bad.yaml", "--format", "github"}, 1, []string{"::error file=bad.yaml,line=4,col="}},
		{[]string{"good.yaml", "--format", "json"}, 0, []string{"[]\n"}},
		{[]string{"named.yaml"}, 1, []string{"give --func tenant\n", "give --func rows\n", "give --func tokens\n", "give --func internal\n", "give --func class\n"}},
		{[]string{"named.yaml", "--func", "tenant", "--func", "rows", "--func", "tokens", "--func", "internal", "--func", "class"}, 0, nil},
		{[]string{"named.yaml", "--func", "tenant=header.X-Tenant", "--func", "rows", "--func", "tokens", "--func", "internal", "--func", "class"}, 0, nil},
		{[]string{example}, 1, []string{"give --func tenant\n"}},
		{[]string{example, "--func", "tenant"}, 0, []string{"1 without a mistake\n"}},
		{[]string{"served.yaml"}, 0, []string{"1 without a mistake\n"}},
		{[]string{"--serve", "served.yaml"}, 1, []string{"served.yaml:3:10: a limit without a name", "served.yaml:3:23: ", "concurrency: nothing would release its slots"}},
		{[]string{"--serve", "domain.yaml", "good.yaml", "given.yaml"}, 0, []string{"3 without a mistake\n"}},
		{[]string{"--ratelimit-config", "envoy.yaml"}, 0, []string{"domain shop, user=ada: 5 per day\n", "1 without a mistake\n"}},
		{[]string{"--ratelimit-config", "good.yaml"}, 1, []string{`good.yaml:1:1: unknown field "version"`}},
		{[]string{"missing.yaml"}, 2, []string{"missing.yaml"}},
		{[]string{"good.yaml", "--format", "xml"}, 2, []string{"write text, json or github"}},
		{[]string{"good.yaml", "--func", "a=b"}, 2, []string{"header.FIELD"}},
		{nil, 2, nil},
	} {
		code, out, errs := command(t, "", append([]string{"check"}, tt.args...)...)
		if code != tt.code {
			t.Errorf("check %v: exit code %d, want %d: %s%s", tt.args, code, tt.code, out, errs)
		}
		for _, want := range tt.wants {
			if !strings.Contains(out+errs, want) {
				t.Errorf("check %v: %q isn't in %s%s", tt.args, want, out, errs)
			}
		}
	}
	_, out, _ := command(t, "", "check", "bad.yaml", "--format", "json")
	var all []mistake
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) < 2 || all[0].File != "bad.yaml" || all[0].Line != 4 || all[0].Column == 0 || all[0].Text == "" {
		t.Errorf("%v: %s", err, out)
	}
	if got := data.Replace("50%\nof"); got != "50%25%0Aof" {
		t.Error(got)
	}
}

// noRoom is an output on a full disk: it takes left bytes, and then returns an error.
type noRoom struct{ left int }

func (w *noRoom) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(b), nil
}

// A command whose output is lost fails, also if it would have failed for another reason.
func TestLostOutput(t *testing.T) {
	files(t, map[string]string{"policy.yaml": tight, "bad.yaml": "version: 2\n", "access.log": access(20, "192.0.2.7")})
	for _, args := range []string{
		"check policy.yaml", "check --format json policy.yaml", "check bad.yaml", "check --format github bad.yaml",
		"explain policy.yaml GET /", "schema", "--help", "plan --policy policy.yaml access.log",
		"plan --json --policy policy.yaml --max-denied 0% access.log", "suggest --key remote-ip access.log",
	} {
		for _, room := range []int{0, 2} {
			var errs bytes.Buffer
			code := run(strings.Fields(args), strings.NewReader(""), &noRoom{room}, &errs)
			if code != 2 || !strings.Contains(errs.String(), "no space left") {
				t.Errorf("%s with room for %d bytes: exit code %d: %s", args, room, code, &errs)
			}
		}
	}
}

func TestSchema(t *testing.T) {
	if code, out, _ := command(t, "", "schema"); code != 0 || out != string(policy.Schema()) {
		t.Errorf("exit code %d, %d bytes", code, len(out))
	}
}

func TestExplain(t *testing.T) {
	files(t, map[string]string{"p.yaml": `version: 1
key: remote-ip
limits:
  - {name: per-client, rate: 2/1s, burst: 8}
  - {name: by-key, rate: 100/1s, key: {header: X-API-Key}}
routes:
  POST api.test/login: {limits: [{name: login, rate: 5/1m, cost: 2}]}
  GET /healthz: {exempt: true}
  GET /trial: {only: [{name: trial, rate: 1/1s, key: {header: X-Tenant}, dry-run: true}]}
skip: [{cidr: [10.0.0.0/8]}]
`})
	for _, tt := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"GET", "/trial"}, []string{"limit trial", "its key is empty, so it doesn't count the request"}},
		{[]string{"GET", "/x", "-H", "X-API-Key: k1", "--peer", "192.0.2.7"}, []string{"route: none", "limit per-client: token-bucket: 2 per 1s, burst 8", "key:  192.0.2.7, from remote-ip", `key:  k1, from {header: X-Api-Key}`}},
		{[]string{"GET", "/x"}, []string{"denied with 403"}},
		{[]string{"POST", "https://api.test/login"}, []string{"route: POST api.test/login", "limit login", "cost: 2"}},
		{[]string{"POST", "/login", "-H", "Host: api.test"}, []string{"route: POST api.test/login"}},
		{[]string{"GET", "/healthz"}, []string{"route: GET /healthz", "no limit"}},
		{[]string{"GET", "/x", "--peer", "10.1.2.3"}, []string{"exempt"}},
		{[]string{"GET", "/x", "--peer", "[::ffff:10.1.2.3]:80"}, []string{"exempt"}},
	} {
		code, out, errs := command(t, "", append([]string{"explain", "p.yaml"}, tt.args...)...)
		for _, want := range tt.wants {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("explain %v: exit code %d, and %q isn't in %s%s", tt.args, code, want, out, errs)
			}
		}
	}
	for _, args := range [][]string{{"p.yaml", "GET", "x"}, {"p.yaml", "G T", "/"}, {"p.yaml", "GET", "/", "-H", "x"}, {"p.yaml", "GET", "/", "--peer", "here"}, {"missing", "GET", "/"}} {
		if code, out, _ := command(t, "", append([]string{"explain"}, args...)...); code != 2 || out != "" {
			t.Errorf("explain %v: exit code %d: %s", args, code, out)
		}
	}
}

func compress(t *testing.T, text string) (gz, zst string) {
	t.Helper()
	var g, z bytes.Buffer
	gw := gzip.NewWriter(&g)
	zw, err := zstd.NewWriter(&z)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{gw, zw} {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return g.String(), z.String()
}

// The same log gives the same report however it comes.
func TestInputs(t *testing.T) {
	log := access(10, "192.0.2.1", "192.0.2.2")
	gz, zst := compress(t, log)
	common := regexp.MustCompile(` "-" "curl/8"`).ReplaceAllString(log, "")
	lines := strings.SplitAfter(log, "\n")
	caddy := ""
	for i := range 10 {
		for _, a := range []string{"192.0.2.1", "192.0.2.2"} {
			caddy += fmt.Sprintf(`{"ts":%d,"request":{"remote_ip":%q,"method":"GET","host":"a","uri":"/"},"duration":0,"size":1,"status":200}`+"\n", 1773144000+i, a)
		}
	}
	files(t, map[string]string{
		"p.yaml": tight, "log": log, "log.gz": gz, "log.zst": zst, "common": common, "caddy": caddy,
		"first": strings.Join(lines[:9], ""), "second": strings.Join(lines[9:], ""),
		"one": access(10, "192.0.2.1"), "two": access(10, "192.0.2.2"),
		"apache": strings.ReplaceAll(common, " 12\n", " 12 0\n"),
	})
	for _, args := range [][]string{
		{"log"}, {"log.gz"}, {"log.zst"}, {"common"}, {"caddy"}, {"-"}, {}, {"first", "second"}, {"second", "first"}, {"one", "two"},
		{"--format", "combined", "log"}, {"--format", `%h %l %u %t "%r" %>s %b %D`, "apache"}, {"--format", "caddy", "caddy"},
		{"--format", "json", "--field", "end=ts", "--field", "method=request.method", "--field", "target=request.uri", "--field", "peer=request.remote_ip", "caddy"},
	} {
		code, out, errs := command(t, log, append([]string{"plan", "--policy", "p.yaml"}, args...)...)
		if code != 0 || !strings.Contains(out, "20 requests judged, 16 denied (80.0%)") {
			t.Errorf("plan %v: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

const caddyLine = `{"ts":1773144000,"request":{"remote_ip":"192.0.2.1","method":"GET","host":"a","uri":"/"},"duration":0,"size":1,"status":200}` + "\n"

// A log in another order and behind a prefix is the same log, and the report says what it was.
func TestReportOfALog(t *testing.T) {
	lines := strings.SplitAfter(access(10, "192.0.2.1", "192.0.2.2"), "\n")
	lines = lines[:len(lines)-1]
	slices.Reverse(lines)
	files(t, map[string]string{"p.yaml": tight, "log": "Mar 10 12:00:00 web1 nginx: " + strings.Join(lines, "Mar 10 12:00:00 web1 nginx: ")})
	code, out, errs := command(t, "", "plan", "--policy", "p.yaml", "--html", "r.html", "log")
	page, _ := os.ReadFile("r.html")
	for _, want := range []string{"format: combined in syslog\n", "18 requests logged out of order, by up to 9s, and sorted\n", "20 requests judged, 16 denied (80.0%)"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %q isn't in %s%s", code, want, out, errs)
		}
	}
	for _, want := range []string{"Format: combined in syslog", "18 requests were logged out of order, by up to 9s"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q isn't in the page", want)
		}
	}
}

// Bad input gets a clear error, and nothing is written.
func TestBadInput(t *testing.T) {
	gz, _ := compress(t, access(10, "192.0.2.1"))
	files(t, map[string]string{
		"p.yaml": tight, "bad.yaml": "version: 1\nkey: remote-ip\nlimits:\n  - {name: a, rate: 10/1s, brst: 2}\n",
		"log": access(10, "192.0.2.1"), "empty": "", "blank": "\n\n", "words": "some words\n", "cut.gz": gz[:20],
		"other": `{"a":1}` + "\n", "caddy": caddyLine,
	})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--policy", "bad.yaml", "log"}, "bad.yaml:4:"},
		{[]string{"--policy", "missing.yaml", "log"}, "missing.yaml"},
		{[]string{"--policy", "p.yaml", "--against", "bad.yaml", "log"}, "bad.yaml:4:"},
		{[]string{"--policy", "p.yaml", "missing.log"}, "missing.log"},
		{[]string{"--policy", "p.yaml", "."}, "is a directory"},
		{[]string{"--policy", "p.yaml", "empty"}, "no requests"},
		{[]string{"--policy", "p.yaml", "blank"}, "no requests"},
		{[]string{"--policy", "p.yaml", "words"}, "the format isn't known"},
		{[]string{"--policy", "p.yaml", "--format", "combined", "words"}, "none of its 1 lines could be read"},
		{[]string{"--policy", "p.yaml", "cut.gz"}, "unexpected EOF"},
		{[]string{"--policy", "p.yaml", "--zone", "Mars", "log"}, "--zone Mars: write a name such as Europe/Berlin"},
		{[]string{"--policy", "p.yaml", "other"}, "write --field for each part of a request"},
		{[]string{"--policy", "p.yaml", "--format", "xml", "log"}, `no format is called "xml": write one of`},
		{[]string{"--policy", "p.yaml", "--proxy", "front", "log"}, "write the address"},
		{[]string{"--policy", "p.yaml", "--field", "header.X-Key=request.headers.X", "caddy"}, "no line of the log has request.headers.X"},
		{[]string{"--policy", "p.yaml", "--field", "end=b", "log"}, "--field is for logs of JSON"},
		{[]string{"--policy", "p.yaml", "--max-denied", "many", "log"}, "write a share"},
		{[]string{"--policy", "p.yaml", "--max-denied", "101%", "log"}, "from 0% to 100%"},
		{[]string{"--policy", "p.yaml", "--max-flips", "0", "log"}, "--max-flips needs --against"},
		{[]string{"--policy", "p.yaml", "--against", "p.yaml", "--max-flips", "-1", "log"}, "--max-flips -1: write 0 or more"},
		{[]string{"--policy", "p.yaml", "--max-denied", "", "log"}, "--max-denied is empty: give it a value"},
		{[]string{"--policy", "p.yaml", "--against", "", "log"}, "--against is empty"},
		{[]string{"log"}, "policy"},
	} {
		code, out, errs := command(t, "", append([]string{"plan", "--html", "report.html"}, tt.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, tt.want) {
			t.Errorf("plan %v: exit code %d: %s%s; want %q", tt.args, code, out, errs, tt.want)
		}
	}
	if left, _ := filepath.Glob("*.html"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if left, _ := filepath.Glob(".stint-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestGates(t *testing.T) {
	const (
		words     = "2026/03/10 12:00:00 [error] 7#7: upstream timed out\n"
		handshake = `192.0.2.9 - - [10/Mar/2026:12:00:09 +0000] "\x16\x03\x01" 400 157 "-" "-"` + "\n"
		noMethod  = `192.0.2.9 - - [10/Mar/2026:12:00:09 +0000] "\x16\x03\x01" 200 157 "-" "-"` + "\n"
		badTarget = `192.0.2.9 - - [10/Mar/2026:12:00:09 +0000] "GET /%zz HTTP/1.1" 200 157 "-" "-"` + "\n"
	)
	one := access(10, "192.0.2.1")
	files(t, map[string]string{
		"half": one + strings.Repeat(words, 10), "handshakes": one + strings.Repeat(handshake, 10), "methods": one + strings.Repeat(noMethod, 10),
		"targets": one + strings.Repeat(badTarget, 10), "none": strings.Repeat(badTarget, 10),
		"tight.yaml": tight, "loose.yaml": loose, "log": access(10, "192.0.2.1"),
		"keyed.yaml": strings.Replace(loose, "remote-ip", "{header: X-Key}", 1),
		"tenth.yaml": strings.Replace(tight, "burst: 2", "burst: 9", 1),
	})
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--policy", "tight.yaml", "--max-denied", "80%"}, 0, "passed: max-denied 80%: 8 of 10"},
		{[]string{"--policy", "tight.yaml", "--max-denied", "79.99%"}, 1, "FAILED: max-denied 79.99%: 8 of 10"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "0.1"}, 0, "passed: max-denied 0.1: 1 of 10"},
		{[]string{"--policy", "tight.yaml", "--against", "tight.yaml", "--max-flips", "0"}, 0, "passed: max-flips 0: 0 requests"},
		{[]string{"--policy", "tight.yaml", "--against", "loose.yaml", "--max-flips", "0"}, 1, "FAILED: max-flips 0: 1 request "},
		{[]string{"--policy", "tight.yaml", "--against", "loose.yaml", "--max-flips", "1"}, 0, "passed: max-flips 1"},
		{[]string{"--policy", "keyed.yaml", "--max-denied", "1%"}, 1, "1 limit could not be judged"},
		// What couldn't be read or judged never passes.
		{[]string{"--policy", "tenth.yaml", "--max-denied", "50%", "half"}, 1, "FAILED: max-denied 50%: 11 of 20 requests would be denied (55.0%), counting 10 unread lines"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "55%", "half"}, 0, "passed: max-denied 55%: 11 of 20"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "50%", "methods"}, 1, "counting 10 unread lines"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "10%", "handshakes"}, 0, "10 lines aren't about requests, such as"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "50%", "targets"}, 1, "11 of 20 requests would be denied (55.0%), counting 10 requests that could not be judged"},
		{[]string{"--policy", "tenth.yaml", "--max-denied", "100%", "none"}, 1, "FAILED: no request of the log could be judged"},
		{[]string{"--policy", "tight.yaml", "--against", "tight.yaml", "--max-flips", "9", "half"}, 1, "FAILED: max-flips 9: 10 requests would change, counting 10 unread lines"},
		{[]string{"--policy", "tight.yaml", "--against", "tight.yaml", "--max-flips", "9", "targets"}, 1, "FAILED: max-flips 9: 10 requests would change, counting 10 requests that"},
		{[]string{"--policy", "tight.yaml", "--against", "tight.yaml", "--max-flips", "99", "none"}, 1, "FAILED: no request of the log could be judged"},
		{[]string{"--policy", "tight.yaml", "--against", "keyed.yaml", "--max-flips", "99"}, 1, "1 limit of --against could not be judged"},
	} {
		if last := tt.args[len(tt.args)-1]; strings.HasSuffix(last, "%") || strings.Trim(last, "0123456789.") == "" {
			tt.args = append(tt.args, "log")
		}
		code, out, errs := command(t, "", append([]string{"plan"}, tt.args...)...)
		out = strings.Join(strings.Fields(out), " ") // lines are wrapped
		if code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("plan %v: exit code %d, want %d with %q: %s%s", tt.args, code, tt.code, tt.want, out, errs)
		}
	}
}

// What clients write is escaped in each form of the report, and a hashed report shows no key.
func TestHostileLog(t *testing.T) {
	log := access(10, "192.0.2.1") +
		"192.0.2.1 - - [10/Mar/2026:12:00:10 +0000] \"\x1b]0;title\x07 <script>alert(1)</script>\u202e\" 400 1 \"-\" \"-\"\n" +
		"192.0.2.1 - - [10/Mar/2026:12:00:10 +0000] \"GET /<script>alert(1)</script> HTTP/1.1\" 200 1 \"-\" \"\x1b[31m\"\n"
	format := `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_x_api_key"`
	for range 4 {
		log += "192.0.2.1 - - [10/Mar/2026:12:00:11 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"\x1b[31m<script>alert(1)</script>\"\n"
	}
	files(t, map[string]string{"log": log, "p.yaml": strings.Replace(tight, "key: remote-ip", "key: {header: X-API-Key}\nempty-key: skip", 1)})
	for _, hashed := range []bool{false, true} {
		args := []string{"plan", "--policy", "p.yaml", "--format", format, "--html", "r.html"}
		if hashed {
			args = append(args, "--hash-keys")
		}
		code, text, errs := command(t, "", append(args, "log")...)
		_, asJSON, _ := command(t, "", append(args, "--json", "log")...)
		page, err := os.ReadFile("r.html")
		if code != 0 || err != nil {
			t.Fatalf("exit code %d, %v: %s", code, err, errs)
		}
		if !json.Valid([]byte(asJSON)) {
			t.Error("the report isn't JSON")
		}
		if !strings.Contains(text, "per-client") || !strings.Contains(text, "15 requests judged, 10 denied") {
			t.Error(text)
		}
		for name, s := range map[string]string{"text": text, "JSON": asJSON, "page": string(page)} {
			if strings.Contains(s, "\x1b") || strings.Contains(s, "\x07") || strings.Contains(s, "\u202e") && name != "JSON" {
				t.Errorf("%s: control characters of clients", name)
			}
			if strings.Contains(s, "<script") && name != "text" {
				t.Errorf("%s: a script of a client", name)
			}
			if hashed && strings.Contains(s, "192.0.2.1") {
				t.Errorf("%s: an address is shown", name)
			}
			if keys := strings.Contains(s, "%5B31m%3Cscript"); keys == hashed {
				t.Errorf("%s: keys are shown: %v, though hashed: %v", name, keys, hashed)
			}
		}
		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > width {
				t.Errorf("wider than %d columns: %s", width, line)
			}
		}
	}
}

// The page loads nothing, and has each part of the report.
func TestPage(t *testing.T) {
	files(t, map[string]string{"tight.yaml": tight, "loose.yaml": loose, "log": access(100, "192.0.2.1", "192.0.2.2")})
	code, _, errs := command(t, "", "plan", "--policy", "tight.yaml", "--against", "loose.yaml", "--max-denied", "1%", "--html", "r.html", "log")
	if code != 1 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	b, err := os.ReadFile("r.html")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, want := range []string{
		"<title>stint plan: tight.yaml against loose.yaml</title>", "come all at once", "come evenly spread", "200 requests", "Failed: max-denied",
		"denied by per-client", "keys were denied", "192.0.2.1", "Against the limits in force", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q isn't in the page", want)
		}
	}
	if found := regexp.MustCompile(`(?i)<script|<link|src=|url\(|@import|https?://`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	if info, err := os.Stat("r.html"); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		part, all int64
		want      string
	}{{0, 0, "0%"}, {0, 5, "0%"}, {5, 5, "100%"}, {1, 1_000_000, "<0.01%"}, {1, 1000, "0.10%"}, {1, 3, "33.3%"}, {9999, 10000, ">99.9%"}} {
		if got := percent(tt.part, tt.all); got != tt.want {
			t.Errorf("%d of %d: %s, want %s", tt.part, tt.all, got, tt.want)
		}
	}
	for seconds, want := range map[float64]string{0.0015: "2ms", 1.25: "1.3s", 90: "1m30s", 7200: "2h0m"} {
		if got := durationText(seconds); got != want {
			t.Errorf("%v s: %s, want %s", seconds, got, want)
		}
	}
}

// cases returns logs of reports and trials, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	paths, err := filepath.Glob("internal/replay/testdata/cases/*")
	if err != nil || len(paths) == 0 {
		t.Fatal("no cases", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(text)
	}
	return all
}

// Behind a proxy, a request is only judged if the log says which client it is of.
func TestPlanBehindProxy(t *testing.T) {
	const (
		forwarded = "version: 1\nkey: {forwarded-ip: {trusted: [10.0.0.0/8, 172.64.0.0/13]}}\nlimits: [{name: per-client, rate: 1/1h, burst: 2}]\n"
		hashed    = "version: 1\nkey: {hash: {join: [method, {forwarded-ip: {trusted: [10.0.0.0/8, 172.64.0.0/13]}}]}}\nlimits: [{name: per-client, rate: 1/1h, burst: 2}]\n"
		agent     = "version: 1\nkey: {header: User-Agent}\nlimits: [{name: per-client, rate: 1/1h, burst: 2}]\n"
		allowed   = "version: 1\nkey: global\nskip: [{key: {forwarded-ip: {trusted: [10.0.0.0/8, 172.64.0.0/13]}}, cidr: [203.0.113.0/24]}]\nlimits: [{name: per-client, rate: 1/1h, burst: 2}]\n"
	)
	all := cases(t)
	all["forwarded.yaml"], all["hashed.yaml"], all["agent.yaml"], all["allowed.yaml"] = forwarded, hashed, agent, allowed
	files(t, all)
	const unknown = "12 requests not judged: it came from a trusted proxy, and the log doesn't have the X-Forwarded-For with its client"
	for _, tt := range []struct{ log, policy, want string }{
		{"cdn-combined.log", "forwarded.yaml", unknown},
		{"cdn-combined.log", "hashed.yaml", unknown},
		{"cdn-combined.log", "allowed.yaml", "12 requests not judged: it isn't known whether skip or block matches it: the log doesn't have the header field X-Forwarded-For"},
		{"cdn-caddy-plain.log", "forwarded.yaml", unknown},
		{"cdn-main.log", "forwarded.yaml", "12 requests judged, 0 denied"},
		{"cdn-main.log", "allowed.yaml", "12 requests judged, 0 denied (0%), 12 have no limit"},
		{"cdn-caddy-headers.log", "forwarded.yaml", "12 requests judged, 0 denied"},
		{"cdn-caddy-headers.log", "agent.yaml", "12 requests judged, 10 denied"}, // as all header fields are logged
		{"cdn-caddy-client.log", "forwarded.yaml", "12 requests judged, 0 denied"},
		{"cdn-caddy-client.log", "agent.yaml", "the log doesn't have the header field User-Agent"},
		{"edge-combined.log", "forwarded.yaml", "12 requests judged, 0 denied"}, // clients connect to the proxy itself
	} {
		code, out, errs := command(t, "", "plan", "--policy", tt.policy, "--proxy", "10.0.0.1", tt.log)
		if code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%s by %s: exit code %d, and %q isn't in %s%s", tt.log, tt.policy, code, tt.want, out, errs)
		}
		if tt.want == unknown {
			if code, out, _ := command(t, "", "plan", "--policy", tt.policy, "--proxy", "10.0.0.1", "--max-denied", "99%", tt.log); code != 1 {
				t.Errorf("%s by %s: a gate passes: %s", tt.log, tt.policy, out)
			}
		}
	}
	if code, out, _ := command(t, "", "suggest", "--key", "{forwarded-ip: {trusted: [10.0.0.0/8, 172.64.0.0/13]}}", "--proxy", "10.0.0.1", "cdn-combined.log"); code != 1 || !strings.Contains(out, "12 requests left out: it came from a trusted proxy") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// One bad spot doesn't end a replay: it is skipped, counted and shown.
func TestOneBadSpot(t *testing.T) {
	all := cases(t)
	lines := access(10, "192.0.2.1")
	all["log"], all["p.yaml"] = lines, "version: 1\nkey: remote-ip\nlimits: [{name: per-client, rate: 1/10m, burst: 2}]\n"
	half := len(lines) / 2 // between two lines, as all have the same length
	all["long"] = lines[:half] + strings.Repeat("x", 3<<20) + "\n" + lines[half:]
	all["much-nul"] = strings.Repeat("\x00", 3<<20) + lines[:half] + strings.Repeat("\x00", 3<<20) + lines[half:] + strings.Repeat("\x00", 3<<20)
	back := strings.SplitAfter(access(400, "192.0.2.1"), "\n")
	all["late"] = strings.Join(back[200:], "") + back[150] // 249 s are within the window
	all["too-late"] = strings.Join(back[360:], "") + back[0]
	files(t, all)
	for _, tt := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"zeros.log"}, []string{"10 requests judged, 8 denied", "1 line could not be read", "NUL bytes"}},
		{[]string{"much-nul"}, []string{"10 requests judged, 8 denied", "3 lines could not be read", "NUL bytes"}},
		{[]string{"long"}, []string{"10 requests judged, 8 denied", "1 line could not be read", "longer than 1048576 bytes"}},
		{[]string{"ahead.log"}, []string{"10 requests judged, 8 denied", "1 line could not be read", "ahead.log:6: the time 2027-03-10T12:00:04Z is far from the times of the lines before and after it"}},
		{[]string{"ahead-first.log"}, []string{"10 requests judged, 8 denied", "1 line could not be read"}},
		{[]string{"late"}, []string{"201 requests judged", "logged out of order"}},
		{[]string{"too-late"}, []string{"40 requests judged", "1 line could not be read", "is far from the times of the lines before and after it"}},
		{[]string{"--window", "10m", "too-late"}, []string{"41 requests judged", "logged out of order"}},
		{[]string{"clock-set-back.log"}, []string{"10 requests judged, 8 denied", "clock-set-back.log:6: the clock was set back by 59m59s"}},
		// Two requests, and one each ten minutes of 68 minutes.
		{[]string{"--zone", "Europe/Berlin", "summer-time.log"}, []string{"from 2026-10-25 00:59:49 to 2026-10-25 02:08:00", "28 requests judged, 20 denied"}},
		{[]string{"cut.log.gz"}, []string{"the file is incomplete, so requests are missing: cut.log.gz:"}},
	} {
		code, out, errs := command(t, "", append([]string{"plan", "--policy", "p.yaml"}, tt.args...)...)
		text := strings.Join(strings.Fields(out), " ")
		for _, want := range tt.wants {
			if code != 0 || !strings.Contains(text, want) {
				t.Errorf("%v: exit code %d, and %q isn't in %s%s", tt.args, code, want, out, errs)
			}
		}
	}
	if code, out, _ := command(t, "", "plan", "--policy", "p.yaml", "--max-denied", "100%", "cut.log.gz"); code != 1 || !strings.Contains(out, "FAILED: 1 incomplete file: requests are missing") {
		t.Errorf("a gate passes an incomplete file: %s", out)
	}
}

// A field of durations in another unit is refused if it can't be in seconds.
func TestUnitOfDurations(t *testing.T) {
	var ms, slow strings.Builder
	for i := range 20 {
		fmt.Fprintf(&ms, `{"t":%d,"latency":%d,"m":"GET","u":"/","ip":"192.0.2.1"}`+"\n", 1773144000+i, 90+i)
		fmt.Fprintf(&slow, `{"t":%d,"latency":%d,"m":"GET","u":"/","ip":"192.0.2.1"}`+"\n", 1773144000+100*i, 90+i)
	}
	files(t, map[string]string{"ms": ms.String(), "slow": slow.String(), "p.yaml": "version: 1\nkey: remote-ip\nlimits: [{name: slots, concurrency: 1}]\n"})
	for _, tt := range []struct {
		field, log string
		code       int
		want       string
	}{
		{"took=latency", "ms", 2, "the field latency can't be in seconds: most requests would have taken longer than the log covers (19s). Write its unit: ms=latency"},
		{"ms=latency", "ms", 0, "20 requests judged, 0 denied"},
		{"took=latency ms", "ms", 0, "20 requests judged, 0 denied"},
		{"us=latency", "ms", 0, "20 requests judged, 0 denied"},
		{"ns=latency", "ms", 0, "20 requests judged, 0 denied"},
		{"s=latency", "ms", 0, "20 requests judged, 19 denied"}, // written, so it is right
		{"took=latency", "slow", 0, "20 requests judged, "},
	} {
		code, out, errs := command(t, "", "plan", "--policy", "p.yaml", "--field", "end=t", "--field", "method=m", "--field", "target=u", "--field", "peer=ip", "--field", tt.field, tt.log)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s %s: exit code %d, and %q isn't in %s%s", tt.field, tt.log, code, tt.want, out, errs)
		}
	}
}
