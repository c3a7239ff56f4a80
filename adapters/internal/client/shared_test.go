package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// shares makes a Transport share its pauses by its limiter's store.
func shares(t *Transport) { t.Pauses = t.Limiter.Describe().Store }

// process is a process whose limiter has a store, and the server that it sends requests to.
type process struct {
	*Transport
	*server
}

// newProcess returns a process that shares its pauses by s, and a server of its own that answers with the lines.
func newProcess(t *testing.T, s store.Store, lines ...string) process {
	t.Helper()
	srv := script(lines...)
	return process{transport(paceOf(t, s), srv, shares, retries(0)), srv}
}

// paceOf returns a limiter with a store, whose limit isn't reached.
func paceOf(t *testing.T, s store.Store) *stint.Limiter {
	t.Helper()
	return limiter(t, stint.Rate(100_000, time.Second, stint.WithName("calls")), stint.WithStore(s))
}

// get sends a GET, and returns how long it was held back: the time until the server received it.
func (p process) get(t *testing.T, url string) time.Duration {
	t.Helper()
	return p.send(t, get(url))
}

func (p process) send(t *testing.T, r *http.Request) time.Duration {
	t.Helper()
	began, n := time.Since(p.start), len(p.times())
	resp, err := p.Transport.RoundTrip(r)
	_ = mustRead(t, resp, err)
	return p.times()[n] - began
}

// minutely is a server that allows 60 requests a minute, and says when the next minute begins.
type minutely struct {
	mu             sync.Mutex
	start          time.Time
	minute         time.Duration
	used           int
	passed, denied int
}

func (s *minutely) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	resp := s.answer()
	time.Sleep(5 * time.Millisecond)
	return resp, nil
}

func (s *minutely) answer() *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.start)
	if minute := since.Truncate(time.Minute); minute != s.minute {
		s.minute, s.used = minute, 0
	}
	if s.used == 60 {
		s.denied++
		left := s.minute + time.Minute - since
		return answer(fmt.Sprintf("429 Retry-After: %d", (left+time.Second-1)/time.Second))
	}
	s.used++
	s.passed++
	return answer("200")
}

// Eight processes that share their pauses are denied a fraction as often, and as many of their requests pass.
func TestSharedPauseSavesDenials(t *testing.T) {
	fleet := func(set ...func(*Transport)) (passed, denied int) {
		synctest.Test(t, func(t *testing.T) {
			srv := &minutely{start: time.Now()}
			s := memstore.New()
			var all sync.WaitGroup
			for range 8 {
				rt := transport(paceOf(t, s), srv, set...)
				for range 4 {
					all.Go(func() {
						for time.Since(srv.start) < 10*time.Minute {
							resp, err := rt.RoundTrip(get("https://api.test/"))
							if err != nil {
								t.Error(err)
								return
							}
							if resp.Body != nil {
								_, _ = io.Copy(io.Discard, resp.Body)
								_ = resp.Body.Close()
							}
						}
					})
				}
			}
			all.Wait()
			passed, denied = srv.passed, srv.denied
		})
		return passed, denied
	}
	passed, denied := fleet()
	passedShared, deniedShared := fleet(shares)
	t.Logf("%d passed and %d were denied, %d and %d with shared pauses", passed, denied, passedShared, deniedShared)
	if denied < 80 || deniedShared*3 > denied*2 {
		t.Errorf("%d denials with shared pauses, %d without, want less than two thirds", deniedShared, denied)
	}
	if passedShared*100 < passed*99 {
		t.Errorf("%d requests passed with shared pauses, %d without", passedShared, passed)
	}
}

// If a server asks one process for a pause, all processes hold back their requests to that host. Requests to other
// hosts are sent.
func TestSharedPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
		a.get(t, "https://a.test/")
		time.Sleep(5 * time.Second)
		for _, url := range []string{"http://a.test/", "https://b.test/", "https://a.test:444/"} {
			if after := b.get(t, url); after != 0 {
				t.Errorf("%s was held back for %v by the pause of another host", url, after)
			}
		}
		if after := b.get(t, "https://A.test:443/elsewhere"); !within(after, 15*time.Second) {
			t.Errorf("sent after %v, want the pause's last 15s", after)
		}
	})
}

