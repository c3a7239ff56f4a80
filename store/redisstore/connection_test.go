package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A call that never had a connection is ErrUnavailable, with the error of the dial, although go-redis
// goes on dialing for longer than the timeout. Nothing can have been charged.
func TestNoConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := listener.Addr().String()
	listener.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and doesn't answer
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := limit(t, store.Spec{Name: "n", Units: 9, Period: time.Hour})
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		says   string
	}{
		"refused":                    {redis.NewClient(&redis.Options{Addr: refused, DialerRetries: 1000}), "connection refused"},
		"refused, keeps deadlines":   {redis.NewClient(&redis.Options{Addr: refused, DialerRetries: 1000, ContextTimeoutEnabled: true}), "connection refused"},
		"refused, one dial":          {redis.NewClient(&redis.Options{Addr: refused, DialerRetries: 1}), "connection refused"},
		"refused, cluster":           {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{refused}, ContextTimeoutEnabled: true}), ""},
		"refused, ring":              {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": refused}, ContextTimeoutEnabled: true}), ""},
		"silent":                     {redis.NewClient(&redis.Options{Addr: silent.Addr().String(), Protocol: 2}), ""},
		"silent, keeps no deadlines": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent.Addr().String()}}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer tt.client.Close()
			s := redisstore.New(tt.client, redisstore.WithTimeout(time.Second))
			defer s.Close()
			check := func(what string, err error) {
				if dial := (*net.OpError)(nil); !errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, redisstore.ErrIndeterminate) || !strings.Contains(err.Error(), tt.says) || tt.says != "" && !errors.As(err, &dial) {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := take(s, "k", l, 1)
			check("the first call", err)
			var calls sync.WaitGroup
			for range 50 { // more than there are connections: they are batched
				calls.Go(func() {
					_, err := take(s, "k", l, 1)
					check("one of many", err)
				})
			}
			calls.Wait()
			charge := []store.Charge{{Key: "k", Limit: l, Cost: 0, Receipt: store.Receipt{Instant: 1, Cost: 1}}}
			check("Settle", s.Settle(context.Background(), charge, make([]store.Result, 1)))
			_, err = s.Reset(context.Background(), "k", l)
			check("Reset", err)
		})
	}
}
