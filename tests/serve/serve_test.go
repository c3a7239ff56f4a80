// Package serve tests stint serve behind real proxies, configured as docs/serve.md says.
package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/stint-go/stint/tests/nginxtest"
)

const shop = `version: 1
key: remote-ip
limits:
  - {name: client, rate: 3/1h}
block: [{cidr: [127.0.0.9]}]
routes:
  GET /healthz: {exempt: true}
  POST /login: {only: [{name: login, rate: 1/1h}]}
`

// program is the command, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stint-serve")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "stint")
	build := exec.Command("go", "build", "-o", program, "github.com/stint-go/stint/cmd/stint")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// serve starts stint serve and returns the address of forward auth. It trusts 127.0.0.1, which proxies connect
// from; clients have other addresses of loopback.
func serve(t *testing.T, proxy string) (address string) {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "--forward-auth", proxy, "--listen-auth", "127.0.0.1:0", "--admin", "", "--trust", "127.0.0.1",
		"--drain", "0s", policy)
}

// start starts stint serve with arguments until the test ends, and returns the address of forward auth.
func start(t *testing.T, args ...string) (address string) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"serve"}, args...)...)
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening, ended := make(chan string, 1), make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				listening <- line.Address
			}
			all.WriteString(lines.Text() + "\n")
		}
		ended <- all.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		said := <-ended
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("stint serve: %v\n%s", err, said)
		}
	})
	select {
	case address = <-listening:
	case said := <-ended:
		ended <- said
		t.Fatalf("stint serve ends: %s", said)
	}
	return address
}

// backend is what the proxy protects. Its own 403 reaches the client unchanged.
func backend(t *testing.T) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, "the backend")
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// blocks are the blocks of a language in the document, whose addresses are replaced by the test's.
func blocks(t *testing.T, language, auth, backend string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer("127.0.0.1:8081", auth, "127.0.0.1:8080", backend)
	for _, m := range regexp.MustCompile("(?sm)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, replace.Replace(m[1]))
	}
	if len(all) == 0 {
		t.Fatalf("docs/serve.md has no %s", language)
	}
	return all
}

