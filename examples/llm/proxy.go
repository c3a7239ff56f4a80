package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// proxy passes a stream on as it comes, and counts its tokens.
func proxy(to *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1, // each token at once
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				c := completionOf(resp.Request)
				c.begun = true
				resp.Body = &meter{ReadCloser: resp.Body, c: c}
			}
			return nil
		},
	}
}

// meter counts the tokens in a stream of server-sent events. The reader writes to the
// client before it reads on, on the request's own goroutine.
type meter struct {
	io.ReadCloser
	c    *completion
	line []byte // its beginning
}

// mostLine bounds what is kept of an event that doesn't end.
const mostLine = 64 << 10

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		if len(m.line)+len(part) <= mostLine {
			m.line = append(m.line, part...)
		}
		if rest = after; ended {
			m.event(m.line)
			m.line = m.line[:0]
		}
	}
	return n, err
}

func (m *meter) event(line []byte) {
	data, ok := bytes.CutPrefix(line, []byte("data: "))
	if !ok {
		return
	}
	var event struct {
		Text  string `json:"text"`
		Usage *usage `json:"usage"`
	}
	if json.Unmarshal(data, &event) != nil {
		return // the end of the stream
	}
	if event.Text != "" {
		m.c.streamed++ // a model sends a token at a time
	}
	if event.Usage != nil {
		m.c.usage = event.Usage
	}
}
