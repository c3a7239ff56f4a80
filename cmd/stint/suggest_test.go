package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// crowd returns a JSON log of so many clients within so many minutes, as nginx writes it. Each
// sends pages of some requests; one of a hundred sends far more. keys are put behind the number of
// a client.
func crowd(clients, minutes int, key string) string {
	rnd := rand.New(rand.NewPCG(1, 23))
	var b bytes.Buffer
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC).UnixMilli()
	span := int64(minutes) * 60_000
	for i := range span / 100 {
		c := rnd.IntN(clients)
		if i < int64(clients) {
			c = int(i) // each comes at least once
		}
		n := 1 + rnd.IntN(4)
		if c%100 == 0 {
			n = 20
		}
		ms := at + i*100
		if i == span/100-1 {
			ms = at + span
		}
		quoted, _ := json.Marshal(fmt.Sprint(c, key))
		for range n {
			fmt.Fprintf(&b, `{"msec":"%d.%03d","request_time":"0","remote_addr":"10.0.%d.%d","request_method":"%s","request_uri":"/%d","host":"a","status":"200","body_bytes_sent":"1","key":%s}`+"\n",
				ms/1000, ms%1000, c>>8, c&255, []string{"GET", "POST"}[rnd.IntN(2)], i, quoted)
		}
	}
	return b.String()
}

// What is suggested is a policy that check accepts and that plan finds to touch as many keys as
// suggest has said.
func TestSuggest(t *testing.T) {
	files(t, map[string]string{"log": crowd(1200, 12, "")})
	for _, args := range [][]string{
		{"--key", "remote-ip"},
		{"--key", "remote-ip", "--route", "POST /{$}", "--route", "POST /", "--route", "GET /{item}"},
		{"--key", "{header: X-Key}", "--format", "nginx-json", "--field", "header.X-Key=key"},
		{"--key", "user", "--func", "user=header.X-Key", "--format", "nginx-json", "--field", "header.X-Key=key"},
		{"--key", "remote-ip", "--headroom", "1", "--horizon", "10s", "--share", "99%"},
	} {
		code, out, errs := command(t, "", append(append([]string{"suggest", "--out", "p.yaml", "--json"}, args...), "log")...)
		if code != 0 {
			t.Errorf("suggest %v: exit code %d: %s", args, code, errs)
			continue
		}
		var r struct {
			replay.Suggestions
			Policy string
		}
		file, err := os.ReadFile("p.yaml")
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if err != nil || string(file) != r.Policy {
			t.Errorf("suggest %v: %v: the file isn't the report's policy:\n%s\n%s", args, err, file, r.Policy)
		}
		var named, read []string
		for i := range args {
			switch args[i] {
			case "--func":
				named = append(named, args[i:i+2]...)
			case "--format", "--field":
				read = append(read, args[i:i+2]...)
			}
		}
		if code, out, _ := command(t, "", append([]string{"check", "p.yaml"}, named...)...); code != 0 {
			t.Errorf("suggest %v: check: %s\n%s", args, out, file)
		}
		code, out, errs = command(t, "", append(append(append([]string{"plan", "--policy", "p.yaml", "--json"}, named...), read...), "log")...)
		var planned replay.Report
		if err := json.Unmarshal([]byte(out), &planned); err != nil || code != 0 {
			t.Fatalf("suggest %v: plan: exit code %d, %v: %s", args, code, err, errs)
		}
		denied := map[string]int64{}
		for _, l := range planned.Scenarios[0].Limits {
			denied[l.Limit] = l.KeysDenied
		}
		known := 0
		for _, l := range r.Limits {
			s := l.Shares[0]
			if s.Unknown != "" {
				continue
			}
			known++
			if s.Touched == 0 || s.Touched > l.Keys/100 || denied[l.Limit] != s.Touched {
				t.Errorf("suggest %v: limit %s touches %d keys of %d, and by plan %d", args, l.Limit, s.Touched, l.Keys, denied[l.Limit])
			}
		}
		if want := 1 + strings.Count(strings.Join(args, " "), "--route ") - strings.Count(string(file), "exempt: true") - strings.Count(string(file), "have no limit"); known == 0 || known != want {
			t.Errorf("suggest %v: %d limits, and %d in the file:\n%s", args, known, want, file)
		}
	}
}

