package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// replicaOn is the variable of the environment that makes the test binary a replica on a Redis, of the file
// or folder replicaOf. If replicaFor is proxies, it serves nginx's forward auth and Envoy's rate limit service;
// otherwise services in other languages.
const (
	replicaOn  = "STINT_TEST_REPLICA"
	replicaOf  = "STINT_TEST_POLICY"
	replicaFor = "STINT_TEST_CLIENTS"
)

// patience is how long replicas wait for Redis, however slow the machine is.
const patience = time.Minute

// runReplica runs a replica until its standard input ends. It writes its addresses.
func runReplica() {
	c := Config{
		Policies: []string{os.Getenv(replicaOf)}, Trust: Private,
		Redis: &redis.Options{
			Addr: os.Getenv(replicaOn), DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		},
		RedisOptions: []redisstore.Option{redisstore.WithTimeout(patience)},
		Secret:       []byte("a secret of sixteen bytes"),
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if os.Getenv(replicaFor) == "proxies" {
		c.Proxy, c.AuthAddr, c.RLSAddr = "nginx", "127.0.0.1:0", "127.0.0.1:0"
	} else {
		c.APIAddr, c.TokenLife = "127.0.0.1:0", time.Hour
	}
	s, err := Start(context.Background(), c)
	if err == nil {
		for _, addr := range []net.Addr{s.APIAddr, s.AuthAddr, s.RLSAddr} {
			if addr != nil {
				fmt.Print(addr, " ")
			}
		}
		fmt.Println()
		_, _ = io.Copy(io.Discard, os.Stdin)
		err = s.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is a replica that is a process of its own.
type process struct {
	addresses []string
	kill      func()       // at once
	stop      func() error // lets requests in flight end, and waits for the process's end
}

// startReplica starts a process, with variables of the environment.
func startReplica(t *testing.T, server *redistest.Server, policy string, env ...string) *process {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), replicaOn+"="+server.Addr(), replicaOf+"="+policy), env...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{kill: func() { _ = c.Process.Kill() }, stop: sync.OnceValue(func() error {
		_ = in.Close()
		return c.Wait()
	})}
	t.Cleanup(func() {
		p.kill()
		_ = p.stop()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.addresses = strings.Fields(line)
	return p
}

// load takes, extends and settles permits by the example, in threads. A token may turn out to be used if the replica
// died after it had used it.
const load = `
import json, sys, threading, urllib.error
from stint_client import Limiter
replicas, threads, rounds = sys.argv[1:3], 8, 40
lock, settled, unsure = threading.Lock(), 0, 0
def work(i):
    global settled, unsure
    limiter = Limiter("policy", replicas[::-1] if i % 2 else replicas, timeout=60)
    for _ in range(rounds):
        permit = limiter.take("k", 5)
        assert permit.allowed and permit.limits[0]["name"] == "calls", permit.limits
        try:
            assert permit.extend(8)
            assert permit.settle(6)
            sure = 1
        except urllib.error.HTTPError as e:
            assert e.code == 409, e.problem
            sure = 0
        with lock:
            settled, unsure = settled + sure, unsure + 1 - sure
            print(json.dumps([settled, unsure]), flush=True)
failed = []
threading.excepthook = lambda args: failed.append(args) or sys.__excepthook__(args.exc_type, args.exc_value, args.exc_traceback)
all = [threading.Thread(target=work, args=[i]) for i in range(threads)]
[t.start() for t in all], [t.join() for t in all]
permit = Limiter("policy", replicas, timeout=60).take("k", 2000000)
assert not permit.allowed and permit.retry_after is None and permit.token is None
sys.exit(1 if failed else 0)
`

// The example in Python shares limits over two replicas, one of which is killed under load. Each permit is settled once:
// what is charged is what was settled, but for the calls that were in flight at the replica that died.
func TestPythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 isn't installed")
	}
	example, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(example, "stint_client.py"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n >= 60 {
		t.Errorf("the example has %d lines", n)
	}
	server := redistest.Start(t)
	policy := file(t, "version: 1\nkey: given\nlimits: [{name: calls, rate: 1000000/1000h, algorithm: fixed-window}]\n")
	first, second := startReplica(t, server, policy), startReplica(t, server, policy)

	c := exec.Command(python, "-c", load, "http://"+first.addresses[0], "http://"+second.addresses[0])
	c.Env = append(os.Environ(), "PYTHONPATH="+example, "PYTHONDONTWRITEBYTECODE=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var counts [2]int64 // settled, unsure
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if err := json.Unmarshal(lines.Bytes(), &counts); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
		if counts[0] == 80 {
			first.kill()
		}
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("the example fails: %v", err)
	}
	const threads, permits = 8, 320
	settled, unsure := counts[0], counts[1]
	if settled+unsure != permits || unsure > threads {
		t.Errorf("%d settled and %d unsure, of %d", settled, unsure, permits)
	}
	d, err := newReplicaOf(t, shared(t, server),
		"version: 1\nkey: given\nlimits: [{name: calls, rate: 1000000/1000h, algorithm: fixed-window}]\n").limiter.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	used, least, most := 1000000-d.Remaining, 6*settled+5*unsure, 6*settled+8*unsure+5*threads
	t.Logf("%d settled, %d unsure, %d used", settled, unsure, used)
	if used < least || used > most {
		t.Errorf("%d units are used, want %d to %d", used, least, most)
	}
}

// repeat repeats a call that has failed.
const repeat = `
import sys, urllib.error
from stint_client import Limiter
permit = Limiter("policy", sys.argv[1:]).take("k", 5)
try:
    permit.settle(4)
    sys.exit("no error")
except urllib.error.HTTPError as e:
    assert e.problem["status"] == 503, e.problem
assert permit.settle(4)
`

// After an error, a permit of the example has the token that takes the place of the one that is used up.
func TestPythonExampleRepeats(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 isn't installed")
	}
	s := storefake.New()
	failed := false
	s.OnSettle = func(c *storefake.Call) error {
		if failed {
			return c.Pass()
		}
		failed = true
		return store.NotMade(errors.New("refused"))
	}
	r := newReplica(t, s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.RemoteAddr = "192.0.2.1:1" // which is trusted
		r.api.ServeHTTP(w, q)
	}))
	defer server.Close()
	c := exec.Command(python, "-c", repeat, server.URL)
	c.Env = append(os.Environ(), "PYTHONPATH=../../examples", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	r.left(t, "once it is settled", 96, 46)
}

