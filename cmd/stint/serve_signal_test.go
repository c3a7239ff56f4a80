package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// asCommand is the variable of the environment that makes the test binary the command.
const asCommand = "STINT_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// served is stint serve as a process.
type served struct {
	cmd       *exec.Cmd
	addresses map[string]string // by what listens there
	stopping  chan struct{}     // closed once it has logged that it stops
	ended     chan error
}

// startServe starts stint serve, and returns when n listeners listen.
func startServe(t *testing.T, n int, args ...string) *served {
	t.Helper()
	s := &served{
		cmd: exec.Command(os.Args[0], append([]string{"serve"}, args...)...), addresses: map[string]string{},
		stopping: make(chan struct{}), ended: make(chan error, 1),
	}
	s.cmd.Env = append(os.Environ(), asCommand+"=1")
	logs, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(logs)
	for len(s.addresses) < n && lines.Scan() {
		var line struct{ Msg, For, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			s.addresses[line.For] = line.Address
		}
		t.Log(lines.Text())
	}
	go func() {
		for lines.Scan() {
			var line struct{ Msg string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "stopping" {
				close(s.stopping)
			}
			t.Log(lines.Text())
		}
		s.ended <- s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		err := <-s.ended
		s.ended <- err
	})
	if len(s.addresses) < n {
		t.Fatalf("stint serve ends: %v", <-s.ended)
	}
	return s
}

// signaled are callers that ask a server until it accepts no more connections.
type signaled struct {
	t       *testing.T
	callers sync.WaitGroup
	open    atomic.Int64 // requests without an answer
	decided atomic.Int64
	passed  atomic.Int64
}

// run asks as one caller.
func (s *signaled) run(ask func(i int) (admitted bool, err error)) {
	s.callers.Go(func() {
		for i := 0; ; i++ {
			s.open.Add(1)
			admitted, err := ask(i)
			if errors.Is(err, errStopped) {
				return
			} else if err != nil {
				s.t.Errorf("request %d: %v", i, err)
				return
			}
			if s.decided.Add(1); admitted {
				s.passed.Add(1)
			}
			s.open.Add(-1)
		}
	})
}

// errStopped is the error of a request that the server hasn't accepted.
var errStopped = errors.New("it accepts no more connections")

// eventually polls until a condition holds in the server's process or in Redis, which run on real time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it doesn't happen", what)
		}
	}
}

// On SIGTERM and SIGINT, stint serve answers every request that it has accepted, and ends well. Each request that was
// admitted is charged once, and no other.
func TestServeSignals(t *testing.T) {
	t.Run("SIGTERM under load", func(t *testing.T) { testSignal(t, syscall.SIGTERM, false) })
	t.Run("SIGINT while all callers wait", func(t *testing.T) { testSignal(t, syscall.SIGINT, true) })
}

