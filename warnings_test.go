package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// from is a request from an address, with header fields as name, value, ….
func from(addr string, fields ...string) *http.Request {
	r := &http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Header: http.Header{}, RemoteAddr: addr}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

// address is the i-th of many.
func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// client is a request from one of many addresses.
func client(i int) *http.Request { return from(address(i%5000) + ":4711") }

// bearer is a request with one of so many API keys.
func bearer(i, of int) *http.Request {
	return from("198.51.100.1:4711", "X-API-Key", strconv.Itoa(i%of))
}

func patterned(pattern string) *http.Request {
	r := client(0)
	r.Pattern = pattern
	return r
}

var (
	proxies     = netip.MustParsePrefix("10.0.0.0/24")
	proxiesElse = netip.MustParsePrefix("10.9.0.0/24")
)

// behind is a request of one of many clients through a proxy.
func behind(i int) *http.Request {
	return from("10.0.0.7:4711", "X-Forwarded-For", "198.51."+strconv.Itoa(i/250%250)+"."+strconv.Itoa(i%250))
}

// lacking returns a request of a client, of which one in n has an API key.
func lacking(i, n int) *http.Request {
	r := client(i)
	if i%n == 0 {
		r.Header.Set("X-API-Key", strconv.Itoa(i%7))
	}
	return r
}

func remoteAddr(r *http.Request) (string, error) { return r.RemoteAddr, nil }