// Without --out the policy follows the table, which has no more than a hundred columns.
func TestSuggestText(t *testing.T) {
	files(t, map[string]string{"log": crowd(1200, 12, "")})
	code, out, errs := command(t, "", "suggest", "--key", "remote-ip", "--top", "2", "--route", "POST /", "--route", "DELETE /", "log")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{
		"\ntimes in milliseconds\n", "\n  (none) ", "\n  POST / ", "    99%  ", "\nDELETE /: nothing is suggested: 99% needs a log with 1000 keys, and this one has 0\n",
		"\nrequests that match no route: nothing more is suggested: 99.9% needs a log with 10000 keys, and this\n  one has 1192", "\n  10.0.",
		"\n# Suggested from ", "\n# The numbers are 1.25 times", "\nversion: 1\nkey: remote-ip\n# 99% of the 1", "limits: [{name: per-client, rate: ", "\n  \"POST /\":\n    # 99% of ", "only: [{name: post, rate: ",
		"\n  \"DELETE /\":\n    # Nothing is suggested: 99% needs a log with 1000 keys, and this one has 0.\n    exempt: true",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
	for text := range strings.Lines(out) {
		if utf8.RuneCountInString(text) > width+1 {
			t.Errorf("wider than %d columns: %s", width, text)
		}
	}
}

// What can't be suggested is said, and nothing is written.
func TestSuggestNothing(t *testing.T) {
	files(t, map[string]string{"few": crowd(900, 11, ""), "short": crowd(1200, 9, ""), "empty": ""})
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--key", "remote-ip", "few"}, 1, "99% needs a log with 1000 keys, and this one has 900"},
		{[]string{"--key", "remote-ip", "short"}, 1, "the log covers 9m0s, and must cover ten times"},
		{[]string{"--key", "remote-ip", "--share", "99.9%", "short"}, 1, "the log covers 9m0s"},
		{[]string{"--key", "{header: X-Key}", "few"}, 1, "the log doesn't have the header field X-Key"},
		{[]string{"few"}, 2, "key"},
		{[]string{"--key", "remote-ip", "empty"}, 2, "no requests"},
		{[]string{"--key", "remote-ip", "missing"}, 2, "missing"},
		{[]string{"--key", "remote", "few"}, 2, "--key remote: unknown key"},
		{[]string{"--key", "tenant", "few"}, 2, "give --func tenant"},
		{[]string{"--key", "remote-ip\nlimits: []", "few"}, 2, "in one line"},
		{[]string{"--key", "remote-ip", "--route", "/a", "--route", "post /b", "few"}, 2, `--route post /b: the method must be in upper case`},
		{[]string{"--key", "remote-ip", "--route", "/a", "--route", "/a", "few"}, 2, "--route /a: "},
		{[]string{"--key", "remote-ip", "--share", "98%", "few"}, 2, "write 99%, 99.9% or 99.99%"},
		{[]string{"--key", "remote-ip", "--headroom", "0.5", "few"}, 2, "write a factor"},
		{[]string{"--key", "remote-ip", "--horizon", "0s", "few"}, 2, "write a duration"},
		{[]string{"--key", "remote-ip", "--max-keys", "899", "few"}, 2, "more than 899 keys"},
	} {
		code, out, errs := command(t, "", append([]string{"suggest", "--out", "p.yaml"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) || code == 2 && out != "" {
			t.Errorf("suggest %v: exit code %d, want %d with %q: %s%s", tt.args, code, tt.code, tt.want, out, errs)
		}
		for _, glob := range []string{"*.yaml", ".stint-*"} {
			if left, _ := filepath.Glob(glob); len(left) > 0 {
				t.Errorf("suggest %v: left behind: %v", tt.args, left)
			}
		}
	}
}

// With few clients, the busiest ones' needs are shown, and no policy is written.
func TestSuggestFewClients(t *testing.T) {
	files(t, map[string]string{"log": crowd(60, 65, "")})
	code, out, errs := command(t, "", "suggest", "--key", "remote-ip", "--top", "3", "--out", "p.yaml", "--html", "r.html", "log")
	if code != 1 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"99% needs a log with 1000 keys, and this one has 60\n", "\n  busiest key  route   requests ", " busiest hour  busiest day\n  10.0.0.0 ",
		" burst ", "So few keys are no base for a policy", "A - needs a longer log."} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n  10.0."); n != 3 {
		t.Errorf("%d keys:\n%s", n, out)
	}
	page, err := os.ReadFile("r.html")
	if err != nil || !strings.Contains(string(page), "What the busiest keys need") || strings.Contains(string(page), "version: 1") {
		t.Errorf("%v: %s", err, page)
	}
	if _, err := os.Stat("p.yaml"); err == nil {
		t.Error("a policy was written")
	}
}

// What clients write is escaped wherever it is shown, and hashed keys show nothing.
func TestSuggestHostileLog(t *testing.T) {
	files(t, map[string]string{"log": crowd(1200, 12, "\x1b[31m<script>alert(1)</script>\u202e") + "\x1b[31m<script>alert(1)</script>\n"})
	for _, hashed := range []bool{false, true} {
		args := []string{"suggest", "--key", "{header: X-Key}", "--format", "nginx-json", "--field", "header.X-Key=key", "--html", "r.html"}
		if hashed {
			args = append(args, "--hash-keys")
		}
		code, text, errs := command(t, "", append(args, "log")...)
		_, asJSON, _ := command(t, "", append(args, "--json", "log")...)
		page, err := os.ReadFile("r.html")
		if code != 0 || err != nil {
			t.Fatalf("exit code %d, %v: %s", code, err, errs)
		}
		for _, want := range []string{"<polyline", "<circle", "share of keys", "keys denied", "prefers-color-scheme: dark", "version: 1"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%q isn't in the page", want)
			}
		}
		if found := regexp.MustCompile(`(?i)<script|<link|src=|url\(|@import|https?://|NaN|Inf\b`).FindString(string(page)); found != "" {
			t.Errorf("the page has %q", found)
		}
		if !json.Valid([]byte(asJSON)) {
			t.Error("the report isn't JSON")
		}
		for name, s := range map[string]string{"text": text, "JSON": asJSON, "page": string(page)} {
			if strings.Contains(s, "\x1b") || strings.Contains(s, "\u202e") && name != "JSON" {
				t.Errorf("%s: control characters of clients", name)
			}
			if shown := strings.Contains(s, "%5B31m%3Cscript"); shown == hashed {
				t.Errorf("%s: keys are shown: %v, though hashed: %v", name, shown, hashed)
			}
		}
	}
}
