package replay

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// UserField is the header field under which a replay finds the user that a server has logged
// ($remote_user, %u). Requests of clients don't have it. Use stint.Header(replay.UserField) in
// place of a KeyFunc that returns the user.
const UserField = "Remote-User"

// variables are the parts of a request that nginx's variables have.
var variables = map[string]string{
	"remote_addr": "peer", "remote_user": "header." + UserField,
	"time_local": "end", "time_iso8601": "end", "msec": "end",
	"request": "request", "request_method": "method", "request_uri": "target",
	"host": "host", "http_host": "host", "status": "status", "body_bytes_sent": "bytes",
	"request_time": "took s", "upstream_response_time": "took s",
	// What nginx has no variable for.
	"milliseconds": "took ms", "microseconds": "took us", "start": "start", "apache_time": "start", "request_url": "url",
	"processing_time": "took s",
	"client":          "peer:port", "host_uri": "host/target", "path_query": "target",
}

// textSplitter splits lines by the layout that a server was configured with.
type textSplitter struct{ parts []piece }

// piece is a variable of a layout, and the text behind it.
type piece struct {
	setter        // set is nil if the value is ignored
	quoted bool   // the value has escapes
	width  int    // of a value of so many bytes, or 0
	local  bool   // it is $time_local
	suffix string // the text
}

// newTextSplitter cuts a layout into its first text and pieces; the first piece has no variable. timed reports
// whether the layout has a time.
func newTextSplitter(layout string, says *Says) (t *textSplitter, timed bool, err error) {
	all, err := tokens(layout)
	if err != nil {
		return nil, false, err
	}
	t = &textSplitter{parts: []piece{{}}}
	seen := map[string]bool{}
	hasTotal := slices.ContainsFunc(all, func(tok token) bool { // how long the server itself took
		return tok.variable && slices.Contains([]string{"request_time", "milliseconds", "microseconds"}, tok.text)
	})
	for _, tok := range joinTokens(all) {
		last := &t.parts[len(t.parts)-1]
		if !tok.variable {
			last.suffix += tok.text
			continue
		}
		if len(t.parts) > 1 && last.suffix == "" {
			return nil, false, fmt.Errorf("log format: nothing between two variables, before %s: no line can be read by it",
				tok.text)
		}
		p := piece{quoted: strings.HasSuffix(last.suffix, `"`)}
		part := variables[tok.text]
		p.width, p.local = len(tok.layout), tok.text == "time_local"
		if field, ok := strings.CutPrefix(tok.text, "http_"); ok && part == "" {
			part = "header." + strings.ReplaceAll(field, "_", "-")
		}
		if cookie, ok := strings.CutPrefix(tok.text, "cookie_"); ok {
			return nil, false, fmt.Errorf("log format: $cookie_%s is one cookie of a field: log $http_cookie for limits by cookies",
				cookie)
		}
		if part != "" && !(hasTotal && tok.text == "upstream_response_time") {
			if p.setter, err = says.setter(part); err != nil {
				return nil, false, fmt.Errorf("log format: %w", err)
			}
			if seen[p.part] = true; tok.layout != "" {
				p.setter.set = layoutSetter(p.part, tok.layout)
			}
		}
		t.parts = append(t.parts, p)
	}
	for i := range t.parts { // a time with a space in it, before a space
		if p := &t.parts[i]; p.local && strings.HasPrefix(p.suffix, " ") {
			p.width = len("10/Mar/2026:13:55:36 +0000")
		}
	}
	if !seen["request"] && !seen["url"] && !(seen["method"] && seen["target"]) {
		return nil, false, errors.New("log format: no request: it needs $request, or $request_method and $request_uri, of nginx; " +
			"%r, or %m and %U%q, of Apache; %r, or %HM and %HU, of HAProxy")
	}
	return t, seen["end"] || seen["start"], nil
}

var errNoTimeInLayout = errors.New("log format: no time: it needs $time_local, $time_iso8601 or $msec of nginx, %t of Apache, " +
	"or %tr, %trg or %trl of HAProxy (%t is when the connection was accepted)")

// layoutSetter returns the setter of a time that is written by a layout of package time.
func layoutSetter(part, layout string) func(*draft, string) bool {
	if part == "start" {
		return func(d *draft, v string) (ok bool) { d.start, ok = d.begin.parseLayout(layout, v); return ok }
	}
	return func(d *draft, v string) (ok bool) { d.End, ok = d.end.parseLayout(layout, v); return ok }
}

// joined are sequences of variables that are read as one.
var joined = []struct {
	parts []token
	as    string
}{
	{[]token{variable("remote_addr"), {text: ":"}, variable("remote_port")}, "client"},
	{[]token{variable("host"), variable("request_uri")}, "host_uri"},
	{[]token{variable("http_host"), variable("request_uri")}, "host_uri"},
	{[]token{variable("uri"), variable("is_args"), variable("args")}, "path_query"},
}

// joinTokens returns tokens in which such sequences are one variable. Of Apache's times, a finer one replaces %t.
func joinTokens(all []token) []token {
	for i := 0; i < len(all); i++ {
		for _, j := range joined {
			if n := i + len(j.parts); n <= len(all) && slices.Equal(all[i:n], j.parts) {
				all = slices.Replace(all, i, n, variable(j.as))
			}
		}
	}
	has := func(name string) bool {
		return slices.ContainsFunc(all, func(t token) bool { return t.variable && t.text == name })
	}
	for i := range all {
		if (all[i] == variable("time_local") || all[i] == variable("apache_time")) && (has("start") || has("msec")) ||
			all[i].variable && all[i].text == "start" && has("msec") {
			all[i] = token{text: "unused", variable: true, layout: all[i].layout}
		}
	}
	return all
}

