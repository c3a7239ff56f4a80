package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// format is how a line splits, and which part of a request each value is.
type format struct {
	name string
	// layout is that of lines of text, as nginx and Apache are configured with.
	layout string
	// columns: a line #Fields: names the columns of those behind it.
	columns bool
	// fields are the columns, or the places in JSON objects. Those that a log lacks aren't known.
	fields []field
	// marks are field names, separated by spaces. If no line has all of them, the log has another format.
	marks string
	// header is where the values of a header field are, with %s for its name as the format writes it, or "".
	header string
	// headers is an object that has all header fields of a request, or "".
	headers string
	// shows reports what a request shows: 1 that this is the format, -1 that it is another, 0 nothing. nil
	// for a format that shows itself.
	shows func(*Request) int
	// splitter makes the splitter of a format that needs its own, or nil.
	splitter func(*Says) splitter
}

// field is a part of a request and its name in a log.
type field struct {
	part, name string
	required   bool   // by WithField: a log must have it
	within     string // an object that has all values of the kind, or ""
}

// The layouts of nginx and Apache that have a name.
const (
	combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
	common   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
)

// formats are the formats that have a name. Of those that read a log alike, the first is taken, so
// one that says more comes first.
var formats = []format{
	{name: "ingress-nginx", layout: combined + ` $request_length $request_time [$unused] [`},
	{name: "main", layout: combined + ` "$http_x_forwarded_for"`, shows: showsForwarded},
	{name: "combined", layout: combined},
	{name: "common", layout: common},
	{name: "vhost_combined", layout: `$server_name:$server_port ` + combined},
	{name: "haproxy", layout: `$client [$start] $frontend $backend/$server $x/$x/$x/$x/$milliseconds $status $bytes_read $x $x $x $x/$x/$x/$x/$x $captures "$request"`},
	{name: "istio", layout: `[$start] "$request" $status $flags $details $termination "$failure" $received $body_bytes_sent $milliseconds $upstream "$http_x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream_host" $cluster $upstream_local $downstream_local $client $server_name $route`},
	{name: "envoy", layout: `[$start] "$request" $status $flags $received $body_bytes_sent $milliseconds $upstream "$http_x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream_host"`},
	{name: "alb", layout: `$type $time_iso8601 $elb $client $target $processing_time $processing_time $processing_time $status $target_status $received $sent "$request_url" "$http_user_agent" `},
	{name: "elb", layout: `$time_iso8601 $elb $client $target $processing_time $processing_time $processing_time $status $target_status $received $sent "$request_url" "$http_user_agent" `},
	{name: "cloudfront", columns: true, marks: "x-edge-location", fields: fields("date", "date", "time", "time", "took s", "time-taken", "peer", "c-ip",
		"method", "cs-method", "target", "cs-uri-stem", "query", "cs-uri-query", "host", "x-host-header", "status", "sc-status", "header.X-Forwarded-For", "x-forwarded-for")},
	{name: "w3c", columns: true, marks: "cs-method", fields: fields("date", "date", "time", "time", "took ms", "time-taken", "peer", "c-ip",
		"method", "cs-method", "target", "cs-uri-stem", "query", "cs-uri-query", "host", "cs-host", "status", "sc-status", "bytes", "sc-bytes", "header."+UserField, "cs-username")},
	{name: "caddy", marks: "request.uri", header: "request.headers.%s", headers: "request.headers", fields: fields("end", "ts", "took s", "duration", "peer", "request.remote_ip",
		"method", "request.method", "target", "request.uri", "host", "request.host", "status", "status", "bytes", "size")},
	{name: "traefik", marks: "DownstreamStatus", header: "request_%s", fields: fields("start", "StartUTC", "took ns", "Duration", "peer", "ClientHost",
		"method", "RequestMethod", "target", "RequestPath", "host", "RequestHost", "status", "DownstreamStatus", "bytes", "DownstreamContentSize")},
	{name: "envoy-json", marks: "response_code", fields: fields("start", "start_time", "took ms", "duration",
		"peer:port", "downstream_remote_address",
		"method", "method", "target", "path", "host", "authority", "status", "response_code", "bytes", "bytes_sent",
		"header.X-Forwarded-For", "x_forwarded_for", "header.User-Agent", "user_agent", "header.X-Request-Id", "request_id")},
	{name: "nginx-json", marks: "request_uri", header: "http_%s", fields: fields("end", "msec", "took s", "request_time", "peer", "remote_addr",
		"method", "request_method", "target", "request_uri", "host", "host", "status", "status", "bytes", "body_bytes_sent")},
	{name: "cloudflare", marks: "ClientRequestURI", fields: fields("end", "EdgeEndTimestamp", "start", "EdgeStartTimestamp", "peer", "ClientIP",
		"method", "ClientRequestMethod", "target", "ClientRequestURI", "host", "ClientRequestHost", "status", "EdgeResponseStatus", "bytes", "EdgeResponseBytes")},
	{name: "gin", splitter: newGinSplitter},
	{name: "echo", marks: "latency_human", fields: fields("end", "time", "took ns", "latency", "peer", "remote_ip",
		"method", "method", "target", "uri", "host", "host", "status", "status", "bytes", "bytes_out", "header.User-Agent", "user_agent")},
	{name: "echo-v5", marks: "msg latency remote_ip bytes_in request_id", fields: fields("end", "time", "took ns", "latency", "peer", "remote_ip",
		"method", "method", "target", "uri", "host", "host", "status", "status", "bytes", "bytes_out", "header.User-Agent", "user_agent")},
	// How long a request took isn't read: the log doesn't say in which unit. Of the names of one part, a log's first
	// counts.
	{name: "slog", marks: "level msg method", fields: fields("end", "time", "method", "method", "target", "uri", "target", "target",
		"target", "url", "target", "path", "host", "host", "status", "status", "peer", "remote_addr", "peer", "remote_ip", "peer", "remote", "peer", "peer")},
	{name: "json"},
}

