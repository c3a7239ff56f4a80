package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait for a server. It is long for the sake of busy machines;
// normally nothing waits that long.
const patience = time.Minute

// process is a redis-server that can die and come back at its address.
type process struct {
	path     string
	conf     string // what a sentinel reads and rewrites; "" for a server
	dir      string
	args     []string
	port     *port
	password string

	mu      sync.Mutex // guards what follows
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd has been waited for
	control *redis.Client
	paused  bool
}

// errPortTaken means that another process took the port between our check and the server's
// bind.
var errPortTaken = errors.New("the port was taken")

// spawn starts a process on ports of its own and returns when it answers. With a conf
// it is a sentinel.
func spawn(path, conf string, args []string) (*process, error) {
	for attempt := 1; ; attempt++ {
		p, err := spawnOnce(path, conf, args)
		if err == nil || !errors.Is(err, errPortTaken) || attempt == 5 {
			return p, err
		}
	}
}

func spawnOnce(path, conf string, args []string) (*process, error) {
	port, err := reserve()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "stint-redis-")
	if err != nil {
		port.release()
		return nil, err
	}
	p := &process{path: path, dir: dir, port: port}
	common := []string{
		"--port", fmt.Sprint(port.number), "--bind", "127.0.0.1", "--dir", dir,
		"--daemonize", "no", "--protected-mode", "no",
	}
	if conf != "" {
		p.conf = filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(p.conf, []byte(conf), 0o600); err != nil {
			p.end()
			return nil, err
		}
		p.args = slices.Concat([]string{p.conf, "--sentinel"}, common, args)
	} else {
		// A master would wait 5 s for more replicas before it sends them its
		// data. A script that a busy machine holds up for 5 s would be
		// answered for by BUSY.
		p.args = slices.Concat(common, []string{"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
			"--lua-time-limit", "0"}, args)
	}
	for i, a := range args[:max(0, len(args)-1)] {
		if a == "--requirepass" {
			p.password = args[i+1]
		}
	}
	if err := p.launch(nil); err != nil {
		p.end()
		return nil, err
	}
	if err := p.await(); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

func (p *process) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port.number))
}

// socketName is the file in a server's directory at which it listens too, if told so.
const socketName = "socket"

// dialSocket connects to the server at that file, whatever the address.
func (p *process) dialSocket(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(p.dir, socketName))
}

func (p *process) logPath() string { return filepath.Join(p.dir, "log") }

// launch starts the process, which must not be running.
func (p *process) launch(more []string) error {
	log, err := os.Create(p.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, slices.Concat(p.args, more)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	if err := start(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.path, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed: how it ended says nothing
		close(exited)
	}()
	p.cmd, p.exited, p.paused = cmd, exited, false
	// The connections of a predecessor would only be found dead by failing.
	if p.control != nil {
		p.control.Close()
	}
	p.control = redis.NewClient(&redis.Options{
		Addr: p.addr(), Password: p.password,
		Protocol: 2, DisableIdentity: true, // one form of reply, and no commands but the test's
		MaxRetries: -1, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
	return nil
}

// await returns when this very process answers PING: on a port that was lost to another
// server, that one might answer.
func (p *process) await() error {
	p.mu.Lock()
	cmd, exited, control := p.cmd, p.exited, p.control
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := control.Ping(ctx).Err()
		if err == nil {
			var info string
			if info, err = control.Info(ctx, "server").Result(); err == nil {
				if field(info, "process_id") != fmt.Sprint(cmd.Process.Pid) {
					return fmt.Errorf("%s: %w by another server", p.addr(), errPortTaken)
				}
				return nil
			}
		}
		select {
		case <-exited:
			log := p.logTail()
			if strings.Contains(log, "in use") {
				return fmt.Errorf("%s: %w", p.addr(), errPortTaken)
			}
			return fmt.Errorf("%s ended at once: %s\n%s", p.path, strings.Join(cmd.Args[1:], " "), log)
		case <-ctx.Done():
			return fmt.Errorf("%s at %s doesn't answer: %w\n%s", p.path, p.addr(), err, p.logTail())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// kill ends the process, whether it runs or is stopped, and waits for its end.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if p.paused {
		_ = resume(p.cmd.Process)
	}
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.exited
}

func (p *process) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := pause(p.cmd.Process); err != nil {
		return err
	}
	p.paused = true
	return nil
}

func (p *process) resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		return nil
	}
	p.paused = false
	return resume(p.cmd.Process)
}

// answers reports whether the process is neither dead nor paused.
func (p *process) answers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
		return false
	default:
		return !p.paused
	}
}

// end kills the process for good and removes what it leaves.
func (p *process) end() {
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control != nil {
		p.control.Close()
	}
	p.port.release()
	os.RemoveAll(p.dir)
}

// do sends one command on the package's own connection, once.
func (p *process) do(args ...any) (any, error) {
	p.mu.Lock()
	control := p.control
	p.mu.Unlock()
	v, err := control.Do(context.Background(), args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %w", p.addr(), args, err)
	}
	return v, nil
}

// logTail returns the end of what the server wrote.
func (p *process) logTail() string {
	b, _ := os.ReadFile(p.logPath())
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}
