package replay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// Each log of testdata/logs is recognized, and says of its requests what it has.
func TestFormats(t *testing.T) {
	second := time.Date(2026, 3, 10, 13, 55, 36, 0, time.UTC)
	begins := second.Add(200 * time.Millisecond)
	const browser, slow = "Mozilla/5.0 (X11; Linux x86_64)", 50 * time.Millisecond
	item := replay.Request{End: second, Peer: "192.0.2.7", Method: "GET", Target: "/items?page=2", Status: 200, Written: 2326}
	with := func(change func(r *replay.Request)) replay.Request {
		r := item
		change(&r)
		return r
	}
	plain := with(func(r *replay.Request) { r.Fields = []string{"ann", "https://example.com/", browser} })
	timed := func(r *replay.Request) {
		r.End, r.Took, r.Host = begins.Add(slow), slow, "api.example.com"
	}
	whole := replay.Says{Resolution: time.Second, Peer: true, Status: true, Fields: []string{"Remote-User", "Referer", "User-Agent"}}
	object := replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Host: true, Status: true}
	seen := map[string]bool{}
	for _, tt := range []struct {
		file, format     string
		says             replay.Says
		first            replay.Request
		requests, broken int64
	}{
		{"combined", "combined", whole, plain, 3, 1},
		{"bom", "combined", whole, plain, 3, 1},
		{"gzip_ratio", "combined", whole, plain, 3, 1},
		{"common", "common", replay.Says{Resolution: time.Second, Peer: true, Status: true, Fields: []string{"Remote-User"}},
			with(func(r *replay.Request) { r.Fields = []string{"ann"} }), 3, 1},
		{"vhost_combined", "vhost_combined", whole, plain, 3, 1},
		{"main", "main", replay.Says{Resolution: time.Second, Peer: true, Status: true, Fields: []string{"Remote-User", "Referer", "User-Agent", "X-Forwarded-For"}},
			with(func(r *replay.Request) {
				r.Fields = []string{"ann", "https://example.com/", browser, "203.0.113.9, 198.51.100.1"}
			}), 3, 1},
		{"ingress-nginx", "ingress-nginx", replay.Says{Resolution: time.Second, Took: true, Peer: true, Status: true, Fields: []string{"Remote-User", "Referer", "User-Agent"}},
			with(func(r *replay.Request) { r.Fields, r.Took = plain.Fields, 5*time.Millisecond }), 3, 1},
		{"syslog-3164", "combined in syslog", whole, plain, 3, 1},
		{"syslog-3164-file", "combined in syslog", whole, plain, 3, 1},
		{"syslog-rfc3339-file", "combined in syslog", whole, plain, 3, 1},
		{"syslog-5424", "combined in syslog", whole, plain, 3, 1},
		{"cri", "combined in CRI", whole, plain, 3, 2},
		{"docker", "combined in Docker's json-file", whole, plain, 3, 1},
		{"caddy", "caddy", object, with(func(r *replay.Request) {
			r.End, r.Took, r.Host = second.Add(250*time.Millisecond), 1500*time.Microsecond, "api.example.com"
		}), 2, 0},
		{"caddy-docker", "caddy in Docker's json-file", object, with(func(r *replay.Request) {
			r.End, r.Took, r.Host = second.Add(250*time.Millisecond), 1500*time.Microsecond, "api.example.com"
		}), 2, 0},
		{"alb", "alb", replay.Says{Resolution: time.Microsecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"User-Agent"}},
			with(func(r *replay.Request) {
				r.End, r.Took, r.Peer, r.Host, r.Written = second.Add(250641*time.Microsecond), slow, "192.0.2.7:2817", "www.example.com:443", 0
				r.Fields = []string{"curl/8.5.0"}
			}), 2, 1},
		{"cloudfront", "cloudfront", replay.Says{Resolution: time.Second, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"Host", "Referer", "User-Agent", "Cookie", "X-Forwarded-For"}},
			with(func(r *replay.Request) {
				r.Took, r.Host, r.Written = slow, "www.example.com", 0
				r.Fields = []string{"d111111abcdef8.cloudfront.net", "https://example.com/", "Mozilla/5.0 (X11)", "", "203.0.113.9, 198.51.100.1"}
			}), 2, 0},
		{"w3c", "w3c", replay.Says{Resolution: time.Second, Took: true, Peer: true, Status: true, Fields: []string{"Remote-User", "User-Agent", "Referer"}},
			with(func(r *replay.Request) {
				r.Took, r.Written, r.Fields = slow, 0, []string{"ann", "Mozilla/5.0 (Windows NT 10.0)", ""}
			}), 3, 0},
		{"haproxy", "haproxy in syslog", replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Status: true},
			with(func(r *replay.Request) {
				r.End, r.Took, r.Peer, r.Written = begins.Add(slow), slow, "192.0.2.7:33317", 0
			}), 2, 2},
		{"envoy", "envoy", replay.Says{Resolution: time.Millisecond, Took: true, Host: true, Status: true, Fields: []string{"X-Forwarded-For", "User-Agent", "X-Request-Id"}},
			with(func(r *replay.Request) {
				timed(r)
				r.Peer, r.Fields = "", []string{"203.0.113.9,198.51.100.1", "curl/8.5.0", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"}
			}), 2, 0},
		{"envoy-json", "envoy-json", replay.Says{Resolution: time.Millisecond, Took: true, Host: true, Status: true},
			with(func(r *replay.Request) { timed(r); r.Peer = "" }), 1, 0},
		{"istio", "istio", replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"X-Forwarded-For", "User-Agent", "X-Request-Id"}},
			with(func(r *replay.Request) {
				timed(r)
				r.Peer, r.Fields = "192.0.2.7:54241", []string{"203.0.113.9,192.0.2.7", "curl/8.5.0", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"}
			}), 2, 1},
		{"istio-json", "envoy-json", replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"X-Forwarded-For", "User-Agent", "X-Request-Id"}},
			with(func(r *replay.Request) {
				timed(r)
				r.Peer, r.Fields = "192.0.2.7:54241", []string{"203.0.113.9,192.0.2.7", "curl/8.5.0", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"}
			}), 2, 0},
		{"gin", "gin", replay.Says{Resolution: time.Second, Took: true, Peer: true, Status: true},
			with(func(r *replay.Request) { r.Took, r.Written = slow, 0 }), 4, 6},
		{"echo", "echo", replay.Says{Resolution: time.Microsecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"User-Agent"}},
			with(func(r *replay.Request) { timed(r); r.Fields = []string{"curl/8.5.0"} }), 2, 0},
		{"echo-v5", "echo-v5", replay.Says{Resolution: time.Microsecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"User-Agent"}},
			with(func(r *replay.Request) { timed(r); r.Fields = []string{"curl/8.5.0"} }), 2, 1},
		{"slog", "slog", replay.Says{Resolution: time.Millisecond, Peer: true, Status: true},
			with(func(r *replay.Request) {
				r.End, r.Peer, r.Written = second.Add(250*time.Millisecond), "192.0.2.7:1234", 0
			}), 2, 1},
		{"journald", "combined in journald's JSON", replay.Says{Resolution: time.Millisecond, Peer: true, Status: true, Fields: whole.Fields},
			with(func(r *replay.Request) { r.End, r.Fields = second.Add(250*time.Millisecond), plain.Fields }), 3, 1},
		{"caddy-console", "caddy in Caddy's console format", object, with(func(r *replay.Request) {
			r.End, r.Took, r.Host = second.Add(250*time.Millisecond), 1500*time.Microsecond, "api.example.com"
		}), 2, 2},
		{"traefik", "traefik", object, with(timed), 1, 0},
		{"nginx-json", "nginx-json", replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Status: true},
			with(func(r *replay.Request) { timed(r); r.Host = "" }), 1, 0},
		{"cloudflare", "cloudflare", object, with(timed), 2, 0},
		{"cloudflare-rfc3339", "cloudflare", replay.Says{Resolution: time.Second, Peer: true, Host: true, Status: true},
			with(func(r *replay.Request) { r.Host = "api.example.com" }), 2, 0},
	} {
		t.Run(tt.file, func(t *testing.T) {
			seen[tt.file+".log"] = true
			name, _, _ := strings.Cut(tt.format, " in ")
			for _, given := range []string{"", name} { // named, it is read alike
				text, err := os.ReadFile(filepath.Join("testdata", "logs", tt.file+".log"))
				if err != nil {
					t.Fatal(err)
				}
				l, err := replay.Read(tt.file, strings.NewReader(string(text)), options(given, nil)...)
				if err != nil {
					t.Fatal(err)
				}
				tt.says.Format = tt.format
				if got := l.Says(); !reflect.DeepEqual(got, tt.says) {
					t.Errorf("it says %+v, want %+v", got, tt.says)
				}
				all := read(t, l)
				if len(all) == 0 {
					t.Fatal("no requests")
				}
				if !all[0].End.Equal(tt.first.End) {
					t.Errorf("it ended at %v, want %v", all[0].End, tt.first.End)
				}
				if all[0].End = tt.first.End; !reflect.DeepEqual(all[0], tt.first) {
					t.Errorf("%+v, want %+v", all[0], tt.first)
				}
				if l, err = replay.Read(tt.file, strings.NewReader(string(text)), options(given, nil)...); err != nil {
					t.Fatal(err)
				}
				r, err := replay.Run(func() (*stint.Limiter, error) {
					return stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.Global()))
				}, l)
				if err != nil || r.Log.Format != tt.format || r.Log.Requests != tt.requests || r.Log.Broken.Lines != tt.broken {
					t.Errorf("%v: %+v", err, r.Log)
				}
			}
		})
	}
	files, _ := os.ReadDir(filepath.Join("testdata", "logs"))
	for _, f := range files {
		if !seen[f.Name()] {
			t.Errorf("no test reads %s", f.Name())
		}
	}
}

