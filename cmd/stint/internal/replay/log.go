package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Log is a sequence of served requests, ordered by the time at which they ended; WithWindow
// sets how far it may deviate from that order. Read reads a log from a file; an application may
// implement its own. A Log is for one goroutine.
type Log interface {
	// Says returns which fields of requests the log has.
	Says() Says
	// Next sets r to the next request. It may reuse the array of r.Fields. At the end, the
	// error is io.EOF.
	Next(r *Request) error
}

// Says lists what a log says of its requests. A limit that needs anything else isn't judged.
type Says struct {
	// Format is the name of the log's format, for reports, or "".
	Format string
	// Resolution is the resolution of Request.End; 0 means a microsecond. A log with whole
	// seconds is replayed twice: see Report.
	Resolution time.Duration
	// Took, Peer, Host and Status report whether the log has these fields of a Request.
	Took, Peer, Host, Status bool
	// Fields are the header fields whose values it has, such as "X-Api-Key".
	Fields []string
	// OnlyLastHop reports whether X-Forwarded-For has only the address that the last proxy has added: see
	// BehindProxy.
	OnlyLastHop bool

	assumedSeconds string // the field of durations that was named without a unit, or ""
	forwardedAt    int    // 1 plus the index of X-Forwarded-For, if the client that a server has found takes its place
}

// Request is a request as a log describes it.
type Request struct {
	// End is the time when the request had been answered; it arrived at End minus Took. If a
	// log has only the time of arrival, End is that time.
	End time.Time
	// Took is the duration of the request.
	Took time.Duration
	// Peer is the address that the request was sent from, with or without a port. A request
	// whose peer isn't an address isn't judged.
	Peer string
	// Method is its method.
	Method string
	// Target is the target of its first line: a path, and perhaps a query.
	Target string
	// Host is the request's host.
	Host string
	// Status is the status of the response, and Written the length of its body.
	Status  int
	Written int64
	// Fields are the values of Says.Fields, in that order; "" if the request had no such field.
	Fields []string
}

// Broken counts the lines from which no request could be read.
type Broken struct {
	Lines int64 `json:"lines"`
	// NotRequests is how many of the lines are no loss. Either the client sent no HTTP request (such as a TLS
	// handshake to a plain port), and the server answered with a 4xx before any handler. Or the line is another
	// message of a log that has more than requests.
	NotRequests int64 `json:"not_requests,omitempty"`
	// First has up to five of these lines, but no other messages, each cut to 200 bytes, with the file, the line
	// number and the problem.
	First []string `json:"first,omitempty"`
}

const (
	maxBroken = 5
	maxLine   = 1 << 20 // bytes of a line
)

// lineReader reads the lines of a file.
type lineReader struct {
	name     string
	source   *bufio.Reader
	number   int64
	longLine []byte
	tooLong  bool // the line that was read last
	nul      bool // bytes of NUL came before it, and aren't counted yet
	broken   Broken
	cut      error // why the file has ended early
}

func newLineReader(name string, r io.Reader) lineReader {
	return lineReader{name: name, source: bufio.NewReaderSize(r, 1<<16)}
}