// fields returns fields of pairs of a part and a name.
func fields(pairs ...string) (all []field) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, field{part: pair[0], name: pair[1]})
	}
	return all
}

// showsForwarded reports whether the field behind combined is X-Forwarded-For.
func showsForwarded(r *Request) int {
	last := r.Fields[len(r.Fields)-1]
	if last == "" {
		return 0
	}
	for one := range strings.SplitSeq(last, ",") {
		if !isAddress(strings.TrimSpace(one)) {
			return -1
		}
	}
	return 1
}

// wrappings are the formats in which collectors of logs wrap lines.
var wrappings = []wrapping{
	{"", func(line []byte) ([]byte, []byte, bool) { return line, nil, true }},
	{"Docker's json-file", openDocker},
	{"CRI", openCRI},
	{"syslog", openSyslog},
	{"kubectl logs", openKubectl},
	{"docker compose", openCompose},
	{"journald's JSON", openJournal},
	{"Caddy's console format", openCaddyConsole},
}

// wrapping is such a format, and the function that unwraps a line. It also returns the time that the wrapping has, or
// nil, and whether the line is wrapped so.
type wrapping struct {
	name string
	open func(line []byte) (inner, at []byte, ok bool)
}

// wrapped is a line without its wrapping, and the time of the wrapping.
type wrapped struct{ line, at []byte }

// openDocker opens {"log":"...\n","stream":"stdout","time":"..."}.
func openDocker(line []byte) (inner, at []byte, ok bool) {
	var entry struct {
		Log, Stream *string
		Time        string
	}
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &entry) != nil || entry.Log == nil || entry.Stream == nil {
		return nil, nil, false
	}
	return []byte(strings.TrimRight(*entry.Log, "\r\n")), []byte(entry.Time), true
}

// openCRI opens "2026-03-10T13:55:36.123456789Z stdout F ...". A line in several parts stays closed.
func openCRI(line []byte) (inner, at []byte, ok bool) {
	at, rest, _ := bytes.Cut(line, []byte(" "))
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tag, rest, ok := bytes.Cut(rest, []byte(" "))
	return rest, at, ok && isTime(at) && (string(stream) == "stdout" || string(stream) == "stderr") && string(tag) == "F"
}

// openKubectl removes what kubectl logs writes before a line, such as "[pod/name/container]
// 2026-03-10T13:55:36.123456789Z". The name or the time may be missing. docker logs writes the same time.
func openKubectl(line []byte) (inner, at []byte, ok bool) {
	if bytes.HasPrefix(line, []byte("[pod/")) {
		_, line, ok = bytes.Cut(line, []byte("] "))
	}
	if rest, at := cutTime(line); at != nil {
		return rest, at, true
	}
	return line, nil, ok
}

