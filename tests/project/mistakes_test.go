package project

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// mistake is a line of docs/warnings.md.
type mistake struct {
	id string // of its anchor; that of a warning is its kind
	// made makes the mistake, and returns what the limiter says of it.
	made func(*testing.T) string
	// mended does what the line says to write instead, and returns what the limiter says of that:
	// nothing.
	mended func(*testing.T) string
}

// mistakes are the lines in their order.
var mistakes = []mistake{
	{"client-writes-the-key", rejected(some, stint.WithKey(stint.Header("X-Forwarded-For"))), warned(300, proxied, byForwarded)},
	{"forwarding-header", warned(0, nil, stint.WithKey(stint.Header("X-Real-IP"))),
		warned(300, proxied, stint.WithKey(stint.SingleIPHeader("X-Real-IP", netip.MustParsePrefix("10.0.0.7/32"))))},
	{"untrusted-proxy", warned(300, proxied, byAddress), warned(300, proxied, byForwarded)},
	{"silent-proxy", warned(12_000, silently, byAddress), warned(12_000, func(i int) *http.Request {
		r := silently(i)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i%250))
		return r
	}, stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("127.0.0.1/32"))))},
	{"proxy-exempt", warned(1000, proxied, byForwarded, stint.WithSkip(stint.FromCIDR(netip.MustParsePrefix("10.0.0.0/8")))),
		warned(1000, proxied, byForwarded, stint.WithSkip(stint.FromCIDR(netip.MustParsePrefix("10.1.0.0/16"))))},
	{"port-in-key", warned(300, direct, stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { return r.RemoteAddr, nil }))),
		warned(300, direct, byAddress)},
	{"no-key", rejected(some), warned(300, direct, byAddress)},
	{"empty-key", emptyKey(stint.Header("X-API-Key"), http.StatusForbidden), emptyKey(stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP()), http.StatusOK)},
	{"not-mounted", forgotten(func(*stint.Limiter) {}), forgotten(func(l *stint.Limiter) { stinthttp.Middleware(l) })},
	{"no-pattern", warned(300, direct, stint.WithKey(stint.Pattern())), warned(300, direct, stint.WithKey(stint.MuxPattern(http.NewServeMux())))},
	{"keys-never-repeat", warned(12_000, identified, stint.WithKey(stint.Header("X-Request-ID"))), warned(12_000, identified, stint.WithKey(stint.Header("X-User")))},
	{"one-key", warned(12_000, alike, byAddress), warned(12_000, alike, stint.WithKey(stint.Global()))},
	{"rebuilt", func(*testing.T) string { return rebuilt() }, warned(300, direct, byAddress)},
	{"default-name", rejected(some, byAddress, stint.WithStore(memstore.New())), warned(300, direct, named(1), byAddress, stint.WithStore(memstore.New()))},
	{"name-conflict", twice(named(1), named(2)), twice(named(1), stint.Rate(2, time.Second, stint.WithName("reports")))},
	{"charged-twice", inside(func(*stint.Limiter) (*stint.Limiter, error) { return stint.New(named(1000), byAddress, shared) }),
		inside(func(l *stint.Limiter) (*stint.Limiter, error) {
			return l.With(stint.Rate(500, time.Second, stint.WithName("search")))
		})},
	{"nil-client", rejected(named(1), byAddress, stint.WithStore(redisstore.New((*redis.Client)(nil)))), func(*testing.T) string {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
		defer client.Close()
		return rejected(named(1), byAddress, stint.WithStore(redisstore.New(client)))(nil)
	}},
	{"store-forgets", evicting("allkeys-lru"), evicting("volatile-ttl")},
	{"store-full", warned(1000, direct, stint.Rate(10, time.Hour), byAddress, stint.WithMemory(memstore.WithMaxKeys(8))),
		warned(1000, direct, stint.Rate(10, time.Hour), byAddress, stint.WithMemory(memstore.WithMaxKeys(1000)))},
	{"cost-too-high", costly(5), costly(8)},
	{"limit-too-low", crowded(stint.Rate(10, time.Hour, stint.WithName("page"))), crowded(stint.Rate(10, time.Minute, stint.WithName("page")))},
	{"quota-unreachable", beside(864_000), beside(80_000)},
	{"nothing-waits", warned(0, nil, some, byAddress, classes), warned(0, nil, stint.Concurrency(1, stint.WithMaxWait(time.Second)), byAddress, classes)},
	{"update-drops", updated(named(1)), updated(named(2), stint.Quota(10, stint.Daily, stint.WithName("daily")))},
	{"colon-route", rejected(byAddress, stint.WithRoute("GET /users/:id", some)), rejected(byAddress, stint.WithRoute("GET /users/{id}", some))},
	{"route-missed", stripped("POST /api/login"), stripped("POST /login")},
	{"bare-number", rejected(stint.Rate(100, 60), byAddress), rejected(stint.Rate(100, time.Minute), byAddress)},
}

