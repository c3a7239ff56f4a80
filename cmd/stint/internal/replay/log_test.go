package replay_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// read returns the requests of a log.
func read(t *testing.T, l replay.Log) (all []replay.Request) {
	t.Helper()
	for {
		var r replay.Request
		switch err := l.Next(&r); err {
		case nil:
			all = append(all, r)
		case io.EOF:
			return all
		default:
			t.Fatal(err)
		}
	}
}

func TestText(t *testing.T) {
	end := time.Date(2026, 3, 10, 13, 55, 36, 0, time.FixedZone("", -7*3600))
	for _, tt := range []struct {
		name, format, line string
		says               replay.Says
		want               replay.Request
	}{
		{
			"combined", "combined",
			`192.0.2.7 - ann [10/Mar/2026:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "https://example.com/" "curl/8"`,
			replay.Says{Resolution: time.Second, Peer: true, Status: true, Fields: []string{"Remote-User", "Referer", "User-Agent"}},
			replay.Request{End: end, Peer: "192.0.2.7", Method: "GET", Target: "/a?b=c", Status: 200, Written: 2326, Fields: []string{"ann", "https://example.com/", "curl/8"}},
		},
		{
			"common, with more behind it", "common",
			`2001:db8::1 - - [10/Mar/2026:13:55:36 -0700] "POST /login HTTP/2.0" 403 - 0.1 more`,
			replay.Says{Resolution: time.Second, Peer: true, Status: true, Fields: []string{"Remote-User"}},
			replay.Request{End: end, Peer: "2001:db8::1", Method: "POST", Target: "/login", Status: 403, Fields: []string{""}},
		},
		{
			"nginx with times and fields", `$remote_addr [$msec] ${request_time}s $upstream_response_time "$request" $status "$http_x_api_key" "$http_user_agent" $host`,
			`192.0.2.7 [1773176136.250] 0.250s 0.100, 0.140 "GET / HTTP/1.1" 502 "a\x22b" "-" api.test`,
			replay.Says{Resolution: time.Millisecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"X-Api-Key", "User-Agent"}},
			replay.Request{End: end.Add(250 * time.Millisecond), Took: 250 * time.Millisecond, Peer: "192.0.2.7", Host: "api.test", Method: "GET", Target: "/", Status: 502, Fields: []string{`a"b`, ""}},
		},
		{
			"nginx with the upstream's time", `$time_iso8601 $request_method $request_uri $upstream_response_time`,
			`2026-03-10T13:55:36-07:00 GET /x 0.100`,
			replay.Says{Resolution: time.Second, Took: true},
			replay.Request{End: end, Took: 100 * time.Millisecond, Method: "GET", Target: "/x"},
		},
		{
			"Apache", `%h %l %u %t \"%r\" %>s %b \"%{User-Agent}i\" %D`,
			`192.0.2.7 - - [10/Mar/2026:13:55:36 -0700] "GET /a HTTP/1.1" 200 12 "say \"hi\"" 1500`,
			replay.Says{Resolution: time.Second, Took: true, Peer: true, Status: true, Fields: []string{"Remote-User", "User-Agent"}},
			replay.Request{End: end.Add(1500 * time.Microsecond), Took: 1500 * time.Microsecond, Peer: "192.0.2.7", Method: "GET", Target: "/a", Status: 200, Written: 12, Fields: []string{"", `say "hi"`}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := replay.Read("access.log", strings.NewReader(tt.line+"\n"), replay.WithFormat(tt.format))
			if err != nil {
				t.Fatal(err)
			}
			all := read(t, l)
			if len(all) != 1 {
				t.Fatalf("%d requests", len(all))
			}
			if !all[0].End.Equal(tt.want.End) {
				t.Errorf("it ended at %v, want %v", all[0].End, tt.want.End)
			}
			all[0].End = tt.want.End
			if !reflect.DeepEqual(all[0], tt.want) {
				t.Errorf("%+v, want %+v", all[0], tt.want)
			}
			tt.says.Format = tt.format
			if got := l.Says(); !reflect.DeepEqual(got, tt.says) {
				t.Errorf("it says %+v, want %+v", got, tt.says)
			}
		})
	}
}

