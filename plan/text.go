package plan

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The formats of nginx and Apache that have a name.
const (
	// Combined is nginx's default, and Apache's format of that name.
	Combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
	// Common is Apache's of that name.
	Common = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
)

// UserField is the header field that stands for the user whom a server has logged
// ($remote_user, %u). No request has it: it is for keys of an application that return the
// user, such as stint.Header(plan.UserField) in place of a KeyFunc.
const UserField = "Remote-User"

// Text reads a log of nginx or Apache. format is what the server was configured with: nginx's
// log_format, Apache's LogFormat, Combined or Common. What the format doesn't name isn't known,
// so write the times that are logged ($request_time, or else $upstream_response_time; %D or %T).
// Text after the last variable is left alone. name is the file's, for messages.
//
// A line that doesn't have the format, or whose request isn't one, is counted as broken. The
// error says what is wrong with the format, or that the first line can't be read.
func Text(name string, r io.Reader, format string) (Log, error) {
	t := &text{lines: newLines(name, r)}
	if err := t.compile(format); err != nil {
		return nil, err
	}
	t.parse = t.read
	if err := t.begin(); err != nil {
		return nil, err
	}
	return t, nil
}

// text is a log of lines of text.
type text struct {
	ahead
	lines
	parts []piece

	second string // of the last time that was parsed
	parsed time.Time
}

func (t *text) brokenLines() Broken { return t.broken }

// piece is a variable of a format, and the text behind it.
type piece struct {
	set    func(t *text, r *Request, value string) bool // nil: the value is left out
	quoted bool                                         // the value has escapes
	behind string
}

// compile cuts a format into its first text and pieces; the first piece has no variable.
func (t *text) compile(format string) error {
	all, err := tokens(format)
	if err != nil {
		return err
	}
	t.parts = []piece{{}}
	seen := map[string]bool{}
	whole := slices.ContainsFunc(all, func(tok token) bool { // how long the server itself took
		return tok.variable && slices.Contains([]string{"request_time", "milliseconds", "microseconds"}, tok.text)
	})
	for _, tok := range all {
		if tok.variable && tok.text == "upstream_response_time" && whole {
			tok.text = "unused"
		}
		last := &t.parts[len(t.parts)-1]
		if !tok.variable {
			last.behind += tok.text
			continue
		}
		if len(t.parts) > 1 && last.behind == "" {
			return fmt.Errorf("plan: log format: nothing between two variables, before %s: no line can be read by it", tok.text)
		}
		p := piece{quoted: strings.HasSuffix(last.behind, `"`)}
		if p.set, err = t.variable(tok.text); err != nil {
			return err
		}
		seen[tok.text] = true
		t.parts = append(t.parts, p)
	}
	switch {
	case !seen["time_local"] && !seen["time_iso8601"] && !seen["msec"]:
		return errors.New("plan: log format: no time: it needs $time_local, $time_iso8601 or $msec")
	case !seen["request"] && !(seen["request_method"] && seen["request_uri"]):
		return errors.New("plan: log format: no request: it needs $request, or $request_method and $request_uri")
	}
	return nil
}

// token is a variable's name, or the text between variables.
type token struct {
	text     string
	variable bool
}

// tokens cuts a format of nginx or of Apache.
func tokens(format string) ([]token, error) {
	if strings.Contains(format, "%") && !strings.Contains(format, "$") {
		return apacheTokens(format)
	}
	var all []token
	for rest := format; rest != ""; {
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
			return nil, fmt.Errorf("plan: log format: a $ without a name at %q", "$"+after)
		}
		all = append(all, token{after[:n], true})
		if rest = after[n:]; braced {
			if !strings.HasPrefix(rest, "}") {
				return nil, fmt.Errorf("plan: log format: ${%s without a }", after[:n])
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
	"v": "server_name", "V": "host", "m": "request_method", "p": "server_port",
}

func apacheTokens(format string) ([]token, error) {
	var all []token
	for rest := strings.ReplaceAll(format, `\"`, `"`); rest != ""; {
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
				return nil, fmt.Errorf("plan: log format: %%{%s without a }", argument)
			}
		}
		if after == "" {
			return nil, errors.New("plan: log format: a % at the end")
		}
		letter := after[:1]
		rest = after[1:]
		switch name := apache[letter]; {
		case letter == "t" && argument == "":
			all = append(all, token{text: "["}, token{"time_local", true}, token{text: "]"})
		case letter == "i" && argument != "":
			all = append(all, token{"http_" + argument, true})
		case letter == "T" && argument == "ms":
			all = append(all, token{"milliseconds", true})
		case letter == "T" && argument == "us":
			all = append(all, token{"microseconds", true})
		case name != "" && (argument == "" || letter == "T" && argument == "s" || letter == "a" && argument == "c"):
			all = append(all, token{name, true})
		default:
			all = append(all, token{"unused", true})
		}
	}
	return all, nil
}