var warningCases = []struct {
	name     string
	key      stint.Key
	request  func(i int) *http.Request // nil: New alone
	most     int                       // requests; 0: until the key source is no longer looked at
	warnings []string
}{
	{"a forwarding header", stint.Header("X-Real-IP"), nil, 0, []string{"forwarding-header"}},
	{"one joined", stint.Join(stint.Pattern(), stint.Header("cf-connecting-ip")), nil, 0, []string{"forwarding-header"}},
	{"one hashed", stint.Hash(make([]byte, 32), stint.FirstOf(stint.Header("X-API-Key"), stint.Header("True-Client-IP"))), nil, 0, []string{"forwarding-header"}},
	{"one that is checked", stint.HeaderIP("X-Real-IP", netip.MustParsePrefix("192.0.2.0/24")), nil, 0, nil},
	{"a header of the application", stint.Header("X-API-Key"), nil, 0, nil},
	{"a header that nearly all lack", stint.Header("X-API-Key"), func(i int) *http.Request { return lacking(i, 10) }, 300, []string{"no-key"}},
	{"a header that most lack", stint.Header("X-API-Key"), func(i int) *http.Request { return lacking(i, 9) }, 300, nil},
	{"a header that nearly all lack, soon", stint.Header("X-API-Key"), func(i int) *http.Request { return lacking(i, 10) }, 99, nil},
	{"a user that no authentication has set", stint.KeyFunc(func(r *http.Request) (string, error) {
		user, _ := r.Context().Value("user").(string)
		return user, nil
	}), client, 300, []string{"no-key"}},
	{"a header that nearly all lack, or an address", stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP()), func(i int) *http.Request { return lacking(i, 10) }, 300, nil},

	{"the caller's port", stint.KeyFunc(remoteAddr), client, 1, []string{"port-in-key"}},
	{"the caller's port, joined", stint.Join(stint.Header("X-API-Key"), stint.KeyFunc(remoteAddr)),
		func(i int) *http.Request { return bearer(i, 3) }, 300, []string{"port-in-key"}},
	{"the caller's address by hand, where a middleware wrote it", stint.KeyFunc(remoteAddr),
		func(i int) *http.Request { return from("2001:db8::" + strconv.Itoa(i%9)) }, 0, nil},
	{"the caller's address", stint.RemoteIP(), client, 0, nil},

	{"a proxy, and RemoteIP", stint.RemoteIP(), behind, 300, []string{"untrusted-proxy"}},
	{"a proxy, and RemoteIP, to the end", stint.RemoteIP(), behind, 0, []string{"untrusted-proxy"}},
	{"a proxy, and RemoteIP without a credential", stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP()), behind, 300, []string{"untrusted-proxy"}},
	{"a proxy, and a credential or else RemoteIP", stint.FirstOf(stint.Header("X-API-Key"), stint.RemoteIP()),
		func(i int) *http.Request { r := behind(i); r.Header.Set("X-API-Key", strconv.Itoa(i%7)); return r }, 0, nil},
	{"a proxy, and RemoteIP by hand", stint.KeyFunc(func(r *http.Request) (string, error) { return stint.RemoteIP().Of(r) }), behind, 300, []string{"untrusted-proxy"}},
	{"a proxy, and others trusted", stint.ForwardedIP(proxiesElse), behind, 300, []string{"untrusted-proxy"}},
	{"a proxy, and RemoteIP joined", stint.Join(stint.RemoteIP(), stint.Method()), behind, 300, []string{"untrusted-proxy"}},
	{"a proxy on a Unix socket", stint.RemoteIP(),
		func(i int) *http.Request { return from("@", "Forwarded", "for="+address(i)) }, 300, []string{"untrusted-proxy"}},
	{"a proxy whose address begins as its clients' do", stint.RemoteIP(),
		func(i int) *http.Request {
			return from("10.0.0.1:4711", "X-Forwarded-For", "10.0.0.1"+strconv.Itoa(i%10)+", 110.0.0.1")
		}, 300, []string{"untrusted-proxy"}},
	{"a proxy that names itself", stint.RemoteIP(),
		func(i int) *http.Request {
			return from("10.0.0.7:4711", "Forwarded", "for="+address(i)+";by=10.0.0.7")
		}, 300, []string{"untrusted-proxy"}},
	{"a key joined of a text that begins with the proxy's address", stint.Join(stint.KeyFunc(func(r *http.Request) (string, error) { return "10.0.0.7-and-more!", nil }), stint.ForwardedIP(proxies)), behind, 300, nil},
	{"a proxy that is trusted", stint.ForwardedIP(proxies), behind, 0, nil},
	{"a proxy, and a credential", stint.Header("X-API-Key"),
		func(i int) *http.Request { r := behind(i); r.Header.Set("X-API-Key", strconv.Itoa(i%7)); return r }, 0, nil},
	{"a proxy of some clients", stint.RemoteIP(), func(i int) *http.Request {
		if i%4 == 0 {
			return behind(i)
		}
		return client(i)
	}, 0, nil},
	{"a proxy that a middleware knows", stint.RemoteIP(), func(i int) *http.Request {
		r := behind(i)
		r.RemoteAddr = r.Header.Get("X-Forwarded-For")
		return r
	}, 0, nil},

	{"a proxy that a middleware knows, by one of two fields", stint.RemoteIP(), func(i int) *http.Request {
		r := behind(i)
		r.Header.Set("X-Real-Ip", "2001:DB8:"+strconv.Itoa(i%9)+":0::7")
		r.RemoteAddr = "[2001:db8:" + strconv.Itoa(i%9) + "::7]:4711"
		return r
	}, 0, nil},
	{"a proxy that a middleware knows, by Forwarded", stint.RemoteIP(), func(i int) *http.Request {
		return from("198.51.100."+strconv.Itoa(i%200), "Forwarded", `proto=http;for="198.51.100.`+strconv.Itoa(i%200)+`:80", for=10.0.0.7`)
	}, 0, nil},

	{"a proxy behind one that is trusted", stint.ForwardedIP(proxies), func(i int) *http.Request {
		return from("10.0.0.7:4711", "X-Forwarded-For", address(i)+", 203.0.113."+strconv.Itoa(i%9))
	}, 300, []string{"untrusted-proxy"}},
	{"two proxies that are trusted", stint.ForwardedIP(proxies, proxiesElse), func(i int) *http.Request {
		return from("10.0.0.7:4711", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d, 10.9.0.%d", i%200, i%9))
	}, 0, nil},
	{"some clients that forge a field", stint.ForwardedIP(proxies), func(i int) *http.Request {
		r := behind(i)
		if i%2 == 0 {
			r.Header.Set("X-Forwarded-For", "192.0.2.1, "+r.Header.Get("X-Forwarded-For"))
		}
		return r
	}, 0, nil},

	{"a proxy that names nobody", stint.ForwardedIP(proxies), func(i int) *http.Request {
		return from("10.0.0.7:4711", "User-Agent", "agent "+strconv.Itoa(i%5))
	}, 0, []string{"one-key"}},
	{"a trusted proxy that often names nobody", stint.ForwardedIP(proxies), func(i int) *http.Request {
		if i%4 == 0 {
			return behind(i)
		}
		return from("10.0.0.7:4711")
	}, 0, nil},
	{"a credential through a proxy that names nobody", stint.Header("X-API-Key"), func(i int) *http.Request {
		return from("127.0.0.1:4711", "X-API-Key", strconv.Itoa(i%7))
	}, 0, nil},

	{"no pattern", stint.Pattern(), client, 0, []string{"one-key"}},
	{"no pattern, joined", stint.Join(stint.RemoteIP(), stint.Pattern()), client, 0, nil},
	{"one pattern", stint.Pattern(), func(int) *http.Request { return patterned("GET /") }, 0, nil},
	{"no pattern now and then", stint.Pattern(), func(i int) *http.Request {
		if i%5 == 0 {
			return patterned("GET /")
		}
		return client(i)
	}, 0, nil},
	{"what a mux doesn't match", stint.MuxPattern(http.NewServeMux()), client, 0, nil},

	{"a new key each time", stint.Header("X-Request-ID"),
		func(i int) *http.Request { return from("192.0.2.9:1", "X-Request-ID", strconv.Itoa(i)) }, 0, []string{"keys-never-repeat"}},
	{"a new key each time, by a function", stint.KeyFunc(func(r *http.Request) (string, error) {
		if id := r.Header.Get("X-Request-ID"); id != "" {
			return id, nil
		}
		return "", errors.New("no id")
	}), func(i int) *http.Request { return from("192.0.2.9:1", "X-Request-ID", strconv.Itoa(i)) }, 0, []string{"keys-never-repeat"}},
	{"many credentials", stint.Header("X-API-Key"), func(i int) *http.Request { return bearer(i, 4000) }, 0, nil},
	{"credentials, each twice", stint.Header("X-API-Key"), func(i int) *http.Request { return bearer(i/2, 1_000_000) }, 0, nil},
	{"new clients only", stint.RemoteIP(), func(i int) *http.Request { return from(address(i) + ":4711") }, 0, nil},
	{"a new key each time, by method", stint.Join(stint.Method(), stint.Header("X-Request-ID")),
		func(i int) *http.Request { return from("192.0.2.9:1", "X-Request-ID", strconv.Itoa(i)) }, 0, []string{"keys-never-repeat"}},
	{"new clients only, hashed", stint.Hash(make([]byte, 32), stint.RemoteIP()), func(i int) *http.Request { return from(address(i) + ":4711") }, 0, nil},

	{"one address", stint.RemoteIP(), func(int) *http.Request { return client(1) }, 0, []string{"one-key"}},
	{"one address, of nearly all", stint.RemoteIP(), func(i int) *http.Request {
		if i%200 == 0 {
			return client(i)
		}
		return client(1)
	}, 0, []string{"one-key"}},
	{"one address, of most", stint.RemoteIP(), func(i int) *http.Request {
		if i%30 == 0 {
			return client(i)
		}
		return client(1)
	}, 0, nil},
	{"few addresses, one after the other", stint.RemoteIP(), func(i int) *http.Request { return client(i / 2000) }, 0, nil},
	{"one cookie", stint.Cookie("session"), func(int) *http.Request { return from("198.51.100.1:4711", "Cookie", "session=1") }, 0, []string{"one-key"}},
	{"one credential", stint.Header("X-API-Key"), func(i int) *http.Request { return bearer(i, 1) }, 0, []string{"one-key"}},
	{"two credentials", stint.Header("X-API-Key"), func(i int) *http.Request { return bearer(i, 2) }, 0, nil},
	{"one address by hand", stint.KeyFunc(func(r *http.Request) (string, error) {
		host, _, _ := strings.Cut(r.RemoteAddr, ":")
		return "ip " + host, nil
	}), func(int) *http.Request { return client(1) }, 0, []string{"one-key"}},
	{"one method", stint.Method(), client, 0, nil},
	{"no user, as a text", stint.KeyFunc(func(r *http.Request) (string, error) { return fmt.Sprint(r.Context().Value("user")), nil }), client, 0,
		[]string{"one-key"}},
	{"no user, of some", stint.KeyFunc(func(r *http.Request) (string, error) {
		if r.RemoteAddr[len(r.RemoteAddr)-6]%2 == 0 {
			return "<nil>", nil
		}
		return "user " + r.RemoteAddr[:8], nil
	}), client, 0, nil},
	{"all", stint.Global(), client, 300, nil},
	{"one address, not for long", stint.RemoteIP(), func(int) *http.Request { return client(1) }, 5000, nil},
}

