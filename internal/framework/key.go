package framework

import (
	"context"
	"fmt"
	"net/http"

	"github.com/stint-go/stint/internal/keys"
)

// Key returns a key of an adapter: fn of the framework's context, a C. If a request leads
// to no C, its error says so.
func Key[C any](adapter string, fn func(C) (string, error)) *keys.Key {
	missing := fmt.Errorf("%s.Key: the request has not come through %[1]s: %s", adapter, instead(adapter))
	return keys.In(adapter, func(r *http.Request) (string, error) {
		own, ok := Of[C](r.Context())
		if !ok {
			return "", missing
		}
		return fn(own)
	})
}

func instead(adapter string) string {
	return "mount the limiter with " + adapter + ", or write a stint.KeyFunc of the request"
}

// Of returns the framework's context that ctx leads to, if it is a C.
func Of[C any](ctx context.Context) (C, bool) {
	own, ok := ctx.Value(ownKey{}).(C)
	return own, ok
}

// Unfit returns why requests through an adapter can't have a key, or nil.
func Unfit(k *keys.Key, adapter string) error {
	for _, other := range k.Adapters {
		if other != adapter {
			return fmt.Errorf("%s.Key, which requests through %s don't have: %s", other, adapter, instead(other))
		}
	}
	return nil
}
