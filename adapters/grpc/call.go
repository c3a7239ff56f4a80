package stintgrpc

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// call is a call as the limiter sees it: its request, and the writer of a response to
// that, which keeps the header fields.
type call struct {
	request http.Request
	url     url.URL
	header  http.Header
	message any // of a unary call
}

// newCall returns the call of a method. known says that the server has it: a client may
// call any other name.
func newCall(ctx context.Context, method string, known bool) *call {
	// By default grpc-go rejects a method without the slash. An environment variable turns that check off.
	if !strings.HasPrefix(method, "/") {
		method = "/" + method
	}
	c := &call{header: http.Header{}}
	c.url.Path = method
	r := http.Request{
		Method: http.MethodPost, URL: &c.url, RequestURI: method,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Body: http.NoBody, ContentLength: -1,
	}
	if known {
		r.Pattern = method
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	r.Header = make(http.Header, len(md))
	for name, values := range md {
		if !strings.HasPrefix(name, ":") {
			r.Header[http.CanonicalHeaderKey(name)] = values
		} else if name == ":authority" && len(values) > 0 {
			r.Host = values[0]
		}
	}
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &info.State
		}
		// It is where net/http's servers say that they listen on a Unix socket.
		if local := p.LocalAddr; local != nil && strings.HasPrefix(local.Network(), "unix") {
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, local)
		}
	}
	c.request = *r.WithContext(ctx) // inlined, the copy in between is on the stack
	return c
}

// Header, Write and WriteHeader make a call a http.ResponseWriter.
func (c *call) Header() http.Header         { return c.header }
func (c *call) Write(b []byte) (int, error) { return len(b), nil }
func (c *call) WriteHeader(int)             {}

// callKey leads from a request's context to its call.
type callKey struct{}

// RequestWithContext returns a copy of r that carries the call: see stint.Limiter.Admit.
func (c *call) RequestWithContext(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callKey{}, c))
}

// metadata returns the header fields as metadata, or nil if there are none.
func (c *call) metadata() metadata.MD {
	if len(c.header) == 0 {
		return nil
	}
	md := make(metadata.MD, len(c.header)+1)
	for name, values := range c.header {
		if name != "Cache-Control" { // nothing keeps the answers of calls
			md[strings.ToLower(name)] = values
		}
	}
	if delay, ok := c.retryDelay(); ok {
		md.Set("grpc-retry-pushback-ms", strconv.FormatInt(delay.Milliseconds(), 10))
	}
	return md
}

// retryDelay returns what Retry-After says. Its jitter is included. There is none if no retry can pass.
func (c *call) retryDelay() (delay time.Duration, ok bool) {
	seconds, err := strconv.ParseInt(c.header.Get("Retry-After"), 10, 64)
	return time.Duration(seconds) * time.Second, err == nil
}

const contentType = "application/grpc"

// end shows the limiter how the call has ended, if it looks at that through w: as an HTTP
// server of gRPC would have answered, which stint reads.
func (c *call) end(w http.ResponseWriter, err error) {
	if w == http.ResponseWriter(c) {
		return
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as the server does
	}
	c.header["Content-Type"] = []string{contentType}
	c.header["Grpc-Status"] = []string{strconv.Itoa(int(s.Code()))}
	w.WriteHeader(http.StatusOK)
}
