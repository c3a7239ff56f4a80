package redistest

import (
	"bufio"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua54.lua
var lua54 string

// Lua54 is a server that runs scripts under Lua 5.4, as Dragonfly does. A redis-server runs all
// other commands, and those that the scripts call. A function tells the scripts the time. Keys
// expire by the same time: before a script runs, those of its keys that have expired are deleted.
type Lua54 struct {
	server *Server
	addr   string
	now    func() time.Time

	mu      sync.Mutex // held by the one command that is executed
	calls   *os.File   // of scripts, to lua5.4
	answers *bufio.Reader
	known   map[string]bool // the scripts' SHA-1
}

// StartLua54 starts a server with lua5.4 from the PATH, and ends it with the test. Without one the test
// is skipped, or fails if STINT_REQUIRE_REDIS is set.
func StartLua54(t testing.TB, now func() time.Time) *Lua54 {
	t.Helper()
	path, err := exec.LookPath("lua5.4")
	if err != nil {
		if os.Getenv(envRequire) != "" {
			t.Fatal(err)
		}
		t.Skip("no lua5.4 to test with: apt-get install lua5.4 changes that")
	}
	l := &Lua54{server: Start(t, "--unixsocket", socketName), now: now, known: map[string]bool{}}
	l.interpret(t, path)

	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addr = listener.Addr().String()
	var clients sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		clients.Wait()
	})
	clients.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			clients.Go(func() { l.serve(client) })
		}
	})
	return l
}

// interpret starts lua5.4, whose standard input and output are a connection to the server.
func (l *Lua54) interpret(t testing.TB, path string) {
	t.Helper()
	conn, err := l.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server, err := conn.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	calls, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	out, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	l.calls, l.answers = in, bufio.NewReader(out)

	cmd := exec.Command(path, "-e"+lua54)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = server, server, os.Stderr
	cmd.ExtraFiles = []*os.File{calls, answers}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // which lua5.4 takes for the end
		if err := cmd.Wait(); err != nil {
			t.Errorf("lua5.4: %v", err)
		}
		out.Close()
	})
}

// dial connects to the server that executes commands.
func (l *Lua54) dial() (net.Conn, error) {
	return l.server.p.dialSocket(context.Background(), "", "")
}

// Client returns a new client of the server, as [Server.Client] does. It speaks the server's
// protocol of version 2.
func (l *Lua54) Client(opts ...func(*redis.Options)) *redis.Client {
	return l.server.Client(append([]func(*redis.Options){func(o *redis.Options) { o.Addr, o.Protocol = l.addr, 2 }},
		opts...)...)
}

// serve answers a client until it goes. Its commands, but for scripts, go to the server on a
// connection of its own.
func (l *Lua54) serve(client net.Conn) {
	defer client.Close()
	server, err := l.dial()
	if err != nil {
		return
	}
	defer server.Close()
	commands, answers := bufio.NewReader(client), bufio.NewReader(server)
	for {
		command, words, err := readValue(commands)
		if err != nil {
			return
		}
		answer, err := l.execute(server, answers, command, words)
		if err != nil {
			answer = fmt.Appendf(nil, "-ERR %v\r\n", err)
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

// execute executes a command while no other is.
func (l *Lua54) execute(server net.Conn, answers *bufio.Reader, command []byte, words []string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch strings.ToLower(words[0]) {
	case "eval":
		sum := sha1.Sum([]byte(words[1]))
		sha := hex.EncodeToString(sum[:])
		l.known[sha] = true
		return l.run(sha, words[1], words[2:])
	case "evalsha":
		if !l.known[words[1]] {
			return []byte("-NOSCRIPT No matching script. Please use EVAL.\r\n"), nil
		}
		return l.run(words[1], "", words[2:])
	}
	return ask(server, answers, command)
}

// run runs a script, whose text lua5.4 needs the first time.
func (l *Lua54) run(sha, text string, args []string) ([]byte, error) {
	words := append([]string{strconv.FormatInt(l.now().UnixMicro(), 10), sha, text}, args...)
	call := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		call = fmt.Appendf(call, "$%d\r\n%s\r\n", len(word), word)
	}
	return ask(l.calls, l.answers, call)
}

// ask returns the answer to a command.
func ask(server io.Writer, answers *bufio.Reader, command []byte) ([]byte, error) {
	if _, err := server.Write(command); err != nil {
		return nil, err
	}
	answer, _, err := readValue(answers)
	return answer, err
}

// readValue reads a value of the protocol, and returns its bytes and the texts in it.
func readValue(r *bufio.Reader) (raw []byte, texts []string, err error) {
	if raw, err = r.ReadBytes('\n'); err != nil {
		return nil, nil, err
	}
	kind, rest := raw[0], strings.TrimSpace(string(raw[1:]))
	switch kind {
	case '+', '-', ':':
		return raw, nil, nil
	case '$', '*':
	default:
		return nil, nil, errors.New("not the protocol of version 2: " + strconv.Quote(string(raw)))
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 {
		return raw, nil, err
	}
	if kind == '$' {
		text := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(r, text)
		return append(raw, text...), []string{string(text[:n])}, err
	}
	for range n {
		one, its, err := readValue(r)
		if err != nil {
			return nil, nil, err
		}
		raw, texts = append(raw, one...), append(texts, its...)
	}
	return raw, texts, nil
}
