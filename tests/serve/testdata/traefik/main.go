// Command traefik passes requests to a backend through Traefik's code: the X-Forwarded-* fields of an entry point, and
// the middleware forwardAuth. Both are configured by a file of Traefik's. It writes its address, and runs until its
// standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/middlewares/auth"
	"github.com/traefik/traefik/v3/pkg/middlewares/forwardedheaders"
	"gopkg.in/yaml.v3"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var config dynamic.Configuration
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&config); err != nil {
		log.Fatal(err)
	}
	backend, err := url.Parse(config.HTTP.Services["shop"].LoadBalancer.Servers[0].URL)
	if err != nil {
		log.Fatal(err)
	}
	name := config.HTTP.Routers["shop"].Middlewares[0]
	next, err := auth.NewForward(context.Background(), httputil.NewSingleHostReverseProxy(backend),
		*config.HTTP.Middlewares[name].ForwardAuth, name)
	if err != nil {
		log.Fatal(err)
	}
	entry, err := forwardedheaders.NewXForwarded(false, nil, nil, false, next)
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	go func() { log.Fatal(http.Serve(l, entry)) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
