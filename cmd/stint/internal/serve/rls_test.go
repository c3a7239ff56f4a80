package serve

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/redisstore"
)

const envoyShop = `version: 1
domain: shop
limits:
  - {name: client, rate: 2/1h, key: {descriptor: [remote_address]}}
  - {name: pair, quota: 1/monthly, key: {descriptor: [generic_key, user]}}
  - {name: tokens, quota: 10/daily, after: true, key: {descriptor: [model]}}
routes:
  GET /search: {only: [{name: search, rate: 1/1h, key: {descriptor: [remote_address]}}]}
`

// described makes a descriptor of "name=value" texts.
func described(entries ...string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: name, Value: value})
	}
	return d
}

func withHits(d *ratelimit.RateLimitDescriptor, n uint64) *ratelimit.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// startRLS starts a server and returns a client of it.
func startRLS(t testing.TB, text string, change func(*Config)) (service.RateLimitServiceClient, *Server, *written) {
	t.Helper()
	s, log := start(t, text, func(c *Config) {
		c.Proxy, c.RLSAddr = "", "127.0.0.1:0"
		if change != nil {
			change(c)
		}
	})
	return dialRLS(t, s), s, log
}

func dialRLS(t testing.TB, s *Server) service.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.RLSAddr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return service.NewRateLimitServiceClient(conn)
}

// codesOf writes the codes of a response: "OVER: OK OVER".
func codesOf(resp *service.RateLimitResponse) string {
	text := resp.GetOverallCode().String() + ":"
	for _, s := range resp.GetStatuses() {
		text += " " + s.GetCode().String()
	}
	return strings.ReplaceAll(text, "OVER_LIMIT", "OVER")
}

func limitRequest(domain string, hits uint32, all ...*ratelimit.RateLimitDescriptor) *service.RateLimitRequest {
	return &service.RateLimitRequest{Domain: domain, Descriptors: all, HitsAddend: hits}
}

// In memory and on Redis, each descriptor is decided in order, and none is charged if one is denied.
func TestRateLimitService(t *testing.T) {
	type request struct {
		req  *service.RateLimitRequest
		want string
	}
	ask := func(want string, hits uint32, all ...*ratelimit.RateLimitDescriptor) request {
		return request{limitRequest("shop", hits, all...), want}
	}
	for _, tt := range []struct {
		name     string
		requests []request
	}{
		{"hits_addend 0 is 1", []request{
			ask("OK: OK", 0, described("remote_address=a")), ask("OK: OK", 0, described("remote_address=a")),
			ask("OVER: OVER", 0, described("remote_address=a")), ask("OK: OK", 0, described("remote_address=b")),
		}},
		{"hits_addend of the request", []request{ask("OVER: OVER", 3, described("remote_address=a")), ask("OK: OK", 2, described("remote_address=a")), ask("OVER: OVER", 1, described("remote_address=a"))}},
		{"hits_addend of a descriptor", []request{ask("OK: OK", 9, withHits(described("remote_address=a"), 1)), ask("OVER: OVER", 1, withHits(described("remote_address=a"), 2)), ask("OK: OK", 0, described("remote_address=a"))}},
		{"hits_addend 0 of a descriptor asks only", []request{
			ask("OK: OK", 1, withHits(described("remote_address=a"), 0)), ask("OK: OK", 2, described("remote_address=a")), ask("OVER: OVER", 1, withHits(described("remote_address=a"), 0)),
		}},
		{"a key of two entries", []request{
			ask("OK: OK", 1, described("generic_key=k", "user=ada")), ask("OVER: OVER", 1, described("user=ada", "generic_key=k")),
			ask("OK: OK", 1, described("generic_key=k", "user=bob")), ask("OK: OK", 1, described("user=ada")), ask("OK: OK", 1, described("user=ada")),
		}},
		{"no limit", []request{ask("OK: OK", 1, described("color=red")), ask("OK: OK", 1, described())}},
		{"the others are refunded, before and after the denied one", []request{
			ask("OK: OK", 2, described("remote_address=full")),
			ask("OVER: OK OVER OK", 1, described("remote_address=a"), described("remote_address=full"), described("generic_key=k", "user=ada")),
			ask("OK: OK", 2, described("remote_address=a")), ask("OK: OK", 1, described("generic_key=k", "user=ada")),
		}},
		{"one count for equal descriptors", []request{ask("OVER: OK OK OVER", 1, described("remote_address=a"), described("remote_address=a"), described("remote_address=a")), ask("OK: OK", 2, described("remote_address=a"))}},
		{"a path chooses a route", []request{
			ask("OK: OK", 1, described("remote_address=a", "path=/search?q=x")), ask("OVER: OVER", 1, described("remote_address=a", "path=/search")),
			ask("OK: OK", 1, described("remote_address=a", "path=/search", "method=POST")), ask("OK: OK", 1, described("remote_address=a")), ask("OVER: OVER", 1, described("remote_address=a")),
		}},
		{"a limit that is charged after", []request{
			ask("OK: OK", 1, withHits(described("model=m"), 0)), ask("OK: OK", 1, withHits(described("model=m"), 9)),
			ask("OK: OK", 1, withHits(described("model=m"), 0)), ask("OK: OK", 1, withHits(described("model=m"), 900)),
			ask("OK: OK", 1, withHits(described("model=m"), 900)), ask("OVER: OVER", 1, withHits(described("model=m"), 0)), ask("OK: OK", 1, withHits(described("model=n"), 0)),
		}},
		{"another domain", []request{{limitRequest("unknown", 9, described("remote_address=a"), described()), "OK: OK OK"}}},
	} {
		for _, on := range []string{"memory", "Redis"} {
			t.Run(tt.name+" in "+on, func(t *testing.T) {
				client, _, _ := startRLS(t, envoyShop, func(c *Config) {
					if on == "Redis" {
						server := redistest.Shared(t)
						c.Redis = &redis.Options{Addr: server.Addr(), DialerRetries: 1,
							DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience}
						c.RedisOptions = []redisstore.Option{redisstore.WithTimeout(patience)} // or what isn't decided in time passes
						if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
							t.Fatal(err)
						}
					}
				})
				for i, r := range tt.requests {
					resp, err := client.ShouldRateLimit(t.Context(), r.req)
					if err != nil {
						t.Fatal(err)
					}
					if got := codesOf(resp); got != r.want {
						t.Errorf("request %d gets %s, want %s", i+1, got, r.want)
					}
				}
			})
		}
	}
}

