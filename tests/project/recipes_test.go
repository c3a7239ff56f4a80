package project

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store/redisstore"
)

// The blocks of these documents that tests here run are in their code.
func TestRecipesAreThisCode(t *testing.T) {
	code := read(t, "tests/project/recipes_test.go") + read(t, "tests/project/recipes_callers_test.go") +
		read(t, "tests/project/recipes_websocket_test.go") +
		read(t, "tests/project/shutdown_test.go") + read(t, "tests/project/tenants_sql_test.go")
	for _, doc := range []string{"docs/recipes.md", "docs/tenants.md"} {
		for _, block := range blocks(t, doc, "go tests/project") {
			for part := range strings.SplitSeq(block, "\n\n") { // declarations and statements
				if !strings.Contains(code, "\n"+part) && !strings.Contains(code, indent(part)) {
					t.Errorf("%s has code that isn't here:\n%s", doc, part)
				}
			}
		}
	}
}

// get sends a request with fields, in pairs of name and value.
func get(h http.Handler, path string, fields ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

const step = 1 << 20 // bytes by which a charge is raised

// metered charges the bytes of a response before it writes them.
type metered struct {
	http.ResponseWriter
	ctx              context.Context // the request's
	written, charged int64
}

func (w *metered) Write(b []byte) (int, error) {
	if written := w.written + int64(len(b)); written > w.charged {
		if err := stint.FromContext(w.ctx).Extend(w.ctx, written+step); err != nil {
			return 0, err // the quota is used up, or the client has left
		}
		w.charged = written + step
	}
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	return n, err
}

// A download is charged while it runs, and ends when the quota is used up.
func TestDownload(t *testing.T) {
	const perMonth, size = 5 << 20, 3 << 20
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}

	limit := stinthttp.New(
		stint.Quota(perMonth, stint.Monthly, stint.WithName("transfer"), stint.WithFixedCost(step),
			stint.WithSettle(func(_ *http.Request, _ int, written int64) int64 { return written })),
		stint.WithKey(stint.Header("X-Customer")))
	files := http.FileServer(http.Dir(dir))
	downloads := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files.ServeHTTP(&metered{ResponseWriter: w, ctx: r.Context(), charged: step}, r)
	}))

	server := httptest.NewServer(downloads)
	defer server.Close()
	var sizes []int
	for sum := 0; ; {
		r, err := http.NewRequest("GET", server.URL+"/file", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Customer", "a")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			if resp.Header.Get("Retry-After") == "" {
				t.Error("denied without a Retry-After")
			}
			break
		}
		if sizes, sum = append(sizes, len(body)), sum+len(body); sum > perMonth {
			t.Fatalf("%d bytes of a quota of %d", sum, perMonth)
		}
		if cut := len(body) < size; cut != errors.Is(err, io.ErrUnexpectedEOF) || resp.ContentLength != size {
			t.Errorf("%d bytes of %d: %v", len(body), resp.ContentLength, err)
		}
	}
	if len(sizes) < 2 || sizes[0] != size || sizes[1] < step/2 || sizes[1] > perMonth-size {
		t.Errorf("downloads of %d bytes", sizes)
	}
}

// Critical requests get a slot where others don't any more.
func TestSlotsForCriticalRequests(t *testing.T) {
	critical := func(r *http.Request) bool { return r.URL.Path == "/checkout" }
	lim := stint.Must(stint.New(
		stint.Concurrency(100, stint.WithName("all")),
		stint.Concurrency(80, stint.WithName("others"), stint.WithSkip(critical)),
		stint.WithKey(stint.Global())))

	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := stinthttp.Middleware(lim)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		var running sync.WaitGroup
		begin := func(n int, path string) (denied int) {
			codes := make(chan int, n)
			for range n {
				running.Go(func() { codes <- get(h, path).Code })
			}
			synctest.Wait()
			for range len(codes) { // the others run
				if code := <-codes; code != http.StatusServiceUnavailable {
					t.Errorf("%s: %d", path, code)
				}
				denied++
			}
			return denied
		}
		if denied := begin(90, "/search"); denied != 10 {
			t.Errorf("%d of 90 searches are denied, want 10", denied)
		}
		if denied := begin(25, "/checkout"); denied != 5 {
			t.Errorf("%d of 25 checkouts are denied, want 5", denied)
		}
		close(end)
		running.Wait()
	})
}