// blocksWith are the blocks of YAML that have a text.
func blocksWith(t *testing.T, text, auth, backend string) (all []string) {
	t.Helper()
	for _, block := range blocks(t, "yaml", auth, backend) {
		if strings.Contains(block, text) {
			all = append(all, block)
		}
	}
	if len(all) == 0 {
		t.Fatalf("docs/serve.md has no YAML with %s", text)
	}
	return all
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request from an address of loopback.
func ask(t *testing.T, from, method, url string, header ...string) answer {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// check runs the requests that every proxy must answer alike. copies says whether the client of an admitted
// request gets the fields.
func check(t *testing.T, at string, copies bool) {
	t.Helper()
	escaping := []string{ // a client can't choose the exempt route
		"X-Forwarded-Uri", "/healthz", "X-Forwarded-Method", "GET", "X-Original-URI", "/healthz", "X-Original-Method", "GET",
		"X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1", "X-Real-Ip", "198.51.100.1",
	}
	for i, want := range []int{200, 200, 200, 429, 429} {
		got := ask(t, "127.0.0.2", "GET", at+"/items?page=1", escaping...)
		if got.status != want {
			t.Fatalf("request %d gets %d, want %d: %v %s", i+1, got.status, want, got.header, got.body)
		}
		left, ours := got.header.Get("RateLimit"), strings.Contains(got.body, "the backend")
		switch {
		case want == 200 && (!ours || got.header.Get("Retry-After") != ""):
			t.Errorf("an admitted request gets %v and %q", got.header, got.body)
		case want == 200 && copies && (!strings.HasPrefix(left, `"client";r=`) || got.header.Get("RateLimit-Policy") == ""):
			t.Errorf("an admitted request gets the fields %v", got.header)
		case want == 429 && (ours || got.header.Get("Retry-After") == "" || !strings.HasPrefix(left, `"client";r=0`) ||
			!strings.Contains(got.body, "quota-exceeded") || got.header.Get("Content-Type") != "application/problem+json"):
			t.Errorf("a denial gets %v and %q", got.header, got.body)
		}
	}
	for _, tt := range []struct {
		from, method, path string
		want               int
	}{
		{"127.0.0.2", "GET", "/healthz", 200},
		{"127.0.0.3", "GET", "/items", 200},
		{"127.0.0.3", "GET", "/forbidden", 403},
		{"127.0.0.9", "GET", "/items", 403},
		{"127.0.0.3", "POST", "/login", 200},
		{"127.0.0.3", "POST", "/login", 429},
		{"127.0.0.4", "POST", "/login", 200},
		{"127.0.0.4", "POST", "/healthz/../login", 429},
	} {
		if got := ask(t, tt.from, tt.method, at+tt.path); got.status != tt.want {
			t.Errorf("%s %s from %s gets %d, want %d: %s", tt.method, tt.path, tt.from, got.status, tt.want, got.body)
		} else if tt.want == 200 && !strings.Contains(got.body, "the backend") {
			t.Errorf("%s %s from %s gets %q, which isn't the backend's", tt.method, tt.path, tt.from, got.body)
		} else if tt.path == "/healthz" && got.header.Values("RateLimit") != nil {
			t.Errorf("an exempt request gets %v", got.header)
		}
	}
}

func TestNginx(t *testing.T) {
	auth := serve(t, "nginx")
	check(t, nginxtest.StartServer(t, blocks(t, "nginx", auth, backend(t))[0]), true)
}

// With a server_name, a request of HTTP/1.0 without Host passes.
func TestNginxWithoutHost(t *testing.T) {
	config := blocks(t, "nginx", serve(t, "nginx"), backend(t))[0]
	for name, want := range map[string]string{"": "500", "server_name shop.example.com;\n": "200"} {
		at := nginxtest.StartServer(t, name+config)
		conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /items HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+want) {
			t.Errorf("with %q it answers %.40q (%v), want %s", name, got, err, want)
		}
	}
}

// Without the fields of the documents nginx denies, and doesn't let requests pass.
func TestIncompleteNginx(t *testing.T) {
	auth := serve(t, "nginx")
	config := blocks(t, "nginx", auth, backend(t))[0]
	at := nginxtest.StartServer(t, strings.Replace(config, "proxy_set_header X-Original-URI $request_uri;", "", 1))
	if got := ask(t, "127.0.0.2", "GET", at+"/healthz", "X-Original-URI-", "/healthz"); got.status != 500 {
		t.Errorf("it answers %d, want 500", got.status)
	}
}

func TestCaddy(t *testing.T) {
	for i, copies := range []bool{false, true} {
		auth := serve(t, "caddy")
		check(t, caddy(t, blocks(t, "caddyfile", auth, backend(t))[i]), copies)
	}
}

// caddy starts a Caddy with a site, and returns its address.
func caddy(t *testing.T, site string) (at string) {
	t.Helper()
	if _, err := exec.LookPath("caddy"); err != nil {
		t.Skip("no caddy: apt-get install caddy changes that")
	}
	dir, address := t.TempDir(), nginxtest.FreeAddress(t)
	at = "http://" + address
	file := filepath.Join(dir, "Caddyfile")
	site = strings.Replace(site, "shop.example.com {", at+" {", 1)
	if err := os.WriteFile(file, []byte("{\n\tadmin off\n\tauto_https off\n}\n"+site), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("caddy", "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	runProxy(t, address, cmd)
	return at
}

// runProxy starts a proxy until the test ends, and returns when it listens at an address.
func runProxy(t *testing.T, address string, cmd *exec.Cmd) {
	t.Helper()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ends: %v\n%s", cmd.Path, err, said.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The compose file starts what the document has, with its own arguments and files: its nginx is configured as in the
// document, and requests through it are admitted and then denied.
func TestDeployment(t *testing.T) {
	const dir = "../../cmd/stint/deploy/"
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	fields := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	compose, nginx := read("compose.yaml"), read("nginx.conf")
	if !strings.Contains(fields(nginx), fields(blocks(t, "nginx", "stint:8081", "backend:80")[0])) {
		t.Errorf("deploy/nginx.conf isn't what docs/serve.md has:\n%s", nginx)
	}
	volumes := regexp.MustCompile(`\[\./(\S+?):(\S+?):ro\]`).FindAllStringSubmatch(compose, -1)
	command := regexp.MustCompile(`(?m)^ *command: \[serve, (.*)\]$`).FindStringSubmatch(compose)
	if len(volumes) == 0 || command == nil {
		t.Fatalf("no volumes or no command in\n%s", compose)
	}
	args := strings.ReplaceAll(command[1], `"`, "")
	for _, volume := range volumes {
		if _, err := os.Stat(dir + volume[1]); err != nil {
			t.Error(err)
		}
		args = strings.ReplaceAll(args, volume[2]+"/", dir+volume[1]+"/")
	}
	admin := regexp.MustCompile(`--admin, :(\d+), `).FindStringSubmatch(args)
	if admin == nil || !strings.Contains(compose, ":"+admin[1]+":"+admin[1]+`"`) ||
		!strings.Contains(compose, ":"+admin[1]+"/readyz") {
		t.Fatalf("the port of --admin isn't the published one:\n%s", compose)
	}
	args = strings.NewReplacer("--admin, :"+admin[1], "--admin, ", "redis:6379", miniredis.RunT(t).Addr()).Replace(args)
	auth := start(t, append(strings.Split(args, ", "), "--listen-auth", "127.0.0.1:0", "--drain", "0s")...)

	inside := regexp.MustCompile(`(?s)^server \{\n\tlisten 80;\n(.*)\}\n$`).FindStringSubmatch(nginx)
	if inside == nil {
		t.Fatalf("deploy/nginx.conf isn't one server on port 80:\n%s", nginx)
	}
	at := nginxtest.StartServer(t, strings.NewReplacer("stint:8081", auth, "backend:80", backend(t)).Replace(inside[1]))
	got := ask(t, "127.0.0.2", "GET", at)
	if got.status != 200 || got.header.Get("RateLimit") == "" || got.body != "the backend" {
		t.Fatalf("the first request gets %v", got)
	}
	for range 100 { // more than the policy's limit, even if some units are refilled meanwhile
		if got = ask(t, "127.0.0.2", "GET", at); got.status != 200 {
			break
		}
	}
	if got.status != 429 || got.header.Get("Retry-After") == "" || got.header.Get("RateLimit") == "" {
		t.Errorf("a request beyond the limit gets %v", got)
	}
}

// The document's policy files have no mistake.
func TestPolicies(t *testing.T) {
	dir := t.TempDir()
	args := []string{"check"}
	for i, block := range blocksWith(t, "version: 1", "", "") {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The configurations of proxies that aren't here name what the server reads.
func TestConfigurations(t *testing.T) {
	text := strings.Join(blocks(t, "yaml", "", ""), "")
	for _, want := range []string{"forwardAuth:", "x-forwarded-for", "x-forwarded-proto", "path_prefix: /auth", "allowed_client_headers_on_success"} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/serve.md's configurations lack %q", want)
		}
	}
}
