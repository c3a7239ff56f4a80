package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
)

func TestMain(m *testing.M) {
	if os.Getenv(replicaOn) != "" {
		runReplica()
		return
	}
	redistest.Main(m)
}

// ask sends a request of a client through nginx's forward auth, and returns the status.
func ask(t testing.TB, s *Server, c client) int {
	t.Helper()
	r := c.forwarded(t, "nginx", "")
	r.URL.Host, r.RequestURI, r.RemoteAddr = s.AuthAddr.String(), "", ""
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// admin asks the admin listener.
func admin(t testing.TB, s *Server, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+s.AdminAddr.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer a token of sixteen bytes")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// eventually polls until a condition holds in servers and proxies, which run on real time.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it doesn't happen", what)
		}
	}
}

func TestServerDecidesAndTells(t *testing.T) {
	s, log := start(t, shop, func(c *Config) { c.Token = "a token of sixteen bytes" })
	for i, want := range []int{200, 200, 403} {
		if got := ask(t, s, get("/a")); got != want {
			t.Errorf("request %d gets %d, want %d", i+1, got, want)
		}
	}
	for _, tt := range []struct{ path, want string }{
		{"/healthz", "ok\n"},
		{"/readyz", "ready\n"},
		{"/metrics", `stint_limit="client",stint_outcome="denied"} 1`},
		{"/console/", "client"},
	} {
		if status, body := admin(t, s, tt.path); status != 200 || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d, without %q: %.2000s", tt.path, status, tt.want, body)
		}
	}
	if text := log.String(); !strings.Contains(text, "counts are this process's own") {
		t.Errorf("without --redis the log has %s", text)
	}
}

// A request in flight that takes too long ends without an answer, which is an error.
func TestStopEndsWhatTakesTooLong(t *testing.T) {
	const waiting = "limits: [{name: %s, rate: 1/1h, key: global, max-wait: 2h}]\n"
	client, s, _ := startRLS(t, "", func(c *Config) {
		c.Policies, c.Proxy = []string{
			file(t, fmt.Sprintf("version: 1\n"+waiting, "web")), file(t, fmt.Sprintf("version: 1\ndomain: shop\n"+waiting, "shop")),
		}, "nginx"
	})
	s.grace = 50 * time.Millisecond
	wait := make(chan bool, 2)
	for _, l := range s.limiters {
		defer l.Observe(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				wait <- true
			}
		})()
	}
	var waits sync.WaitGroup
	for range 2 { // the second waits
		waits.Go(func() {
			r := get("/a").forwarded(t, "nginx", "")
			r.URL.Host, r.RequestURI, r.RemoteAddr = s.AuthAddr.String(), "", ""
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		})
		waits.Go(func() {
			_, _ = client.ShouldRateLimit(context.Background(), limitRequest("shop", 1, described("user=ada")))
		})
	}
	<-wait
	<-wait
	if err := s.Stop(); !errors.Is(err, errCut) || strings.Count(err.Error(), errCut.Error()) != 2 {
		t.Errorf("the server stops with %v", err)
	}
	waits.Wait()
}

