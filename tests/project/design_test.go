package project

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// The call sites of the design, as it writes them: they are promises. Where a
// name below looks odd, it is the design's.

func designServer(addr string, mux http.Handler) {
	http.ListenAndServe(addr, stinthttp.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()))(mux))
}

func designRouters(r *gin.Engine, e *echo.Echo) {
	r.Use(stintgin.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
	e.Use(stintecho.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP())))
}

func designLimiter(rdb redis.UniversalClient, cached http.Handler) (*stint.Limiter, error) {
	lim, err := stint.New(
		stint.Rate(100, time.Minute, stint.WithBurst(20), stint.WithAlgorithm(stint.TokenBucket), stint.WithName("calls")),
		stint.Quota(10_000, stint.Daily, stint.WithKey(stint.Header("X-API-Key")), stint.WithName("daily")),
		stint.Concurrency(8, stint.WithName("slots")),
		stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))),
		stint.WithRoute("POST /login", stint.Rate(5, time.Minute, stint.WithName("login"))),                // beside the limits above
		stint.WithRoute("GET /search", stint.Only(stint.Rate(2, time.Second, stint.WithName("searches")))), // instead of them
		stint.WithRoute("GET /healthz", stint.Exempt()),                                                    // none
		stint.WithStore(failover.New(redisstore.New(rdb), memstore.New())),
		stint.WithDenyHandler(stint.Degrade(cached)), // or any http.Handler: deny, redirect
	)
	return lim, err
}

func designAdapter(lim *stint.Limiter, w http.ResponseWriter, r *http.Request, next http.Handler) {
	err := lim.Admit(w, r, func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	if err != nil {
		lim.Deny(w, r, err)
	}
	lim.Serve(w, r, next.ServeHTTP)
}

func designRoute(r *gin.Engine, lim *stint.Limiter, search gin.HandlerFunc) {
	r.POST("/search", stintgin.Middleware(stint.Must(lim.With(stint.Rate(2, time.Second, stint.WithName("search"))))), search)
}

func designHandler(ctx context.Context, r *http.Request, tokensUsed int64) (left int64, err error) {
	p := stint.FromContext(r.Context())
	left = p.Decision().Remaining
	err = p.Settle(ctx, tokensUsed)
	return left, err
}

func designJobs(ctx context.Context, lim *stint.Limiter) error {
	{
		p, err := lim.Take(ctx, "tenant-7", 1) // *stint.DeniedError when denied
		if err != nil {
			return err
		}
		p.Done()
	}
	{
		p, err := lim.Wait(ctx, "tenant-7", 1) // blocks for its turn, or until ctx ends
		if err != nil {
			return err
		}
		p.Done()
	}
	return nil
}

func designClient(lim *stint.Limiter) *http.Client {
	client := &http.Client{Transport: stinthttp.NewTransport(lim, http.DefaultTransport, stinthttp.WithSharedPause())}
	return client
}

// The answer to all limits of a request.
func designDecision(allowed bool, limit string, remaining int64, d time.Duration, limits []stint.LimitStatus) stint.Decision {
	return stint.Decision{Allowed: allowed, Limit: limit, Remaining: remaining, Delay: d, RetryAfter: d, ResetAfter: d, Limits: limits}
}

var (
	_ error                                  = (*stint.DeniedError)(nil)
	_ interface{ StatusCode() int }          = &stint.DeniedError{Decision: stint.Decision{}}
	_ interface{ Decision() stint.Decision } = (*stint.Permit)(nil)
	_ interface {
		Settle(ctx context.Context, cost int64, limits ...string) error
		Done()
	} = (*stint.Permit)(nil)
	_ = stint.Never
)

// A kind of limit takes options of its kind, and every LimitOption.
var (
	_ func(int64, time.Duration, ...stint.RateOption) stint.Limit = stint.Rate
	_ func(int64, stint.Window, ...stint.RateOption) stint.Limit  = stint.Quota
	_ func(int64, ...stint.SlotOption) stint.Limit                = stint.Concurrency
	_ func(int64, int64, ...stint.SlotOption) stint.Limit         = stint.AdaptiveConcurrency
	_ func(int64, ...stint.BandwidthOption) stint.Limit           = stint.Bandwidth
	_ func(int64, time.Duration, ...stint.BanOption) stint.Limit  = stint.Ban
)

func designOptions(s store.Store, secret []byte, user stint.Key, tokens func(*http.Request) int64) []stint.Option {
	return []stint.Option{
		stint.Rate(10, time.Second, stint.WithName("a"), stint.WithKey(stint.RemoteIP()), stint.WithDryRun(true),
			stint.WithFailurePolicy(stint.FailClosed), stint.WithCost(tokens), stint.WithMaxWait(time.Second)),
		stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(3), stint.WithName("b")),
		stint.Rate(10, time.Second, stint.WithWarmUp(time.Second), stint.WithName("c")),
		stint.Rate(10, time.Second, stint.WithDebt(), stint.WithName("d")),
		stint.Rate(10, time.Second, stint.WithAlgorithm(stint.SlidingWindow), stint.WithBuckets(5), stint.WithName("e")),
		stint.Concurrency(8, stint.WithShare(1, 50), stint.WithName("f")),
		stint.AdaptiveConcurrency(1, 9, stint.WithName("g"), stint.WithKey(stint.Global())),
		stint.Bandwidth(1<<20, stint.WithName("h"), stint.WithDryRun(true)),
		stint.Ban(3, time.Minute, stint.WithBanFor(time.Hour), stint.WithName("i"), stint.WithKey(user)),
		stint.WithCost(tokens), stint.WithMaxWait(time.Second), stint.WithFailurePolicy(stint.FailOpen),
		stint.WithRoute("POST /login", stint.Rate(5, time.Minute, stint.WithName("login")), stint.WithKey(stint.Join(stint.Cookie("c"), stint.Pattern(), stint.Method())),
			stint.WithCost(tokens), stint.WithMaxWait(time.Second), stint.WithDryRun(true), stint.WithFailurePolicy(stint.FailOpen)),
		stint.WithKey(stint.Hash(secret, stint.Header("X-API-Key"))),
		stint.WithEmptyKey(stint.SkipEmptyKey),
		stint.WithStore(s),
	}
}