// watch sends requests: as many as that, or until the limiter no longer looks at them.
func watch(t *testing.T, l *stint.Limiter, request func(int) *http.Request, most int) {
	t.Helper()
	if request == nil {
		return
	}
	w := httptest.NewRecorder()
	for i := 0; i < most || most == 0 && l.Watched(); i++ {
		if i > 11_000 {
			t.Fatal("requests are still looked at")
		}
		p, err := l.Open(w, request(i))
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		if i%500 == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
}

// Each warning is found, logged once, told and described; nothing like it is. A
// limiter that doesn't warn of it says nothing.
func TestWarnings(t *testing.T) {
	oneGoroutine(t)
	for _, tt := range warningCases {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				h := newLogged(slog.LevelInfo)
				opts := []stint.Option{
					stint.Rate(1_000_000, time.Second, stint.WithName("calls")), stint.WithKey(tt.key), stint.WithEmptyKey(stint.SkipEmptyKey),
					stint.WithLimiterName("front"), h.with(),
					stint.WithObserver(func(e stint.Event) {
						if e.Kind == stint.EventWarning {
							told = append(told, e.Warning.Kind)
						}
					}),
				}
				l := limiter(t, opts...)
				watch(t, l, tt.request, tt.most)
				if err := l.Update(opts...); err != nil {
					t.Fatal(err)
				}
				if _, err := l.With(stint.Rate(5, time.Second)); err != nil {
					t.Fatal(err)
				}
				var want, described []string
				lines := h.lines(t)
				for i, k := range tt.warnings {
					want = append(want, k)
					if i < len(lines) {
						if got := fmt.Sprint(lines[i]["level"], lines[i]["limiter"], lines[i]["limit"], lines[i]["warning"]); got != "WARNfrontcalls"+k {
							t.Errorf("logged %v", lines[i])
						}
					}
				}
				for _, w := range l.Describe().Warnings {
					described = append(described, w.Kind)
					if !slices.Equal(w.Limits, []string{"calls"}) || w.Text == "" || !strings.HasSuffix(w.Link, "#"+w.Kind) {
						t.Errorf("described %+v", w)
					}
				}
				if len(lines) != len(want) || !slices.Equal(told, want) || !slices.Equal(described, want) {
					t.Errorf("logged %d, told %v, described %v, want %v", len(lines), told, described, want)
				}

				told = nil
				opts[1] = stint.WithKey(tt.key)
				l = limiter(t, append(opts, stint.WithoutWarnings(tt.warnings...))...)
				if watch(t, l, tt.request, min(tt.most, 300)); len(tt.warnings) == 0 && l.Watched() {
					t.Error("requests are looked at for nothing")
				}
				if told != nil || len(h.lines(t)) > 0 || len(l.Describe().Warnings) > 0 {
					t.Errorf("it warns of %v all the same", told)
				}
			})
		})
	}
}

