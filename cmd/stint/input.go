package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for --zone, on hosts without zones

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/internal/keys"
)

// input is the flags for reading logs.
type input struct {
	format string
	fields []string
	proxy  string
	zone   string
	window time.Duration // of the report's flags, or 0
	// headers are the header fields that the limits read.
	headers []string
}

// readsOf adds the header fields that a limiter reads, as far as the logs have them.
func (in *input) readsOf(l *stint.Limiter, predicates []keys.Reads) {
	in.headers = append(in.headers, replay.HeaderReads(l)...)
	for _, reads := range predicates {
		in.headers = append(in.headers, reads.Fields...)
	}
	slices.Sort(in.headers)
	in.headers = slices.Compact(in.headers)
}

// open opens logs and merges them by time. - is standard input. done closes them.
func (in *input) open(paths []string, stdin io.Reader) (log replay.Log, done func(), err error) {
	var closers []func()
	done = func() {
		for _, f := range closers {
			f()
		}
	}
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	var logs []replay.Log
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
		plainText, end, err := decompress(from)
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
	log, err = replay.Merge(logs...)
	if err == nil && in.proxy != "" {
		if _, err := netip.ParseAddr(in.proxy); err != nil {
			return nil, done, fmt.Errorf("--proxy %s: write the address that the server sees, such as 10.0.0.1", in.proxy)
		}
		log = replay.BehindProxy(log, in.proxy)
	}
	return log, done, err
}

// decompress returns the content of a log that may be compressed.
func decompress(r io.Reader) (_ *bufio.Reader, end func(), err error) {
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

// log returns the log in a file.
func (in *input) log(name string, r io.Reader) (replay.Log, error) {
	options := []replay.ReadOption{replay.WithHeaders(in.headers...), replay.WithReadWindow(in.window)}
	if in.zone != "" {
		zone, err := time.LoadLocation(in.zone)
		if err != nil {
			return nil, fmt.Errorf("--zone %s: write a name such as Europe/Berlin, UTC or Local", in.zone)
		}
		options = append(options, replay.WithZone(zone))
	}
	if in.format != "" {
		options = append(options, replay.WithFormat(in.format))
	}
	for _, f := range in.fields {
		part, where, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("--field %s: write PART=NAME, such as ms=duration or header.X-API-Key=request.headers.X-Api-Key.0", f)
		}
		options = append(options, replay.WithField(part, where))
	}
	return replay.Read(name, r, options...)
}
