package project

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tests/nginxtest"
)

// tested says which test has a block of a document that is no Go of the root module.
var tested = map[string]string{
	"README.md console":                 "TestREADME",
	"README.md sh":                      "TestREADME",
	"README.zh-CN.md console":           "TestTranslation",
	"README.zh-CN.md sh":                "TestTranslation",
	"docs/architecture.md mermaid":      "a drawing",
	"docs/internals/request.md mermaid": "a drawing",
	"docs/algorithms.md text":           "a formula",
	"docs/grpc.md go adapters/grpc":     "adapters/grpc TestDocumentIsThisCode",
	"docs/keys.md go adapters/echov5":   "adapters/echov5 TestKeyOfTheDocument",
	"docs/other-languages.md python":    "cmd/stint/internal/serve TestDocument",
	"docs/other-languages.md yaml":      "cmd/stint/internal/serve TestDocument",
	"docs/policy.md go policy":          "policy TestProgramOfTheDocument",
	"docs/policy.md yaml":               "policy TestDocument",
	"docs/proxies.md nginx":             "TestProxies",
	"docs/proxies.md sh":                "TestProxies, TestProxyCommands",
	"docs/proxies.md yaml":              "TestProxyCommands",
	"docs/recipes.md go tests/project":  "TestRecipesAreThisCode",
	"docs/recipes.md go tests/rpc":      "tests/rpc TestDocumentIsThisCode",
	"docs/redis.md text":                "store/redisstore TestVerifyDocumentedRights",
	"docs/rollout.md yaml":              "cmd/stint TestWalkThroughADay",
	"docs/rollout.md console":           "cmd/stint TestWalkThroughADay",
	"docs/routers.md go tests/routers":  "tests/routers TestDocumentIsThisCode",
	"docs/serve.md caddyfile":           "tests/serve TestCaddy",
	"docs/serve.md nginx":               "tests/serve TestNginx",
	"docs/serve.md yaml":                "tests/serve TestConfigurations TestPolicies",
	"docs/tenants.md go tests/project":  "TestRecipesAreThisCode",
	"docs/tenants.md sql":               "TestPlansInSQL",
	"observe/otel/README.md go":         "observe/otel TestREADMECompiles",

	"docs/first-service.md console":                "TestFirstService",
	"docs/first-service.md go tests/project":       "TestFirstService",
	"docs/first-service.md sh":                     "TestFirstService",
	"docs/first-service.zh-CN.md console":          "TestTranslation",
	"docs/first-service.zh-CN.md go tests/project": "TestTranslation",
	"docs/first-service.zh-CN.md sh":               "TestTranslation",
	"docs/headers.md console":                      "TestHeaders",
	"docs/headers.md text":                         "TestHeaders",
	"docs/redis-failures.md text":                  "TestLogWhenRedisFails",
}

var fenced = regexp.MustCompile("(?sm)^```([^\n]+)\n(.*?)^```$")

// blocks are the contents of a document's blocks of a language.
func blocks(t *testing.T, doc, language string) (all []string) {
	t.Helper()
	for _, m := range fenced.FindAllStringSubmatch(read(t, doc), -1) {
		if m[1] == language {
			all = append(all, m[2])
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no %s", doc, language)
	}
	return all
}

// No block of a document is without a test: Go is compiled, and each other has its own.
func TestBlocksAreTested(t *testing.T) {
	for _, doc := range append(documents(t), "observe/otel/README.md") {
		for _, m := range fenced.FindAllStringSubmatch(read(t, doc), -1) {
			if what := doc + " " + m[1]; tested[what] == "" && (m[1] != "go" || strings.HasPrefix(doc, "observe/")) {
				t.Errorf("no test has %s:\n%s", what, m[2])
			}
		}
	}
}

// shell runs commands as a reader does, from a client's address of its own.
func shell(t *testing.T, text string) string {
	t.Helper()
	home := t.TempDir()
	write(t, filepath.Join(home, ".curlrc"), "interface = \"127.0.0.2\"\n", 0o600)
	cmd := exec.Command("bash", "-c", text)
	cmd.Env = append(os.Environ(), "CURL_HOME="+home, "no_proxy=*")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

func tools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s", name)
		}
	}
}