// A request whose body doesn't come is answered, and doesn't keep the server from stopping.
func TestBodyThatDoesNotCome(t *testing.T) {
	s, _ := start(t, shop, func(c *Config) {
		c.APIAddr, c.TokenLife, c.Secret = "127.0.0.1:0", time.Hour, []byte("a secret of sixteen bytes")
	})
	for _, tt := range []struct {
		to       net.Addr
		sent     string
		complete bool
		want     int
	}{
		{s.AuthAddr, "", true, 200},
		{s.AuthAddr, "hel", true, 200},
		{s.AuthAddr, "hello", true, 403},
		{s.AuthAddr, "", false, 500},
		{s.APIAddr, "", false, 404},
	} {
		conn, err := net.Dial("tcp", tt.to.String())
		if err != nil {
			t.Fatal(err)
		}
		r := get("/a").forwarded(t, "nginx", "")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello")), 5
		if !tt.complete {
			r.Header = nil
		}
		var request bytes.Buffer
		if err := r.Write(&request); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(request.String(), "hello")
		if _, err := io.WriteString(conn, head+tt.sent); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tt.want || !resp.Close {
			t.Errorf("with %q it answers %d, want %d; it closes the connection: %v", tt.sent, resp.StatusCode, tt.want, resp.Close)
		}
		_ = resp.Body.Close()
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// OPTIONS * is a request like any other: net/http doesn't answer it.
func TestOptionsOfServer(t *testing.T) {
	s, _ := start(t, shop, func(c *Config) { c.Proxy = "envoy" })
	for i, want := range []int{200, 200, 429} {
		conn, err := net.Dial("tcp", s.AuthAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		const request = "OPTIONS * HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\r\n"
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("request %d gets %d, want %d", i+1, resp.StatusCode, want)
		}
		_ = resp.Body.Close()
		_ = conn.Close()
	}
}

// Without a token there is no live page, and without an address no admin listener.
func TestAdminIsOff(t *testing.T) {
	s, _ := start(t, shop, nil)
	if status, _ := admin(t, s, "/console/"); status != 404 {
		t.Errorf("the live page answers %d without a token", status)
	}
	if s, _ := start(t, shop, func(c *Config) { c.AdminAddr = "" }); s.AdminAddr != nil {
		t.Errorf("the admin listener is at %v", s.AdminAddr)
	}
}

// A change of the file comes into force, one with a mistake doesn't, and counts stay.
func TestReload(t *testing.T) {
	var path string
	s, log := start(t, shop, func(c *Config) { path = c.Policies[0] })
	ask(t, s, get("/a"))
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(strings.Replace(shop, "rate: 2/1h", "concurrency: 2", 1))
	eventually(t, "the mistake is logged", func() bool { return strings.Contains(log.String(), "nothing would release its slots") })
	if status, _ := admin(t, s, "/readyz"); status != 200 {
		t.Errorf("with the last good policy it is unready: %d", status)
	}
	if got := ask(t, s, get("/a")); got != 200 {
		t.Errorf("under the last good policy the second request gets %d", got)
	}
	replace(strings.Replace(shop, "rate: 2/1h", "rate: 3/1h", 1))
	eventually(t, "the rate rises", func() bool { return ask(t, s, get("/a")) == 200 })
	if got := ask(t, s, get("/a")); got != 403 {
		t.Errorf("the fourth request gets %d, want 403", got)
	}
}

// What can't start says why.
func TestWrongStart(t *testing.T) {
	c := Config{Policies: []string{file(t, "version: 1\nkey: remote-ip\nlimits: [{name: a, concurrency: 2}]\n")}, Proxy: "nginx", AuthAddr: "127.0.0.1:0", Trust: Private}
	c.Logger = slog.New(slog.DiscardHandler)
	var mistakes policy.Errors
	if _, err := Start(t.Context(), c); !errors.As(err, &mistakes) {
		t.Errorf("slots: %v, want a mistake", err)
	}
	c.Policies = []string{file(t, shop)}
	c.Redis = redistest.Start(t, "--requirepass", "secret").Client().Options()
	c.Redis.Password = "wrong"
	if _, err := Start(t.Context(), c); !errors.Is(err, store.ErrMisconfigured) {
		t.Errorf("a wrong password: %v", err)
	}
	c.Redis, c.AuthAddr = nil, "127.0.0.1:no"
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("no port: %v", err)
	}
	c.AuthAddr, c.Token = "127.0.0.1:0", "short"
	c.AdminAddr = "127.0.0.1:0"
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("a short token: %v", err)
	}
}

