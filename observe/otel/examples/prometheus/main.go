// Command prometheus is a server whose limits are on a dashboard: OpenTelemetry's
// Prometheus exporter serves them under /metrics.
//
//	go run ./examples/prometheus -load 10m
//
// With -load it sends itself requests, and its store fails now and then, so that each
// panel and alert of ../grafana and ../prometheus has something to show.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/observe/otel"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	load := flag.Duration("load", 0, "send itself requests for so long, and let the store fail now and then")
	flag.Parse()
	if err := run(*addr, *load); err != nil {
		log.Fatal(err)
	}
}

func run(addr string, load time.Duration) error {
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	defer func() { _ = provider.Shutdown(context.Background()) }()

	// So small that the dashboard shows what a full one is like.
	local := memstore.New(memstore.WithMaxKeys(32))
	var shared store.Store = memstore.New() // in your service, a redisstore
	if load > 0 {
		shared = &troubled{Store: shared}
	}
	lim, err := limiter(shared, local)
	if err != nil {
		return err
	}
	stop, err := stintotel.Observe(lim, stintotel.WithMeterProvider(provider), stintotel.WithMemory("secondary", local))
	if err != nil {
		return err
	}
	defer stop()
	if load > 0 {
		stop, err := stintotel.Observe(mistaken(), stintotel.WithMeterProvider(provider))
		if err != nil {
			return err
		}
		defer stop()
		withPlans := planned()
		if stop, err = stintotel.Observe(withPlans, stintotel.WithMeterProvider(provider)); err != nil {
			return err
		}
		defer stop()
		go misread(lim, load)
		go unread(withPlans, load)
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.Handle("/", stinthttp.Middleware(lim)(http.HandlerFunc(work)))
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	fmt.Printf("serving on %s: curl -H 'X-Client: me' %s/search, and see %s/metrics\n", base, base, base)
	if load > 0 {
		go send(base, load)
	}
	return http.Serve(listener, mux)
}
