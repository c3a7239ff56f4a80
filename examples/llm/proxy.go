package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/stint-go/stint"
)

// proxy passes a stream on as it comes, and charges its tokens.
func proxy(to *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding") // the events are read here
		},
		Transport:     transport,
		FlushInterval: -1, // each event at once
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				c, ctx := completionOf(resp.Request), resp.Request.Context()
				c.begun = true
				resp.Body = &meter{
					Closer: resp.Body, from: bufio.NewReaderSize(resp.Body, mostLine),
					ctx: ctx, permit: stint.FromContext(ctx), c: c,
				}
				resp.Header.Del("Content-Length") // a stream that is cut has another
				resp.ContentLength = -1
			}
			return nil
		},
	}
}

// meter charges a stream of server-sent events: each token before it passes to the client. The reader writes to the
// client before it reads on, on the request's own goroutine.
type meter struct {
	io.Closer
	from   *bufio.Reader
	ctx    context.Context
	permit *stint.Permit
	c      *completion
	rest   []byte // of the event that is passing
	err    error  // after rest
}

// mostLine bounds what is read of a line that doesn't end.
const mostLine = 64 << 10

func (m *meter) Read(b []byte) (int, error) {
	for len(m.rest) == 0 && m.err == nil {
		m.rest, m.err = m.event()
	}
	n := copy(b, m.rest)
	if m.rest = m.rest[n:]; n == 0 {
		return 0, m.err
	}
	return n, nil
}

// event returns the next event when it is charged, or the end of a stream that is cut.
func (m *meter) event() (event []byte, err error) {
	for err == nil && len(event) < mostLine {
		var line []byte
		if line, err = m.from.ReadSlice('\n'); err == bufio.ErrBufferFull {
			err = nil
		}
		event = append(event, line...)
		if denied := m.charge(line); denied != nil {
			return m.cut(denied)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			break // the end of the event
		}
	}
	return event, err
}

// charge charges the token in a line of an event, if there is one.
func (m *meter) charge(line []byte) error {
	data, ok := bytes.CutPrefix(line, []byte("data: "))
	if !ok {
		return nil
	}
	var event struct {
		Text  string `json:"text"`
		Usage *usage `json:"usage"`
	}
	if json.Unmarshal(data, &event) != nil {
		return nil // the end of the stream
	}
	if event.Usage != nil {
		m.c.usage = event.Usage
	}
	if event.Text == "" {
		return nil
	}
	if used := m.c.used() + 1; used > m.c.charged { // a model sends a token at a time
		if err := m.permit.Extend(m.ctx, used-1+step); err != nil {
			return err
		}
		m.c.charged = used - 1 + step
	}
	m.c.streamed++
	return nil
}

// cut ends a stream whose next token is denied. The status has been sent, so an event says why.
func (m *meter) cut(err error) ([]byte, error) {
	var denied *stint.DeniedError
	if !errors.As(err, &denied) {
		return nil, err // the client has left
	}
	event := map[string]any{"error": "rate_limit_exceeded", "limit": denied.Decision.Limit}
	if after, ok := denied.Decision.Retry(); ok {
		event["retry_after"] = int64(math.Ceil(after.Seconds()))
	}
	data, _ := json.Marshal(event)
	return fmt.Appendf(nil, "event: error\ndata: %s\n\n", data), io.EOF
}