// The answer says what is left, and has the fields of the descriptor that decides.
func TestRateLimitFields(t *testing.T) {
	client, _, _ := startRLS(t, envoyShop, nil)
	send := func(all ...*ratelimit.RateLimitDescriptor) (*service.RateLimitResponse, map[string]string) {
		t.Helper()
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, all...))
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]string{}
		for _, h := range resp.GetResponseHeadersToAdd() {
			fields[h.GetKey()] = h.GetValue()
		}
		return resp, fields
	}
	resp, fields := send(described("color=red"), described("remote_address=a"), described("generic_key=k", "user=ada"))
	if s := resp.Statuses[0]; s.CurrentLimit != nil || s.LimitRemaining != 0 {
		t.Errorf("without a limit: %v", s)
	}
	if s := resp.Statuses[1]; s.CurrentLimit.GetName() != "client" || s.CurrentLimit.GetRequestsPerUnit() != 2 || s.CurrentLimit.GetUnit() != service.RateLimitResponse_RateLimit_HOUR ||
		s.LimitRemaining != 1 || s.DurationUntilReset.AsDuration().Minutes() > 30 || s.DurationUntilReset.AsDuration() <= 0 {
		t.Errorf("client: %v", s)
	}
	if s := resp.Statuses[2]; s.CurrentLimit.GetUnit() != service.RateLimitResponse_RateLimit_MONTH || s.LimitRemaining != 0 {
		t.Errorf("pair: %v", s)
	}
	if !strings.HasPrefix(fields["ratelimit"], `"pair";r=0`) || fields["ratelimit-policy"] == "" || fields["retry-after"] != "" {
		t.Errorf("the fields are %v, want those of pair, which has least left", fields)
	}
	_, fields = send(described("remote_address=a"), described("generic_key=k", "user=ada"))
	if !strings.HasPrefix(fields["ratelimit"], `"pair";r=0`) || fields["retry-after"] == "" {
		t.Errorf("the fields of a denial are %v", fields)
	}
}