// next returns the next line that isn't empty, without its end. It is valid until the next
// call. Bytes of NUL before a line, which a rotation by copying leaves, and lines that are too long are skipped
// and counted.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.source.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			line, err = l.readLong(line)
		}
		if err != nil && err != io.EOF {
			return nil, l.endEarly(err)
		}
		if len(line) == 0 && err != nil {
			return nil, err
		}
		l.number++
		if l.tooLong {
			l.tooLong = false
			l.countBroken(line, fmt.Sprintf("it is longer than %d bytes", maxLine))
			continue
		}
		if line[0] == 0 {
			l.nul = true
			line = bytes.TrimLeft(line, "\x00")
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

// readLong reads the rest of a line that begins with head. Of one that is too long, it returns the beginning.
func (l *lineReader) readLong(head []byte) (line []byte, err error) {
	l.longLine = l.longLine[:0]
	for err = bufio.ErrBufferFull; ; head, err = l.source.ReadSlice('\n') {
		if len(l.longLine) == 0 && head != nil {
			l.nul = l.nul || len(head) > 0 && head[0] == 0
			head = bytes.TrimLeft(head, "\x00") // however many there are
		}
		if l.tooLong = l.tooLong || len(l.longLine)+len(head) > maxLine; !l.tooLong {
			l.longLine = append(l.longLine, head...)
		}
		if err != bufio.ErrBufferFull {
			break
		}
	}
	if len(l.longLine) == 0 { // NUL alone, up to the end
		l.longLine = append(l.longLine, '\n')
	}
	return l.longLine, err
}

// countBroken counts a line from which no request can be read.
func (l *lineReader) countBroken(line []byte, why string) { l.countBrokenAt(l.number, line, why) }

// countNUL counts bytes of NUL before the line that was read last.
func (l *lineReader) countNUL() {
	if l.nul {
		l.countBroken(nil, "NUL bytes before the line")
	}
}

func (l *lineReader) countBrokenAt(number int64, line []byte, why string) {
	l.nul = false
	l.broken.Lines++
	if why == notRequest || why == otherLine {
		l.broken.NotRequests++
	}
	if why != otherLine && len(l.broken.First) < maxBroken {
		l.broken.First = append(l.broken.First, fmt.Sprintf("%s:%d: %s: %s", l.name, number, why, line[:min(len(line), 200)]))
	}
}

// resolution is the finest resolution that times of a log have shown. Durations don't count: if the time is in whole
// seconds, a request that took 0.250 s may have arrived at any time of a second.
type resolution struct{ finest time.Duration }

func (r *resolution) add(t time.Time) {
	switch n := t.Nanosecond(); {
	case n == 0:
		if r.finest == 0 {
			r.finest = time.Second
		}
	case n%int(time.Millisecond) == 0:
		if r.finest != time.Microsecond {
			r.finest = time.Millisecond
		}
	default:
		r.finest = time.Microsecond
	}
}

// lookahead is a log some of whose requests have been read to see the resolution of their times.
type lookahead struct {
	parse    func(*Request) error
	says     Says
	buffered []Request
	err      error
}

// lookaheadRequests is how many requests are read to see the resolution of their times.
const lookaheadRequests = 1000

// begin reads these requests. shown is the resolution that parse has seen.
func (a *lookahead) begin(shown *resolution) error {
	for len(a.buffered) < lookaheadRequests {
		var r Request
		if a.err = a.parse(&r); a.err != nil {
			break
		}
		a.buffered = append(a.buffered, r)
	}
	if a.err != nil && a.err != io.EOF {
		return a.err
	}
	a.says.Resolution = shown.finest
	return nil
}

// Says implements Log.
func (a *lookahead) Says() Says { return a.says }

// Next implements Log.
func (a *lookahead) Next(r *Request) error {
	if len(a.buffered) > 0 {
		*r = a.buffered[0]
		a.buffered = a.buffered[1:]
		return nil
	}
	if a.err != nil {
		return a.err
	}
	return a.parse(r)
}

// Merge returns a log of the requests of several logs, ordered by the time of their end, for
// logs of several servers or the parts of a rotated log. The merged log has the fields that all
// logs have, and the coarsest resolution among them.
func Merge(logs ...Log) (Log, error) {
	switch len(logs) {
	case 0:
		return nil, errors.New("no log: give one")
	case 1:
		return logs[0], nil
	}
	m := &merged{says: logs[0].Says()}
	m.says.Fields = slices.Clone(m.says.Fields)
	var formats []string
	for _, l := range logs {
		says := l.Says()
		m.says.Resolution = max(m.says.Resolution, says.Resolution)
		if !slices.Contains(formats, says.Format) {
			formats = append(formats, says.Format)
		}
		m.says.Took = m.says.Took && says.Took
		m.says.Peer = m.says.Peer && says.Peer
		m.says.Host = m.says.Host && says.Host
		m.says.Status = m.says.Status && says.Status
		m.says.Fields = slices.DeleteFunc(m.says.Fields,
			func(name string) bool { return !slices.Contains(says.Fields, name) })
	}
	m.says.Format = strings.Join(formats, ", ")
	for _, l := range logs {
		p := &part{log: l}
		says := l.Says()
		for _, name := range m.says.Fields {
			p.fields = append(p.fields, slices.Index(says.Fields, name))
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		m.parts = append(m.parts, p)
	}
	return m, nil
}

// merged is the log of Merge.
type merged struct {
	says  Says
	parts []*part
}

// part is a log that is merged, and its next request.
type part struct {
	log    Log
	fields []int // of the log, for each of the merged one
	next   Request
	ended  bool
}

func (p *part) advance() error {
	err := p.log.Next(&p.next)
	if p.ended = err == io.EOF; p.ended {
		return nil
	}
	return err
}

// Says implements Log.
func (m *merged) Says() Says { return m.says }

// Next implements Log.
func (m *merged) Next(r *Request) error {
	var first *part
	for _, p := range m.parts {
		if !p.ended && (first == nil || p.next.End.Before(first.next.End)) {
			first = p
		}
	}
	if first == nil {
		return io.EOF
	}
	*r = first.next
	fields := make([]string, len(first.fields))
	for i, at := range first.fields {
		fields[i] = first.next.Fields[at]
	}
	r.Fields = fields
	if !m.says.Took {
		r.Took = 0
	}
	return first.advance()
}

// brokenLines returns the broken lines of all parts.
func (m *merged) brokenLines() (b Broken) {
	for _, p := range m.parts {
		b.add(brokenOf(p.log))
	}
	return b
}

// missingFields returns the fields that no part has.
func (m *merged) missingFields() (all []string) {
	for i, p := range m.parts {
		if missing := missingFieldsOf(p.log); i == 0 {
			all = missing
		} else {
			all = slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(missing, name) })
		}
	}
	return all
}

func (b *Broken) add(o Broken) {
	b.Lines += o.Lines
	b.NotRequests += o.NotRequests
	b.First = append(b.First, o.First[:min(len(o.First), maxBroken-len(b.First))]...)
}

// brokenOf returns the broken lines of a log, if it counts them.
func brokenOf(l Log) Broken {
	if b, ok := l.(interface{ brokenLines() Broken }); ok {
		return b.brokenLines()
	}
	return Broken{}
}

// missingFieldsOf returns the fields of WithField that no line of a log has had.
func missingFieldsOf(l Log) []string {
	if u, ok := l.(interface{ missingFields() []string }); ok {
		return u.missingFields()
	}
	return nil
}

// checkFieldNames returns the error of a log whose fields were named wrongly, or nil.
func checkFieldNames(l Log) error {
	all := missingFieldsOf(l)
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("no line of the log has %s: write the name as it is in the log, or remove the --field",
		strings.Join(all, ", "))
}