// A granted response that shows no units left asks for a pause, too.
func TestSharedPauseOfAGrantedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := newProcess(t, s, `200 RateLimit: "p";r=0;t=20`), newProcess(t, s)
		a.get(t, "https://a.test/")
		if after := b.get(t, "https://a.test/"); !within(after, 20*time.Second) {
			t.Errorf("sent after %v, want 20s", after)
		}
	})
}

// Requests to one host that have different keys don't share a pause, nor do requests to two hosts that have the
// same key.
func TestSharedPauseOfADestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
		a.Destination, b.Destination = stint.Header("X-Account"), stint.Header("X-Account")
		of := func(account, url string) *http.Request {
			r := get(url)
			r.Header.Set("X-Account", account)
			return r
		}
		a.send(t, of("ada", "https://a.test/"))
		if after := b.send(t, of("bob", "https://a.test/")); after != 0 {
			t.Errorf("another account was held back for %v", after)
		}
		if after := b.send(t, of("ada", "https://b.test/")); after != 0 {
			t.Errorf("another host was held back for %v", after)
		}
		if after := b.send(t, of("ada", "https://a.test/")); !within(after, 20*time.Second) {
			t.Errorf("sent after %v, want 20s", after)
		}
	})
}

// Two destinations never have the same key in the store, whatever a program calls them.
func TestSharedPauseKeys(t *testing.T) {
	found := map[string]gateKey{}
	for _, to := range []gateKey{
		{"https://a.test", "https://a.test"}, {"https://a.test", "ada"}, {"https://a.test", "14:https://a.test"},
		{"https://a.test", "https://a.test14:https://a.test"}, {"https://a.testa", "da"}, {"https://a.test", "https://b.test"},
		{"https://b.test", "https://a.test"}, {"14:https://a.test14:https", "14:https://a.test14:https"},
	} {
		key, err := pauseKey(to)
		if err != nil {
			t.Fatal(err)
		}
		if other, known := found[key]; known {
			t.Errorf("%v and %v have the key %q", to, other, key)
		}
		found[key] = to
	}
	// One slot of a cluster for both the pause of a host and its charges.
	if key, err := pauseKey(gateKey{"https://a.test", "https://a.test"}); key != "https://a.test" {
		t.Errorf("the key of a host is %q, %v", key, err)
	}
	if key, err := pauseKey(gateKey{"https://a.test", strings.Repeat("x", 4096)}); err == nil {
		t.Errorf("a key of any length makes %q", key)
	}
}

// A pause that ends later extends the one in the store. A pause that ends earlier doesn't shorten it. Either process may
// be asked for the second.
func TestSharedPauseIsExtended(t *testing.T) {
	for _, test := range []struct {
		first, second int // in seconds; the server asks for the second one second after the first
		opens         time.Duration
	}{
		{10, 30, 31 * time.Second},
		{30, 10, 30 * time.Second},
		{30, 29, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			a := newProcess(t, s, fmt.Sprintf("429 Retry-After: %d", test.first))
			b, c := newProcess(t, s), newProcess(t, s)
			b.answer = slowly(time.Second, fmt.Sprintf("429 Retry-After: %d", test.second)) // on its way while a is denied
			began := time.Now()
			var sent sync.WaitGroup
			sent.Go(func() { b.get(t, "https://a.test/") })
			synctest.Wait()
			a.get(t, "https://a.test/")
			sent.Wait()
			for name, p := range map[string]process{"the first": a, "the second": b, "another": c} {
				sent.Go(func() {
					if p.get(t, "https://a.test/"); !within(time.Since(began), test.opens) {
						t.Errorf("pauses of %d s and of %d s: %s process sends after %v, want %v",
							test.first, test.second, name, time.Since(began), test.opens)
					}
				})
			}
			sent.Wait()
		})
	}
}

