package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Presets are the field maps of servers that write JSON, for JSON. Those of Caddy and
// Traefik are their default logs, nginx's one whose names are those of its variables, and
// Envoy's the one of its documentation.
var Presets = map[string]map[string]string{
	"caddy": {
		"end": "ts", "took": "duration", "peer": "request.remote_ip", "method": "request.method",
		"target": "request.uri", "host": "request.host", "status": "status", "bytes": "size",
	},
	"traefik": {
		"start": "StartUTC", "took": "Duration ns", "peer": "ClientHost", "method": "RequestMethod",
		"target": "RequestPath", "host": "RequestHost", "status": "DownstreamStatus", "bytes": "DownstreamContentSize",
	},
	"envoy": {
		"start": "start_time", "took": "duration ms", "method": "method", "target": "path",
		"host": "authority", "status": "response_code", "bytes": "bytes_sent",
	},
	"nginx": {
		"end": "msec", "took": "request_time", "peer": "remote_addr", "method": "request_method",
		"target": "request_uri", "host": "host", "status": "status", "bytes": "body_bytes_sent",
	},
}

// fieldNames are what a field map may map, beside header.NAME.
var fieldNames = []string{"end", "start", "took", "peer", "method", "target", "host", "status", "bytes"}

// units are the units that a number may have.
var units = map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond, "ns": time.Nanosecond}

// JSON reads a log with one JSON object in each line. fields says where a request's parts
// are in the object: its keys are end or start, took, peer, method, target, host, status,
// bytes, and header.NAME for each header field that is logged. Its values are names in the
// object, with dots for objects and lists within: "request.headers.X-Api-Key.0". A number
// of times is of seconds, unless a unit follows: "duration ms". Presets has usual maps.
//
// What the map doesn't name isn't known. A line in which end or start, method or target is
// missing is counted as broken. The error says what is wrong with the map, or that the file
// can't be read.
func JSON(name string, r io.Reader, fields map[string]string) (Log, error) {
	j := &jsonLog{lines: newLines(name, r)}
	if err := j.compile(fields); err != nil {
		return nil, err
	}
	j.parse = j.read
	if err := j.begin(); err != nil {
		return nil, err
	}
	return j, nil
}

// jsonLog is a log of JSON objects.
type jsonLog struct {
	ahead
	lines
	at      map[string]place
	headers []place // of says.Fields
}

func (j *jsonLog) brokenLines() Broken { return j.broken }

// place is where a value is in an object.
type place struct {
	path []string
	unit time.Duration
}

func (j *jsonLog) compile(fields map[string]string) error {
	j.at = map[string]place{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		where := fields[name]
		if where == "" {
			continue // a preset's field that this log doesn't have
		}
		path, unit, spaced := strings.Cut(where, " ")
		p := place{strings.Split(path, "."), time.Second}
		if spaced {
			if p.unit = units[unit]; p.unit == 0 || name != "took" && name != "end" && name != "start" {
				return fmt.Errorf("plan: field map: %s=%s: the unit %q: write s, ms, us or ns behind the name of a time", name, where, unit)
			}
		}
		if header, ok := strings.CutPrefix(name, "header."); ok && header != "" {
			j.says.Fields = append(j.says.Fields, http.CanonicalHeaderKey(header))
			j.headers = append(j.headers, p)
			continue
		}
		if !slices.Contains(fieldNames, name) {
			return fmt.Errorf("plan: field map: %q is no part of a request: write %s or header.NAME", name, strings.Join(fieldNames, ", "))
		}
		j.at[name] = p
	}
	has := func(name string) bool { _, ok := j.at[name]; return ok }
	j.says.Took, j.says.Peer, j.says.Host, j.says.Status = has("took"), has("peer"), has("host"), has("status")
	switch {
	case !has("end") && !has("start"):
		return fmt.Errorf("plan: field map: no time: write end=NAME or start=NAME")
	case !has("end") && !has("took"):
		return fmt.Errorf("plan: field map: start without took: when a request ended isn't known: write end=NAME or took=NAME")
	case !has("method") || !has("target"):
		return fmt.Errorf("plan: field map: no request: write method=NAME and target=NAME")
	}
	return nil
}

func (j *jsonLog) read(r *Request) error {
	for {
		line, err := j.next()
		if err != nil {
			return err
		}
		if why := j.line(line, r); why != "" {
			j.spoil(line, why)
			continue
		}
		return nil
	}
}

// line reads a request from a line, and returns what is wrong with it, or "".
func (j *jsonLog) line(line []byte, r *Request) string {
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // times have more digits than a float64
	if err := d.Decode(&object); err != nil {
		return "it isn't a JSON object"
	}
	*r = Request{}
	text := func(name string) string { return j.at[name].text(object) }
	r.Method, r.Target, r.Peer, r.Host = text("method"), text("target"), text("peer"), text("host")
	if r.Method == "" || !isTarget(r.Target) {
		return "it has no request: see the field map"
	}
	ok := true
	if j.says.Took {
		if v := text("took"); v != "" && v != "-" {
			if r.Took, ok = seconds(v, j.at["took"].unit); !ok {
				if d, err := time.ParseDuration(v); err == nil && d >= 0 {
					r.Took, ok = d, true
				}
			}
		}
		if !ok {
			return "how long the request took can't be read: see the field map"
		}
	}
	if p, has := j.at["end"]; has {
		r.End, ok = p.time(object)
	} else {
		r.End, ok = j.at["start"].time(object)
		r.End = r.End.Add(r.Took)
	}
	if !ok {
		return "its time can't be read: see the field map"
	}
	if j.says.Status {
		n, err := strconv.Atoi(text("status"))
		if r.Status = n; err != nil {
			return "its status can't be read: see the field map"
		}
	}
	if v := text("bytes"); v != "" {
		r.Written, _ = strconv.ParseInt(v, 10, 64)
	}
	for _, p := range j.headers {
		r.Fields = append(r.Fields, p.text(object))
	}
	return ""
}

// text returns the value as text, or "" if it isn't there.
func (p place) text(object map[string]any) string {
	var v any = object
	for _, name := range p.path {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return ""
			}
			v = in[i]
		default:
			return ""
		}
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// time returns the value as a time.
func (p place) time(object map[string]any) (time.Time, bool) {
	v := p.text(object)
	if t, ok := unix(v, p.unit); ok && v != "" {
		return t, true
	}
	for _, layout := range []string{time.RFC3339Nano, localTime} {
		if t, err := time.Parse(layout, v); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