var (
	some        = stint.Rate(1, time.Second)
	byAddress   = stint.WithKey(stint.RemoteIP())
	byForwarded = stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/24")))
	classes     = stint.WithPriority(func(*http.Request) int { return 1 })
)

func named(n int64) stint.Option { return stint.Rate(n, time.Second, stint.WithName("api")) }

// direct is a request of one of many clients, through another connection than the last.
func direct(i int) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = fmt.Sprintf("198.51.100.%d:%d", i%250, 1025+i%50_000)
	return r
}

// proxied is one through a proxy that writes both fields.
func proxied(i int) *http.Request {
	r := direct(i)
	client, _, _ := strings.Cut(r.RemoteAddr, ":")
	r.RemoteAddr = "10.0.0.7:4711"
	r.Header.Set("X-Forwarded-For", client)
	r.Header.Set("X-Real-IP", client)
	return r
}

// silently is one through a proxy on the same host that writes no field.
func silently(i int) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	r.Header.Set("User-Agent", fmt.Sprint("agent ", i%7))
	return r
}

// identified is one with an ID of its own, of one of many users.
func identified(i int) *http.Request {
	r := direct(i)
	r.Header.Set("X-Request-ID", fmt.Sprint(i))
	r.Header.Set("X-User", fmt.Sprint(i%4000))
	return r
}

// alike is one of the same client each time.
func alike(int) *http.Request { return direct(1) }

// rejected returns what New says of options that it rejects.
func rejected(opts ...stint.Option) func(*testing.T) string {
	return func(*testing.T) string {
		if _, err := stint.New(opts...); err != nil {
			return strings.TrimPrefix(err.Error(), "stint: ")
		}
		return ""
	}
}

// warned returns the warnings of a limiter with these options, once it has had some requests.
func warned(requests int, request func(i int) *http.Request, opts ...stint.Option) func(*testing.T) string {
	return func(t *testing.T) string {
		logged := new(strings.Builder)
		synctest.Test(t, func(t *testing.T) {
			if !slices.ContainsFunc(opts, isLimit) {
				opts = append(opts, stint.Rate(1_000_000, time.Second))
			}
			h := mount(limiter(t, append(opts, logger(logged))...))
			for i := range requests {
				h.ServeHTTP(httptest.NewRecorder(), request(i))
			}
			synctest.Wait() // warnings are logged beside requests
		})
		return said(logged)
	}
}

func isLimit(o stint.Option) bool { _, is := o.(stint.Limit); return is }

// said is the first line that a logger has written.
func said(logged *strings.Builder) string {
	_, text, _ := strings.Cut(logged.String(), `msg="stint: `)
	text, _, _ = strings.Cut(strings.ReplaceAll(text, `\"`, "\x00"), `"`)
	return strings.ReplaceAll(text, "\x00", `"`)
}

