package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// serveVariable makes this program a server with the limiter it names.
const serveVariable = "STINT_BENCHMARKS_SERVE"

const (
	bareServer  = "no limiter"
	connections = 32
	answer      = "ok\n"
)

// servers are put under load: some send fields, some don't.
func servers() (map[string]http.Handler, []string, error) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) })
	all, order := map[string]http.Handler{bareServer: h}, []string{bareServer}
	add := func(name string, h http.Handler) {
		all[name] = h
		order = append(order, name)
	}
	fields, err := withFields(ample)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range fields {
		add(s.name, s.wrap(h))
	}
	add("x/time/rate by hand, no fields", byHand(ample)(h))
	add("echo's, with echo, no fields", echoHandler(ample, h))
	return all, order, nil
}

// serve answers requests, and each line of in with the CPU time used so far, in
// microseconds.
func serve(name string, in io.Reader, out io.Writer) error {
	all, _, err := servers()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	go http.Serve(l, all[name])
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fmt.Fprintln(out, cpuTime().Microseconds())
	}
	return lines.Err()
}

// endToEnd is a server for each limiter, in processes of their own.
type endToEnd struct {
	order   []string
	servers map[string]*process
	perCall map[string][]float64 // CPU time of the server, in ns
}

type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	address string
}

func startEndToEnd() (*endToEnd, error) {
	_, order, err := servers()
	if err != nil {
		return nil, err
	}
	e := &endToEnd{order: order, servers: map[string]*process{}, perCall: map[string][]float64{}}
	for _, name := range order {
		p, err := startProcess(name)
		if err != nil {
			e.stop()
			return nil, err
		}
		e.servers[name] = p
	}
	return e, nil
}

func startProcess(name string) (*process, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewReader(out)}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the server with %s: %w", name, err)
	}
	p.address = strings.TrimSpace(line)
	return p, nil
}

func (p *process) stop() {
	p.in.Close() // which ends it
	p.cmd.Wait()
}

func (p *process) used() (float64, error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return 0, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	us, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	return us * 1000, err
}

func (e *endToEnd) stop() {
	for _, p := range e.servers {
		p.stop()
	}
}

func (e *endToEnd) measure(rounds int, each time.Duration) error {
	for range rounds {
		for _, name := range e.order {
			p := e.servers[name]
			if _, err := load(p.address, each/4); err != nil { // connections and caches are warm
				return err
			}
			before, err := p.used()
			if err != nil {
				return err
			}
			n, err := load(p.address, each)
			if err != nil {
				return fmt.Errorf("the server with %s: %w", name, err)
			}
			after, err := p.used()
			if err != nil {
				return err
			}
			e.perCall[name] = append(e.perCall[name], (after-before)/float64(n))
		}
	}
	return nil
}

// above is the CPU time of a call beyond that of a server without a limiter.
func (e *endToEnd) above(name string) figures.Spread {
	values := make([]float64, len(e.perCall[name]))
	for i, v := range e.perCall[name] {
		values[i] = v - e.perCall[bareServer][i]
	}
	return figures.Of(values)
}

// lightest is the peer with fields that adds the least.
func (e *endToEnd) lightest() (name string) {
	for _, n := range e.order {
		if n == bareServer || isStint(n) || strings.HasSuffix(n, "no fields") {
			continue
		}
		if name == "" || e.above(n).Median < e.above(name).Median {
			name = n
		}
	}
	return name
}

// load sends requests over connections that stay, one after the other on each, and
// returns how many were answered.
func load(address string, d time.Duration) (n int64, err error) {
	var (
		done atomic.Int64
		stop atomic.Bool
		wg   sync.WaitGroup
		mu   sync.Mutex
	)
	for range connections {
		wg.Go(func() {
			if e := converse(address, &stop, &done); e != nil {
				mu.Lock()
				err = errors.Join(err, e)
				mu.Unlock()
			}
		})
	}
	time.Sleep(d)
	stop.Store(true)
	wg.Wait()
	return done.Load(), err
}

func converse(address string, stop *atomic.Bool, done *atomic.Int64) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	request := []byte("GET /things HTTP/1.1\r\nHost: example.com\r\n\r\n")
	answers := bufio.NewReader(c)
	for !stop.Load() {
		if _, err := c.Write(request); err != nil {
			return err
		}
		status, err := answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("answered %q", status)
		}
		for len(bytes.TrimSpace(status)) > 0 {
			if status, err = answers.ReadSlice('\n'); err != nil {
				return err
			}
		}
		if _, err := answers.Discard(len(answer)); err != nil {
			return err
		}
		done.Add(1)
	}
	return nil
}