// The hour that comes twice when clocks are set back is ambiguous only where the log has no zone.
func TestZonesOfLayouts(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for format, line := range map[string]string{
		`%ci:%cp [%trg] "%r" %ST`:                         `192.0.2.7:1 [25/Oct/2026:02:30:00 +0%d00] "GET / HTTP/1.1" 200`,
		`%h [%{%d/%b/%Y:%T %z}t] "%r" %s`:                 `192.0.2.7 [25/Oct/2026:02:30:00 +0%d00] "GET / HTTP/1.1" 200`,
		`%h %t "%r" %s`:                                   `192.0.2.7 [25/Oct/2026:02:30:00 +0%d00] "GET / HTTP/1.1" 200`,
		`$remote_addr [$time_iso8601] "$request" $status`: `192.0.2.7 [2026-10-25T02:30:00+0%d:00] "GET / HTTP/1.1" 200`,
	} {
		for hours := range 3 {
			l, err := replay.Read("a", strings.NewReader(fmt.Sprintf(line, hours)+"\n"), replay.WithFormat(format), replay.WithZone(berlin))
			if err != nil {
				t.Fatal(err)
			}
			all, want := read(t, l), time.Date(2026, 10, 25, 2-hours, 30, 0, 0, time.UTC)
			if len(all) != 1 || !all[0].End.Equal(want) {
				t.Errorf("%s, %d hours from UTC: %v, want %v", format, hours, all, want)
			}
		}
	}
}

// Where a format has a port, the peer is the text before the last colon.
func TestPeersWithPorts(t *testing.T) {
	lines := map[string]string{
		"haproxy": `%s [10/Mar/2026:13:55:36.200] http-in static/srv1 10/0/30/5/50 200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`,
		"alb":     `https 2026-03-10T13:55:36.250641Z app/shop/50dc %s 10.0.0.1:80 0.001 0.048 0.001 200 200 34 2326 "GET https://www.example.com:443/ HTTP/1.1" "curl/8.5.0" - - -`,
		`$remote_addr:$remote_port [$time_local] "$request" $status`: `%s [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200`,
		`%h:%{remote}p %t "%r" %s`:                                   `%s [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200`,
	}
	policy := made(stint.Rate(1, time.Hour), stint.WithKey(stint.IP{IPv6Bits: 128}.Key()), stint.WithoutWarnings())
	for format, line := range lines {
		for peer, key := range map[string]string{
			"192.0.2.7:54241": "192.0.2.7", "2001:db8::1:54241": "2001:db8::1/128", "2001:db8::1:5424": "2001:db8::1/128", "2001:db8::1:80": "2001:db8::1/128",
			"::ffff:192.0.2.7:54241": "192.0.2.7", "::ffff:192.0.2.7:80": "192.0.2.7", "[2001:db8::1]:54241": "2001:db8::1/128",
			"2001:db8:1:2:3:4:5:6:54241": "2001:db8:1:2:3:4:5:6/128",
		} {
			text := fmt.Sprintf(line, peer) + "\n"
			l, err := replay.Read("a", strings.NewReader(text+text), replay.WithFormat(format))
			if err != nil {
				t.Fatal(err)
			}
			r, err := replay.Run(policy, l)
			if err != nil {
				t.Errorf("%s %s: %v", format, peer, err)
				continue
			}
			if s := r.Scenarios[0]; s.Denied != 1 || s.Top[0].Key != key {
				t.Errorf("%s %s: %+v", format, peer, s)
			}
		}
	}
}