func designJobLimits() (*stint.Limiter, error) {
	return stint.New(stint.Rate(1, time.Second, stint.WithName("jobs")), stint.WithKey(stint.GivenKey()), stint.WithStore(memstore.New(memstore.WithMaxKeys(1000))))
}

var _ = []any{designServer, designAdapter, designClient, designDecision, designJobLimits}

// What a store is.
type designStore interface {
	Take(ctx context.Context, charges []store.Charge, results []store.Result) error
	Settle(ctx context.Context, charges []store.Charge, results []store.Result) error
}

var (
	_ store.Store = designStore(nil)
	_ designStore = store.Store(nil)
	_             = store.Charge{Key: "", Limit: (*store.Limit)(nil), Cost: 0, MaxWait: 0, Receipt: store.Receipt{}}
	_             = store.Result{OK: true, Remaining: 0, Delay: 0, RetryAfter: 0, ResetAfter: 0, Receipt: store.Receipt{}}
)

// The call sites also run, with a Redis that isn't there, so that memory decides.
func TestDesignCallSites(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	cached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("cached")) })
	lim, err := designLimiter(rdb, cached)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := designJobs(ctx, lim); err != nil {
		t.Error(err)
	}
	if err := stint.Check(designOptions(memstore.New(), make([]byte, 32), stint.RemoteIP(), func(*http.Request) int64 { return 1 })...); err != nil {
		t.Error(err)
	}

	r, e := gin.New(), echo.New()
	designRouters(r, e)
	designRoute(r, lim, func(c *gin.Context) {
		left, err := designHandler(ctx, c.Request, 3)
		if err != nil || left != 1 { // of the inner limit, which has the least left
			t.Errorf("%d left, %v", left, err)
		}
	})
	for i, want := range []string{"", "cached"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest("POST", "/search", nil)
		req.Header.Set("X-API-Key", "k")
		r.ServeHTTP(w, req)
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("request %d: %d %q", i, w.Code, w.Body)
		}
	}

	for range 5 {
		if _, err = lim.Take(ctx, "tenant-8", 20); err != nil {
			break
		}
	}
	if denied := (*stint.DeniedError)(nil); !errors.As(err, &denied) || denied.StatusCode() != 429 {
		t.Errorf("got %v, want a *stint.DeniedError", err)
	}
}