// A pause that begins while a request waits at the gate for another one holds that request back, too.
func TestSharedPauseExtendsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b, c := newProcess(t, s, "429 Retry-After: 10"), newProcess(t, s), newProcess(t, s)
		b.answer = slowly(9*time.Second, "429 Retry-After: 30")
		began := time.Now()
		var sent sync.WaitGroup
		sent.Go(func() { b.get(t, "https://a.test/") })
		synctest.Wait()
		a.get(t, "https://a.test/")
		if c.get(t, "https://a.test/"); !within(time.Since(began), 39*time.Second) {
			t.Errorf("sent after %v, want 39s", time.Since(began))
		}
		sent.Wait()
	})
}

// A request isn't retried if a longer pause of another process outlasts its deadline.
func TestSharedPauseOutlastsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := newProcess(t, s, "429 Retry-After: 30"), newProcess(t, s)
		b.answer, b.Retries = slowly(time.Second, "429 Retry-After: 10"), 3
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var sent sync.WaitGroup
		sent.Go(func() { b.send(t, get("https://a.test/").WithContext(ctx)) })
		synctest.Wait()
		a.get(t, "https://a.test/")
		sent.Wait()
		if at := b.times(); len(at) != 1 {
			t.Errorf("sent at %v, want no retry", at)
		}
	})
}

// slowly answers the first request with a line after some time, and the others with 200 at once.
func slowly(d time.Duration, line string) func(int, *http.Request) *http.Response {
	return func(n int, _ *http.Request) *http.Response {
		if n > 0 {
			return answer("200")
		}
		time.Sleep(d)
		return answer(line)
	}
}

// The response that asks for a longer pause than WithMaxPause is returned, and no other request is held back. Up to
// WithMaxPause, all are.
func TestSharedPauseUpToMaxPause(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"429 Retry-After: 60": 30 * time.Second, "429 Retry-After: 61": 0, "429 Retry-After: 86400": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			a, b := newProcess(t, s, line), newProcess(t, s)
			a.get(t, "https://a.test/")
			time.Sleep(30 * time.Second) // less than WithMaxPause is left then
			if after := b.get(t, "https://a.test/"); !within(after, want) && (want > 0 || after > 0) {
				t.Errorf("%s: another process sends after %v, want %v", line, after, want)
			}
		})
	}
}

// A process waits for no pause that is longer than its own WithMaxPause, or that its request's deadline doesn't allow.
func TestSharedPauseOfAMorePatientProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b, c := newProcess(t, s, "429 Retry-After: 40"), newProcess(t, s), newProcess(t, s)
		b.MaxPause, c.MaxPause = 10*time.Second, 0
		a.get(t, "https://a.test/")
		for range 2 {
			for _, p := range []process{b, c} {
				if after := p.get(t, "https://a.test/"); after != 0 {
					t.Errorf("held back for %v, with a WithMaxPause of %v", after, p.MaxPause)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		d := newProcess(t, s)
		if after := d.send(t, get("https://a.test/").WithContext(ctx)); after != 0 {
			t.Errorf("held back for %v, beyond its deadline", after)
		}
	})
}

// A transport's own back-off after a denial without a time is its process's: the server hasn't asked for it.
func TestSharedPauseIsAskedFor(t *testing.T) {
	for _, line := range []string{"429", "503", "429 Retry-After: 0", "500 Retry-After: 20", "403"} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			a, b := newProcess(t, s, line), newProcess(t, s)
			a.get(t, "https://a.test/")
			if after := b.get(t, "https://a.test/"); after != 0 {
				t.Errorf("%s: another process was held back for %v", line, after)
			}
		})
	}
}

// banner is a store in memory whose calls may be replaced.
type banner struct {
	storefake.Store
	ban func(ctx context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error)
}