// testSignal signals a server under load. If held is set, Redis is paused before the signal and resumed when the server
// accepts no more connections. So each caller has a request in flight when the server stops.
func testSignal(t *testing.T, sig syscall.Signal, held bool) {
	const perKey = 20
	server := redistest.Start(t)
	files(t, map[string]string{
		"web.yaml": "version: 1\nlimits: [{name: web, quota: 1000000/yearly, key: global}, " +
			"{name: client, quota: 20/yearly, key: remote-ip}]\n",
		"shop.yaml": "version: 1\ndomain: shop\nlimits: [{name: shop, quota: 1000000/yearly, key: global}, " +
			"{name: user, quota: 20/yearly, key: {descriptor: [user]}}]\n",
	})
	s := startServe(t, 2, "--forward-auth", "traefik", "--listen-auth", "127.0.0.1:0", "--rls", "127.0.0.1:0",
		"--admin", "", "--redis", "redis://"+server.Addr(), "--redis-timeout", "1m", "--drain", "1s",
		"web.yaml", "shop.yaml")
	auth, rls := &signaled{t: t}, &signaled{t: t}
	const callers = 4
	for caller := range callers {
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		auth.run(func(i int) (bool, error) {
			r, err := http.NewRequest(http.MethodPost, "http://"+s.addresses["forward auth"], nil) // which isn't sent again
			if err != nil {
				return false, err
			}
			for name, value := range map[string]string{
				"Method": "GET", "Uri": "/a", "Host": "shop.example", "Proto": "https",
				"For": fmt.Sprintf("192.0.%d.%d", caller, i/perKey/2%250),
			} {
				r.Header.Set("X-Forwarded-"+name, value)
			}
			var reused bool
			r = r.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
			}))
			resp, err := client.Do(r)
			switch {
			case errors.Is(err, syscall.ECONNREFUSED),
				// The kernel resets connections that the server hasn't accepted when it stops listening.
				errors.Is(err, syscall.ECONNRESET) && !reused:
				return false, errStopped
			case err != nil:
				return false, err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != 200 && resp.StatusCode != 429 {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
			return resp.StatusCode == 200, err
		})
		var refused atomic.Bool
		conn, err := grpc.NewClient("passthrough:"+s.addresses["rate limit service"],
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				refused.Store(errors.Is(err, syscall.ECONNREFUSED))
				return c, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		rls.run(func(i int) (bool, error) {
			resp, err := service.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &service.RateLimitRequest{
				Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{
					Key: "user", Value: fmt.Sprint(caller, "-", i/perKey/2),
				}}}},
			})
			if err != nil && refused.Load() {
				err = errStopped
			}
			return resp.GetOverallCode() == service.RateLimitResponse_OK, err
		})
	}
	all := []*signaled{auth, rls}
	goOn := func() {
		for _, s := range all {
			before := s.decided.Load()
			eventually(t, "requests are decided", func() bool { return s.decided.Load() >= before+10*perKey })
		}
	}
	goOn()
	if held {
		server.Pause()
		eventually(t, "all callers wait", func() bool { return auth.open.Load()+rls.open.Load() == 2*callers })
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.stopping:
	case <-time.After(time.Minute):
		t.Fatal("it doesn't stop")
	}
	if held {
		for _, address := range s.addresses {
			eventually(t, "no more connections are accepted", func() bool {
				conn, err := net.Dial("tcp", address)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
		}
		server.Resume()
	}
	for _, s := range all {
		s.callers.Wait()
	}
	select {
	case err := <-s.ended:
		s.ended <- err
		if err != nil {
			t.Errorf("it ends with %v, want the exit code 0", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it doesn't end")
	}
	shared := redisstore.New(server.Client(), redisstore.WithTimeout(time.Minute))
	t.Cleanup(func() { _ = shared.Close() })
	for name, asked := range map[string]*signaled{"web": auth, "shop": rls} {
		l, err := stint.New(stint.Quota(1_000_000, stint.Yearly, stint.WithName(name)), stint.WithKey(stint.Global()),
			stint.WithStore(shared))
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Peek(t.Context(), "any")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d requests, %d admitted", name, asked.decided.Load(), asked.passed.Load())
		if charged := 1_000_000 - d.Remaining; charged != asked.passed.Load() || charged == asked.decided.Load() {
			t.Errorf("%s: %d of %d requests were admitted, and %d are charged", name, asked.passed.Load(),
				asked.decided.Load(), charged)
		}
	}
}

// A second signal ends the process while it drains. SIGINT may be ignored by what a script runs in the background.
func TestServeSecondSignal(t *testing.T) {
	files(t, map[string]string{"web.yaml": tight})
	s := startServe(t, 1, "--forward-auth", "nginx", "--listen-auth", "127.0.0.1:0", "--admin", "", "--drain", "1h", "web.yaml")
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-s.stopping
	}
	err := <-s.ended
	s.ended <- err
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ends with %v, want by the signal", err)
	}
}