// A request that says nothing is an error, and nothing that a request holds is trusted.
func TestRateLimitMistakes(t *testing.T) {
	client, _, log := startRLS(t, envoyShop, nil)
	for _, req := range []*service.RateLimitRequest{
		limitRequest("", 1, described("remote_address=a")),
		limitRequest("shop", 1),
		limitRequest("shop", 1, make([]*ratelimit.RateLimitDescriptor, maxDescriptors+1)...),
		limitRequest("shop", 1, withHits(described("remote_address=a"), 1<<63)),
	} {
		for i := range req.Descriptors {
			if req.Descriptors[i] == nil {
				req.Descriptors[i] = described()
			}
		}
		if _, err := client.ShouldRateLimit(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req.GetDomain(), err)
		}
	}
	override := described("remote_address=a")
	override.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1000}
	negative := withHits(described("remote_address=b"), 2)
	negative.IsNegativeHits = true
	for i, want := range []string{"OK: OK OK", "OK: OK OK", "OVER: OVER OK"} {
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 1, override, negative))
		if got := codesOf(resp); err != nil || got != want {
			t.Errorf("request %d gets %s (%v), want %s", i+1, got, err, want)
		}
	}
	// A key that is too long to count isn't let through.
	resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 1, described("remote_address="+strings.Repeat("x", 5000))))
	if got := codesOf(resp); err != nil || got != "OVER: OVER" {
		t.Errorf("a long value gets %s (%v)", got, err)
	}
	for _, want := range []string{"a limit of its own, which is ignored", "is_negative_hits is ignored"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log doesn't have %q once: %s", want, log)
		}
	}
}

// A path with invalid escapes is matched as it is: they don't choose which routes apply.
func TestPathsOfDescriptors(t *testing.T) {
	client, _, _ := startRLS(t, `version: 1
domain: shop
limits: [{name: all, rate: 100/1h, key: global}]
routes:
  /search/: {limits: [{name: search, rate: 2/1h, key: global}]}
`, nil)
	for i, tt := range []struct{ path, want string }{
		{"/search/%41?q=%zz", "OK: OK"},
		{"/search/%zz?q=1", "OK: OK"},
		{"/search/%", "OVER: OVER"},
		{"/search/a b", "OVER: OVER"},
		{"http://shop.example/search/a", "OVER: OVER"},
		{"search/a", "OK: OK"}, // which isn't a path
		{"/other", "OK: OK"},
	} {
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 0, described("path="+tt.path)))
		if got := codesOf(resp); err != nil || got != tt.want {
			t.Errorf("request %d for %s gets %s (%v), want %s", i+1, tt.path, got, err, tt.want)
		}
	}
}

// However large a request is, a log line isn't.
func TestLargeRequestIsLoggedInBrief(t *testing.T) {
	client, _, log := startRLS(t, envoyShop, nil)
	large := described()
	for range 10_000 {
		large.Entries = append(large.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: strings.Repeat("k", 100)})
	}
	for _, domain := range []string{"shop", strings.Repeat("shöp", 100_000)} {
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest(domain, math.MaxUint32, large))
		if got := codesOf(resp); err != nil || got != "OK: OK" {
			t.Errorf("%s (%v)", got, err)
		}
	}
	if text := log.String(); !strings.Contains(text, "and 9990 more") || !strings.Contains(text, "no file has this domain") || len(text) > 4000 {
		t.Errorf("the log has %d bytes: %.4000s", len(text), text)
	}
}

// While Redis fails, a limit that fails closed denies and others pass.
func TestRateLimitOutage(t *testing.T) {
	for policy, want := range map[string]string{"open": "OK: OK", "closed": "OVER: OVER"} {
		client, s, _ := startRLS(t, strings.Replace(envoyShop, "domain: shop\n", "domain: shop\nfailure: "+policy+"\n", 1), func(c *Config) {
			c.Redis = &redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}
		})
		for _, d := range []*ratelimit.RateLimitDescriptor{described("remote_address=a"), withHits(described("remote_address=a"), 0)} {
			resp, err := client.ShouldRateLimit(t.Context(), limitRequest("shop", 1, d))
			if got := codesOf(resp); err != nil || got != want {
				t.Errorf("failure %s, hits %v: %s (%v), want %s", policy, d.GetHitsAddend(), got, err, want)
			}
		}
		if code, _ := admin(t, s, "/readyz"); code != 503 {
			t.Errorf("it is ready: %d", code)
		}
	}
}

