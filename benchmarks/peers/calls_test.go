package main

import (
	"os"
	"strings"
	"testing"

	// The document names calls of these, and no benchmark does.
	_ "github.com/didip/tollbooth/v8"
	_ "github.com/juju/ratelimit"
	_ "go.uber.org/ratelimit"

	"github.com/stint-go/stint/tests/doctest"
)

// The calls of Go libraries that docs/coming-from.md names are calls of these.
func TestCallsOfTheDocument(t *testing.T) {
	c := doctest.New(t, "context", "net", "net/http", "time",
		"github.com/redis/go-redis/v9",
		"github.com/ulule/limiter/v3", "github.com/ulule/limiter/v3/drivers/middleware/stdlib",
		"github.com/ulule/limiter/v3/drivers/store/memory", "sredis github.com/ulule/limiter/v3/drivers/store/redis",
		"github.com/go-chi/httprate",
		"github.com/didip/tollbooth/v7", "lmtpkg github.com/didip/tollbooth/v7/limiter",
		"github.com/go-redis/redis_rate/v10",
		"github.com/throttled/throttled/v2", "tmemstore github.com/throttled/throttled/v2/store/memstore",
		"golang.org/x/time/rate",
		"tollbooth8 github.com/didip/tollbooth/v8", "limiter8 github.com/didip/tollbooth/v8/limiter",
		"golimiter github.com/sethvargo/go-limiter/memorystore", "github.com/sethvargo/go-limiter/httplimit",
		"golimiterapi github.com/sethvargo/go-limiter", "go.uber.org/ratelimit", "jujurate github.com/juju/ratelimit",
		"github.com/failsafe-go/failsafe-go/ratelimiter", "github.com/failsafe-go/failsafe-go/bulkhead",
		"github.com/failsafe-go/failsafe-go/adaptivelimiter")
	text, err := os.ReadFile("../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	_, libraries, _ := strings.Cut(string(text), "\n## Go libraries\n")
	calls := doctest.Column(libraries, 0)
	if len(calls) < 75 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, code := range calls {
		if err := c.Check(declared, code); err != nil {
			t.Errorf("%v\n%s", err, code)
		}
	}
}

// declared are the declarations that the calls need.
const declared = `
	var (
		ctx        context.Context
		key        string
		rdb        *redis.Client
		next       http.Handler
		perMinute  limiter.Rate
		instance   *limiter.Limiter
		mask       net.IPMask
		getKey     stdlib.KeyGetter
		excluded   func(string) bool
		reached    stdlib.LimitReachedHandler
		by         httprate.KeyFunc
		handle     http.HandlerFunc
		counter    httprate.LimitCounter
		headers    httprate.ResponseHeaders
		lmt        *lmtpkg.Limiter
		reachedHTTP func(http.ResponseWriter, *http.Request)
		onRedis    *redis_rate.Limiter
		perMin     redis_rate.Limit
		gcra       *throttled.GCRARateLimiterCtx
		gcraStore  throttled.GCRAStoreCtx
		quota      throttled.RateQuota
		l          *rate.Limiter
		lmt8       *limiter8.Limiter
		golimits   golimiterapi.Store
		uber       ratelimit.Limiter
		bucket     *jujurate.Bucket
		smooth     ratelimiter.RateLimiter[any]

		onGoLimiter *httplimit.Middleware
	)`
