// Package stintgrpc applies stint's limits to the calls of a gRPC server.
//
//	lim, err := stint.New(
//		stint.Rate(10, time.Second),
//		stint.WithRoute("/grpc.health.v1.Health/", stint.Exempt()),
//		stint.WithKey(stint.RemoteIP()))
//	…
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(recovery, stintgrpc.UnaryServerInterceptor(lim)),
//		grpc.ChainStreamInterceptor(recovery, stintgrpc.StreamServerInterceptor(lim)))
//
// A server needs both interceptors: one for unary calls, one for streams.
//
// # Requests
//
// A call is decided like an HTTP request, so keys, routes, costs and policy files have the same
// meaning as for net/http:
//
//   - The method is POST. The path is the full name, such as "/pkg.Service/Method", and so
//     is the Pattern, unless the server doesn't know the service
//     (grpc.UnknownServiceHandler). "/pkg.Service/" is the pattern of a service's methods.
//   - The header is the metadata. Values of binary metadata (-bin) are decoded. Host is the
//     authority.
//   - RemoteAddr is the peer's address, and TLS is the TLS state of the connection.
//   - The context is the call's, with the values that outer interceptors have stored in it. So
//     a stint.KeyFunc can return the user that authentication has stored. The metadata and the
//     peer are in the context, too.
//   - The body is empty. [Message] returns the message of a unary call.
//
// # Answers
//
// The RateLimit fields of an admitted call, "ratelimit" and "ratelimit-policy", are sent with its
// first message, as header metadata. A call that sends no message, such as one whose handler
// fails, has them in its trailer: clients retry a call only if the server has sent nothing but a
// trailer. A call that isn't admitted ends with a status. Its fields, "retry-after" among them,
// are trailer metadata.
//
//	a limit denies the call                              RESOURCE_EXHAUSTED
//	the call's deadline passes while the call waits      RESOURCE_EXHAUSTED
//	the call is blocked, or has an empty key             PERMISSION_DENIED
//	a key function returns an error with a status        the status of the error: see below
//	the store fails, under FailClosed                    UNAVAILABLE
//	the client cancels the call while it waits           CANCELLED
//	the call's deadline has passed before the decision   DEADLINE_EXCEEDED
//	any other error                                      INTERNAL
//
// A handler may return the *stint.DeniedError of a Permit.Extend or a Limiter.Take, or an error that
// wraps it: the call then ends like a call that the limiter denies. An error that is a gRPC status
// isn't changed.
//
// If the call can pass later, the status has a google.rpc.RetryInfo with the time of retry-after, in whole seconds.
// The trailer then also has grpc-retry-pushback-ms with the same time in milliseconds: a client whose retry policy
// lists the status code waits for this time. If the error of a key, or of another function of the application, is a
// gRPC status, the call ends with this status. Otherwise the result of the error's StatusCode method is translated
// as in google.rpc.Code: 401 becomes UNAUTHENTICATED. The messages of other errors aren't shown to the client.
//
// The error that an outer interceptor gets wraps the limiter's error: errors.As finds a
// *stint.DeniedError in it. The interceptors don't call the handlers of stint.WithDenyHandler
// and stint.WithErrorHandler, which write HTTP.
//
// # Settling
//
// The status that functions of stint.WithSettle and adaptive limits get is the HTTP status
// that the code of the handler's error stands for, such as 401 for UNAUTHENTICATED; written is 0.
package stintgrpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
)

const adapter = "stintgrpc"

// UnaryServerInterceptor admits unary calls through l. If l admits a call, the handler runs,
// with the stint.Permit in its context; otherwise the call ends with a status, as the package
// says. Slots of concurrency limits are released when the handler returns or panics. The panic
// is passed on, so mount an interceptor that recovers panics outside this one.
//
// Interceptors of several limiters decide separately, and each adds its fields.
//
// UnaryServerInterceptor panics if a limit of l is a stint.Bandwidth, or uses stint.GivenKey
// or the Key of another adapter. A Bandwidth that l gets later, by an Update or from a function,
// does nothing. The interceptor is safe for concurrent use.
func UnaryServerInterceptor(l *stint.Limiter) grpc.UnaryServerInterceptor {
	mount(l)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (answer any, err error) {
		c := newCall(ctx, info.FullMethod, true)
		c.message = message
		failed := l.Admit(c, &c.request, func(w http.ResponseWriter, r *http.Request) {
			fields := c.metadata()
			answer, err = handler(r.Context(), message)
			var wait metadata.MD
			if wait, err = ended(ctx, err); wait != nil {
				_ = grpc.SetTrailer(ctx, wait)
			}
			// The header is sent with the message, unless the handler has sent it.
			if err != nil || grpc.SetHeader(ctx, fields) != nil {
				_ = grpc.SetTrailer(ctx, fields)
			}
			c.end(w, err)
		})
		if failed != nil {
			_ = grpc.SetTrailer(ctx, c.metadata())
			return nil, c.refuse(ctx, failed)
		}
		return answer, err
	}
}

// StreamServerInterceptor admits streams through l, as UnaryServerInterceptor admits unary
// calls. A stream is one call, however many messages it has: a slot of a concurrency limit
// is held until its handler returns, which it does soon after the client has left. To limit messages,
// call stint.Limiter.Take for each in the handler.
func StreamServerInterceptor(l *stint.Limiter) grpc.StreamServerInterceptor {
	mount(l)
	return func(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		ctx := s.Context()
		c := newCall(ctx, info.FullMethod, server != nil)
		failed := l.Admit(c, &c.request, func(w http.ResponseWriter, r *http.Request) {
			admitted := &stream{ServerStream: s, ctx: r.Context(), fields: c.metadata()}
			var wait metadata.MD
			if wait, err = ended(ctx, handler(server, admitted)); wait != nil {
				s.SetTrailer(wait)
			}
			admitted.sent.Do(func() { s.SetTrailer(admitted.fields) })
			c.end(w, err)
		})
		if failed != nil {
			s.SetTrailer(c.metadata())
			return c.refuse(ctx, failed)
		}
		return err
	}
}

// stream is an admitted stream. Its context has the permit.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	fields metadata.MD // of the limiter, sent once
	sent   sync.Once
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendMsg(m any) error {
	s.sent.Do(s.setFields)
	return s.ServerStream.SendMsg(m)
}

func (s *stream) SendHeader(md metadata.MD) error {
	s.sent.Do(s.setFields)
	return s.ServerStream.SendHeader(md)
}

// setFields adds the fields to the header, or to the trailer if the header has been sent through the context.
func (s *stream) setFields() {
	if s.SetHeader(s.fields) != nil {
		s.SetTrailer(s.fields)
	}
}

// mount panics if calls can't be held to a limit of l.
func mount(l *stint.Limiter) {
	errs := []error{l.Mount(adapter)}
	for _, rule := range l.Describe().Rules {
		if strings.HasPrefix(rule.Text, "Bandwidth:") {
			errs = append(errs, fmt.Errorf("stint: limit %q: a Bandwidth, which can't pace the messages of %s: leave it out, or mount the limiter with stinthttp in front of grpc.Server.ServeHTTP", rule.Limit, adapter))
		}
	}
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}
