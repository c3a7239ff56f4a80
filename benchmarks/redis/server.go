package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server on a free port of the loopback interface.
type server struct {
	addr  string
	cmd   *exec.Cmd
	dir   string
	admin *redis.Client
}

func startServer(program string, args ...string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "stint-benchmarks-")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, dir: dir}
	s.cmd = exec.Command(program, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir}, args...)...)
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.admin = redis.NewClient(&redis.Options{Addr: addr})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = s.admin.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			s.stop()
			return nil, err
		}
	}
}

func (s *server) stop() {
	s.admin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// client returns a client for a subject. All have the same options: a connection
// for each caller, so that no caller waits for one.
func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, PoolSize: 128})
}

// info holds figures of INFO.
type info struct {
	version string
	cpu     time.Duration // computed by the main thread
	scripts time.Duration // spent in scripts, by commandstats
	calls   int64         // of scripts
	memory  float64       // used_memory, in bytes
}

func (s *server) info() (info, error) {
	text, err := s.admin.Info(context.Background(), "all").Result()
	if err != nil {
		return info{}, err
	}
	var i info
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			i.version = value
		case "used_memory":
			i.memory, err = strconv.ParseFloat(value, 64)
		case "used_cpu_user_main_thread", "used_cpu_sys_main_thread":
			var seconds float64
			seconds, err = strconv.ParseFloat(value, 64)
			i.cpu += time.Duration(seconds * float64(time.Second))
		case "cmdstat_evalsha", "cmdstat_eval":
			var calls, usec int64
			_, err = fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &usec)
			i.scripts += time.Duration(usec) * time.Microsecond
			i.calls += calls
		}
		if err != nil {
			return info{}, fmt.Errorf("INFO: %q: %w", line, err)
		}
	}
	return i, nil
}