// emptyKey returns what a limiter says of a request without X-API-Key.
func emptyKey(key stint.Key, status int) func(*testing.T) string {
	return func(t *testing.T) string {
		logged := new(strings.Builder)
		if w := through(limiter(t, some, stint.WithKey(key), logger(logged))); w.Code != status {
			t.Errorf("status %d, want %d", w.Code, status)
		}
		return said(logged)
	}
}

// twice returns what the second of two limiters says that have these limits on one store.
func twice(first, second stint.Option) func(*testing.T) string {
	return func(t *testing.T) string {
		logged, s := new(strings.Builder), stint.WithStore(memstore.New())
		limiter(t, first, byAddress, s)
		limiter(t, second, byAddress, s, logger(logged))
		return said(logged)
	}
}

var shared = stint.WithStore(memstore.New())

// inside returns what a limiter says that is mounted inside another.
func inside(inner func(*stint.Limiter) (*stint.Limiter, error)) func(*testing.T) string {
	return func(t *testing.T) string {
		l := limiter(t, named(1000), byAddress, shared, logger(new(strings.Builder)))
		in, err := inner(l)
		if err != nil {
			t.Fatal(err)
		}
		stinthttp.Middleware(l)(mount(in)).ServeHTTP(httptest.NewRecorder(), direct(1))
		return described(in)
	}
}

// stripped returns what a limiter with a route says of requests whose prefix is stripped.
func stripped(route string) func(*testing.T) string {
	return warned(10_000, func(int) *http.Request {
		r := httptest.NewRequest("POST", "/api/login", nil)
		r.URL.Path = "/login"
		r.RemoteAddr = "127.0.0.1:4711" // of one client, who tries it
		return r
	}, byAddress, stint.Rate(1_000_000, time.Second), stint.WithRoute(route, stint.Rate(1_000_000, time.Second, stint.WithName("login"))))
}

// forgotten returns what a limiter says an hour after a program has made it.
func forgotten(mount func(*stint.Limiter)) func(*testing.T) string {
	return func(t *testing.T) string {
		logged := new(strings.Builder)
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, some, byAddress, logger(logged))
			mount(l)
			time.Sleep(61 * time.Minute)
			runtime.KeepAlive(l)
		})
		return said(logged)
	}
}

// evicting returns what a limiter says of a Redis with a policy.
func evicting(policy string) func(*testing.T) string {
	return func(t *testing.T) (says string) {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
			defer client.Close()
			asked := &informed{info: "maxmemory:1000000\r\nmaxmemory_policy:" + policy}
			client.AddHook(asked)
			l := limiter(t, named(1), byAddress, stint.WithStore(redisstore.New(client)), logger(new(strings.Builder)))
			synctest.Wait() // a store asks in the background
			if says = described(l); asked.times != 1 {
				t.Errorf("asked %d times", asked.times)
			}
		})
		return says
	}
}

// informed answers INFO in the server's stead.
type informed struct {
	info  string
	times int
}

func (h *informed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *informed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *informed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		info, asked := c.(*redis.StringCmd)
		if !asked {
			return next(ctx, c)
		}
		info.SetVal(h.info)
		h.times++
		return nil
	}
}

// described returns the warnings that Describe lists.
func described(l *stint.Limiter) (all string) {
	for _, w := range l.Describe().Warnings {
		all += w.Text
	}
	return all
}

// costly returns what a limiter says of a request that costs 8, with that burst.
func costly(burst int64) func(*testing.T) string {
	return func(t *testing.T) string {
		l := limiter(t, stint.Rate(10, time.Minute, stint.WithBurst(burst), stint.WithName("calls")), byAddress,
			stint.WithCost(func(*http.Request) int64 { return 8 }), logger(new(strings.Builder)))
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		err := l.Admit(w, r, func(http.ResponseWriter, *http.Request) {})
		if err != nil {
			var denied *stint.DeniedError
			if !errors.As(err, &denied) || denied.Decision.RetryAfter != stint.Never {
				t.Errorf("error %v", err)
			}
			if l.Deny(w, r, err); w.Header().Get("Retry-After") != "" {
				t.Errorf("fields %v", w.Header())
			}
		}
		return described(l)
	}
}