// cutTime cuts a time in UTC off the beginning of a line.
func cutTime(line []byte) (rest, at []byte) {
	if at, rest, spaced := bytes.Cut(line, []byte(" ")); spaced && isTime(at) && at[len(at)-1] == 'Z' {
		return rest, at
	}
	return line, nil
}

// openCompose opens "web-1  | ...", with a time behind the | or without.
func openCompose(line []byte) (inner, at []byte, ok bool) {
	name, rest, ok := bytes.Cut(line, []byte("| "))
	name = bytes.TrimRight(name, " ")
	inner, at = cutTime(rest)
	return inner, at, ok && len(name) > 0 && bytes.IndexByte(name, ' ') < 0
}

// openJournal opens {"__REALTIME_TIMESTAMP":"1773150936250000","MESSAGE":"..."}. A message that isn't plain text is
// a list of bytes.
func openJournal(line []byte) (inner, at []byte, ok bool) {
	var entry struct {
		At      string          `json:"__REALTIME_TIMESTAMP"`
		Message json.RawMessage `json:"MESSAGE"`
	}
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &entry) != nil || entry.At == "" || len(entry.Message) == 0 {
		return nil, nil, false
	}
	var text string
	if json.Unmarshal(entry.Message, &text) == nil {
		return []byte(text), []byte(entry.At), true
	}
	var numbers []uint8ByNumber
	if json.Unmarshal(entry.Message, &numbers) != nil {
		return nil, nil, false
	}
	for _, n := range numbers {
		inner = append(inner, byte(n))
	}
	return withoutColors(inner), []byte(entry.At), true
}

// uint8ByNumber is a byte that JSON has as a number: a slice of uint8 would be in base64.
type uint8ByNumber uint8

// openCaddyConsole opens "2026/03/10 13:55:36.250	INFO	http.log.access	handled request	{...}", with tabs between.
func openCaddyConsole(line []byte) (inner, at []byte, ok bool) {
	at, rest, _ := bytes.Cut(line, []byte("\t"))
	if len(at) < len("2026/03/10 13:55:36") || at[4] != '/' || bytes.IndexByte(rest, '\t') < 0 {
		return nil, nil, false
	}
	if i := bytes.Index(rest, []byte("\t{")); i >= 0 {
		return rest[i+1:], at, true
	}
	return []byte("{}"), at, true // a message without fields
}

// withoutColors removes the escape sequences of colors from a line that begins with one. Within other lines, clients
// have sent them.
func withoutColors(line []byte) []byte {
	if len(line) == 0 || line[0] != 0x1b {
		return line
	}
	return colors.ReplaceAll(line, nil)
}

var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

func isTime(b []byte) bool { return len(b) > 19 && b[4] == '-' && b[10] == 'T' }

// openSyslog opens "<190>1 2026-03-10T13:55:36Z host app process id data ..." (RFC 5424) and
// "<190>Mar 10 13:55:36 host tag: ..." (RFC 3164), the latter also as files have it: without the
// number, and with a time of RFC 3339.
func openSyslog(line []byte) (inner, at []byte, ok bool) {
	if line[0] == '<' {
		_, after, ok := bytes.Cut(line, []byte(">"))
		if !ok {
			return nil, nil, false
		}
		line = after
	}
	word := func() (w []byte) {
		w, line, _ = bytes.Cut(line, []byte(" "))
		return w
	}
	switch first := word(); {
	case string(first) == "1" && isTime(line):
		at = word()
		for range 4 {
			word()
		}
		inner, ok = syslogData(line)
		return inner, at, ok
	case isTime(first):
		at = first
	case len(first) == 3 && len(line) > 12:
		if line[0] == ' ' { // a day of one digit
			line = line[1:]
		}
		word()
		if clock := word(); len(clock) != 8 || clock[2] != ':' {
			return nil, nil, false
		}
	default:
		return nil, nil, false
	}
	word() // the host
	tag := word()
	return line, at, bytes.HasSuffix(tag, []byte(":"))
}