// A log of another format is no log of a known one.
func TestUnknownFormats(t *testing.T) {
	for name, tt := range map[string]struct {
		lines string
		opts  []replay.ReadOption
		want  string
	}{
		"names for addresses": {strings.Repeat(`host.example - - [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`+"\n", 3), nil, "the format isn't known: write one of"},
		"named":               {`host.example - - [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 1` + "\n", options("common", nil), "its peer can't be read"},
		"words":               {"some words\nand more\n", nil, "the format isn't known"},
		"another JSON":        {`{"a":1}` + "\n", nil, "write --field for each part of a request"},
		"part of a JSON":      {`{"a":1}` + "\n", options("", []field{{"end", "a"}}), "no request"},
		"fields of text":      {"some words\n", options("", []field{{"end", "a"}}), "--field is for logs of JSON"},
		"columns unnamed":     {"2026-03-10 13:55:38 GET /a 198.51.100.23 304 1\n", options("w3c", nil), "no line before it names the columns"},
		"caddy's, and isn't":  {`{"a":1}` + "\n", options("caddy", nil), "no line has request.uri"},
	} {
		l, err := replay.Read("access.log", strings.NewReader(tt.lines), tt.opts...)
		if err == nil {
			_, err = replay.Run(byAddress(1), l)
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A field that was named wrongly is an error, and one that the log doesn't have every time isn't.
func TestFieldsOfTheLog(t *testing.T) {
	line := func(i int, key string) string {
		return fmt.Sprintf(`{"ts":%d.5,"request":{"remote_ip":"192.0.2.7","method":"GET","host":"a","uri":"/","headers":{%s}},"duration":0.1,"size":1,"status":200}`+"\n", 1773150936+i, key)
	}
	var lines, hidden string
	for i := range 300 { // more than are looked at to recognize it
		lines += line(i, "")
		hidden += line(i, `"X-Api-Key":["REDACTED"]`)
	}
	rare := lines + line(300, `"X-Api-Key":["k1"]`)
	byKey := made(stint.Rate(1, time.Second, stint.WithName("keyed")), stint.WithKey(stint.Header("X-Api-Key")), stint.WithEmptyKey(stint.SkipEmptyKey), stint.WithoutWarnings())
	run := func(name string, logs ...string) (*replay.Report, error) {
		var all []replay.Log
		for _, text := range logs {
			l, err := replay.Read("access.json", strings.NewReader(text), replay.WithField("header.X-Api-Key", name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		l, err := replay.Merge(all...)
		if err != nil {
			t.Fatal(err)
		}
		return replay.Run(byKey, l)
	}
	if r, err := run("request.headers.X-Api-Key.0", rare); err != nil || r.Scenarios[0].Requests != 301 || r.Scenarios[0].Exempt != 300 {
		t.Errorf("%v: %+v", err, r)
	}
	if _, err := run("request.headers.X-Api-Key.0", lines, rare); err != nil { // one of the files has it
		t.Error(err)
	}
	for _, name := range []string{"request.header.X-Api-Key.0", "request.headers.X-Api-Key", "request.headers.X-Api-Key.1"} {
		if _, err := run(name, rare); err == nil || !strings.Contains(err.Error(), "no line of the log has "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range []field{{"peer", "request.remote"}, {"method", "verb"}} {
		l, err := replay.Read("access.json", strings.NewReader(lines), replay.WithField(f.part, f.name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = replay.Run(byKey, l); err == nil || !strings.Contains(err.Error(), "no line of the log has "+f.name) {
			t.Errorf("%v: %v", f, err)
		}
		if l, err = replay.Read("access.json", strings.NewReader(lines), replay.WithField(f.part, f.name)); err != nil {
			t.Fatal(err)
		}
		if _, err = replay.Suggest(byKey, l); err == nil || !strings.Contains(err.Error(), "no line of the log has "+f.name) {
			t.Errorf("%v: %v", f, err)
		}
	}
	// What the log hides isn't a key.
	why := "the log hides its header field X-Api-Key: REDACTED"
	if r, err := run("request.headers.X-Api-Key.0", hidden); err != nil || r.Scenarios[0].Requests != 0 || r.Scenarios[0].Unjudged[why] != 300 {
		t.Errorf("%v: %+v", err, r)
	}
}

// A peer that isn't an address is never a key, whoever wrote the log.
func TestPeersAreAddresses(t *testing.T) {
	requests := []replay.Request{at(0, "unknown"), at(time.Second, "192.0.2.1:80"), at(2*time.Second, "-"), at(3*time.Second, "")}
	s := run(t, byAddress(1), everything, requests).Scenarios[0]
	if s.Requests != 1 || s.Unjudged["its peer isn't an address"] != 3 {
		t.Errorf("%+v", s)
	}
	s = run(t, made(stint.Rate(9, time.Second), stint.WithKey(stint.Method()), stint.WithoutWarnings()), everything, slices.Clone(requests)).Scenarios[0]
	if s.Requests != 4 { // nothing looks at it
		t.Errorf("%+v", s)
	}
}

// A log that is shuffled within minutes gives the report of the same log in order, and says how far
// it was out of order.
func TestShuffled(t *testing.T) {
	requests := crowd(1, 300, time.Millisecond)
	lim := made(stint.Rate(1, 10*time.Second, stint.WithBurst(3)), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
	want := run(t, lim, everything, slices.Clone(requests))
	shuffled := slices.Clone(requests)
	slices.SortStableFunc(shuffled, func(a, b replay.Request) int { // each four minutes backwards
		if c := a.End.Truncate(4 * time.Minute).Compare(b.End.Truncate(4 * time.Minute)); c != 0 {
			return c
		}
		return b.End.Compare(a.End)
	})
	got := run(t, lim, everything, slices.Clone(shuffled))
	if got.Log.Sorted == 0 || got.Log.Disorder < 200 || got.Log.Disorder > 240 || got.Log.Moved != 0 {
		t.Errorf("%+v", got.Log)
	}
	got.Log.Sorted, got.Log.Disorder = 0, 0
	if !reflect.DeepEqual(got.Log, want.Log) || got.Scenarios[0].Denied != want.Scenarios[0].Denied || got.Scenarios[0].Denied == 0 {
		t.Errorf("%+v %+v, want %+v %+v", got.Log, got.Scenarios[0].Count, want.Log, want.Scenarios[0].Count)
	}
	if _, err := replay.Run(lim, &sliceLog{everything, slices.Clone(shuffled)}, replay.WithWindow(time.Minute)); err == nil || !strings.Contains(err.Error(), "a longer window") {
		t.Error(err)
	}
}

// Of a busy log, half a minute is held, and all of a window that is given.
func TestBusyLog(t *testing.T) {
	var requests []replay.Request
	for i := range 40_000 { // 200 seconds
		requests = append(requests, at(time.Duration(i)*5*time.Millisecond, "192.0.2.1"))
	}
	lim := made(stint.Rate(9, time.Second), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings())
	for _, tt := range []struct {
		back  time.Duration
		opts  []replay.RunOption
		moved int64
	}{
		{20 * time.Second, nil, 0}, {80 * time.Second, nil, 0}, {100 * time.Second, nil, 1},
		{100 * time.Second, []replay.RunOption{replay.WithWindow(2 * time.Minute)}, 0},
	} {
		late := at(200*time.Second-tt.back, "192.0.2.2")
		r := run(t, lim, everything, append(slices.Clone(requests), late), tt.opts...)
		if r.Log.Moved != tt.moved || r.Log.Sorted != 1 || r.Log.Requests != 40_001 {
			t.Errorf("%v: %+v", tt.back, r.Log)
		}
	}
}
