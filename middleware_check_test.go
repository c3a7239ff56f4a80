package stint_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// CheckStore finds what any limit of the limiter lacks, in the version in force, and charges
// nothing.
func TestCheckStore(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "limits", "on", ">pw", "~stint:*", "+@all", "-zcount")
	rdb := server.Client(func(o *redis.Options) { o.Username, o.Password = "limits", "pw" })
	onRedis := redisstore.New(rdb, patient)
	rate := stint.Rate(1, time.Hour, stint.WithName("rate"))
	slots := stint.Concurrency(1, stint.WithName("slots"))
	own := stint.AdaptiveConcurrency(1, 2, stint.WithName("own")) // of this process
	server.Do("ACL", "SETUSER", "few", "on", ">pw", "~stint:*", "+@all", "-mget")
	denied := redisstore.New(server.Client(func(o *redis.Options) { o.Username, o.Password = "few", "pw" }), patient)
	gone := redisstore.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}))
	plans := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{rate}, nil })
	source := stint.WithLimitSource(stint.Global(),
		func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) { return []stint.Limit{rate}, nil })
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		store store.Store
		opts  []stint.Option
		want  string
		is    error
	}{
		{name: "a rate", store: onRedis, opts: []stint.Option{rate}},
		{name: "slots", store: onRedis, opts: []stint.Option{slots}, want: "+zcount", is: redisstore.ErrConfiguration},
		{name: "slots of a route", store: onRedis, opts: []stint.Option{rate, stint.WithRoute("GET /x", slots)}, want: "+zcount", is: redisstore.ErrConfiguration},
		{name: "behind failover", store: failover.New(onRedis, memstore.New()), opts: []stint.Option{rate, slots}, want: "+zcount", is: redisstore.ErrConfiguration},
		{name: "the secondary", store: failover.New(memstore.New(), onRedis), opts: []stint.Option{rate, slots}},
		{name: "memory", store: memstore.New(), opts: []stint.Option{rate, slots}},
		{name: "limits of this process", store: onRedis, opts: []stint.Option{own}},
		{name: "limits of a function", store: onRedis, opts: []stint.Option{plans}},
		{name: "limits of a source", store: onRedis, opts: []stint.Option{source}},
		{name: "limits of a function, without a permission", store: denied, opts: []stint.Option{plans}, want: "+mget", is: redisstore.ErrConfiguration},
		{name: "limits of a source, without a server", store: failover.New(gone, memstore.New()), opts: []stint.Option{source}, is: redisstore.ErrUnavailable, want: "not available"},
		{name: "limits of a function in memory", store: memstore.New(), opts: []stint.Option{plans}},
		{name: "another store", store: plainStore{onRedis}, opts: []stint.Option{rate}, want: "store.Verifier", is: errors.ErrUnsupported},
	} {
		lim := stint.Must(stint.New(append(c.opts, stint.WithKey(stint.Global()), stint.WithStore(c.store))...))
		err := lim.CheckStore(ctx)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	lim := stint.Must(stint.New(rate, stint.WithKey(stint.GivenKey()), stint.WithStore(onRedis)))
	if err := lim.Update(rate, slots, stint.WithKey(stint.GivenKey())); err != nil {
		t.Fatal(err)
	}
	var failed *stint.StoreError
	if err := lim.CheckStore(ctx); !errors.As(err, &failed) {
		t.Errorf("after an Update: %v", err)
	}
	if keys, err := server.Client().Keys(ctx, "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys are left: %q, %v", keys, err)
	}
}

// plainStore has no optional methods.
type plainStore struct{ store.Store }
