package stintgrpc

import (
	"context"
	"errors"
	"net/http"

	"github.com/stint-go/stint"
)

// Message returns the message of a unary call, for the functions of a limiter: those of
// stint.KeyFunc, WithLimitFunc, WithCost, WithSkip, WithBlock, WithPriority and WithSettle,
// and observers.
//
//	stint.WithCost(func(r *http.Request) int64 {
//		message, _ := stintgrpc.Message(r)
//		if batch, ok := message.(*pb.Batch); ok {
//			return int64(len(batch.Items))
//		}
//		return 1
//	})
//
// The message of a stream is nil: its handler reads the messages. ok is false if the request hasn't
// come through an interceptor of this package. The message is the handler's: don't change it.
func Message(r *http.Request) (message any, ok bool) {
	c, ok := r.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, false
	}
	return c.message, true
}

// Key makes a key from a function of the message of a unary call. For metadata, use
// stint.Header. For values that authentication has stored in the context, use stint.KeyFunc.
//
//	stint.WithKey(stintgrpc.Key(func(_ context.Context, message any) (string, error) {
//		if m, ok := message.(interface{ GetTenant() string }); ok { // as generated code has it
//			return m.GetTenant(), nil
//		}
//		return "", status.Error(codes.InvalidArgument, "no tenant")
//	}))
//
// The rules of stint.Key apply: k is called at most once per call, before the handler; an
// empty key is handled by stint.WithEmptyKey; after an error the call is denied. ctx is the
// call's. The message of a stream is nil. k must be safe for concurrent use, and must not change the
// message. stint.New rejects a nil k.
//
// Key may be part of stint.Join, stint.FirstOf and stint.Hash. Other adapters panic if they
// mount a limiter with such a key. stint.Limiter.Take, Wait and Allow charge the key that is
// passed to them.
func Key(k func(ctx context.Context, message any) (string, error)) stint.Key {
	if k == nil {
		return stint.KeyFunc(nil) // New reports it
	}
	return stint.KeyFunc(func(r *http.Request) (string, error) {
		message, ok := Message(r)
		if !ok {
			return "", errElsewhere
		}
		return k(r.Context(), message)
	}).ForAdapter(adapter)
}

var errElsewhere = errors.New("stintgrpc.Key: the request has not come through stintgrpc: mount the limiter with stintgrpc, or use a stint.KeyFunc of the request")