// Logs of servers' own words and behind the prefixes of tools.
func TestMoreFormats(t *testing.T) {
	const line = `192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 1`
	for name, tt := range map[string]struct{ format, line, want string }{
		"Apache's begin":       {`%h %t %{msec}t "%r" %s %D`, `192.0.2.7 [10/Mar/2026:13:55:36 +0000] 1773150936250 "GET /a?b=c HTTP/1.1" 200 500000`, "55:36.750 GET /a?b=c "},
		"Apache's end":         {`%h %{end:usec}t "%r" %s`, `192.0.2.7 1773150936250000 "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"Apache's seconds":     {`%h %{sec}t "%r" %s`, `192.0.2.7 1773150936 "GET /a?b=c HTTP/1.1" 200`, "55:36.000 GET /a?b=c "},
		"Apache's path":        {`%h %{sec}t %m %U%q %s`, `192.0.2.7 1773150936 GET /a?b=c 200`, "55:36.000 GET /a?b=c "},
		"strftime":             {`%h [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] "%r" %s %D`, `192.0.2.7 [10/Mar/2026:13:55:36.250 +0000] "GET /a?b=c HTTP/1.1" 200 500000`, "55:36.750 GET /a?b=c "},
		"strftime, unquoted":   {`%h %{%Y-%m-%d %H:%M:%S}t.%{usec_frac}t "%r" %s`, `192.0.2.7 2026-03-10 13:55:36.250000 "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"strftime at the end":  {`%h %{end:%FT%T}t.%{end:msec_frac}tZ "%r" %s`, `192.0.2.7 2026-03-10T13:55:36.250Z "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"strftime, both":       {`%h %{begin:%F %T}t %{end:%F %T}t.%{end:msec_frac}t "%r" %s`, `192.0.2.7 2026-03-10 13:55:36 2026-03-10 13:55:36.250 "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"strftime's spaces":    {`%h [%{%a %b %e %T %Y}t] "%r" %s`, `192.0.2.7 [Tue Mar 10 13:55:36 2026] "GET /a?b=c HTTP/1.1" 200`, "55:36.000 GET /a?b=c "},
		"seconds and fraction": {`%h %{sec}t.%{msec_frac}t "%r" %s`, `192.0.2.7 1773150936.250 "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"HAProxy's httplog": {`%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r`,
			`192.0.2.7:33317 [10/Mar/2026:13:55:36.200] http-in static/srv1 10/0/30/5/50 200 2750 - - ---- 1/1/1/1/0 0/0 {www.example.com} {} "GET /a?b=c HTTP/1.1"`, "55:36.250 GET /a?b=c "},
		"HAProxy without captures": {`%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r`,
			`192.0.2.7:33317 [10/Mar/2026:13:55:36.200] http-in static/srv1 10/0/30/5/+50 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`, "55:36.250 GET /a?b=c "},
		"HAProxy's httpslog": {`%ci:%cp\ [%tr]\ %ft\ %b/%s\ %TR/%Tw/%Tc/%Tr/%Ta\ %ST\ %B\ %hr\ %hs\ %{+Q}r\ %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]\ %[ssl_fc_sni]/%sslv/%sslc`,
			`192.0.2.7:33317 [10/Mar/2026:13:55:36.200] http-in static/srv1 10/0/30/5/50 200 2750 {a} "GET /a?b=c HTTP/1.1" 0/0/0 a.test/TLSv1.3/TLS_AES`, "55:36.250 GET /a?b=c "},
		"HAProxy's clf": {`%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc`,
			`192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 2750 "" "" 33317 200 "http-in" "static" "srv1" 10 0 30 5 250 ----`, "55:36.250 GET /a?b=c "},
		"HAProxy's parts": {`%ci %trl %HM %HP%HQ %ST %Ta %{+Q}[capture.req.hdr(0),lower]`,
			`192.0.2.7 10/Mar/2026:13:55:36 +0000 GET /a?b=c 200 50 "x y"`, "55:36.050 GET /a?b=c "},
		"HAProxy's parts in quotes": {`%{+Q}o "%{-Q}ci" %tr %HM %HU %ST %{+Q}[capture.req.hdr(0),lower] %Ta`,
			`"192.0.2.7" 10/Mar/2026:13:55:36.200 "GET" "/a?b=c" 200 "x y" 50`, "55:36.250 GET /a?b=c "},
		"nginx's bare time":    {`$remote_addr $time_local $request_method $request_uri $status`, `192.0.2.7 10/Mar/2026:14:55:36 +0100 GET /a?b=c 200`, "55:36.000 GET /a?b=c "},
		"nginx's host":         {`$remote_addr $msec $request_method $host$request_uri $status`, `192.0.2.7 1773150936.250 GET a.test/a?b=c 200`, "55:36.250 GET /a?b=c a.test"},
		"nginx's path":         {`$remote_addr $msec $request_method $uri$is_args$args $status`, `192.0.2.7 1773150936.250 GET /a?b=c 200`, "55:36.250 GET /a?b=c "},
		"classic ELB":          {"", `2026-03-10T13:55:36.250000Z shop 192.0.2.7:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://a.test:80/a?b=c HTTP/1.1" "curl/7.38.0" - -`, "55:36.250 GET /a?b=c a.test:80"},
		"kubectl --timestamps": {"", "2026-03-10T13:55:36.123456789Z " + line, "55:36.123 GET /a?b=c "},
		"kubectl --prefix":     {"", "[pod/web-5d/nginx] " + line, "55:36.000 GET /a?b=c "},
		"kubectl, both":        {"", "[pod/web-5d/nginx] 2026-03-10T13:55:36.123456789Z " + line, "55:36.123 GET /a?b=c "},
		"a prefix of a second": {"", "2026-03-10T13:55:37.000000000Z " + line, "55:36.000 GET /a?b=c "},
		"a prefix too late":    {"", "2026-03-10T13:55:38.123456789Z " + line, "55:36.000 GET /a?b=c "},
		"a prefix before":      {"", "2026-03-10T13:55:35.923456789Z " + line, "55:36.000 GET /a?b=c "},
		"finer than a prefix":  {`$remote_addr $msec "$request" $status`, `2026-03-10T13:55:36.323456789Z 192.0.2.7 1773150936.250 "GET /a?b=c HTTP/1.1" 200`, "55:36.250 GET /a?b=c "},
		"only a prefix":        {`$remote_addr "$request" $status`, `2026-03-10T13:55:36.323456789Z 192.0.2.7 "GET /a?b=c HTTP/1.1" 200`, "55:36.323 GET /a?b=c "},
		"CRI":                  {"", "2026-03-10T13:55:36.123456789Z stdout F " + line, "55:36.123 GET /a?b=c "},
		"syslog of RFC 3339":   {"", "2026-03-10T13:55:36.123456+00:00 web1 nginx: " + line, "55:36.123 GET /a?b=c "},
		"syslog of RFC 5424":   {"", "<190>1 2026-03-10T13:55:36.123456Z web1 nginx 7 - - " + line, "55:36.123 GET /a?b=c "},
		"docker compose -t":    {"", "web-1  | 2026-03-10T13:55:36.123456789Z " + line, "55:36.123 GET /a?b=c "},
		"docker compose":       {"", "web-1  | " + line, "55:36.000 GET /a?b=c "},
		"colors":               {"", "\x1b[36mweb-1  | \x1b[0m" + line, "55:36.000 GET /a?b=c "},
	} {
		l, err := replay.Read("a", strings.NewReader(tt.line+"\n"+tt.line+"\n"), options(tt.format, nil)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all := read(t, l)
		if len(all) != 2 {
			t.Errorf("%s: %d requests", name, len(all))
			continue
		}
		r := all[1]
		if got := r.End.UTC().Format("04:05.000 ") + r.Method + " " + r.Target + " " + r.Host; got != tt.want || !strings.HasPrefix(r.Peer, "192.0.2.7") {
			t.Errorf("%s: %s of %s, want %s", name, got, r.Peer, tt.want)
		}
	}
}

func TestFormatMistakes(t *testing.T) {
	for format, want := range map[string]string{
		`$remote_addr "$request"`:                       "no time",
		`$remote_addr [$time_local]`:                    "no request",
		`$remote_addr$time_local "$request"`:            "nothing between two variables, before time_local",
		`$remote_addr [$time_local] "$request" $`:       "without a name",
		`[$time_local] "$request" ${status`:             "without a }",
		`%h %{%T}t.%{msec_frac}t "%r"`:                  "%{%T}t.%{msec_frac}t isn't a whole time",
		`%h %{%F %T}t %{msec_frac}t "%r"`:               "%{msec_frac}t isn't a whole time",
		`%h %{%F %I:%M:%S}t "%r"`:                       "isn't a whole time",
		`%h %{%F %T %Z}t "%r"`:                          "%Z in a time isn't read: log %{msec}t",
		`%h %{%c}t "%r"`:                                "%c in a time isn't read",
		`%h %{%F at %T}t "%r"`:                          "log %{msec}t or %{end:msec}t",
		`%h %{cookie}t "%r"`:                            "log %{msec}t or %{end:msec}t",
		`%h %{%F %}t "%r"`:                              "in a time isn't read",
		`%ci [%t] %{+Q}r`:                               "%t is when the connection was accepted",
		`%ci [%tr] %HM %HV`:                             "%HM and %HU, of HAProxy",
		`%ci [%tr] %HM %HU %HQ`:                         "write %HP%HQ",
		`%ci [%tr] %{+Qr`:                               "without a }",
		`%ci [%tr] %[capture.req.hdr(0)`:                "without a ]",
		`%ci [%tr] %{+Q}r %-`:                           "a % without a word",
		`[%START_TIME%] "%REQ(:METHOD)%" %DURATION%`:    "write --format envoy, istio or envoy-json",
		`%h %{sec}t %m %q`:                              "write %U%q",
		`%t \"%r\" %{X-Key`:                             "without a }",
		`[$time_local] "$request" "$cookie_session" $x`: "$http_cookie",
	} {
		if _, err := replay.Read("a", strings.NewReader(""), replay.WithFormat(format)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", format, err, want)
		}
	}
}

// field is what WithField has for a part.
type field struct{ part, name string }

func options(format string, fields []field) (opts []replay.ReadOption) {
	if format != "" {
		opts = append(opts, replay.WithFormat(format))
	}
	for _, f := range fields {
		opts = append(opts, replay.WithField(f.part, f.name))
	}
	return opts
}

func TestFieldMistakes(t *testing.T) {
	for _, tt := range []struct {
		format string
		fields []field
		want   string
	}{
		{"json", []field{{"method", "m"}, {"target", "t"}}, "no time"},
		{"json", []field{{"end", "t"}}, "no request"},
		{"json", []field{{"user", "u"}}, `"user" is no part of a request`},
		{"json", []field{{"took", "d h"}}, `the unit "h"`},
		{"json", []field{{"status", "s ms"}}, `the unit "ms"`},
		{"combined", []field{{"took", "d"}}, "for text, write the server's log_format"},
		{"xml", nil, `no format is called "xml": write one of`},
	} {
		if _, err := replay.Read("a", strings.NewReader(""), options(tt.format, tt.fields)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v: %v, want %q", tt.format, tt.fields, err, tt.want)
		}
	}
}

// Run names the JSON fields that no line has, or the first line whose field has an unreadable value.
func TestUnreadableFields(t *testing.T) {
	good := []field{{"end", "a"}, {"method", "b"}, {"target", "c"}}
	for _, tt := range []struct {
		log    string
		fields []field
		want   string
	}{
		{`{"a": 1, "b": "GET", "c": "/"}`, []field{{"end", "a"}, {"method", "q"}, {"target", "z"}}, "no line of the log has q, z:"},
		{`{"a": 1, "b": "not one", "c": "/"}`, good, "a:1: its method can't be read"},
		{`{"a": "soon", "b": "GET", "c": "/"}`, good, "a:1: its end can't be read"},
		{`{"log": "{\"a\": 1, \"b\": \"GET\"}\n", "stream": "stdout", "time": ""}`, good, "no line of the log has "},
		{`{`, good, "no line of the log has a, b, c:"},
		{`{"a": 1, "b": "GET"}` + "\nplain\nplain\nplain", good, "no line of the log has c:"},
	} {
		for _, format := range []string{"", "json"} {
			l, err := replay.Read("a", strings.NewReader(tt.log+"\n"), options(format, tt.fields)...)
			if err == nil {
				_, err = replay.Run(func() (*stint.Limiter, error) {
					return stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.Global()))
				}, l)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s as %q: %v, want %q", tt.log, format, err, tt.want)
			}
		}
	}
	for _, format := range []string{"w3c", "cloudfront"} {
		if _, err := replay.Read("a", strings.NewReader("{}\n"), options(format, good)...); err != nil {
			t.Errorf("%s: %v", format, err) // its lines are counted
		}
	}
}