// variable returns what sets a request to a variable's value, or nil if nothing needs it.
func (t *text) variable(name string) (func(*text, *Request, string) bool, error) {
	took := func(unit time.Duration) func(*text, *Request, string) bool {
		t.says.Took = true
		return func(_ *text, r *Request, v string) (ok bool) {
			r.Took, ok = seconds(v, unit)
			return ok
		}
	}
	switch name {
	case "remote_addr":
		t.says.Peer = true
		return func(_ *text, r *Request, v string) bool { r.Peer = v; return v != "-" && v != "" }, nil
	case "remote_user":
		return t.field(UserField), nil
	case "time_local":
		return func(t *text, r *Request, v string) bool { return t.local(r, v) }, nil
	case "time_iso8601":
		return func(_ *text, r *Request, v string) (ok bool) {
			at, err := time.Parse(time.RFC3339, v)
			r.End = at
			return err == nil
		}, nil
	case "msec":
		return func(_ *text, r *Request, v string) (ok bool) {
			r.End, ok = unix(v, time.Second)
			return ok
		}, nil
	case "request":
		return func(_ *text, r *Request, v string) (ok bool) {
			r.Method, r.Target, ok = requestLine(v)
			return ok
		}, nil
	case "request_method":
		return func(_ *text, r *Request, v string) bool { r.Method = v; return v != "" && v != "-" }, nil
	case "request_uri":
		return func(_ *text, r *Request, v string) bool { r.Target = v; return isTarget(v) && v != "-" }, nil
	case "host", "http_host":
		t.says.Host = true
		return func(_ *text, r *Request, v string) bool { r.Host = v; return true }, nil
	case "status":
		t.says.Status = true
		return func(_ *text, r *Request, v string) bool {
			n, err := strconv.Atoi(v)
			r.Status = n
			return err == nil && n >= 100 && n <= 999
		}, nil
	case "body_bytes_sent":
		return func(_ *text, r *Request, v string) bool {
			if v == "-" {
				return true
			}
			n, err := strconv.ParseInt(v, 10, 64)
			r.Written = n
			return err == nil && n >= 0
		}, nil
	case "request_time":
		return took(time.Second), nil
	case "milliseconds":
		return took(time.Millisecond), nil
	case "microseconds":
		return took(time.Microsecond), nil
	case "upstream_response_time":
		// Of several servers that were tried, all times count; of none, it isn't known how
		// long the request took, which is next to nothing.
		t.says.Took = true
		return func(_ *text, r *Request, v string) bool {
			for _, one := range strings.FieldsFunc(v, func(c rune) bool { return c == ',' || c == ':' || c == ' ' }) {
				if one == "-" {
					continue
				}
				d, ok := seconds(one, time.Second)
				if !ok {
					return false
				}
				r.Took += d
			}
			return true
		}, nil
	}
	if field, ok := strings.CutPrefix(name, "http_"); ok {
		return t.field(http.CanonicalHeaderKey(strings.ReplaceAll(field, "_", "-"))), nil
	}
	if cookie, ok := strings.CutPrefix(name, "cookie_"); ok {
		return nil, fmt.Errorf("plan: log format: $cookie_%s is one cookie of a field: log $http_cookie for limits by cookies", cookie)
	}
	return nil, nil
}

// field returns what sets a header field.
func (t *text) field(canonical string) func(*text, *Request, string) bool {
	i := slices.Index(t.says.Fields, canonical)
	if i < 0 {
		i = len(t.says.Fields)
		t.says.Fields = append(t.says.Fields, canonical)
	}
	return func(t *text, r *Request, v string) bool {
		if v == "-" { // both servers write it for a field that isn't there
			return true
		}
		if r.Fields == nil {
			r.Fields = make([]string, len(t.says.Fields))
		}
		r.Fields[i] = v
		return true
	}
}

// read reads the next request.
func (t *text) read(r *Request) error {
	for {
		line, err := t.next()
		if err != nil {
			return err
		}
		if why := t.line(string(line), r); why != "" {
			t.spoil(line, why)
			continue
		}
		return nil
	}
}

// line reads a request from a line, and returns what is wrong with it, or "".
func (t *text) line(rest string, r *Request) string {
	*r = Request{}
	for i := range t.parts {
		p := &t.parts[i]
		if i == 0 {
			after, ok := strings.CutPrefix(rest, p.behind)
			if !ok {
				return "it doesn't have the log's format"
			}
			rest = after
			continue
		}
		end := end(rest, p)
		if end < 0 {
			return "it doesn't have the log's format"
		}
		value := rest[:end]
		rest = rest[end+len(p.behind):]
		if p.set == nil {
			continue
		}
		if p.quoted && strings.IndexByte(value, '\\') >= 0 {
			value = unescape(value)
		}
		if !p.set(t, r, value) {
			return "it has no request in the log's format"
		}
	}
	if r.Fields == nil && len(t.says.Fields) > 0 {
		r.Fields = make([]string, len(t.says.Fields))
	}
	return ""
}

// end returns where the value of a piece ends, or -1.
func end(s string, p *piece) int {
	if p.behind == "" { // the last: up to a space, where the format may go on
		if i := strings.IndexByte(s, ' '); i >= 0 {
			return i
		}
		return len(s)
	}
	if !p.quoted || p.behind[0] != '"' {
		return strings.Index(s, p.behind)
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if strings.HasPrefix(s[i:], p.behind) {
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

const localTime = "02/Jan/2006:15:04:05 -0700"

// local parses $time_local. Most lines are of the same second as the line before.
func (t *text) local(r *Request, v string) bool {
	if v != t.second {
		at, err := time.Parse(localTime, v)
		if err != nil {
			return false
		}
		t.second, t.parsed = strings.Clone(v), at
	}
	r.End = t.parsed
	return true
}

// seconds parses a number of units, such as "0.004" or "12", exactly to the nanosecond.
func seconds(s string, unit time.Duration) (time.Duration, bool) {
	if s == "-" { // the server has none
		return 0, true
	}
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n > uint64(1<<62)/uint64(unit) {
		return 0, false
	}
	d := time.Duration(n) * unit
	for i := 0; i < len(part); i++ {
		if part[i] < '0' || part[i] > '9' {
			return 0, false
		}
		unit /= 10
		d += time.Duration(part[i]-'0') * unit
	}
	return d, true
}

// unix parses a time since 1970 in a unit.
func unix(s string, unit time.Duration) (time.Time, bool) {
	d, ok := seconds(s, unit)
	return time.Unix(0, int64(d)), ok && s != "-"
}