// syslogData takes the structured data off, which are - or "[...]", and the mark of UTF-8.
func syslogData(line []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("- "))
	for !ok && len(line) > 0 && line[0] == '[' {
		quoted, i := false, 1
		for ; i < len(line) && (quoted || line[i] != ']'); i++ {
			switch {
			case quoted && line[i] == '\\':
				i++
			case line[i] == '"':
				quoted = !quoted
			}
		}
		line = line[min(i+1, len(line)):]
		rest, ok = bytes.CutPrefix(line, []byte(" "))
	}
	return bytes.TrimPrefix(rest, utf8Mark), ok
}

var utf8Mark = []byte("\ufeff")

// ReadOption is an option of Read.
type ReadOption interface{ ofRead(*readConfig) }

type readOption func(*readConfig)

func (o readOption) ofRead(c *readConfig) { o(c) }

// readConfig is the options of Read.
type readConfig struct {
	format  string
	fields  []field
	headers []string // canonical
	window  time.Duration
	zone    *time.Location
}

// WithHeaders names the header fields that limits read. The formats caddy, traefik and nginx-json read them, if
// the log has them; other formats know theirs.
func WithHeaders(names ...string) ReadOption {
	return readOption(func(c *readConfig) {
		for _, name := range names {
			c.headers = append(c.headers, http.CanonicalHeaderKey(name))
		}
	})
}

// WithFormat sets the format of a log: one of Formats, or the server's own configuration, which
// is nginx's log_format, Apache's LogFormat or HAProxy's log-format. Log the durations of requests ($request_time, or
// else $upstream_response_time; %D or %T), since limits that need them aren't judged otherwise.
// Text after the last variable is ignored. By default, the format is recognized.
func WithFormat(format string) ReadOption {
	return readOption(func(c *readConfig) { c.format = format })
}

// WithField sets the name of the field or column that holds a part of a request, in a log of
// JSON objects or of columns. The parts are end and start, took, peer, method, target, query,
// request, host, status, bytes, and header.NAME for a header field that is logged. In JSON,
// dots in name lead into objects and lists: "request.headers.X-Api-Key.0". took is in seconds,
// unless a unit follows the name, "duration ms", or is the part: "ms". Run and Suggest return an error if most
// requests then took longer than the log covers. An empty name means that the log doesn't have
// the part. Run and Suggest return an error if no line has a field of that name.
func WithField(part, name string) ReadOption {
	return readOption(func(c *readConfig) {
		if units[part] != 0 {
			part = "took " + part
		}
		name, unit, spaced := strings.Cut(name, " ")
		if spaced {
			part += " " + unit
		}
		c.fields = append(c.fields, field{part: part, name: name, required: true})
	})
}