// The key of a source is looked at, too, once for each request, even if its limits have the same key.
func TestWarningsOfSources(t *testing.T) {
	oneGoroutine(t)
	source := func(_ context.Context, key string, _ stint.LimitUser) ([]stint.Limit, error) {
		if key == "" {
			return nil, payUp{}
		}
		return calls, nil
	}
	header, forged := stint.Header("X-API-Key"), stint.Header("X-Real-IP")
	for _, tt := range []struct {
		name     string
		key      stint.Key // of the source
		limits   stint.Key
		own      []stint.Option
		request  func(int) *http.Request
		most     int
		warnings []string
	}{
		{"nobody has a key", header, stint.Global(), nil, client, 100, []string{"no-key"}},
		{"nobody has a key, soon", header, stint.Global(), nil, client, 99, nil},
		{"nobody has a key, which limits have, too", header, header, nil, client, 100, []string{"no-key"}},
		{"nearly all lack it", header, header, nil, func(i int) *http.Request { return lacking(i, 10) }, 100, []string{"no-key"}},
		{"most lack it", header, header, nil, func(i int) *http.Request { return lacking(i, 9) }, 100, nil},
		{"most lack it, and another limit's", header, header, []stint.Option{stint.Rate(1_000_000, time.Second, stint.WithName("own"), stint.WithEmptyKey(stint.SkipEmptyKey))},
			func(i int) *http.Request { return lacking(i, 9) }, 100, nil},
		{"a new key each time", header, header, nil, func(i int) *http.Request { return bearer(i, 1_000_000) }, 0, []string{"keys-never-repeat"}},
		{"keys, each twice", header, header, nil, func(i int) *http.Request { return bearer(i/2, 1_000_000) }, 0, nil},
		{"a forged address", forged, stint.Global(), nil, nil, 0, []string{"forwarding-header"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			h := newLogged(slog.LevelWarn)
			l := limiter(t, append(tt.own, stint.WithKey(tt.limits), stint.WithLimitSource(tt.key, source), h.with(), stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventWarning {
					told = append(told, e.Warning.Kind)
				}
			}))...)
			for i := 0; tt.request != nil && (i < tt.most || tt.most == 0 && l.Watched()); i++ {
				l.Serve(httptest.NewRecorder(), tt.request(i), func(http.ResponseWriter, *http.Request) {})
				if i%500 == 0 {
					synctest.Wait()
				}
			}
			synctest.Wait()
			if lines := h.lines(t); !slices.Equal(told, tt.warnings) || len(lines) != len(tt.warnings) {
				t.Errorf("%s: told %v, logged %v, want %v", tt.name, told, lines, tt.warnings)
			}
			if err := l.Update(stint.WithLimitSource(tt.key, source)); err != nil {
				t.Fatal(err)
			}
			if got := len(l.Describe().Warnings); got != len(tt.warnings) {
				t.Errorf("%s: %d warnings after an Update, want %d", tt.name, got, len(tt.warnings))
			}
		})
	}
}

var calls = []stint.Limit{stint.Rate(1_000_000, time.Second, stint.WithName("calls"))}

// A warning is about the options there are. Of another Update's it comes again where it
// isn't about the same limits.
func TestWarningsFollowUpdate(t *testing.T) {
	h := newLogged(slog.LevelWarn)
	options := func(name string, key stint.Key) []stint.Option {
		return []stint.Option{stint.Rate(1, time.Second, stint.WithName(name)), stint.WithKey(key), h.with(), stint.WithoutWarnings("update-drops")}
	}
	forged := stint.Header("X-Client-IP")
	l := limiter(t, options("a", forged)...)
	for _, step := range []struct {
		what, name string
		key        stint.Key
		logged     int
		described  int
	}{
		{"another key source", "a", stint.Header("x-client-ip"), 0, 1},
		{"put right", "a", stint.RemoteIP(), 0, 0},
		{"wrong again", "a", forged, 0, 1},
		{"of another limit", "b", forged, 1, 1},
	} {
		h.out.Reset()
		if err := l.Update(options(step.name, step.key)...); err != nil {
			t.Fatal(err)
		}
		if logged, described := len(h.lines(t)), len(l.Describe().Warnings); logged != step.logged || described != step.described {
			t.Errorf("%s: logged %d, described %d, want %d and %d", step.what, logged, described, step.logged, step.described)
		}
	}
}

// There is room for warnings about what is wrong now, however much was wrong before. What
// stays wrong is still described.
func TestWarningsHaveRoom(t *testing.T) {
	const updates = 200
	given := 0
	observed := stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWarning {
			given++
		}
	})
	var all, described []string
	l := limiter(t, everybody, stint.Rate(1, time.Second), stint.WithoutWarnings("update-drops"))
	for i := range updates {
		all = []string{"stays", "limit" + strconv.Itoa(i)}
		err := l.Update(observed, stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings("update-drops"),
			stint.Rate(1, time.Second, stint.WithName(all[0]), stint.WithKey(stint.Header("X-Client-IP"))),
			stint.WithRoute("/", stint.Rate(1, time.Second, stint.WithName(all[1]), stint.WithKey(stint.Header("X-Real-IP")))))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range l.Describe().Warnings {
		described = append(described, w.Limits...)
	}
	if !slices.Equal(described, all) {
		t.Errorf("described %q, want %q", described, all)
	}
	if given != updates+1 {
		t.Errorf("%d warnings given, want each of %d once", given, updates+1)
	}
	if n := l.Warnings(); n > 100 {
		t.Errorf("%d warnings are kept, want at most 100", n)
	}
}

