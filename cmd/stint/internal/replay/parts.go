package replay

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setter sets a request under construction to a value of its line, and reports whether the value
// is one.
type setter struct {
	part string
	set  func(d *draft, value string) bool
}

// draft is a request while its line is read.
type draft struct {
	says *Says
	*Request
	start              time.Time
	date, clock, query string
	client             string     // by the server's own rules, before its peer
	begin, end         timeParser // the last times that were parsed
	wrapped            timeParser // of the line's wrapping
	writtenAt          time.Time  // by the wrapping, if that counts
	values             []string   // of columns
	shown              resolution // of the times
}

func newDraft(says *Says, zone *time.Location) draft {
	d := draft{says: says}
	if zone == nil {
		zone = time.UTC
	}
	d.begin.zone, d.end.zone, d.wrapped.zone = zone, zone, zone
	return d
}

// setters are by the parts of a request that a line may have, beside took and header.NAME.
var setters = map[string]func(d *draft, v string) bool{
	"peer": func(d *draft, v string) bool { d.Peer = v; return isAddress(v) },
	// An address and a port, with or without brackets around an IPv6 address.
	"peer:port": func(d *draft, v string) bool { d.Peer = withoutBarePort(v); return isAddress(d.Peer) },
	"method":    func(d *draft, v string) bool { d.Method = v; return v != "-" && isMethod(v) },
	"target":    func(d *draft, v string) bool { d.Target = v; return v != "-" && isTarget(v) },
	"query":     func(d *draft, v string) bool { d.query = v; return v == "" || isTarget(v) },
	"host":      func(d *draft, v string) bool { d.Host = v; return true },
	"request": func(d *draft, v string) (ok bool) {
		d.Method, d.Target, ok = requestLine(v)
		return ok
	},
	// A request's first line with the whole URL, as load balancers write what they were asked.
	"url": func(d *draft, v string) (ok bool) {
		d.Method, d.Target, ok = requestLine(v)
		if _, rest, absolute := strings.Cut(d.Target, "://"); absolute {
			at := max(strings.IndexByte(rest, '/'), 0)
			d.Host, d.Target = rest[:at], rest[at:]
		}
		return ok && d.Target != ""
	},
	// A host and a target, without anything between.
	"host/target": func(d *draft, v string) bool {
		at := max(strings.IndexByte(v, '/'), 0)
		d.Host, d.Target = v[:at], v[at:]
		return isTarget(d.Target)
	},
	"status": func(d *draft, v string) bool {
		n, err := strconv.Atoi(v)
		d.Status = n
		return err == nil && n >= 100 && n <= 999
	},
	"bytes": func(d *draft, v string) bool {
		if v == "-" || v == "" {
			return true
		}
		n, err := strconv.ParseInt(v, 10, 64)
		d.Written = n
		return err == nil && n >= 0
	},
	"end": func(d *draft, v string) (ok bool) {
		d.End, ok = d.end.parse(v)
		return ok
	},
	"start": func(d *draft, v string) (ok bool) {
		d.start, ok = d.begin.parse(v)
		return ok
	},
	// W3C's logs have a column for the date and one for the time of day, both in UTC.
	"date": func(d *draft, v string) bool { d.date = v; return true },
	"time": func(d *draft, v string) bool { d.clock = v; return true },
}

// partNames are the parts that WithField may name, beside header.NAME.
var partNames = []string{"end", "start", "took", "peer", "method", "target", "query", "request",
	"host", "status", "bytes"}

// units are the units of took.
var units = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond,
	"ns": time.Nanosecond}

// setter returns the setter of a part, and records that the log has the part. A unit may follow took.
func (s *Says) setter(part string) (setter, error) {
	name, unit, spaced := strings.Cut(part, " ")
	if spaced && (name != "took" || units[unit] == 0) {
		return setter{}, fmt.Errorf("the unit %q of %s: write s, ms, us or ns behind how long a request took", unit, name)
	}
	if field, ok := strings.CutPrefix(name, "header."); ok && field != "" {
		return setter{name, s.headerSetter(http.CanonicalHeaderKey(field))}, nil
	}
	if name == "client" {
		s.forwardedAt = 1 + s.fieldIndex(forwardedFor)
		return setter{name, func(d *draft, v string) bool { d.client = v; return isAddress(v) }}, nil
	}
	if name == "took" {
		s.Took = true
		u := units[unit]
		if u == 0 {
			u = time.Second
		}
		return setter{name, func(d *draft, v string) bool { return d.addTook(v, u) }}, nil
	}
	set := setters[name]
	if set == nil {
		return setter{}, fmt.Errorf("%q is no part of a request: write %s or header.NAME", name,
			strings.Join(partNames, ", "))
	}
	switch name {
	case "peer", "peer:port":
		s.Peer, name = true, "peer"
	case "host/target":
		s.Host, name = true, "target"
	case "host", "url":
		s.Host = true
	case "status":
		s.Status = true
	}
	return setter{name, set}, nil
}

