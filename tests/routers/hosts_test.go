package routers

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// byHost routes as proxies and routers of hosts do, for whom a host has no case and may
// end in a dot. They differ in how they cut off a port.
func byHost(without func(host string) string, others http.Handler) http.Handler {
	api := http.NewServeMux()
	api.Handle("POST /login", sitetest.OnHost.Handler())
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

// muxSites are the site as http.ServeMux routes it, alone and behind what routes by host.
func muxSites() map[string]http.Handler {
	onHosts := sitetest.Mux()
	onHosts.Handle(sitetest.OnHost.Method+" "+sitetest.OnHost.Path, sitetest.OnHost.Handler())
	all := map[string]http.Handler{
		"ServeMux":            stinthttp.New(sitetest.Limits()...)(sitetest.Mux()),
		"ServeMux with hosts": stinthttp.New(sitetest.HostLimits()...)(onHosts),
	}
	for name, without := range map[string]func(string) string{
		"net.SplitHostPort": split, "first colon": firstColon, "last colon": lastColon, "url.Hostname": hostname,
	} {
		all["by host, "+name] = stinthttp.New(sitetest.HostLimits()...)(byHost(without, sitetest.Mux()))
	}
	return all
}
