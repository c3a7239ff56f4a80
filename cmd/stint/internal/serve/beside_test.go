package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint/internal/test/redistest"
)

// besideRateLimit is the variable of the environment that names the command of envoyproxy/ratelimit.
const besideRateLimit = "STINT_BENCH_RATELIMIT"

// make bench-serve: forward auth and the rate limit service of a replica beside envoyproxy/ratelimit, each a process,
// on one Redis. The rounds are interleaved, and the figures are medians of rounds.
func TestBesideRateLimit(t *testing.T) {
	command := os.Getenv(besideRateLimit)
	if command == "" {
		t.Skip("make bench-serve runs this")
	}
	const rounds, keys = 9, 100
	server := redistest.Start(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stint/web.yaml", "version: 1\nkey: remote-ip\nlimits: [{name: web, quota: 10_000_000/1m}]\n")
	write("stint/shop.yaml", "version: 1\ndomain: shop\n"+
		"limits: [{name: shop, quota: 10_000_000/1m, key: {descriptor: [user]}}]\n")
	write("envoy/ratelimit/config/shop.yaml",
		"domain: shop\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 10000000}}]\n")

	replica := startReplica(t, server, filepath.Join(dir, "stint"), replicaFor+"=proxies")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	t.Cleanup(client.CloseIdleConnections)
	var next atomic.Int64
	rls := func(address string) func() error {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := service.NewRateLimitServiceClient(conn)
		return func() error {
			user := "user=" + strconv.FormatInt(next.Add(1)%keys, 10)
			resp, err := c.ShouldRateLimit(context.Background(), limitRequest("shop", 1, described(user)))
			if err == nil && (resp.GetOverallCode() != service.RateLimitResponse_OK ||
				resp.GetStatuses()[0].GetCurrentLimit() == nil) {
				err = fmt.Errorf("%v", resp)
			}
			return err
		}
	}
	subjects := []struct {
		name string
		ask  func() error
	}{
		{"stint, forward auth", func() error {
			c := get("/a")
			c.address = "198.51.100." + strconv.FormatInt(next.Add(1)%keys, 10)
			r := c.forwarded(t, "nginx", "")
			r.URL.Host, r.RequestURI, r.RemoteAddr = replica.addresses[0], "", ""
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			if resp.StatusCode != 200 || resp.Header.Get("RateLimit") == "" {
				err = fmt.Errorf("%s %v", resp.Status, resp.Header)
			}
			_ = resp.Body.Close()
			return err
		}},
		{"stint, rate limit service", rls(replica.addresses[1])},
		{"envoyproxy/ratelimit", rls(startRateLimit(t, command, server, filepath.Join(dir, "envoy")))},
	}
	for _, s := range subjects {
		eventually(t, s.name+" answers", func() bool { return s.ask() == nil })
	}
	for _, atOnce := range []int{1, 16} {
		figures := make([][3][]float64, len(subjects))
		for range rounds {
			for i, s := range subjects {
				perSecond, p50, p99 := measureLoad(t, atOnce, time.Second, s.ask)
				for j, v := range []float64{perSecond, p50, p99} {
					figures[i][j] = append(figures[i][j], v)
				}
			}
		}
		for i, s := range subjects {
			median := func(j int) float64 { slices.Sort(figures[i][j]); return figures[i][j][rounds/2] }
			t.Logf("%-25s  %2d at once: %6.0f decisions per second, p50 %5.0f µs, p99 %5.0f µs",
				s.name, atOnce, median(0), median(1), median(2))
		}
	}
}

// startRateLimit starts envoyproxy/ratelimit with its defaults, without statistics, and returns its address.
func startRateLimit(t *testing.T, command string, server *redistest.Server, root string) (address string) {
	t.Helper()
	var ports [3]string
	var reserved [3]net.Listener // all at once, so that they differ
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		reserved[i] = l
	}
	for _, l := range reserved {
		_ = l.Close()
	}
	c := exec.Command(command)
	c.Env = append(os.Environ(), "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit",
		"USE_STATSD=false", "DISABLE_STATS=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+server.Addr(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT="+ports[0], "GRPC_PORT="+ports[1], "DEBUG_PORT="+ports[2], "LOG_LEVEL=ERROR")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return "127.0.0.1:" + ports[1]
}

// measureLoad calls a function from so many goroutines. Percentiles are in microseconds.
func measureLoad(t *testing.T, atOnce int, long time.Duration, call func() error) (perSecond, p50, p99 float64) {
	t.Helper()
	took := make([][]time.Duration, atOnce)
	var all sync.WaitGroup
	began := time.Now()
	for i := range took {
		all.Go(func() {
			for at := time.Now(); at.Sub(began) < long; {
				if err := call(); err != nil {
					t.Error(err)
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(at))
				at = now
			}
		})
	}
	all.Wait()
	whole := time.Since(began)
	each := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(each) == 0 {
		t.Fatal("nothing was decided")
	}
	at := func(percent int) float64 { return float64(each[len(each)*percent/100].Microseconds()) }
	return float64(len(each)) / whole.Seconds(), at(50), at(99)
}