// The options in force are looked at, however many were replaced before they had seen
// enough.
func TestWarningsAfterManyUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := func() []stint.Option {
			return []stint.Option{stint.Rate(1_000_000, time.Second), stint.WithKey(stint.Header("X-API-Key")), newLogged(0).with()}
		}
		sent := 0
		never := func(int) *http.Request { sent++; return bearer(sent, 1_000_000) }
		l := limiter(t, options()...)
		for range 40 {
			watch(t, l, never, 200)
			if err := l.Update(options()...); err != nil {
				t.Fatal(err)
			}
		}
		watch(t, l, never, 0)
		if all := l.Describe().Warnings; len(all) != 1 || all[0].Kind != "keys-never-repeat" {
			t.Errorf("described %+v, want keys-never-repeat", all)
		}
	})
}

// Requests are looked at by many goroutines, none of which waits for it.
func TestWarningsConcurrently(t *testing.T) {
	l := limiter(t, stint.Rate(1_000_000, time.Second), stint.WithKey(stint.Header("X-API-Key")), newLogged(slog.LevelInfo).with())
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := 0; l.Watched() && i < 100_000; i++ { // one that meets another isn't counted
				through(l, bearer(g*1_000_000+i, 1<<30), nil)
			}
		})
	}
	all.Wait()
	if l.Watched() {
		t.Error("requests are still looked at")
	}
	eventually(t, func() bool { return len(l.Describe().Warnings) == 1 })
}

func TestWarningsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("-race allocates")
	}
	for _, k := range []stint.Key{stint.RemoteIP(), stint.Header("X-API-Key"), stint.KeyFunc(remoteAddr)} {
		r := behind(1)
		r.Header.Set("X-API-Key", "ours")
		w := httptest.NewRecorder()
		per := func(opts ...stint.Option) float64 {
			l := limiter(t, append(opts, stint.Rate(1_000_000, time.Second), stint.WithKey(k), stint.WithoutPermit(), stint.WithHeaders(stint.NoHeaders), newLogged(slog.LevelInfo).with())...)
			return testing.AllocsPerRun(1000, func() {
				p, _ := l.Open(w, r)
				p.Done()
			})
		}
		if with, without := per(), per(stint.WithoutWarnings()); with != without {
			t.Errorf("%v allocations a request, %v where nothing is looked for", with, without)
		}
	}
}

func TestWithoutWarningsOfNoKind(t *testing.T) {
	_, err := stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings("", "one-key", "OneKey"))
	const known = "use cost-too-high, forwarding-header, keys-never-repeat, name-conflict, no-key, nothing-waits, one-key, port-in-key, " +
		"quota-unreachable, rebuilt, store-forgets, store-full, untrusted-proxy or update-drops"
	if err == nil || !strings.Contains(err.Error(), `WithoutWarnings("OneKey"): `+known) || !strings.Contains(err.Error(), `WithoutWarnings("")`) ||
		strings.Contains(err.Error(), `WithoutWarnings("one-key")`) {
		t.Errorf("error %v", err)
	}
}

// A program that calls New or With for each request is warned once.
func TestRebuilt(t *testing.T) {
	for _, tt := range []struct {
		mode string
		n    int
		want int
	}{{"new", 999, 0}, {"new", 3000, 1}, {"with", 999, 0}, {"with", 3000, 1}, {"ignored", 3000, 0}} {
		t.Run(fmt.Sprint(tt.mode, " ", tt.n), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestRebuilding$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("STINT_REBUILDING=%s %d", tt.mode, tt.n))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := strings.Count(string(out), "rebuilt"); got != tt.want {
				t.Errorf("%d warnings, want %d:\n%s", got, tt.want, out)
			}
		})
	}
}

// TestRebuilding is the process of TestRebuilt.
func TestRebuilding(t *testing.T) {
	mode, times, ok := strings.Cut(os.Getenv("STINT_REBUILDING"), " ")
	if !ok {
		t.Skip("see TestRebuilt")
	}
	n, err := strconv.Atoi(times)
	if err != nil {
		t.Fatal(err)
	}
	stint.CountNew()
	opts := []stint.Option{stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWarning {
			fmt.Println("warning:", e.Warning.Kind, e.Warning.Text)
		}
	})}
	build := stint.New
	switch mode {
	case "with":
		build = limiter(t, everybody, stint.Rate(1, time.Second)).With
	case "ignored":
		opts = append(opts, stint.WithoutWarnings("rebuilt"))
	}
	for range n {
		if _, err := build(opts...); err != nil {
			t.Fatal(err)
		}
	}
}