// missingFields implements splitter.
func (t *textSplitter) missingFields() []string { return nil }

// token is a variable's name, or the text between variables.
type token struct {
	text     string
	variable bool
	time     bool   // text is the argument of Apache's %t
	layout   string // of a time, for package time, or ""
}

func variable(name string) token { return token{text: name, variable: true} }

// tokens cuts a layout of nginx, Apache or HAProxy.
func tokens(layout string) ([]token, error) {
	switch {
	case strings.Contains(layout, "$") || !strings.Contains(layout, "%"):
	case isHAProxy.MatchString(layout):
		return haproxyTokens(layout)
	case isEnvoy.MatchString(layout):
		return nil, errors.New("log format: Envoy's format strings aren't read: write --format envoy, istio or envoy-json, if it is one of these")
	default:
		return apacheTokens(layout)
	}
	var all []token
	for rest := layout; rest != ""; {
		before, after, found := strings.Cut(rest, "$")
		if before != "" {
			all = append(all, token{text: before})
		}
		if !found {
			break
		}
		braced := strings.HasPrefix(after, "{")
		after = strings.TrimPrefix(after, "{")
		n := 0
		for n < len(after) && (after[n] == '_' || after[n]-'a' < 26 || after[n]-'A' < 26 || after[n]-'0' < 10) {
			n++
		}
		if n == 0 {
			return nil, fmt.Errorf("log format: a $ without a name at %q", "$"+after)
		}
		all = append(all, variable(after[:n]))
		if rest = after[n:]; braced {
			if !strings.HasPrefix(rest, "}") {
				return nil, fmt.Errorf("log format: ${%s without a }", after[:n])
			}
			rest = rest[1:]
		}
	}
	return all, nil
}

// apache has nginx's variables for Apache's letters.
var apache = map[string]string{
	"h": "remote_addr", "a": "remote_addr", "l": "unused", "u": "remote_user", "r": "request", "s": "status",
	"b": "body_bytes_sent", "B": "body_bytes_sent", "O": "bytes_sent", "D": "microseconds", "T": "request_time",
	"v": "server_name", "V": "host", "m": "request_method", "p": "server_port", "U": "request_uri",
}

func apacheTokens(layout string) ([]token, error) {
	var all []token
	for rest := strings.ReplaceAll(layout, `\"`, `"`); rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		if before != "" {
			all = append(all, token{text: before})
		}
		if !found {
			break
		}
		after = strings.TrimLeft(after, "<>")
		argument := ""
		if strings.HasPrefix(after, "{") {
			if argument, after, found = strings.Cut(after[1:], "}"); !found {
				return nil, fmt.Errorf("log format: %%{%s without a }", argument)
			}
		}
		if after == "" {
			return nil, errors.New("log format: a % at the end")
		}
		letter := after[:1]
		rest = after[1:]
		switch name := apache[letter]; {
		case letter == "t" && argument == "":
			all = append(all, token{text: "["}, variable("apache_time"), token{text: "]"}) // when the request came
		case letter == "t":
			all = append(all, token{text: argument, variable: true, time: true})
		case letter == "q":
			if n := len(all); n == 0 || all[n-1] != variable("request_uri") {
				return nil, errors.New("log format: %q is read behind %U: write %U%q")
			}
		case letter == "i" && argument != "":
			all = append(all, variable("http_"+argument))
		case letter == "p" && argument == "remote":
			all = append(all, variable("remote_port"))
		case letter == "T" && argument == "ms":
			all = append(all, variable("milliseconds"))
		case letter == "T" && argument == "us":
			all = append(all, variable("microseconds"))
		case name != "" && (argument == "" || letter == "T" && argument == "s" || letter == "a" && argument == "c"):
			all = append(all, variable(name))
		default:
			all = append(all, variable("unused"))
		}
	}
	return joinApacheTimes(all)
}

// split implements splitter.
func (t *textSplitter) split(rest string, d *draft) string {
	for i := range t.parts {
		p := &t.parts[i]
		if i == 0 {
			after, ok := strings.CutPrefix(rest, p.suffix)
			if !ok {
				return otherFormat
			}
			rest = after
			continue
		}
		end := valueEnd(rest, p)
		if end < 0 {
			return otherFormat
		}
		value := rest[:end]
		rest = rest[end+len(p.suffix):]
		if p.set == nil {
			continue
		}
		if p.quoted && strings.IndexByte(value, '\\') >= 0 {
			value = unescape(value)
		}
		if p.set(d, value) {
			continue
		}
		if p.part != "request" && p.part != "url" {
			return unreadable(p.part)
		}
		d.Method, d.Target = "", "" // the status says whether the server has read a request
	}
	return ""
}

// valueEnd returns where the value of a piece ends, or -1.
func valueEnd(s string, p *piece) int {
	if p.width > 0 {
		if p.width > len(s) || !strings.HasPrefix(s[p.width:], p.suffix) {
			return -1
		}
		return p.width
	}
	if p.suffix == "" { // the last: up to a space, where the format may go on
		if i := strings.IndexByte(s, ' '); i >= 0 {
			return i
		}
		return len(s)
	}
	if !p.quoted || p.suffix[0] != '"' {
		return strings.Index(s, p.suffix)
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if strings.HasPrefix(s[i:], p.suffix) {
				return i
			}
		}
	}
	return -1
}

// unescape undoes what nginx (\xXX) and Apache (also \" and \\) do to values in quotes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		if i++; s[i] == 'x' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