// crowded returns what a limiter with a limit says of clients of whom each asks for three pages in ten minutes.
func crowded(by stint.Limit) func(*testing.T) string {
	return func(t *testing.T) string {
		logged := new(strings.Builder)
		synctest.Test(t, func(t *testing.T) {
			h := mount(limiter(t, by, byAddress, logger(logged)))
			for range 18 {
				for i := range 3 * 250 {
					h.ServeHTTP(httptest.NewRecorder(), direct(i))
				}
				time.Sleep(10 * time.Minute)
			}
		})
		return said(logged)
	}
}

// beside returns what New says of a daily quota of n beside a rate of one a second.
func beside(n int64) func(*testing.T) string {
	return warned(0, nil, stint.Rate(1, time.Second, stint.WithName("calls")), stint.Quota(n, stint.Daily, stint.WithName("daily")), byAddress)
}

// updated returns what a limiter with a rate and a quota says of an Update.
func updated(opts ...stint.Option) func(*testing.T) string {
	return func(t *testing.T) string {
		l := limiter(t, named(1), stint.Quota(10, stint.Daily, stint.WithName("daily")), byAddress, logger(new(strings.Builder)))
		if err := l.Update(append(opts, byAddress)...); err != nil {
			t.Error(err)
		}
		return described(l)
	}
}

// rebuilt is the line, once per process, about handlers that build limiters.
var rebuilt = sync.OnceValue(func() string {
	warned := make(chan string, 1)
	tell := stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWarning {
			warned <- e.Warning.Text
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stint.Must(stint.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()), tell))
	}))
	defer server.Close()
	for range 1000 {
		if resp, err := http.Get(server.URL); err == nil {
			_ = resp.Body.Close()
		}
		runtime.GC() // it counts the limiters that are no longer used
		select {
		case text := <-warned:
			return text
		default:
		}
	}
	return ""
})

// Each mistake in docs/warnings.md makes a limiter say what its line quotes, and what the line
// says to write instead makes it silent. What the limiter says to write, the line has too.
func TestDocumentedMistakes(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| <a id="([^"]+)"></a>(\S*) \| (.*) \| (.*) \| (.*) \|$`).FindAllStringSubmatch(read(t, "docs/warnings.md"), -1)
	code, name := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`stint\.(\w+)`)
	for i, row := range rows {
		id, kind, sees, write := row[1], row[2], row[4], row[5]
		t.Run(id, func(t *testing.T) {
			if kind != "" && kind != id {
				t.Errorf("the line of %s says %s", id, kind)
			}
			if i >= len(mistakes) || mistakes[i].id != id {
				t.Fatal("no test makes this mistake, or in another order")
			}
			got := mistakes[i].made(t)
			rest, quoted := "", false
			for _, m := range code.FindAllStringSubmatch(sees, -1) {
				if after, is := strings.CutPrefix(got, m[1]); is && len(m[1]) > 10 {
					rest, quoted = after, true
				}
			}
			if !quoted {
				t.Errorf("the limiter says\n%q\nand the line\n%s", got, sees)
			}
			for _, m := range name.FindAllStringSubmatch(rest, -1) {
				if !strings.Contains(write, m[1]) {
					t.Errorf("the limiter says to write %s, and the line\n%s", m[0], write)
				}
			}
			if got := mistakes[i].mended(t); got != "" {
				t.Errorf("once mended, the limiter says %q", got)
			}
		})
	}
	if len(rows) != len(mistakes) {
		t.Errorf("%d lines, and %d mistakes are made", len(rows), len(mistakes))
	}
}