// Formats returns the names of the formats that Read supports.
func Formats() (names []string) {
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// Read reads a log from a text file. The format is recognized by the first lines, or set by
// WithFormat. The prefixes and wrappings of collectors, such as syslog, CRI (Kubernetes) and Docker's json-file, are
// recognized, too. Their times are used if they are finer than the times of the lines. name is the file's name, for
// messages.
//
// A line is counted as broken if it doesn't match the format, if its request can't be parsed,
// or if its peer isn't an address. Times without a zone are taken as UTC. Read returns an error
// if a format or a field is wrong, if no format was recognized, or if the file can't be read.
func Read(name string, r io.Reader, opts ...ReadOption) (Log, error) {
	var c readConfig
	for _, o := range opts {
		o.ofRead(&c)
	}
	l := &reader{lineReader: newLineReader(name, r), clock: clock{window: c.readWindow()}, zone: c.zone}
	if head, _ := l.source.Peek(len(utf8Mark)); bytes.Equal(head, utf8Mark) {
		_, _ = l.source.Discard(len(utf8Mark))
	}
	l.skipNUL()
	if err := l.choose(&c); err != nil {
		return nil, err
	}
	if err := l.begin(&l.draft.shown); err != nil {
		return nil, err
	}
	return l, nil
}

// skipNUL skips bytes of NUL at the beginning of a file.
func (r *reader) skipNUL() {
	for {
		head, _ := r.source.Peek(1)
		if len(head) == 0 || head[0] != 0 {
			return
		}
		head, _ = r.source.Peek(r.source.Buffered())
		n := len(head) - len(bytes.TrimLeft(head, "\x00"))
		_, _ = r.source.Discard(n)
		r.nul = true
	}
}

// splitter splits lines.
type splitter interface {
	// split sets a request to the values of a line, and returns what is wrong with it, or "".
	split(line string, d *draft) string
	// missingFields returns the fields of WithField that no line has had.
	missingFields() []string
}

const (
	otherFormat = "it doesn't have the log's format"
	notRequest  = "the client sent no HTTP request, and the server refused it"
	otherLine   = "it is another message, not about a request"
)

func unreadable(part string) string { return "its " + part + " can't be read" }

// reader is a log of lines.
type reader struct {
	lookahead
	lineReader
	clock    clock
	last     []byte // the line that was read last
	zone     *time.Location
	draft    draft
	wrapping wrapping
	stamped  bool // the wrapping's times count
	splitter
}

// maxSampled is how many lines are looked at to recognize a format.
const maxSampled = 100

// sample returns the first lines, without reading them.
func (r *reader) sample() (all [][]byte) {
	head, err := r.source.Peek(r.source.Size())
	for len(head) > 0 && len(all) < maxSampled {
		line, rest, complete := bytes.Cut(head, []byte("\n"))
		if !complete && err == nil && len(all) > 0 {
			break // the buffer ends within it
		}
		if line = withoutColors(bytes.TrimRight(line, "\r")); len(line) > 0 {
			all = append(all, line)
		}
		head = rest
	}
	return all
}

// choose finds the format and the wrapping that read most of the first lines.
func (r *reader) choose(c *readConfig) error {
	lines := r.sample()
	candidates := formats
	if c.format != "" {
		i := slices.IndexFunc(formats, func(f format) bool { return f.name == c.format })
		switch {
		case i >= 0:
			candidates = formats[i : i+1]
		case strings.ContainsAny(c.format, "$%"):
			candidates = []format{{name: c.format, layout: c.format}}
		default:
			return fmt.Errorf("no format is called %q: %s", c.format, writeFormat())
		}
	} else if len(lines) == 0 {
		if _, err := r.source.Peek(1); err != nil && err != io.EOF {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		return fmt.Errorf("%w: %s is empty", ErrEmpty, r.name)
	}
	for _, f := range c.fields { // whatever the format is
		if _, err := new(Says).setter(f.part); err != nil {
			return fmt.Errorf("field %s=%s: %w", f.part, f.name, err)
		}
	}
	best, bad := bestOf(candidates, lines, c)
	isJSON := len(lines) > 0 && lines[0][0] == '{'
	if len(best.lines) > 0 {
		isJSON = best.lines[0].line[0] == '{'
	}
	switch {
	case best.reader == nil && c.format != "":
		return bad
	case c.format != "" || best.readable > 0 && 2*best.readable >= len(lines)-best.others:
	case isJSON && len(c.fields) == 0:
		return fmt.Errorf("%s: no known server's JSON: write --field for each part of a request, such as --field end=time --field method=verb --field target=url", r.name)
	case isJSON && best.reader == nil:
		return bad
	case isJSON: // the lines that can't be read are counted, and names that no line has are errors
	case len(c.fields) > 0:
		return errFieldsOfText
	default:
		return fmt.Errorf("%s: the format isn't known: %s", r.name, writeFormat())
	}
	best.stamped = best.stamped || best.refinedBy(best.lines)
	r.wrapping, r.splitter, r.says, r.stamped = best.wrapping, best.splitter, best.says, best.stamped
	r.draft = newDraft(&r.says, r.zone)
	if candidate, ok := r.splitter.(*columnSplitter); ok {
		candidate.says, candidate.names = &r.says, nil
	}
	if r.wrapping.name != "" {
		r.says.Format += " in " + r.wrapping.name
	}
	r.parse = r.readInTime
	return nil
}

// choice is a format and a wrapping, and how many of the first lines they read.
type choice struct {
	*reader
	lines            []wrapped
	readable, others int // others aren't about requests
}

// bestOf returns the choice that reads most lines. If the log can't have any of the formats, the error is of the last.
func bestOf(candidates []format, lines [][]byte, c *readConfig) (best choice, bad error) {
	best.readable = -1
	for _, w := range wrappings {
		var opened []wrapped
		for _, line := range lines {
			if in, at, ok := w.open(line); ok && len(in) > 0 {
				opened = append(opened, wrapped{in, at})
			}
		}
		if w.name != "" && len(opened) == 0 {
			continue
		}
		for _, f := range candidates {
			if f.columns && c.format == "" && len(opened) > 0 && opened[0].line[0] == '{' {
				continue
			}
			candidate := &reader{wrapping: w, zone: c.zone}
			if bad = candidate.compile(f.with(c.headers), c.fields, opened); bad != nil {
				continue
			}
			n, others := candidate.countReadable(f, opened)
			if plain := (&reader{}); n == 0 && len(c.fields) > 0 && plain.compile(f.with(c.headers), nil, opened) == nil {
				n, others = plain.countReadable(f, opened) // by a field that was named wrongly, no line is read
			}
			// A later one is taken if it reads far more: what the first can't read may be broken.
			if n > best.readable+best.readable/8 {
				best = choice{candidate, opened, n, others}
			}
		}
	}
	return best, bad
}

var errFieldsOfText = errors.New("--field is for logs of JSON or of columns: for text, write the server's log_format, LogFormat or log-format as --format")

func writeFormat() string {
	return fmt.Sprintf("write one of %s, or the server's log_format (nginx), LogFormat (Apache) or log-format (HAProxy), such as '%s'", strings.Join(Formats(), ", "), common)
}

// compile makes a reader of a format. lines are the first of the log.
func (r *reader) compile(f format, named []field, lines []wrapped) (err error) {
	says := &r.says
	says.Format = f.name
	r.draft = newDraft(says, r.zone)
	hasTimes := slices.ContainsFunc(lines, func(l wrapped) bool { return len(l.at) > 0 })
	if f.splitter != nil {
		if len(named) > 0 {
			return errFieldsOfText
		}
		r.splitter = f.splitter(says)
		return nil
	}
	if f.layout != "" {
		if len(named) > 0 {
			return errFieldsOfText
		}
		var timed bool
		r.splitter, timed, err = newTextSplitter(f.layout, says)
		if r.stamped = !timed; err == nil && !timed && !hasTimes {
			err = errNoTimeInLayout
		}
		return err
	}
	all := slices.Clone(named)
	for _, f := range named {
		if f.part == "took" {
			says.assumedSeconds = f.name
		}
	}
	for _, f := range f.fields {
		name, _, _ := strings.Cut(strings.TrimSuffix(f.part, ":port"), " ")
		if !slices.ContainsFunc(named, func(g field) bool { return g.part == name || strings.HasPrefix(g.part, name+" ") }) {
			all = append(all, f)
		}
	}
	all = slices.DeleteFunc(all, func(f field) bool { return f.name == "" })
	if f.columns {
		r.splitter = &columnSplitter{fields: all, says: says}
		return nil
	}
	if !hasMarks(f.marks, lines) {
		return fmt.Errorf("the log isn't in the format %s: no line has %s", f.name, strings.ReplaceAll(f.marks, " ", ", "))
	}
	all = presentFields(all, lines)
	has := func(parts ...string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool {
			return !slices.ContainsFunc(all, func(f field) bool { return f.part == part })
		})
	}
	r.stamped = !has("end") && !has("start")
	switch {
	case r.stamped && !hasTimes:
		return errors.New("no time: write --field end=NAME or --field start=NAME")
	case !has("method", "target") && !has("request"):
		return errors.New("no request: write --field method=NAME and --field target=NAME")
	}
	says.Took = has("start", "end")
	r.splitter, err = newJSONSplitter(all, says)
	return err
}

// with returns a format that also reads header fields.
func (f format) with(headers []string) format {
	if f.header == "" {
		return f
	}
	f.fields = slices.Clone(f.fields)
	for _, name := range headers {
		written := name
		if f.name == "nginx-json" {
			written = strings.ReplaceAll(strings.ToLower(name), "-", "_")
		}
		f.fields = append(f.fields, field{part: "header." + name, name: fmt.Sprintf(f.header, written), within: f.headers})
		if f.name == "caddy" && name == forwardedFor {
			f.fields = append(f.fields, field{part: "client", name: "request.client_ip"})
		}
	}
	return f
}

// hasMarks reports whether some line has all of the names.
func hasMarks(names string, lines []wrapped) bool {
	return names == "" || slices.ContainsFunc(lines, func(l wrapped) bool {
		object, ok := parseObject(string(l.line))
		for name := range strings.FieldsSeq(names) {
			if ok {
				_, ok = valueAt(object, strings.Split(name, "."))
			}
		}
		return ok
	})
}

// presentFields returns the fields that some line has, or that were given. Of several names of one part, it returns
// the first.
func presentFields(all []field, lines []wrapped) []field {
	places := make([]jsonField, len(all))
	for i, f := range all {
		places[i] = jsonField{field: f, path: strings.Split(f.name, "."), found: f.required}
	}
	for _, line := range lines {
		object, _ := parseObject(string(line.line))
		for i := range places {
			p := &places[i]
			switch {
			case p.found:
			case p.within != "": // if the object lacks the field, the request had none
				v, _ := valueAt(object, strings.Split(p.within, "."))
				_, p.found = v.(map[string]any)
			default:
				_, p.found = p.lookup(object)
			}
		}
	}
	var some []field
	for _, p := range places {
		if p.found && (p.required || !slices.ContainsFunc(some, func(f field) bool { return f.part == p.field.part && !f.required })) {
			some = append(some, p.field)
		}
	}
	return some
}

// countReadable returns how many lines a format reads, and how many aren't about requests.
func (r *reader) countReadable(f format, lines []wrapped) (n, others int) {
	recognized := f.shows == nil
	for _, l := range lines {
		var request Request
		if r.directive(l.line) {
			n++
			continue
		}
		if why := r.parseLine(l.line, l.at, &request); why != "" {
			if why == otherLine {
				others++
			}
			continue
		}
		if f.shows != nil {
			shows := f.shows(&request)
			recognized = recognized || shows > 0
			if shows < 0 {
				continue
			}
		}
		n++
	}
	if c, ok := r.splitter.(*columnSplitter); !recognized || ok && !slices.Contains(c.names, f.marks) {
		return 0, 0
	}
	return n, others
}

// refinedBy reports whether the wrapping has finer times than the lines: the lines have whole seconds, and the
// wrapping's times agree with them.
func (r *reader) refinedBy(lines []wrapped) bool {
	agree, all := 0, 0
	for _, l := range lines {
		var request Request
		if r.directive(l.line) || r.parseLine(l.line, l.at, &request) != "" {
			continue
		}
		if !r.draft.start.IsZero() || request.End.Nanosecond() != 0 {
			return false
		}
		all++
		if at, ok := r.draft.wrapped.parse(string(l.at)); ok && at.Nanosecond() != 0 && writtenAfter(request.End, at) {
			agree++
		}
	}
	return all > 0 && 10*agree >= 9*all
}

// writtenAfter reports whether a line with a time in whole seconds may have been written at another time.
func writtenAfter(second, at time.Time) bool {
	late := at.Sub(second)
	return late >= 0 && late < 2*time.Second
}

// directive reports whether a line describes the lines behind it, and handles it.
func (r *reader) directive(line []byte) bool {
	c, ok := r.splitter.(*columnSplitter)
	if ok = ok && line[0] == '#'; ok {
		c.directive(string(line))
	}
	return ok
}

// read reads the next request.
func (r *reader) read(to *Request) error {
	for {
		text, err := r.next()
		if err != nil {
			r.countNUL()
			return err
		}
		r.last = text
		if text = withoutColors(text); len(text) == 0 {
			continue
		}
		line, at, ok := r.wrapping.open(text)
		if !ok || len(line) == 0 {
			r.countBroken(text, "it isn't in "+r.wrapping.name)
			continue
		}
		if r.directive(line) {
			continue
		}
		if why := r.parseLine(line, at, to); why != "" {
			r.countBroken(text, why)
			continue
		}
		r.countNUL()
		return nil
	}
}

// parseLine reads a request from a line that was wrapped at a time, and returns what is wrong with it, or "".
func (r *reader) parseLine(line, at []byte, to *Request) string {
	r.draft.reset(to)
	if why := r.split(string(line), &r.draft); why != "" {
		return why
	}
	if r.stamped {
		r.draft.writtenAt, _ = r.draft.wrapped.parse(string(at))
	}
	return r.draft.finish()
}

func (r *reader) brokenLines() Broken { return r.broken }
