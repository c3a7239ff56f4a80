package stinthttp

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/routetest"
)

// byHost routes as proxies and routers of hosts do, for whom a host has no case
// and may end in a dot.
func byHost(others http.Handler) http.Handler {
	api := http.NewServeMux()
	api.Handle("POST /login", routetest.OnHost.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if strings.EqualFold(strings.TrimSuffix(host, "."), "api.example.com") {
			api.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

func sites() map[string]http.Handler {
	onHosts := routetest.Mux()
	onHosts.Handle(routetest.OnHost.Method+" "+routetest.OnHost.Path, routetest.OnHost.Handler())
	return map[string]http.Handler{
		"ServeMux":            New(routetest.Limits()...)(routetest.Mux()),
		"ServeMux with hosts": New(routetest.HostLimits()...)(onHosts),
		"by host":             New(routetest.HostLimits()...)(byHost(routetest.Mux())),
	}
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { routetest.Run(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { routetest.Fuzz(f, sites()) }