// Behind a proxy that appends to X-Forwarded-For, as docs/proxies.md has nginx do, its
// check of the setup sees what the document says.
func TestProxies(t *testing.T) {
	tools(t, "bash", "curl")
	// As the document has it, with a tenth of its requests: each is a process of curl.
	const limit, requests = 7, 25
	check := strings.Replace(blocks(t, "docs/proxies.md", "sh")[1], "seq 250 ", fmt.Sprintf("seq %d ", requests), 1)
	everything := stint.ForwardedIP(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("198.51.100.0/24"))
	seen := func(passed int) (counts string) {
		if passed > 0 {
			counts = fmt.Sprintf("%d 200 ", passed)
		}
		if passed < requests {
			counts += fmt.Sprintf("%d 429 ", requests-passed)
		}
		return counts
	}
	for _, proxy := range []struct {
		name  string
		start func(t *testing.T, to string) (at string)
	}{{"Go's", reverseProxy}, {"nginx", nginx}} {
		for _, tt := range []struct {
			name string
			key  stint.Key
			want string
		}{
			{"as it should be", stint.ForwardedIP(netip.MustParsePrefix("127.0.0.1/32")), seen(limit)},
			{"made-up addresses are trusted", everything, seen(requests)},
			{"all share the proxy's address", stint.RemoteIP(), seen(0)},
		} {
			t.Run(proxy.name+" "+tt.name, func(t *testing.T) {
				lim := limiter(t, stint.Rate(limit, time.Hour), stint.WithKey(tt.key))
				server := httptest.NewServer(mount(lim))
				defer server.Close()
				at := proxy.start(t, server.URL)
				for range limit { // of another client, whose address is the proxy's too
					resp, err := http.Get(at)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
				}
				printed := strings.Fields(shell(t, strings.ReplaceAll(check, "https://example.com/", at+"/")))
				if got := strings.Join(append(printed, ""), " "); got != tt.want {
					t.Errorf("it prints %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// reverseProxy appends to X-Forwarded-For.
func reverseProxy(t *testing.T, to string) string {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	p := httptest.NewServer(httputil.NewSingleHostReverseProxy(target))
	t.Cleanup(p.Close)
	return p.URL
}

// nginx is nginx as the document configures it.
func nginx(t *testing.T, to string) string {
	return nginxtest.Start(t, to, blocks(t, "docs/proxies.md", "nginx")[0])
}

// Behind Cloudflare and nginx, as docs/proxies.md has them, a client can't choose its key.
func TestCloudflareAndNginx(t *testing.T) {
	cloudflare := []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}
	key := stint.ForwardedIP(append(cloudflare, netip.MustParsePrefix("127.0.0.1/32"))...) // and nginx's address
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, err := key.Of(r)
		fmt.Fprint(w, address, err)
	}))
	defer server.Close()
	at := nginx(t, server.URL)
	for _, tt := range []struct{ name, from, forwarded, want string }{
		{"through Cloudflare", "127.0.0.3", "203.0.113.9", "203.0.113.9"},
		{"through Cloudflare, with a made-up address", "127.0.0.3", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		{"past Cloudflare", "127.0.0.4", "203.0.113.9", "127.0.0.4"},
		{"past Cloudflare, with its address", "127.0.0.4", "203.0.113.9, 127.0.0.3", "127.0.0.4"},
	} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(tt.from)}}
		client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		r, err := http.NewRequest("GET", at+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", tt.forwarded)
		r.Header.Set("CF-Connecting-IP", "198.51.100.2")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := tt.want + "<nil>"; string(got) != want || err != nil {
			t.Errorf("%s: the key is %s, want %s; %v", tt.name, got, want, err)
		}
	}
}

// What docs/proxies.md writes for AWS and Kubernetes is well formed, and says what it
// is there for.
func TestProxyCommands(t *testing.T) {
	tools(t, "bash")
	aws := blocks(t, "docs/proxies.md", "sh")[0]
	got := shell(t, "aws() { printf '%s\\n' \"$@\"; }\nARN=arn:x\n"+aws)
	want := "elbv2\nmodify-load-balancer-attributes\n--load-balancer-arn\narn:x\n--attributes\nKey=routing.http.xff_header_processing.mode,Value=append\n"
	if got != want {
		t.Errorf("aws is given\n%s\nwant\n%s", got, want)
	}
	service := blocks(t, "docs/proxies.md", "yaml")[0]
	if !regexp.MustCompile(`(?m)^spec: \{externalTrafficPolicy: Local\}(?: +#.*)?$`).MatchString(service) {
		t.Errorf("the Service doesn't keep the client's address:\n%s", service)
	}
}
