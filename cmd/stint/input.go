package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint/plan"
)

// input says how logs are read.
type input struct {
	format string
	fields []string
	proxy  string
}

// The names of formats.
const (
	auto     = "auto"
	combined = "combined"
	common   = "common"
	jsonLine = "json"
)

// open opens logs and merges them by time. - is standard input. done closes them.
func (in *input) open(paths []string, stdin io.Reader) (log plan.Log, done func(), err error) {
	var closers []func()
	done = func() {
		for _, f := range closers {
			f()
		}
	}
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	var logs []plan.Log
	for _, path := range paths {
		from := stdin
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return nil, done, err
			}
			closers = append(closers, func() { f.Close() })
			if info, err := f.Stat(); err == nil && info.IsDir() {
				return nil, done, fmt.Errorf("%s is a directory: give the logs in it", path)
			}
			from = f
		}
		plainText, end, err := decompressed(from)
		if err != nil {
			return nil, done, fmt.Errorf("%s: %w", path, err)
		}
		closers = append(closers, end)
		l, err := in.log(path, plainText)
		if err != nil {
			return nil, done, err
		}
		logs = append(logs, l)
	}
	log, err = plan.Merge(logs...)
	if err == nil && in.proxy != "" {
		log = plan.BehindProxy(log, in.proxy)
	}
	return log, done, err
}

// decompressed returns what a log contains, whatever it is compressed with.
func decompressed(r io.Reader) (_ *bufio.Reader, end func(), err error) {
	b := bufio.NewReaderSize(r, 1<<16)
	end = func() {}
	switch head, _ := b.Peek(4); {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, end, err
		}
		return bufio.NewReaderSize(z, 1<<16), end, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, end, err
		}
		return bufio.NewReaderSize(z, 1<<16), z.Close, nil
	}
	return b, end, nil
}

// log returns the log in a file, by the format that was given or that its first line shows.
func (in *input) log(name string, r *bufio.Reader) (plan.Log, error) {
	format := in.format
	if format == auto {
		first, err := firstLine(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if format, err = detect(first); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	switch kind, preset, _ := strings.Cut(format, ":"); {
	case kind == jsonLine:
		fields, err := in.fieldMap(preset)
		if err != nil {
			return nil, err
		}
		return plan.JSON(name, r, fields)
	case len(in.fields) > 0:
		return nil, errors.New("--field is for logs of JSON: for text, write the server's log format in --format")
	case format == combined:
		return plan.Text(name, r, plan.Combined)
	case format == common:
		return plan.Text(name, r, plan.Common)
	case strings.ContainsAny(format, "$%"):
		return plan.Text(name, r, format)
	}
	return nil, fmt.Errorf("--format %s: write auto, combined, common, json:PRESET (%s), or the server's own log format, such as '%s'",
		format, presets(), plan.Common)
}

func presets() string { return strings.Join(slices.Sorted(maps.Keys(plan.Presets)), ", ") }

// fieldMap returns the field map of a preset with the fields that were given.
func (in *input) fieldMap(preset string) (map[string]string, error) {
	fields := map[string]string{}
	if preset != "" {
		known := plan.Presets[preset]
		if known == nil {
			return nil, fmt.Errorf("--format json:%s: write one of %s, or json and --field for each part", preset, presets())
		}
		maps.Copy(fields, known)
	}
	for _, f := range in.fields {
		part, where, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("--field %s: write PART=NAME, such as took='duration ms' or header.X-API-Key=request.headers.X-Api-Key.0", f)
		}
		fields[part] = where
	}
	return fields, nil
}

// firstLine returns the first line that isn't empty, without reading it.
func firstLine(r *bufio.Reader) (string, error) {
	for {
		head, err := r.Peek(r.Size())
		if len(head) == 0 {
			if err == nil || err == io.EOF {
				return "", plan.ErrEmpty
			}
			return "", err
		}
		line, _, _ := bytes.Cut(head, []byte("\n"))
		if text := strings.TrimSpace(string(line)); text != "" {
			return text, nil
		}
		if _, err := r.Discard(min(len(line)+1, len(head))); err != nil {
			return "", err
		}
	}
}

// detect returns the format of a log by its first line.
func detect(line string) (string, error) {
	if strings.HasPrefix(line, "{") {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			return "", fmt.Errorf("the first line isn't a JSON object: %w", err)
		}
		for preset, all := range map[string][]string{
			"caddy": {"ts", "request", "duration"}, "traefik": {"StartUTC", "RequestMethod"},
			"envoy": {"start_time", "response_code", "path"}, "nginx": {"msec", "request_method", "request_uri"},
		} {
			if !slices.ContainsFunc(all, func(name string) bool { return object[name] == nil }) {
				return jsonLine + ":" + preset, nil
			}
		}
		return "", fmt.Errorf("no known server's JSON: write --format json, and --field for each part, such as --field end=time --field method=verb --field target=url")
	}
	for _, format := range []string{combined, common} {
		layout := map[string]string{combined: plan.Combined, common: plan.Common}[format]
		l, err := plan.Text("", strings.NewReader(line), layout)
		if err != nil {
			return "", err
		}
		if b := l.Says(); b.Resolution > 0 { // the line could be read
			return format, nil
		}
	}
	// The first line may be one of the few that are broken, such as a TLS handshake's.
	if strings.Count(line, `"`) >= 6 && strings.Contains(line, " [") {
		return combined, nil
	}
	if strings.Count(line, `"`) >= 2 && strings.Contains(line, " [") {
		return common, nil
	}
	return "", fmt.Errorf("the format isn't known: write the server's own in --format, such as '%s'", plan.Common)
}