// fieldIndex returns the index of a header field, which it adds if it is new.
func (s *Says) fieldIndex(canonical string) int {
	i := slices.Index(s.Fields, canonical)
	if i < 0 {
		i = len(s.Fields)
		s.Fields = append(s.Fields, canonical)
	}
	return i
}

// headerSetter returns the function that sets a header field.
func (s *Says) headerSetter(canonical string) func(*draft, string) bool {
	i := s.fieldIndex(canonical)
	return func(d *draft, v string) bool {
		if v != "-" { // servers write it for a field that isn't there
			d.Fields[i] = v
		}
		return true
	}
}

// reset begins a request.
func (d *draft) reset(r *Request) {
	fields := r.Fields[:0] // of a request that is over
	*r = Request{}
	d.Request, d.start, d.date, d.clock, d.query, d.client = r, time.Time{}, "", "", "", ""
	d.writtenAt = time.Time{}
	if n := len(d.says.Fields); n > 0 {
		r.Fields = slices.Grow(fields, n)[:n]
		clear(r.Fields)
	}
}

// finish completes a request whose values are set, and returns what is missing, or "".
func (d *draft) finish() string {
	if d.clock != "" {
		d.End, _ = d.end.parse(d.date + "T" + d.clock)
	}
	if d.End.IsZero() && d.start.IsZero() || d.End.Nanosecond() == 0 && writtenAfter(d.End, d.writtenAt) {
		d.End = d.writtenAt
	}
	switch {
	case d.Method == "" && d.Target == "" && d.Status == 0 && d.says.Status:
		return otherLine
	case (d.Method == "" || d.Target == "") && d.Status/100 == 4:
		return notRequest
	case d.Method == "" || d.Target == "":
		return "it has no request"
	case d.says.Peer && d.Peer == "":
		return "it has no peer"
	case d.says.Status && d.Status == 0:
		return "it has no status"
	case d.End.IsZero() && d.start.IsZero():
		return "it has no time"
	case d.End.IsZero():
		d.shown.add(d.start)
		d.End = d.start.Add(d.Took)
	default:
		d.shown.add(d.End)
		if !d.start.IsZero() && d.Took == 0 && d.says.Took {
			d.Took = max(d.End.Sub(d.start), 0)
		}
	}
	if i := d.says.forwardedAt; i > 0 && d.Fields[i-1] == "" && d.client != d.Peer {
		d.Fields[i-1] = d.client
	}
	if d.query != "" && d.query != "-" {
		d.Target += "?" + d.query
	}
	return ""
}

// addTook adds to how long a request took. If several servers were tried, all times count. If
// there is none, the request counts as having taken no time.
func (d *draft) addTook(v string, unit time.Duration) bool {
	v = strings.TrimPrefix(v, "+") // HAProxy: at least
	if t, ok := seconds(v, unit); ok {
		d.Took += t
		return true
	}
	if v == "" || v == "-1" {
		return true
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil && f >= 0 && f*float64(unit) < 1<<62 { // 1.2e-05
		d.Took += time.Duration(f * float64(unit))
		return true
	}
	if t, err := time.ParseDuration(v); err == nil && t >= 0 {
		d.Took += t
		return true
	}
	for _, one := range strings.FieldsFunc(v, func(c rune) bool { return c == ',' || c == ':' || c == ' ' }) {
		t, ok := seconds(one, unit)
		if !ok {
			return false
		}
		d.Took += t
	}
	return true
}

// withoutBarePort cuts the port off an IPv6 address without brackets: 2001:db8::1:54241 is 2001:db8::1, although
// with a port of four digits it is an address, too.
func withoutBarePort(s string) string {
	last := strings.LastIndexByte(s, ':')
	if last <= 0 || s[0] == '[' || strings.IndexByte(s, ':') == last {
		return s
	}
	return s[:last]
}

// isAddress reports whether a text is an address, with or without a port.
func isAddress(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(s)
	return err == nil
}

// requestLine splits "GET /path HTTP/1.1".
func requestLine(line string) (method, target string, ok bool) {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || method == "" || method == "-" {
		return "", "", false
	}
	target, proto := rest, ""
	if i := strings.LastIndexByte(rest, ' '); i >= 0 {
		target, proto = rest[:i], rest[i+1:]
	}
	if !strings.HasPrefix(proto, "HTTP/") {
		return "", "", false
	}
	return method, target, isTarget(target)
}

// isMethod reports whether a text may be a request's method.
func isMethod(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}) < 0
}

