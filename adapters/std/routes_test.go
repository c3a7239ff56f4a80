package stinthttp

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/routetest"
)

// byHost routes as proxies and routers of hosts do, for whom a host has no case and may
// end in a dot. They differ in how they cut off a port.
func byHost(without func(host string) string, others http.Handler) http.Handler {
	api := http.NewServeMux()
	api.Handle("POST /login", routetest.OnHost.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.TrimRight(strings.Trim(without(r.Host), "[]"), ".")
		if strings.EqualFold(host, "api.example.com") {
			api.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

func split(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

func firstColon(host string) string {
	host, _, _ = strings.Cut(host, ":")
	return host
}

func lastColon(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		return host[:i]
	}
	return host
}

func hostname(host string) string { return (&url.URL{Host: host}).Hostname() }

func sites() map[string]http.Handler {
	onHosts := routetest.Mux()
	onHosts.Handle(routetest.OnHost.Method+" "+routetest.OnHost.Path, routetest.OnHost.Handler())
	all := map[string]http.Handler{
		"ServeMux":            New(routetest.Limits()...)(routetest.Mux()),
		"ServeMux with hosts": New(routetest.HostLimits()...)(onHosts),
	}
	for name, without := range map[string]func(string) string{
		"net.SplitHostPort": split, "first colon": firstColon, "last colon": lastColon, "url.Hostname": hostname,
	} {
		all["by host, "+name] = New(routetest.HostLimits()...)(byHost(without, routetest.Mux()))
	}
	return all
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { routetest.Run(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { routetest.Fuzz(f, sites()) }