// Without Redis a server starts, unready, and its policy says what passes.
func TestStartInAnOutage(t *testing.T) {
	s, _ := start(t, strings.Replace(shop, "{name: login,", "{name: login, failure: closed,", 1), func(c *Config) {
		c.Redis = &redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}
	})
	if status, _ := admin(t, s, "/readyz"); status != 503 {
		t.Errorf("it is ready: %d", status)
	}
	if got := ask(t, s, get("/a")); got != 200 {
		t.Errorf("a limit that fails open: %d", got)
	}
	if got := ask(t, s, client{method: "POST", uri: "/login", host: "h", proto: "http", address: "192.0.2.7"}); got != 403 {
		t.Errorf("a limit that fails closed: %d", got)
	}
}

// A server that stops is unready first, and lets the request in flight end.
func TestStop(t *testing.T) {
	s, _ := start(t, "version: 1\nkey: remote-ip\nlimits: [{name: a, rate: 1/1s, max-wait: 10s}]\n", func(c *Config) { c.Drain = time.Second })
	if got := ask(t, s, get("/a")); got != 200 {
		t.Errorf("the first request gets %d", got)
	}
	status := make(chan int, 1)
	go func() { status <- ask(t, s, get("/a")) }()
	eventually(t, "the second request waits, or has passed", func() bool {
		_, body := admin(t, s, "/metrics")
		return waitsNow.MatchString(body) || len(status) == 1
	})
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	eventually(t, "it is unready", func() bool { code, _ := admin(t, s, "/readyz"); return code == 503 })
	if got := <-status; got != 200 {
		t.Errorf("the request in flight gets %d", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + s.AuthAddr.String()); err == nil {
		t.Error("a stopped server answers")
	}
}

var waitsNow = regexp.MustCompile(`stint_waiting_requests\{[^}]*\} 1\n`)

// A request that has begun on a connection when the listener closes is answered, and an open live page doesn't keep the
// server from stopping.
func TestStopAnswersWhatHasBegun(t *testing.T) {
	s, _ := start(t, shop, func(c *Config) { c.Token = "a token of sixteen bytes" })
	conn, err := net.Dial("tcp", s.AuthAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var request bytes.Buffer
	r := get("/a").forwarded(t, "nginx", "")
	if err := r.Write(&request); err != nil {
		t.Fatal(err)
	}
	begin, rest := request.Next(20), request.Bytes()
	if _, err := conn.Write(begin); err != nil {
		t.Fatal(err)
	}
	l := s.listeners[0]
	eventually(t, "the connection is accepted", func() bool { return !l.answered() })
	page, err := http.NewRequest("GET", "http://"+s.AdminAddr.String()+"/console/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	page.Header.Set("Authorization", "Bearer a token of sixteen bytes")
	stream, err := http.DefaultClient.Do(page)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if got := stream.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("the live page answers %q", got)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the live page's stream ends with %v", err)
	}
	<-l.done
	if _, err := conn.Write(rest); err != nil {
		t.Fatal(err)
	}
	checkLastAnswer(t, conn, r, stopped)
}

// checkLastAnswer checks that a request which a stopping server has read is admitted, that the answer closes its
// connection, and that the server then ends well.
func checkLastAnswer(t *testing.T, conn net.Conn, r *http.Request, stopped <-chan error) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || !resp.Close {
		t.Errorf("it answers %d, and closes the connection: %v", resp.StatusCode, resp.Close)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the server stops with %v", err)
	}
}

// The answer to a request that came before the server drains ends its connection, too: the client's next request goes
// to another replica, and not to a connection that the server closes.
func TestStopEndsConnectionsInFlight(t *testing.T) {
	s, _ := start(t, "version: 1\nkey: remote-ip\nlimits: [{name: a, rate: 1/3s, max-wait: 10s}]\n",
		func(c *Config) { c.Drain = time.Millisecond })
	if got := ask(t, s, get("/a")); got != 200 {
		t.Errorf("the first request gets %d", got)
	}
	conn, err := net.Dial("tcp", s.AuthAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := get("/a").forwarded(t, "nginx", "")
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second request waits", func() bool {
		_, body := admin(t, s, "/metrics")
		return waitsNow.MatchString(body)
	})
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	checkLastAnswer(t, conn, r, stopped)
}