func (b *banner) Ban(ctx context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	return b.ban(ctx, key, d, limits...)
}

func newBanner() *banner {
	m := memstore.New()
	return &banner{storefake.Store{Store: m}, m.Ban}
}

// A pause that the store doesn't take is the process's.
func TestSharedPauseOfAFailingStore(t *testing.T) {
	for name, ban := range map[string]func(context.Context) ([]store.Result, error){
		"it fails":             func(context.Context) ([]store.Result, error) { return nil, storefake.ErrDown },
		"it returns nothing":   func(context.Context) ([]store.Result, error) { return nil, nil },
		"it panics":            func(context.Context) ([]store.Result, error) { panic("a bug") },
		"it ends with its ctx": func(ctx context.Context) ([]store.Result, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newBanner()
			a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
			s.ban = func(ctx context.Context, _ string, _ time.Duration, _ ...*store.Limit) ([]store.Result, error) {
				return ban(ctx)
			}
			if name == "it fails" {
				s.FailWith(storefake.ErrDown)
			}
			began := time.Now()
			a.get(t, "https://a.test/")
			if after := b.get(t, "https://a.test/"); after != 0 {
				t.Errorf("%s: another process was held back for %v", name, after)
			}
			if a.get(t, "https://a.test/"); !within(time.Since(began), 20*time.Second) {
				t.Errorf("%s: the process itself sends after %v, want 20s", name, time.Since(began))
			}
		})
	}
}

// A store that fails only when a process looks for a pause holds no request back.
func TestSharedPauseIsNotFound(t *testing.T) {
	for name, look := range map[string]func(c *storefake.Call) error{
		"it fails":  func(*storefake.Call) error { return storefake.ErrDown },
		"it panics": func(*storefake.Call) error { panic("a bug") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newBanner()
			a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
			a.get(t, "https://a.test/")
			s.OnTake = func(c *storefake.Call) error {
				if c.Charges[0].Limit == pauseLimit {
					return look(c)
				}
				return c.Pass()
			}
			if after := b.get(t, "https://a.test/"); after != 0 {
				t.Errorf("%s: held back for %v", name, after)
			}
			if d, err := b.Limiter.Peek(t.Context(), "https://a.test"); err != nil || d.Remaining != 100_000-2 { // one for each request
				t.Errorf("%s: %d units are left, %v", name, d.Remaining, err)
			}
		})
	}
}

// A request that is canceled when it has been answered still tells the others.
func TestSharedPauseOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBanner()
		inMemory := s.ban
		s.ban = func(ctx context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return inMemory(ctx, key, d, limits...)
		}
		a, b := newProcess(t, s), newProcess(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		a.answer = func(int, *http.Request) *http.Response { cancel(); return answer("429 Retry-After: 20") }
		a.send(t, get("https://a.test/").WithContext(ctx))
		if after := b.get(t, "https://a.test/"); !within(after, 20*time.Second) {
			t.Errorf("another process sends after %v, want 20s", after)
		}
	})
}

// Without a limiter there is no store.
func TestSharedPauseWithoutALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 20")
		p := process{transport(nil, srv, retries(0)), srv}
		p.get(t, "https://a.test/")
		if after := p.get(t, "https://a.test/"); !within(after, 20*time.Second) {
			t.Errorf("sent after %v, want 20s", after)
		}
	})
}

// The store's clock decides when a pause ends: a process that has just learned of it waits for what the store says is
// left, however long ago the pause was asked for by another clock.
func TestSharedPauseByTheStoresClock(t *testing.T) {
	for _, ahead := range []time.Duration{-5 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newBanner()
			var inStep atomic.Bool
			s.OnTake = func(c *storefake.Call) error {
				err := c.Pass()
				if c.Charges[0].Limit == pauseLimit && c.Results[0].RetryAfter > 0 && !inStep.Load() {
					c.Results[0].RetryAfter -= ahead // of this process's clock
				}
				return err
			}
			a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
			a.get(t, "https://a.test/")
			time.Sleep(10 * time.Second)
			began := time.Now()
			var sent sync.WaitGroup
			sent.Go(func() { b.get(t, "https://a.test/") })
			synctest.Wait()
			if opens := b.gates.opening(gateKey{"https://a.test", "https://a.test"}).Sub(began); opens != 10*time.Second-ahead {
				t.Errorf("the gate opens after %v, want %v", opens, 10*time.Second-ahead)
			}
			inStep.Store(true)
			sent.Wait()
		})
	}
}