// Lines that no request can be read from are counted, and the first are shown.
func TestBrokenLines(t *testing.T) {
	good := `192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	bad := []string{
		`192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "\x16\x03\x01" 400 1`,
		`192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "-" 408 0`,
		`192.0.2.7 - - [32/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 1`,
		`192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "GET / HTTP/1.1" x 1`,
		`192.0.2.7 - - [10/Mar/2026:13:55:36 +0000] "GET /`,
		"\x00\x01",
	}
	l, err := replay.Read("access.log", strings.NewReader(good+strings.Join(bad, "\n")+"\n\n"+good), replay.WithFormat("common"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.Run(byAddress(1), l)
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Log.Broken; r.Log.Requests != 2 || b.Lines != int64(len(bad)) || len(b.First) != 5 || !strings.HasPrefix(b.First[0], "access.log:2: ") {
		t.Errorf("%d requests, broken: %+v", r.Log.Requests, r.Log.Broken)
	}
	for _, content := range []string{"", "\n\n", "no log\n"} {
		l, err := replay.Read("access.log", strings.NewReader(content), replay.WithFormat("common"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := replay.Run(byAddress(1), l); !errors.Is(err, replay.ErrEmpty) || strings.Contains(content, "no log") && !strings.Contains(err.Error(), "no log") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// Several logs are merged by time, and say what all of them say.
func TestMerge(t *testing.T) {
	at := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	request := func(second int, key string) replay.Request {
		return replay.Request{End: at.Add(time.Duration(second) * time.Second), Method: "GET", Target: "/", Peer: "192.0.2.1", Took: time.Second, Fields: []string{"-", key}}
	}
	a := &sliceLog{replay.Says{Resolution: time.Second, Took: true, Peer: true, Fields: []string{"User-Agent", "X-Api-Key"}}, []replay.Request{request(1, "a"), request(3, "a")}}
	b := &sliceLog{replay.Says{Resolution: time.Millisecond, Peer: true, Fields: []string{"X-Other", "X-Api-Key"}}, []replay.Request{request(2, "b"), request(4, "b")}}
	l, err := replay.Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := (replay.Says{Resolution: time.Second, Peer: true, Fields: []string{"X-Api-Key"}}); !reflect.DeepEqual(l.Says(), want) {
		t.Errorf("%+v, want %+v", l.Says(), want)
	}
	var got []string
	for _, r := range read(t, l) {
		got = append(got, fmt.Sprint(r.End.Second(), r.Fields, r.Took))
	}
	if want := "[1 [a] 0s 2 [b] 0s 3 [a] 0s 4 [b] 0s]"; fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
	if _, err := replay.Merge(); err == nil {
		t.Error("no logs are a log")
	}
}