// Files of a folder are domains, a change comes into force, and an untrusted peer is refused.
func TestDomains(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	write("shop.yaml", envoyShop)
	write("blog.json", `{"version": 1, "domain": "blog", "routes": {"/a": {"limits": [{"name": "a", "rate": "1/1h", "key": "global"}]}}}`)
	write("web.yml", shop)
	client, s, _ := startRLS(t, "", func(c *Config) { c.Policies, c.Proxy = []string{dir}, "nginx" })
	send := func(domain string, d *ratelimit.RateLimitDescriptor) string {
		t.Helper()
		resp, err := client.ShouldRateLimit(t.Context(), limitRequest(domain, 1, d))
		if err != nil {
			t.Fatal(err)
		}
		return codesOf(resp)
	}
	got := []string{send("blog", described("a=b")), send("blog", described("path=/a")), send("blog", described("path=/a")), send("shop", described("remote_address=a"))}
	if want := []string{"OK: OK", "OK: OK", "OVER: OVER", "OK: OK"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := ask(t, s, get("/a")); got != 200 {
		t.Errorf("forward auth answers %d", got)
	}
	// The limit of all descriptors of a domain begins to hold, while those of routes stay.
	write("blog.json", `{"version": 1, "domain": "blog", "limits": [{"name": "all", "rate": "1/1h", "key": "global"}], "routes": {"/a": {"limits": [{"name": "a", "rate": "1/1h", "key": "global"}]}}}`)
	eventually(t, "the change is in force", func() bool { return send("blog", described("a=b")) == "OVER: OVER" })

	other, _, log := startRLS(t, envoyShop, func(c *Config) { c.Trust = c.Trust[1:] })
	if _, err := other.ShouldRateLimit(context.Background(), limitRequest("shop", 1, described("remote_address=a"))); status.Code(err) != codes.PermissionDenied || !strings.Contains(log.String(), "isn't trusted") {
		t.Errorf("a peer that isn't trusted: %v", err)
	}
	// Its messages aren't read: this one is larger than gRPC reads.
	large := limitRequest(strings.Repeat("x", 5<<20), 1, described("remote_address=a"))
	if _, err := other.ShouldRateLimit(context.Background(), large); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a large message of a peer that isn't trusted: %v", err)
	}
	if _, err := client.ShouldRateLimit(context.Background(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large message of a trusted peer: %v", err)
	}
}

// Files that nothing asks for, and those that contradict each other, don't start.
func TestWrongFiles(t *testing.T) {
	one, two := file(t, shop), file(t, envoyShop)
	for _, tt := range []struct {
		proxy, rls string
		files      []string
		want       string
	}{
		{"nginx", "", []string{two}, "has a domain, which Envoy's rate limit service asks for: give --rls"},
		{"", "127.0.0.1:0", []string{one}, "has no domain, and nothing asks for its limits"},
		{"nginx", "127.0.0.1:0", []string{one}, "--rls needs a file with a domain"},
		{"nginx", "127.0.0.1:0", []string{two}, "--forward-auth needs a file without a domain"},
		{"nginx", "", []string{one, file(t, shop)}, "have no domain: write their limits into one file"},
		{"", "127.0.0.1:0", []string{two, file(t, envoyShop)}, "have the same domain"},
		{"", "127.0.0.1:0", []string{t.TempDir()}, "has no .yaml, .yml or .json"},
		{"nginx", "", []string{os.DevNull}, os.DevNull + " isn't a regular file"},
	} {
		s, log := start(t, shop, nil)
		c := s.config
		c.Policies, c.Proxy, c.RLSAddr = tt.files, tt.proxy, tt.rls
		if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q: %s", err, tt.want, log)
		}
	}
}

// Whatever a descriptor holds: each has an answer, the whole is denied exactly if one is, and a denied request has
// charged nothing.
func FuzzDescriptors(f *testing.F) {
	f.Add("remote_address", "a", "path", "/search", uint64(1))
	f.Add("generic_key", "k", "user", "ada\x00", uint64(0))
	f.Add("path", "//x/../%2f", "method", "GET /", uint64(1<<40))
	p, err := policy.Parse("p.yaml", []byte(envoyShop), policy.WithServer(), Descriptors, policy.WithOptions(hitsCost))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string, hits uint64) {
		l, err := stint.New(p.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		base, err := baseOf(p, l, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := &domain{name: "shop", log: newOccasionally(slog.New(slog.DiscardHandler))}
		d.rules.Store(newRules(p, l, base))
		s := &rateLimits{domains: func() map[string]*domain { return map[string]*domain{"shop": d} }, log: d.log}
		one := withHits(&ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: name, Value: value}, {Key: name2, Value: value2}}}, hits)
		resp, err := s.ShouldRateLimit(t.Context(), limitRequest("shop", 1, one, described("remote_address=other")))
		if err != nil {
			if hits <= 1<<40 {
				t.Fatal(err)
			}
			return
		}
		denied := slices.ContainsFunc(resp.Statuses, func(s *service.RateLimitResponse_DescriptorStatus) bool {
			return s.Code == service.RateLimitResponse_OVER_LIMIT
		})
		if len(resp.Statuses) != 2 || denied != (resp.OverallCode == service.RateLimitResponse_OVER_LIMIT) {
			t.Fatalf("%v", resp)
		}
		if denied && value != "other" && value2 != "other" {
			resp, err := s.ShouldRateLimit(t.Context(), limitRequest("shop", 2, described("remote_address=other")))
			if got := codesOf(resp); err != nil || got != "OK: OK" {
				t.Fatalf("after a denied request: %s (%v)", got, err)
			}
		}
	})
}