// isTarget reports whether a text may be the target of a request: anything else never reached
// a handler.
func isTarget(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// timeParser parses times, and remembers the last: most lines are of the same second as the line before.
type timeParser struct {
	text string
	at   time.Time
	zone *time.Location // of times without one
}

// parse parses a time. It knows the form of nginx and Apache, and that of RFC 3339, also with a space for the T,
// with a comma before the fraction, or with slashes. A number counts from 1970: its size says whether it counts
// seconds, milliseconds, microseconds or nanoseconds. A time without a zone is in the parser's zone.
func (s *timeParser) parse(v string) (time.Time, bool) {
	if v == s.text && v != "" {
		return s.at, true
	}
	layout := ""
	switch {
	case len(v) < 19 || v[2] != '/' && v[4] != '-' && v[4] != '/':
		at, ok := unix(v)
		if ok {
			s.text, s.at = strings.Clone(v), at
		}
		return at, ok
	case v[2] == '/':
		layout = "02/Jan/2006:15:04:05"
	case v[4] == '/' && v[11] == '-':
		layout = "2006/01/02 - 15:04:05"
	case v[4] == '/':
		layout = "2006/01/02 15:04:05"
	default:
		layout = "2006-01-02" + v[10:11] + "15:04:05"
	}
	zone, in := zoneLayout(v), time.UTC
	if zone == "" {
		in = s.zone
	}
	at, err := time.ParseInLocation(layout+zone, v, in)
	if err != nil {
		return time.Time{}, false
	}
	s.text, s.at = strings.Clone(v), at
	return at, true
}

// parseLayout parses a time of a layout. A time with a zone isn't in the parser's, even if both have the same offset:
// it isn't ambiguous when clocks are set back.
func (s *timeParser) parseLayout(layout, v string) (time.Time, bool) {
	if v == s.text && v != "" {
		return s.at, true
	}
	in := s.zone
	if strings.Contains(layout, "-0700") {
		in = time.UTC
	}
	at, err := time.ParseInLocation(layout, v, in)
	if err != nil {
		return time.Time{}, false
	}
	s.text, s.at = strings.Clone(v), at
	return at, true
}

// zoneLayout returns the layout of the zone at the end of a time.
func zoneLayout(v string) string {
	n := len(v)
	switch {
	case v[n-1] == 'Z':
		return "Z07:00"
	case strings.HasSuffix(v, " UTC"):
		return " UTC"
	case v[n-3] == ':' && (v[n-6] == '+' || v[n-6] == '-'):
		return strings.Repeat(" ", strings.Count(v[n-7:n-6], " ")) + "-07:00"
	case v[n-5] == '+' || v[n-5] == '-':
		return strings.Repeat(" ", strings.Count(v[n-6:n-5], " ")) + "-0700"
	}
	return ""
}

// unix parses a time since 1970.
func unix(s string) (time.Time, bool) {
	integer, _, _ := strings.Cut(s, ".")
	unit := time.Second
	switch n := len(integer); { // in seconds, 12 digits are of the year 5138
	case n > 17:
		unit = time.Nanosecond
	case n > 14:
		unit = time.Microsecond
	case n > 11:
		unit = time.Millisecond
	}
	d, ok := seconds(s, unit)
	return time.Unix(0, int64(d)), ok && s != "-"
}

// seconds parses a number of units, such as "0.004" or "12", exactly to the nanosecond.
func seconds(s string, unit time.Duration) (time.Duration, bool) {
	if s == "-" { // the server has none
		return 0, true
	}
	integer, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(integer, 10, 63)
	if err != nil || n > uint64(1<<62)/uint64(unit) {
		return 0, false
	}
	d := time.Duration(n) * unit
	for i := 0; i < len(fraction); i++ {
		if fraction[i] < '0' || fraction[i] > '9' {
			return 0, false
		}
		unit /= 10
		d += time.Duration(fraction[i]-'0') * unit
	}
	return d, true
}
