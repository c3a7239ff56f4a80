package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
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

func startServer(program string) (*server, error) {
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
	s.cmd = exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if err := s.cmd.Start(); err != nil {
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

func (s *server) info(section, name string) string {
	for line := range strings.Lines(s.admin.Info(context.Background(), section).Val()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}

// cpu is what the server's main thread has computed, in seconds.
func (s *server) cpu() float64 {
	user, _ := strconv.ParseFloat(s.info("cpu", "used_cpu_user_main_thread"), 64)
	system, _ := strconv.ParseFloat(s.info("cpu", "used_cpu_sys_main_thread"), 64)
	return user + system
}

// load is how a subject is called.
type load struct{ callers, keys int }

func (l load) String() string { return fmt.Sprintf("%d callers, %d keys", l.callers, l.keys) }

var loads = []load{{1, 1}, {1, 10_000}, {16, 1}, {16, 10_000}, {128, 1}, {128, 10_000}}

// sample is what came of it in one round.
type sample struct {
	perSecond float64
	p99       time.Duration
	cpu       time.Duration // of the server, a call
}

func measure(s *server, what subject, l load, d time.Duration) (sample, error) {
	keys := names(l.keys)
	took := make([][]time.Duration, l.callers)
	errs := make([]error, l.callers)
	ctx := context.Background()
	before, began := s.cpu(), time.Now()
	end := began.Add(d)
	var callers sync.WaitGroup
	for c := range l.callers {
		callers.Go(func() {
			for i := c * 7919; ; i += 104729 {
				start := time.Now()
				if start.After(end) {
					return
				}
				if err := what.call(ctx, keys[i%len(keys)]); err != nil {
					errs[c] = err
					return
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	callers.Wait()
	elapsed, used := time.Since(began), s.cpu()-before
	all := slices.Concat(took...)
	if err := errors.Join(errs...); err != nil || len(all) == 0 {
		return sample{}, fmt.Errorf("%d calls: %w", len(all), err)
	}
	slices.Sort(all)
	return sample{
		perSecond: float64(len(all)) / elapsed.Seconds(),
		p99:       all[len(all)*99/100],
		cpu:       time.Duration(used / float64(len(all)) * 1e9),
	}, nil
}

// keyBytes is what the server says a key takes, by the median of some.
func keyBytes(s *server, what subject) (float64, error) {
	ctx := context.Background()
	var all []float64
	for _, key := range names(50) {
		s.admin.FlushAll(ctx)
		if err := what.call(ctx, key+what.pad); err != nil {
			return 0, err
		}
		stored, err := s.admin.RandomKey(ctx).Result()
		if err != nil {
			return 0, err
		}
		all = append(all, float64(s.admin.MemoryUsage(ctx, stored).Val()))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