// docs/other-languages.md is as it says: its file, its call and what that answers, and its program.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	between := func(begin, end string) string {
		t.Helper()
		_, rest, ok := strings.Cut(document, begin)
		part, _, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("the document has no %q", begin)
		}
		return part
	}
	llm := filepath.Join(t.TempDir(), "llm.yaml")
	if err := os.WriteFile(llm, []byte(between("```yaml\n", "```")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, "", func(c *Config) {
		c.Policies, c.Proxy, c.APIAddr, c.TokenLife, c.Secret = []string{llm}, "", "127.0.0.1:0", time.Hour,
			[]byte("a secret of sixteen bytes")
	})
	said := between(" http://127.0.0.1:8083/v1/take\n    ", "…")
	if status, got := postTo(t, s.APIAddr, "/v1/take", between(" -d '", "'")); status != 200 ||
		!strings.HasPrefix(got, strings.TrimSpace(said)) {
		t.Errorf("take: %d: %s, and the document has %s", status, got, said)
	}

	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 isn't installed")
	}
	example, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	program := strings.NewReplacer("http://10.0.0.8:8083", "http://127.0.0.1:1", "http://10.0.0.9:8083",
		"http://"+s.APIAddr.String()).
		Replace(between("```python\n", "```"))
	c := exec.Command(python, "-c",
		"from types import SimpleNamespace\nanswer = lambda: [SimpleNamespace(tokens=300)] * 3\n"+program)
	c.Env = append(os.Environ(), "PYTHONPATH="+example, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const used = 500 + 3*300
	if _, got := postTo(t, s.APIAddr, "/v1/peek", `{"limiter": "llm", "key": "tenant-7"}`); !strings.Contains(got,
		fmt.Sprint(20_000_000-used)) {
		t.Errorf("after the program: %s", got)
	}
}
