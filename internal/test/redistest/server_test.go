package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Main(m) }

// once is a client that doesn't retry.
func once(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }

func TestServerAnswersAndCounts(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if got := s.Do("SET", "k", "v"); got != "OK" {
		t.Errorf("SET: %v", got)
	}
	if got := s.Do("GET", "nothing"); got != nil {
		t.Errorf("GET of nothing: %v", got)
	}
	got, err := s.Client().Get(t.Context(), "k").Result()
	if err != nil || got != "v" {
		t.Errorf("Client: %q, %v", got, err)
	}
	if calls, _ := s.CommandStats("GET"); calls != 2 {
		t.Errorf("two GET: %d calls", calls)
	}
	s.Do("EVAL", "for i = 1, 100000 do end", 0) // a GET may take less than a microsecond
	if calls, usec := s.CommandStats("eval"); calls != 1 || usec <= 0 {
		t.Errorf("one EVAL: %d calls, %v us", calls, usec)
	}
	if calls, usec := s.CommandStats("append"); calls != 0 || usec != 0 {
		t.Errorf("no APPEND: %d calls, %v us", calls, usec)
	}
	if cpu := s.CPU(); cpu <= 0 {
		t.Errorf("CPU: %v s", cpu)
	}
	if port := s.Info("server", "tcp_port"); port != s.Port() {
		t.Errorf("INFO has port %s, Port %s", port, s.Port())
	}
	// Nothing on disk unless a test asks: no dump, no append-only file.
	if s.Info("persistence", "aof_enabled") != "0" || s.Do("CONFIG", "GET", "save").([]any)[1] != "" {
		t.Error("the server persists")
	}
}

func TestArgumentsWin(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--requirepass", "secret")
	if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Do("WAIT", 0, 0)
	stranger := s.Client(once, func(o *redis.Options) { o.Password = "" })
	if err := stranger.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without the password: %v", err)
	}
	s.Restart()
	if got := s.Do("GET", "k"); got != "v" {
		t.Errorf("after a restart with an append-only file: %v", got)
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	rdb := s.Client(once)
	s.Do("SET", "k", "v")
	addr := s.Addr()
	s.Kill()
	s.Kill() // nothing left to kill
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("a killed server's port is open")
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("moved from %s to %s", addr, s.Addr())
	}
	if got := s.Do("GET", "k"); got != nil {
		t.Errorf("a server without persistence remembers %v", got)
	}
	s.Restart("--maxmemory", "7mb")
	if got := s.Info("memory", "maxmemory"); got != "7340032" {
		t.Errorf("maxmemory %s", got)
	}
}

func TestPauseKeepsWhatWasSent(t *testing.T) {
	t.Parallel()
	s := Start(t)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.Pause()
	if _, err := conn.Write([]byte("INCR n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = conn.Read(make([]byte, 1))
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a paused server: %v", err)
	}
	s.Resume()
	s.Resume() // runs already
	_ = conn.SetReadDeadline(time.Time{})
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != ":1\r\n" {
		t.Errorf("the command sent to a paused server was answered by %q, %v", answer, err)
	}
	s.Pause()
	s.Kill() // a stopped process can be killed
	s.Restart()
}

func TestLaunchShowsLoading(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Needs("loading-process-events-interval-bytes")
	pipe := s.Client().Pipeline()
	for range 5000 {
		pipe.RPush(t.Context(), Prefix(t), "v")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Do("SAVE")
	// A millisecond a key, and events served every few bytes: five seconds, or until
	// it was seen.
	s.Launch("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	rdb := s.Client(once)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for seen := false; !seen; {
		err := rdb.Get(ctx, "k").Err()
		seen = err != nil && strings.HasPrefix(err.Error(), "LOADING")
		if errors.Is(err, redis.Nil) || ctx.Err() != nil {
			t.Fatalf("no LOADING was seen: %v", err)
		}
	}
	s.Do("CONFIG", "SET", "key-load-delay", 0)
	s.Await()
	if n := s.Do("DBSIZE"); n != int64(5000) {
		t.Errorf("%v keys loaded", n)
	}
}

func TestServersDontMeet(t *testing.T) {
	t.Parallel()
	path := binary(t)
	var mu sync.Mutex
	addrs := map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p, err := spawn(path, "", nil)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(p.end)
			mu.Lock()
			defer mu.Unlock()
			if addrs[p.addr()] {
				t.Errorf("%s twice", p.addr())
			}
			addrs[p.addr()] = true
		})
	}
	all.Wait()
}

func TestEndLeavesNothing(t *testing.T) {
	t.Parallel()
	var dir, addr string
	t.Run("one", func(t *testing.T) {
		s := Start(t)
		dir, addr = s.Dir(), s.Addr()
		s.Pause()
	})
	if addr == "" {
		t.Skip("no server was started")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Error("the server still listens")
	}
}

func TestSharedIsOne(t *testing.T) {
	t.Parallel()
	a, b := Shared(t), Shared(t)
	if a.Addr() != b.Addr() {
		t.Errorf("%s and %s", a.Addr(), b.Addr())
	}
	if p, q := Prefix(t), Prefix(t); p == q {
		t.Errorf("prefix %q twice", p)
	}
	if err := a.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	// Breaking it fails the test that tries, and only that.
	r := &recorder{TB: t}
	(&Server{t: r, p: a.p, shared: true}).Kill()
	if !r.failed {
		t.Error("the shared server may be killed")
	}
	b.Do("PING")
}

// recorder is a test that fails without anybody minding.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestPortTakenBySomebodyElse(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p, err := spawn(binary(t), "", []string{"--port", s.Port()})
	if err == nil {
		p.end()
	}
	if !errors.Is(err, errPortTaken) {
		t.Errorf("a port that is never free: %v", err)
	}
}

func TestBadArgumentsAreShown(t *testing.T) {
	t.Parallel()
	p, err := spawn(binary(t), "", []string{"--no-such-thing", "1"})
	if err == nil {
		p.end()
	}
	if err == nil || !strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("got %v", err)
	}
}

func TestFindingTheBinary(t *testing.T) {
	for _, tt := range []struct {
		name, binary, require string
		present               bool
		found, demanded       bool
	}{
		{name: "found", present: true, found: true},
		{name: "absent, nobody minds"},
		{name: "absent, required", require: "1", demanded: true},
		{name: "named", binary: "other-server", present: true, found: true, demanded: true},
		{name: "named, absent", binary: "other-server", demanded: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			t.Setenv(envBinary, tt.binary)
			t.Setenv(envRequire, tt.require)
			if tt.present {
				name := tt.binary
				if name == "" {
					name = "redis-server"
				}
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			_, demanded, err := find()
			if (err == nil) != tt.found || demanded != tt.demanded {
				t.Errorf("found %v, demanded %v: %v", err == nil, demanded, err)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "install")) {
				t.Errorf("not one line that says how: %v", err)
			}
		})
	}
}