// A soft limit changes the answer and denies nothing.
func TestSoftLimit(t *testing.T) {
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Minute, stint.WithName("fair"), stint.WithDryRun(true)),
		stint.Rate(1000, time.Minute, stint.WithName("calls")),
		stint.WithKey(stint.Header("X-API-Key"))))
	search := func(w http.ResponseWriter, r *http.Request) {
		results := 50
		if fair, ok := stint.FromContext(r.Context()).Decision().Status("fair"); ok && !fair.Allowed {
			results = 5 // after 100 requests in a minute
		}
		fmt.Fprintln(w, "results:", results)
	}

	synctest.Test(t, func(t *testing.T) {
		h := stinthttp.Middleware(lim)(http.HandlerFunc(search))
		got := map[string]int{}
		for range 1200 {
			w := get(h, "/", "X-API-Key", "a")
			if w.Code != http.StatusOK {
				w.Body = bytes.NewBufferString(fmt.Sprint(w.Code))
			}
			got[strings.TrimSpace(w.Body.String())]++
		}
		if got["results: 50"] != 100 || got["results: 5"] != 900 || got["429"] != 200 {
			t.Errorf("got %v", got)
		}
	})
}

// A request is charged to its user and to the user's organisation, or to neither.
func TestUserAndOrganisation(t *testing.T) {
	user, organisation := stint.Header("X-User"), stint.Header("X-Organisation")

	lim := stint.Must(stint.New(
		stint.Rate(10, time.Minute, stint.WithName("user"), stint.WithKey(user)),
		stint.Rate(25, time.Minute, stint.WithName("organisation"), stint.WithKey(organisation))))

	synctest.Test(t, func(t *testing.T) {
		h := mount(lim)
		var got []int
		var violated []string
		for _, who := range []string{"ann acme", "bob acme", "cid acme", "dan zoo"} {
			name, org, _ := strings.Cut(who, " ")
			passed, last := 0, ""
			for range 12 {
				w := get(h, "/", "X-User", name, "X-Organisation", org)
				if w.Code == http.StatusOK {
					passed++
				} else {
					_, last, _ = strings.Cut(w.Body.String(), `"violated-policies":`)
				}
			}
			got, violated = append(got, passed), append(violated, strings.Trim(last, "[]{}\"\n"))
		}
		if fmt.Sprint(got, violated) != "[10 10 5 10] [user user organisation user]" {
			t.Errorf("passed: %v, denied by %v", got, violated)
		}
	})
}

// A key that is drained has nothing left, and no debt.
func TestDrain(t *testing.T) {
	testDrain(t, stint.Rate(100, time.Minute, stint.WithName("calls")))
	testDrain(t, stint.Rate(100, time.Minute, stint.WithName("calls"), stint.WithAlgorithm(stint.SlidingLog)))
	testDrain(t, stint.Quota(100, stint.Every(time.Minute), stint.WithName("calls")))
}