// The requests of a process that has learned of a pause go on by one, two, four, and so on, as if its own request had
// been denied. Looking for the pause again doesn't put them at the end of the queue.
func TestSharedPauseOpensGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 64
		s := memstore.New()
		a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
		a.get(t, "https://a.test/")
		var sent sync.WaitGroup
		for i := range callers {
			sent.Go(func() {
				time.Sleep(time.Duration(i) * 37_100_123) // each looks for the pause at an instant of its own
				b.get(t, "https://a.test/")
			})
		}
		sent.Wait()
		early, last := 0, time.Duration(0)
		for _, at := range b.times() {
			if at < 20*time.Second {
				t.Fatalf("sent %v early", 20*time.Second-at)
			}
			if at -= 20 * time.Second; at < maxStep {
				early++
			}
			last = max(last, at)
		}
		if early > 3 || last < 5*maxStep || last > 8*maxStep {
			t.Errorf("%d of %d requests are sent in the first step, the last after %v", early, callers, last)
		}
	})
}

// A request costs one look in the store, which leaves nothing there. It costs none without WithSharedPause, or if
// requests never pause.
func TestSharedPauseCalls(t *testing.T) {
	for _, test := range []struct {
		set   []func(*Transport)
		looks int
	}{
		{nil, 0},
		{[]func(*Transport){shares}, 1},
		{[]func(*Transport){shares, maxWait(0)}, 0},
	} {
		m := memstore.New()
		s := &banner{storefake.Store{Store: m}, func(context.Context, string, time.Duration, ...*store.Limit) ([]store.Result, error) {
			t.Error("nothing asked for a pause")
			return nil, nil
		}}
		srv := script()
		p := process{transport(paceOf(t, s), srv, test.set...), srv}
		const requests = 100
		for i := range requests {
			p.get(t, fmt.Sprintf("https://%d.test/", i))
		}
		if takes, settles := s.Counts(); takes != (1+test.looks)*requests || settles != 0 {
			t.Errorf("%d Takes and %d Settles of %d requests, want %d", takes, settles, requests, (1+test.looks)*requests)
		}
		if keys := m.Stats().Keys; keys > requests { // the limiter's own
			t.Errorf("%d keys of %d hosts", keys, requests)
		}
	}
}

// The pause is none of the limiter's bans, and denies nothing but the requests of Transports: the limiter's own calls
// for the same key pass, its Bans count nothing, and a Reset of the key leaves it alone.
func TestSharedPauseIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		a, b := newProcess(t, s, "429 Retry-After: 20"), newProcess(t, s)
		lim := limiter(t, stint.Rate(100, time.Second, stint.WithName("rate")), stint.WithStore(s),
			stint.Ban(1, time.Minute, stint.WithBanFor(time.Minute), stint.WithName("ban")))
		a.Limiter, b.Limiter = lim, lim
		a.get(t, "https://a.test/")
		if err := lim.Allow(t.Context(), "https://a.test", 1); err != nil {
			t.Errorf("the limiter denies the host: %v", err)
		}
		if d, err := lim.Peek(t.Context(), "https://a.test"); err != nil || !d.Allowed || len(d.Limits) != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		if _, err := lim.Reset(t.Context(), "https://a.test"); err != nil {
			t.Error(err)
		}
		if after := b.get(t, "https://a.test/"); !within(after, 20*time.Second) {
			t.Errorf("sent after %v, want 20s", after)
		}
	})
}