// A cost that a limit never lets pass is found by the first request, and named with what the
// limit lets pass. An Update that mends it ends the warning.
func TestWarningOfACostTooHigh(t *testing.T) {
	rate := func(burst int64) []stint.Option {
		return []stint.Option{stint.WithKey(stint.RemoteIP()), stint.WithCost(func(*http.Request) int64 { return 20 }),
			stint.Rate(100, time.Minute, stint.WithBurst(burst), stint.WithName("calls"))}
	}
	h := newLogged(slog.LevelInfo)
	l := limiter(t, append(rate(10), h.with())...)
	for range 3 {
		through(l, client(1), nil)
	}
	if err := l.Allow(t.Context(), "k", 30); err == nil {
		t.Error("30 pass at once, with a burst of 10")
	}
	var found []string
	for _, line := range h.lines(t) {
		if line["warning"] != nil {
			found = append(found, fmt.Sprint(line["msg"], line["limit"], line["warning"]))
		}
	}
	want := `stint: a request costs 20, but limit "calls" never admits more than 10: lower the cost, or raise the limit, such as by stint.WithBurst(20)calls` + "cost-too-high"
	if len(found) != 1 || found[0] != want {
		t.Errorf("logged %q, want %q", found, want)
	}
	if all := l.Describe().Warnings; len(all) != 1 || all[0].Kind != "cost-too-high" || !strings.HasSuffix(all[0].Link, "#cost-too-high") {
		t.Errorf("described %+v", all)
	}
	if err := l.Update(rate(20)...); err != nil {
		t.Fatal(err)
	}
	if all := l.Describe().Warnings; len(all) != 0 {
		t.Errorf("described after an Update: %+v", all)
	}
}

// Costs that pass, and denials that pass later, warn of nothing.
func TestNoWarningOfACost(t *testing.T) {
	l := limiter(t, stint.WithKey(stint.RemoteIP()), stint.WithCost(func(*http.Request) int64 { return 10 }),
		stint.Rate(10, time.Hour, stint.WithName("calls")), stint.Rate(5, time.Hour, stint.WithName("reports"), stint.WithDryRun(true)))
	for range 3 {
		through(l, client(1), nil)
	}
	quiet := limiter(t, stint.WithKey(stint.RemoteIP()), stint.WithCost(func(*http.Request) int64 { return 10 }),
		stint.Rate(5, time.Hour), stint.WithoutWarnings("cost-too-high"))
	through(quiet, client(1), nil)
	for _, l := range []*stint.Limiter{l, quiet} {
		if all := l.Describe().Warnings; len(all) != 0 {
			t.Errorf("%+v", all)
		}
	}
}

// An order of requests that wait is warned of where none waits.
func TestWarningThatNothingWaits(t *testing.T) {
	class := stint.WithPriority(func(*http.Request) int { return 1 })
	rate, slots := stint.Rate(9, time.Second), stint.Concurrency(9)
	wait := stint.WithMaxWait(time.Second)
	share := stint.Concurrency(9, stint.WithShare(1, 50))
	byAddress, all, given := stint.WithKey(stint.RemoteIP()), stint.WithKey(stint.Global()), stint.WithKey(stint.GivenKey())
	for _, tt := range []struct {
		name string
		opts []stint.Option
		want bool
	}{
		{"priority of a rate", []stint.Option{rate, byAddress, class}, true},
		{"priority of all", []stint.Option{slots, all, class}, true},
		{"share", []stint.Option{share, byAddress}, true},
		{"share of all, by priority", []stint.Option{share, all, class}, true},
		{"share beside a rate that waits", []stint.Option{share, stint.Rate(9, time.Second, wait), byAddress, class}, true},
		{"waits", []stint.Option{slots, byAddress, class, wait}, false},
		{"waits by a queue", []stint.Option{stint.Concurrency(9, stint.WithQueue(3), stint.WithShare(1, 50)), byAddress, class}, false},
		{"waits on a route", []stint.Option{rate, byAddress, class, stint.WithRoute("/a", stint.Concurrency(1, wait))}, false},
		{"jobs", []stint.Option{share, given}, false},
		{"jobs by one key", []stint.Option{share, all}, false},
		{"a function", []stint.Option{byAddress, class, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })}, false},
		{"turned off", []stint.Option{rate, byAddress, class, stint.WithoutWarnings("nothing-waits")}, false},
		{"no order", []stint.Option{rate, slots, byAddress}, false},
	} {
		h := newLogged(slog.LevelInfo)
		l := limiter(t, append(tt.opts, h.with())...)
		found := slices.ContainsFunc(l.Describe().Warnings, func(w stint.Warning) bool { return w.Kind == "nothing-waits" })
		if found != tt.want || len(h.lines(t)) > 0 != tt.want {
			t.Errorf("%s: warned %v, want %v: %v", tt.name, found, tt.want, h.lines(t))
		}
		if err := l.Update(stint.Complete(), rate, byAddress, stint.WithoutWarnings("update-drops")); err != nil {
			t.Fatal(err)
		}
		if all := l.Describe().Warnings; len(all) != 0 {
			t.Errorf("%s: after an Update: %+v", tt.name, all)
		}
	}
}

