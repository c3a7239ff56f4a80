// Package serve is the server of stint serve: it decides requests by policy files, for proxies and for services in other
// languages.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/console"
	stintotel "github.com/stint-go/stint/observe/otel"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// Config is what the flags of stint serve say.
type Config struct {
	Policies         []string // files, and folders of files
	RateLimitConfigs []string // of envoyproxy/ratelimit, in place of Policies

	Proxy      string // of forward auth: one of Proxies, or "" for none
	AuthAddr   string // where it listens
	PathPrefix string // of Envoy's requests
	Trust      []netip.Prefix

	RLSAddr string // where Envoy's rate limit service listens; "" for none

	APIAddr   string        // where the interface for other languages listens; "" for none
	TokenLife time.Duration // of its tokens, at most LongestLife

	AdminAddr string // of health, metrics and the live page; "" for none
	Token     string // opens the live page, and resets and bans; without one there are none

	Redis        *redis.Options // nil: counts are this process's own
	RedisOptions []redisstore.Option
	Secret       []byte // of hashed keys and of tokens; or nil

	Drain  time.Duration // how long it serves on after it has become unready
	Logger *slog.Logger
}

// grace is how long requests in flight have to end.
const grace = 10 * time.Second

// errCut is the error of a listener that has ended requests in flight.
var errCut = errors.New("requests in flight have ended without an answer, since they took too long")

// Server is a running server. Start makes one.
type Server struct {
	// AuthAddr, RLSAddr, APIAddr and AdminAddr are the addresses that it listens on, or nil.
	AuthAddr, RLSAddr, APIAddr, AdminAddr net.Addr

	config   Config
	grace    time.Duration
	log      *occasionally
	limiters []*stint.Limiter
	failed   chan error // of a listener
	draining atomic.Bool
	// stopping ends when the listeners stop: streams of the live page end with it.
	stopping  context.Context
	stop      context.CancelFunc
	listeners []*listener
	grpc      *grpc.Server // or nil
	health    *health.Server
	closers   []func() // in reverse order
}

// Start starts a server. Its errors are those of the configuration, of the policy files (policy.Errors), of
// Redis and of listening. The server runs until Stop.
func Start(ctx context.Context, c Config) (_ *Server, err error) {
	s := &Server{config: c, grace: grace, failed: make(chan error, 5), log: newOccasionally(c.Logger)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	trusts, err := newTrusted(c.Trust)
	if err != nil {
		return nil, err
	}
	files, err := s.open()
	if err != nil {
		return nil, err
	}
	checking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch err := s.checkStore(checking); {
	case errors.Is(err, store.ErrMisconfigured):
		return nil, err
	case err != nil: // during an outage the policy says what passes
		c.Logger.Warn("the store doesn't answer: the server is unready until it does", "error", err)
	}
	var tokens *api
	if c.APIAddr != "" {
		if tokens, err = newAPI(&c, trusts, files.byName, s.log); err != nil {
			return nil, err
		}
	}
	admin, err := s.adminHandler(tokens)
	if err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.closers = append(s.closers, stop)
	for _, f := range files.all() {
		done, err := f.follow(following)
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, func() { stop(); endOf(done) })
	}
	if files.configured != nil {
		done := files.configured.follow(following)
		s.closers = append(s.closers, func() { stop(); endOf(done) })
	}
	if c.Proxy != "" {
		handler := &auth{proxies[c.Proxy], c.PathPrefix, trusts, files.requests.limiter, s.log}
		if s.AuthAddr, err = s.listen("forward auth", c.AuthAddr, handler); err != nil {
			return nil, err
		}
	}
	if c.RLSAddr != "" {
		if s.RLSAddr, err = s.listenRLS(trusts, files.domains); err != nil {
			return nil, err
		}
	}
	if tokens != nil {
		if s.APIAddr, err = s.listen("other languages", c.APIAddr, tokens); err != nil {
			return nil, err
		}
	}
	if c.AdminAddr != "" {
		if s.AdminAddr, err = s.listen("admin", c.AdminAddr, admin); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// listenRLS serves Envoy's rate limit service.
func (s *Server) listenRLS(trusts *trusted, domains func() map[string]*domain) (net.Addr, error) {
	l, err := net.Listen("tcp", s.config.RLSAddr)
	if err != nil {
		return nil, err
	}
	s.grpc = grpc.NewServer(grpc.InTapHandle(fromTrusted(trusts, s.log)))
	s.health = health.NewServer()
	service.RegisterRateLimitServiceServer(s.grpc, &rateLimits{domains: domains, log: s.log})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.config.Logger.Info("listening", "for", "rate limit service", "address", l.Addr().String())
	go func() {
		if err := s.grpc.Serve(l); err != nil {
			s.failed <- fmt.Errorf("rate limit service: %w", err)
		}
	}()
	return l.Addr(), nil
}

// checkStore returns why the store can't decide the limits, or nil.
func (s *Server) checkStore(ctx context.Context) error {
	for _, l := range s.limiters {
		if err := l.CheckStore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// adminHandler returns the handler of the admin listener. tokens may be nil.
func (s *Server) adminHandler(tokens *api) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	s.closers = append(s.closers, func() { _ = provider.Shutdown(context.Background()) })
	for _, l := range s.limiters {
		stop, err := stintotel.Observe(l, stintotel.WithMeterProvider(provider))
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, stop)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	if s.config.Token != "" {
		page, err := console.New(console.Limiters(s.limiters...), console.WithToken(s.config.Token),
			console.WithLogger(s.config.Logger))
		if err != nil {
			return nil, err
		}
		mux.HandleFunc("/console/", func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.stopping, cancel)()
			page.ServeHTTP(w, r.WithContext(ctx))
		})
		if tokens != nil {
			mux.Handle("/v1/reset", tokens.admin(s.config.Token, tokens.reset))
			mux.Handle("/v1/ban", tokens.admin(s.config.Token, tokens.ban))
		}
	}
	return mux, nil
}

// ready answers whether requests should be sent here.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.checkStore(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// Failed receives the error of a listener that has ended by itself.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop ends the server. It becomes unready, serves on for Config.Drain, and then lets the requests in flight
// end.
func (s *Server) Stop() error {
	s.draining.Store(true)
	if s.health != nil {
		s.health.Shutdown()
	}
	time.Sleep(s.config.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	s.stop()
	errs := make([]error, len(s.listeners)+1)
	var ending sync.WaitGroup // all at once: each has the whole time
	if s.grpc != nil {
		ending.Go(func() { errs[len(s.listeners)] = stopGRPC(ctx, s.grpc) })
	}
	for i, l := range s.listeners {
		ending.Go(func() { errs[i] = l.stop(ctx) })
	}
	ending.Wait()
	s.close()
	return errors.Join(errs...)
}

// endOf waits until a file isn't followed any more, unless it is being read from a file system that doesn't answer.
func endOf(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// close ends what Start has started.
func (s *Server) close() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	s.stop()
	for _, l := range s.listeners {
		_ = l.server.Close()
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}
