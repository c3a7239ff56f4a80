// Package redistest starts real redis-server processes for tests: one server, a
// cluster, or a master watched by sentinels, on loopback and in directories of their
// own.
//
//	s := redistest.Start(t)
//	rdb := s.Client()
//	s.Kill() // and see what rdb does
//
// A fake would agree with our idea of Redis by construction, but a limiter has to
// survive what Redis really does.
//
// The binary is redis-server from the PATH, or the one that STINT_REDIS_SERVER names
// (valkey-server, an older release). Without one a test is skipped, or fails if
// STINT_REQUIRE_REDIS is set, as in CI.
//
// Servers are ended by process id when their test ends. On Linux they also die with the
// test process, however that ends: a test that times out leaves nothing behind.
package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	envBinary  = "STINT_REDIS_SERVER"
	envRequire = "STINT_REQUIRE_REDIS"
)

// Server is one running redis-server.
//
// Kill, Pause and Resume may be called by any goroutine, so that a fault can
// arrive under load. The other methods end the test when they fail, which only
// the test's own goroutine may do.
type Server struct {
	t      testing.TB
	p      *process
	shared bool
}

// Start starts a server that keeps nothing on disk, and ends it with the test.
// It returns when the server answers.
//
// args are further arguments of redis-server, in front of which the package
// has put its own, so that the caller's win:
//
//	Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
//	Start(t, "--replicaof", "127.0.0.1", master.Port())
//	Start(t, "--enable-debug-command", "local") // Redis 7 and newer
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	p, err := spawn(binary(t), "", args)
	return own(t, p, err)
}

// own makes the test own p, or ends the test if err says why there is none.
func own(t testing.TB, p *process, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, p: p}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server at %s wrote:\n%s", p.addr(), p.logTail())
		}
		p.end()
	})
	return s
}

// shared is the process's single server for tests that don't break it.
var shared struct {
	sync.Mutex
	p       *process
	hasMain bool
}

// Shared returns one server for all tests of a test process, started by the first that
// asks. A test uses keys below a [Prefix] of its own and leaves the configuration
// alone. The package's TestMain has to call [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	path := binary(t)
	shared.Lock()
	defer shared.Unlock()
	if !shared.hasMain {
		t.Fatal("redistest.Shared needs: func TestMain(m *testing.M) { redistest.Main(m) }")
	}
	if shared.p == nil {
		p, err := spawn(path, "", []string{"--unixsocket", socketName})
		if err != nil {
			t.Fatal(err)
		}
		shared.p = p
	}
	return &Server{t: t, p: shared.p, shared: true}
}

// Main runs the tests of a package that uses [Shared], and ends the server.
func Main(m *testing.M) {
	shared.hasMain = true
	defer func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.p != nil {
			shared.p.end()
		}
	}()
	m.Run()
}

var prefixes atomic.Int64

// Prefix returns a key prefix that is unique in the process. It is short and contains
// no brace, so it doesn't choose a slot of a cluster.
func Prefix(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("t%d:", prefixes.Add(1))
}

// Addr returns the server's host:port. It stays the same after Kill and Restart.
func (s *Server) Addr() string { return s.p.addr() }

// Port returns the port in Addr, for arguments of another server.
func (s *Server) Port() string { return fmt.Sprint(s.p.port.number) }

// Dir returns the server's working directory, with its dumps and append-only files.
func (s *Server) Dir() string { return s.p.dir }

// Client returns a new client of the server and closes it when the test ends. Its
// options are go-redis's defaults, changed by opts, except that its own timeouts are a
// minute: a test that needs an answer waits for a busy machine, and one that needs a
// timeout sets it where it belongs. Tests reach the shared server by its socket in the file
// system, a round trip to which takes about half the time of one by loopback.
func (s *Server) Client(opts ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.Addr(), Password: s.p.password, DialTimeout: patience, ReadTimeout: patience,
		WriteTimeout: patience}
	if _, bench := s.t.(*testing.B); s.shared && !bench {
		o.Dialer = s.p.dialSocket
	}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Kill ends the server as a crash does (SIGKILL), and returns when its port is
// closed. Killing a dead server does nothing.
func (s *Server) Kill() {
	if s.breaks("Kill") {
		s.p.kill()
	}
}

// Pause stops the server (SIGSTOP): connections stay open and get no answer.
// It returns when the process has stopped.
func (s *Server) Pause() {
	if !s.breaks("Pause") {
		return
	}
	if err := s.p.pause(); err != nil {
		s.t.Errorf("pausing redis-server: %v", err)
	}
}

// Resume lets a paused server continue (SIGCONT), with what has been sent to it
// meanwhile.
func (s *Server) Resume() {
	if err := s.p.resume(); err != nil {
		s.t.Errorf("resuming redis-server: %v", err)
	}
}

// Restart kills the server and starts it again with the same port, directory and
// arguments, and for this once also with args. It returns when the server answers. What
// wasn't persisted is gone.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Launch(args...)
	s.Await()
}

// Launch is Restart without waiting: a server that loads a large file answers
// LOADING until Await returns.
func (s *Server) Launch(args ...string) {
	s.t.Helper()
	if !s.breaks("Launch") {
		return
	}
	s.p.kill()
	if err := s.p.launch(args); err != nil {
		s.t.Fatal(err)
	}
}

// Await returns when the server answers PING.
func (s *Server) Await() {
	s.t.Helper()
	if err := s.p.await(); err != nil {
		s.t.Fatal(err)
	}
}

// breaks reports whether the test may do what other tests would notice.
func (s *Server) breaks(what string) bool {
	if s.shared {
		s.t.Errorf("%s of the shared server: other tests use it; Start one", what)
	}
	return !s.shared
}

// binary returns the server to start. If there is none, it skips the test, or fails it
// if the environment requires a server.
func binary(t testing.TB) string {
	t.Helper()
	path, demanded, err := find()
	switch {
	case err == nil:
		return path
	case demanded:
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return ""
}

// find looks for the server, and reports whether the environment requires one.
func find() (path string, demanded bool, err error) {
	name := os.Getenv(envBinary)
	demanded = name != "" || os.Getenv(envRequire) != ""
	if name == "" {
		name = "redis-server"
	}
	path, err = exec.LookPath(name)
	if err != nil {
		return "", demanded, fmt.Errorf("no %s to test with: apt-get install redis-server, brew install redis, or name one in %s", name, envBinary)
	}
	return path, demanded, nil
}