// A store that may forget is warned about once, whatever it tells later. What is put right is
// no longer described.
func TestStoreForgets(t *testing.T) {
	h := newLogged(0)
	s := &storefake.Telling{Store: spy{Store: memstore.New()}}
	named := stint.Rate(1, time.Second, stint.WithName("calls"))
	l := limiter(t, named, everybody, h.with(), stint.WithStore(failover.New(s, memstore.New())))
	silent := limiter(t, named, everybody, h.with(), stint.WithStore(s), stint.WithoutWarnings("store-forgets"))
	more := derive(t, l, stint.Rate(2, time.Second, stint.WithName("more")))
	elsewhere := derive(t, l, stint.WithStore(memstore.New()), stint.Rate(2, time.Second, stint.WithName("else")))
	described := func(l *stint.Limiter) (all []string) {
		for _, w := range l.Describe().Warnings {
			all = append(all, w.Kind+": "+w.Text)
		}
		return all
	}
	for _, why := range []string{"evicts", "has evicted 5"} {
		s.Tell(store.Notice{Kind: store.MayForget, Err: errors.New(why)})
		for _, l := range []*stint.Limiter{l, more} {
			if got := described(l); !slices.Equal(got, []string{"store-forgets: " + why}) {
				t.Errorf("described %q", got)
			}
		}
		if got := slices.Concat(described(silent), described(elsewhere)); got != nil {
			t.Errorf("described %q of another store, or in silence", got)
		}
	}
	if lines := h.lines(t); len(lines) != 1 || lines[0]["msg"] != "stint: evicts" || lines[0]["warning"] != "store-forgets" {
		t.Errorf("logged %v", lines)
	}
	s.Tell(store.Notice{Kind: store.MayForget})
	if got := described(l); got != nil {
		t.Errorf("described %q when it was put right", got)
	}
}

// A quota that a rate for the same key never lets through is warned about until an Update puts
// it right.
func TestQuotaUnreachable(t *testing.T) {
	key := stint.WithKey(stint.RemoteIP())
	quota := func(n int64, opts ...stint.RateOption) stint.Option {
		return stint.Quota(n, stint.Daily, append(opts, stint.WithName("daily"))...)
	}
	rate := func(opts ...stint.RateOption) stint.Option {
		return stint.Rate(1, time.Second, append(opts, stint.WithName("calls"))...)
	}
	for _, tt := range []struct {
		name string
		opts []stint.Option
		want string
	}{
		{"a zero too many", []stint.Option{quota(864_000), rate()}, `limit "daily" admits 864000 in its period, but limit "calls" admits at most`},
		{"in a route", []stint.Option{rate(), stint.WithRoute("/a", stint.Quota(864_000, stint.Daily, stint.WithName("daily")))}, `limit "daily"`},
		{"that an hour ahead may use up", []stint.Option{quota(90_000), rate()}, ""},
		{"within reach", []stint.Option{quota(10_000), rate()}, ""},
		{"of another key", []stint.Option{quota(864_000, stint.WithKey(stint.Global())), rate()}, ""},
		{"in a dry run", []stint.Option{quota(864_000), rate(stint.WithDryRun(true))}, ""},
		{"at a cost", []stint.Option{quota(864_000, stint.WithFixedCost(10)), rate()}, ""},
		{"with a burst", []stint.Option{quota(864_000), rate(stint.WithBurst(800_000))}, ""},
	} {
		h := newLogged(0)
		l := limiter(t, append(tt.opts, key, h.with())...)
		described := l.Describe().Warnings
		if tt.want == "" {
			if len(described)+len(h.lines(t)) > 0 {
				t.Errorf("%s: described %+v", tt.name, described)
			}
			continue
		}
		if len(described) != 1 || !strings.HasPrefix(described[0].Text, tt.want) || described[0].Kind != "quota-unreachable" || len(h.lines(t)) != 1 {
			t.Errorf("%s: described %+v, want %s", tt.name, described, tt.want)
		}
		if err := l.Update(stint.WithoutRoutes(), quota(10_000), rate(), key); err != nil || len(l.Describe().Warnings) > 0 {
			t.Errorf("%s: described %+v once put right, error %v", tt.name, l.Describe().Warnings, err)
		}
	}
}

// What an Update leaves out or renames is warned about once, until the next Update. What it
// brings may go again, and so may what only reports.
func TestUpdateDrops(t *testing.T) {
	type options = []stint.Option
	calls := func(n int64, opts ...stint.RateOption) stint.Option {
		return stint.Rate(n, time.Second, append(opts, stint.WithName("calls"))...)
	}
	daily, reports := stint.Quota(100, stint.Daily, stint.WithName("daily")), stint.Rate(5, time.Second, stint.WithName("reports"))
	for _, tt := range []struct {
		name    string
		first   options
		updates []options
		want    []string // after each
	}{
		{"other numbers", options{calls(1), daily}, []options{{calls(2), daily}}, []string{""}},
		{"one left out", options{calls(1), daily}, []options{{calls(1)}, {calls(1)}, {calls(1), daily}, {calls(1)}},
			[]string{`leaves out limit "daily"`, "", "", ""}},
		{"one renamed", options{calls(1), daily}, []options{{stint.Rate(1, time.Second, stint.WithName("api")), daily}}, []string{`renames limit "calls" to "api"`}},
		{"a name left out", options{calls(1)}, []options{{stint.Rate(1, time.Second)}}, []string{`renames limit "calls" to "rate"`}},
		{"one in a route", options{calls(1), stint.WithRoute("/a", reports)}, []options{{calls(1)}, {stint.WithoutRoutes()}}, []string{"", `leaves out limit "reports"`}},
		{"moved to a route", options{calls(1), reports}, []options{{calls(1), stint.WithRoute("/a", reports)}}, []string{""}},
		{"one that an Update brought", options{calls(1)}, []options{{calls(1), reports}, {calls(1)}}, []string{"", ""}},
		{"made a dry run", options{calls(1)}, []options{{calls(1, stint.WithDryRun(true))}, {calls(2)}, {daily}},
			[]string{"", "", `leaves out limit "calls"`}},
		{"a dry run", options{calls(1), stint.Quota(1, stint.Daily, stint.WithDryRun(true))}, []options{{calls(1)}}, []string{""}},
	} {
		h := newLogged(slog.LevelWarn)
		l := limiter(t, append(tt.first, everybody, h.with())...)
		derive(t, l, stint.Rate(7, time.Second, stint.WithName("derived")))
		for i, opts := range tt.updates {
			h.out.Reset()
			update(t, l, append(opts, everybody)...)
			described, lines := l.Describe().Warnings, h.lines(t)
			if tt.want[i] == "" {
				if len(described)+len(lines) > 0 {
					t.Errorf("%s: update %d: described %+v, logged %v", tt.name, i, described, lines)
				}
			} else if len(described) != 1 || len(lines) != 1 || described[0].Kind != "update-drops" || !strings.HasPrefix(described[0].Text, "Update "+tt.want[i]) {
				t.Errorf("%s: update %d: described %+v, logged %v, want %s", tt.name, i, described, lines, tt.want[i])
			}
		}
	}
}