func testDrain(t *testing.T, limit stint.Limit) {
	lim := stint.Must(stint.New(limit, stint.WithKey(stint.GivenKey()),
		stint.Quota(1000, stint.Daily, stint.WithName("daily"))))

	drain := func(ctx context.Context, key string) error {
		permit, err := lim.Take(ctx, key, 1)
		if errors.Is(err, stint.ErrDenied) {
			return nil // nothing is left
		}
		if err != nil {
			return err
		}
		defer permit.Done()
		calls, _ := permit.Decision().Status("calls")
		return permit.Settle(ctx, 1+calls.Remaining, "calls")
	}

	synctest.Test(t, func(t *testing.T) {
		if err := lim.Allow(t.Context(), "a", 30); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := drain(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			d, err := lim.Peek(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if d.Limits[0].Remaining != 0 || d.Limits[0].ResetAfter > time.Minute || d.Limits[1].Remaining != 969 {
				t.Errorf("%+v", d.Limits)
			}
		}
		var denied *stint.DeniedError
		if err := lim.Allow(t.Context(), "a", 1); !errors.As(err, &denied) || denied.Decision.Limit != "calls" {
			t.Errorf("got %v", err)
		}
		if err := lim.Allow(t.Context(), "b", 1); err != nil {
			t.Error(err)
		}
	})
}

// mailer mails customers who have nearly used up their quota. It is one for each process.
type mailer struct {
	rdb    redis.UniversalClient
	events chan stint.Event
	mail   func(customer string, percent int, left int64) error
}

// observe is called on the goroutines of requests, which must not wait for mails.
func (m *mailer) observe(e stint.Event) {
	if e.Kind == stint.EventNearLimit && !e.Decision.Limits[0].DryRun {
		select {
		case m.events <- e:
		default:
			slog.Warn("too many mails at once", "event", e)
		}
	}
}

func (m *mailer) run(ctx context.Context) {
	for e := range m.events {
		s := e.Decision.Limits[0]
		id := fmt.Sprintf("mailed:%s:%s:%d", s.Name, e.Key(0), e.Percent)
		first, err := m.rdb.SetNX(ctx, id, "", s.ResetAfter).Result() // until the window ends
		if err == nil && first {
			err = m.mail(e.Key(0), e.Percent, s.Remaining)
		}
		if err != nil {
			slog.Warn("no mail", "event", e, "error", err)
		}
	}
}

// Each customer gets one mail for a percentage, although several processes serve them.
func TestMailBeforeQuotaIsUsedUp(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	sent := map[string]int{}
	var mu sync.Mutex
	send := func(customer string, percent int, left int64) error {
		mu.Lock()
		defer mu.Unlock()
		if left > int64(1000-10*percent) || customer == "none" {
			t.Errorf("%s has %d left at %d %%", customer, left, percent)
		}
		sent[fmt.Sprint(customer, " at ", percent)]++
		return nil
	}
	var ends []func()
	var processes []http.Handler
	for range 3 {
		h, end := mailingProcess(t, rdb, send)
		processes, ends = append(processes, h), append(ends, end)
	}
	var all sync.WaitGroup
	for i, h := range processes {
		all.Go(func() {
			for n := range 400 { // 3 times
				get(h, "/", "X-Customer", "a")
				if n < 290 {
					get(h, "/", "X-Customer", "b")
				}
				if n < 200 && i < 2 {
					get(h, "/", "X-Customer", "none")
				}
			}
		})
	}
	all.Wait()
	for _, end := range ends {
		end()
	}
	if want := map[string]int{"a at 80": 1, "a at 95": 1, "b at 80": 1}; !maps.Equal(sent, want) {
		t.Errorf("mails %v, want %v", sent, want)
	}
	for _, id := range []string{"mailed:calls:a:80", "mailed:calls:b:80"} {
		if d := server.TTL(id); d <= 0 || d > 31*24*time.Hour {
			t.Errorf("%s lasts %v", id, d)
		}
	}
}

// mailingProcess starts a process of a fleet. end returns when it has sent its mails.
func mailingProcess(t *testing.T, rdb redis.UniversalClient, send func(string, int, int64) error) (_ http.Handler, end func()) {
	ctx := context.Background()
	shared := redisstore.New(rdb, redisstore.WithTimeout(time.Minute)) // or a slow machine passes requests uncounted

	mails := &mailer{rdb: rdb, events: make(chan stint.Event, 1000), mail: send}
	var sending sync.WaitGroup
	sending.Go(func() { mails.run(ctx) })
	lim, err := stint.New(
		stint.Quota(1000, stint.Monthly, stint.WithName("calls"), stint.WithNearLimit(80, 95)),
		stint.WithKey(stint.Header("X-Customer")),
		stint.WithStore(shared),
		stint.WithObserver(mails.observe))
	if err != nil {
		t.Fatal(err)
	}
	return stinthttp.Middleware(lim)(http.NotFoundHandler()), func() {
		close(mails.events)
		sending.Wait()
	}
}

const chunk = 64 << 10 // bytes

// pacedReader reads at the rate of lim, whose units are bytes. The burst of lim is at least chunk.
type pacedReader struct {
	io.Reader
	ctx context.Context
	lim *stint.Limiter
	key string
}

func (p *pacedReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), chunk)])
	if n > 0 {
		permit, failed := p.lim.Wait(p.ctx, p.key, int64(n))
		if failed != nil {
			return n, failed
		}
		permit.Done()
	}
	return n, err
}

func TestPacedDownload(t *testing.T) { synctest.Test(t, pacedDownload) }

func pacedDownload(t *testing.T) {
	ctx := t.Context()
	resp := &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 3<<20)))}
	file := new(strings.Builder)
	start := time.Now()

	pace := stint.Must(stint.New(
		stint.Rate(1<<20, time.Second, stint.WithBurst(chunk), stint.WithName("download")), // 1 MiB per second
		stint.WithKey(stint.GivenKey())))
	n, err := io.Copy(file, &pacedReader{resp.Body, ctx, pace, "mirror.example.com"})
	if n != 3<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	// The burst comes at once.
	if took := time.Since(start); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
		t.Errorf("3 MiB at 1 MiB/s took %v", took)
	}
}
