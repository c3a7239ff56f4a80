// Command gin limits a gin application: a rate for every client, and a tighter one for
// an expensive endpoint.
//
//	go run ./examples/gin
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	stintgin "github.com/stint-go/stint/adapters/gin"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	gin.SetMode(gin.ReleaseMode)
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, app()))
}

const usage = `gin listens on http://%[1]v: 100 requests a minute for each address, 2 searches a second.
Try, in another terminal: the third search is denied, and the items go on.

  for i in 1 2 3; do curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' -X POST http://%[1]v/search; done
  curl -i http://%[1]v/items

`

func app() http.Handler {
	everyone := stint.Must(stint.New(
		stint.Rate(100, time.Minute, stint.WithBurst(20)),
		// gin's own ClientIP trusts every proxy unless it is told otherwise; RemoteIP
		// trusts none.
		stint.WithKey(stint.RemoteIP()),
	))
	// A search has everybody's limit and its own, decided together: if either denies,
	// neither is charged.
	searching := stint.Must(everyone.With(
		stint.Rate(2, time.Second, stint.WithName("search")),
	))

	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/items", stintgin.Middleware(everyone), func(c *gin.Context) {
		left := stint.FromContext(c.Request.Context()).Decision().Remaining
		c.JSON(http.StatusOK, gin.H{"items": []string{"a", "b"}, "requests left": left})
	})
	r.POST("/search", stintgin.Middleware(searching), func(c *gin.Context) {
		c.JSON(http.StatusOK, gin.H{"found": 2})
	})
	return r
}