// service is a service that does everything right, or nearly so.
type service struct {
	name string
	// open returns what the service does in a step of ten minutes, about ten requests. right
	// says that it makes no mistake; otherwise it makes a single one.
	open    func(t *testing.T, right bool, opts ...stint.Option) (step func(i int))
	mistake string
}

func oneOf[T any](right bool, good, bad T) T {
	if right {
		return good
	}
	return bad
}

var services = []service{
	{"behind a CDN", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		edges := netip.MustParsePrefix("10.7.0.0/16")
		l := limiter(t, append(opts, stint.Rate(100, time.Minute, stint.WithBurst(20)), stint.Quota(5000, stint.Daily),
			stint.WithKey(oneOf(right, stint.ForwardedIP(edges), stint.RemoteIP())))...)
		return func(i int) {
			for j := range 10 { // clients come and go; some write a field themselves
				r := from(fmt.Sprintf("10.7.0.%d:4711", (i+j)%200), "X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", (i/100)%200, (i*7+j)%250),
					"User-Agent", fmt.Sprint("browser ", j%7), "X-Real-IP", fmt.Sprintf("198.51.%d.%d", (i/100)%200, (i*7+j)%250))
				if j == 3 {
					r.Header.Set("X-Forwarded-For", "192.0.2.1, "+r.Header.Get("X-Forwarded-For"))
				}
				through(l, r, nil)
			}
			if i%6 == 0 {
				through(l, from("10.7.0.3:4711", "User-Agent", "health check"), nil)
			}
		}
	}, "untrusted-proxy"},

	{"with a single attacker", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		l := limiter(t, append(opts, stint.Rate(10, time.Hour), stint.Ban(20, time.Hour, stint.WithBanFor(time.Hour)),
			stint.WithKey(oneOf(right, stint.RemoteIP(), stint.KeyFunc(remoteAddr))))...)
		return func(i int) {
			for j := range 6 {
				through(l, from(fmt.Sprintf("192.0.2.66:%d", 1025+(i*6+j)%60_000), "User-Agent", "scanner"), nil)
			}
			for j := range 4 {
				through(l, from(fmt.Sprintf("198.51.100.%d:%d", (i*4+j)%250, 1025+(i+j*97)%60_000), "User-Agent", fmt.Sprint("browser ", j)), nil)
			}
		}
	}, "port-in-key"},

	{"of jobs, changed every day", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		limits := func(n int64) []stint.Option {
			return append(opts, stint.WithKey(stint.GivenKey()), stint.Rate(n, time.Minute, stint.WithBurst(oneOf[int64](right, 8, 7)), stint.WithName("units")),
				stint.Quota(20_000, stint.Daily, stint.WithName("daily")), stint.Concurrency(8, stint.WithName("slots")))
		}
		l := limiter(t, limits(60)...)
		return func(i int) {
			if i%144 == 143 {
				update(t, l, limits(60+int64(i/144))...)
			}
			for j := range 10 {
				if p, err := l.Take(t.Context(), fmt.Sprint("tenant ", j%5), oneOf[int64](j == 0, 8, 1)); err == nil {
					p.Done()
				}
				time.Sleep(10 * time.Second)
			}
		}
	}, "cost-too-high"},
}

// Services that do everything right are warned of nothing for eight days, nor do they log
// anything wrong. The same services with a mistake are, so that the silence says something.
func TestSilence(t *testing.T) {
	if raceEnabled {
		t.Skip("eight days of requests, one after the other, among which the race detector finds nothing")
	}
	for _, s := range services {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/right %v", s.name, right), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newLogged(slog.LevelWarn)
					warned := make(chan stint.Warning, 99)
					observe := stint.WithObserver(func(e stint.Event) {
						if e.Kind == stint.EventWarning {
							warned <- *e.Warning
						}
					})
					step := s.open(t, right, h.with(), observe)
					begin := time.Now()
					for i := range 8 * 24 * 6 {
						step(i)
						time.Sleep(time.Until(begin.Add(time.Duration(i+1) * 10 * time.Minute)))
					}
					synctest.Wait()
					lines := h.lines(t)
					if right && len(warned)+len(lines) > 0 {
						t.Errorf("%d warnings, and logged %v", len(warned), lines)
					}
					if !right && (len(warned) != 1 || (<-warned).Kind != s.mistake) {
						t.Errorf("not one warning of %v: logged %v", s.mistake, lines)
					}
				})
			})
		}
	}
}
