package console_test

import (
	"bytes"
	"context"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/console"
)

func keyForm(key, do string) url.Values {
	return url.Values{"limiter": {"0"}, "key": {key}, "do": {do}}
}

// A key is looked up in every limit of every route. What can't be looked up is named.
func TestKeyIsLookedUpEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vip := stint.Rate(50, time.Hour, stint.WithName("vip"))
		l := limiter(t, stint.WithKey(stint.Header("X-Api-Key")),
			stint.Rate(5, time.Hour, stint.WithName("api")),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("workers"), stint.WithInitialLimit(4), stint.WithKey(stint.Global())),
			stint.WithRoute("GET /login", stint.Only(stint.Rate(2, time.Hour, stint.WithName("login")), stint.Ban(9, time.Hour, stint.WithBanFor(time.Hour)))),
			stint.WithRoute("GET /reports", stint.Concurrency(3, stint.WithName("reports"))),
			stint.WithRoute("GET /files", stint.Bandwidth(1<<20, stint.WithName("bytes")), stint.Rate(7, time.Hour, stint.WithName("files"))),
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{vip}, nil }))
		child, err := l.With(stint.Rate(3, time.Hour, stint.WithName("inner")))
		if err != nil {
			t.Fatal(err)
		}
		h := page(t, console.Limiters(l), console.WithKeysInClear())
		traffic(l, "/login", "bob", 3)
		traffic(child, "/", "bob", 1)
		w := ask(h, "POST", "/key", keyForm("bob", "look"))
		got := text(w.Body.String())
		for _, want := range []string{
			"api TokenBucket: 5 per 1h0m0s, burst 5; for all requests, unless a route says otherwise 4 of 5 left; full again in 12m0s",
			"login TokenBucket: 2 per 1h0m0s, burst 2; for GET /login 0 of 2 left, would be denied for 30m0s ; full again in 1h0m0s",
			"for GET /login not banned; denials until it is: 8",
			"reports Concurrency: 3; for GET /reports 3 of 3 left, 0 held",
			"files TokenBucket: 7 per 1h0m0s, burst 7; for GET /files 7 of 7 left",
			"workers one key for all requests",
			"Not looked up: bytes: ", "paces responses and denies no request",
			"inner: from a WithLimitFunc, a limiter derived by With, or before an Update",
			"vip: from a WithLimitFunc, a limiter derived by With, or before an Update",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("the page doesn't say %q", want)
			}
		}
		if t.Failed() {
			t.Log(got)
		}
		if n := strings.Count(w.Body.String(), "<meter "); n != 5 {
			t.Errorf("%d bars, want one for each of 5 limits", n)
		}
	})
}

// Actions are for those that WithActions lets, by POST and from this origin; each that
// is tried is logged, without the key.
func TestActions(t *testing.T) {
	newLimiter := func(t *testing.T) *stint.Limiter {
		l := limiter(t, stint.Rate(3, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")),
			stint.WithRoute("/", stint.Only(stint.Rate(3, time.Hour, stint.WithName("all")), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)))))
		traffic(l, "/", hostile, 5)
		return l
	}
	left := func(t *testing.T, l *stint.Limiter) string {
		d, err := l.PeekAll(context.Background(), hostile)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, s := range d.Limits {
			all = append(all, s.Name, map[bool]string{true: "passes", false: "denies"}[s.Allowed])
		}
		return strings.Join(all, " ")
	}
	const before = "api passes all denies ban denies"
	for _, tc := range []struct {
		name         string
		form         url.Values
		fields       []string
		code         int
		says, logged string
		after        string
	}{
		{"reset", keyForm(hostile, "reset"), []string{"Sec-Fetch-Site", "same-origin"}, 200, "This key was reset", "action=reset", "api passes all passes ban passes"},
		{"lift", keyForm(hostile, "lift"), nil, 200, "The bans of this key are lifted", "action=lift", "api passes all denies ban passes"},
		{"reset from another site", keyForm(hostile, "reset"), []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin", "", before},
		{"lift from another site", keyForm(hostile, "lift"), []string{"Sec-Fetch-Site", "same-site"}, 403, "cross-origin", "", before},
		{"lift from another origin", keyForm(hostile, "lift"), []string{"Origin", "https://elsewhere.example"}, 403, "cross-origin", "", before},
		{"no such action", keyForm(hostile, "explode"), nil, 400, "no such action", "", before},
		{"ban", keyForm(hostile, "ban-day"), nil, 200, "This key is banned for a day", "action=ban-day", "api passes all denies ban denies"},
		{"ban from another site", keyForm(hostile, "ban-day"), []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin", "", before},
		{"no such limiter", url.Values{"limiter": {"1"}, "key": {"k"}, "do": {"reset"}}, nil, 400, "no such limiter", "", before},
		{"no key", keyForm("", "reset"), nil, 422, "the key is empty", "an action failed", before},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimiter(t)
			var logged bytes.Buffer
			h := page(t, console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
			w := ask(h, "POST", "/x/key", tc.form, tc.fields...)
			if w.Code != tc.code || !strings.Contains(text(w.Body.String()), tc.says) || strings.Contains(w.Body.String(), hostile) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if got := left(t, l); got != tc.after {
				t.Errorf("after it %s, want %s", got, tc.after)
			}
			lines := strings.Count(logged.String(), "\n")
			if tc.logged == "" && lines != 0 || tc.logged != "" && (lines != 1 || !strings.Contains(logged.String(), tc.logged) ||
				!strings.Contains(logged.String(), "remote=127.0.0.1:1")) || strings.Contains(logged.String(), "alert") {
				t.Errorf("logged %q", logged.String())
			}
			if w := ask(h, "GET", "/x/key?"+keyForm(hostile, "reset").Encode(), nil); w.Code != 200 || left(t, l) != tc.after {
				t.Errorf("a GET acts: %d, %s", w.Code, left(t, l))
			}
		})
	}
	for _, do := range []string{"reset", "lift"} {
		l := newLimiter(t)
		if w := ask(page(t, console.Limiters(l)), "POST", "/key", keyForm(hostile, do)); w.Code != 403 || left(t, l) != before {
			t.Errorf("%s without WithActions: %d, %s", do, w.Code, left(t, l))
		}
	}
}

// What can be done is offered where it does something.
func TestActionsOffered(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("api")), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)), stint.WithKey(stint.Header("X-Api-Key")))
	traffic(l, "/", "banned", 3)
	h := page(t, console.Limiters(l), console.WithActions())
	for _, tc := range []struct {
		h           http.Handler
		key         string
		lift, reset bool // and can be banned
	}{{h, "banned", true, true}, {h, "other", false, true}, {page(t, console.Limiters(l)), "banned", false, false}} {
		got := ask(tc.h, "POST", "/key", keyForm(tc.key, "look")).Body.String()
		if strings.Contains(got, `value="lift"`) != tc.lift || strings.Contains(got, `value="reset"`) != tc.reset || strings.Contains(got, `value="ban-day"`) != tc.reset {
			t.Errorf("of %s: %s", tc.key, got)
		}
	}
	if got := text(ask(h, "POST", "/key", keyForm("banned", "look")).Body.String()); !strings.Contains(got, "banned for 1h0m0s more") {
		t.Error(got)
	}
	for do, want := range map[string]string{"ban-hour": "banned for 1h0m0s more", "ban-day": "banned for 24h0m0s more", "ban-month": "banned for 720h0m0s more"} {
		if got := text(ask(h, "POST", "/key", keyForm("new "+do, do)).Body.String()); !strings.Contains(got, want) {
			t.Errorf("%s: %s", do, got)
		}
	}
	never := page(t, console.Limiters(limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-Api-Key")))), console.WithActions())
	if w := ask(never, "POST", "/key", keyForm("k", "lift")); w.Code != 422 || !strings.Contains(text(w.Body.String()), "this limiter bans no key") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(never, "POST", "/key", keyForm("k", "ban-day")); w.Code != 422 || !strings.Contains(text(w.Body.String()), "there is no ban whose key") || strings.Contains(w.Body.String(), `value="ban-day"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A key has the limits that a source has for it, which can be reset, and whose bans can be lifted.
func TestLimitsOfASource(t *testing.T) {
	plan := []stint.Limit{stint.Rate(2, time.Hour, stint.WithName("plan")), stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("banned"))}
	key := stint.Header("X-Api-Key")
	l := limiter(t, stint.WithKey(key), stint.WithLimitSource(key, func(_ context.Context, key string, _ stint.LimitUser) ([]stint.Limit, error) {
		if key == "down" {
			return nil, &stint.SourceError{Err: errors.New("the database is down")}
		}
		return plan, nil
	}))
	h := page(t, console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler)))
	traffic(l, "/", "bob", 4)
	for _, step := range []struct{ do, want string }{
		{"look", "plan TokenBucket: 2 per 1h0m0s, burst 2; for all requests, unless a route says otherwise 0 of 2 left"},
		{"look", "banned for"},
		{"lift", "for all requests, unless a route says otherwise not banned; denials until it is: 2"},
		{"reset", "for all requests, unless a route says otherwise 2 of 2 left"},
	} {
		if got := text(ask(h, "POST", "/key", keyForm("bob", step.do)).Body.String()); !strings.Contains(got, step.want) {
			t.Errorf("%s: the page doesn't say %q: %s", step.do, step.want, got)
		}
	}
	for _, do := range []string{"look", "lift", "reset"} {
		if w := ask(h, "POST", "/key", keyForm("down", do)); w.Code != 422 || !strings.Contains(text(w.Body.String()), "the database is down") {
			t.Errorf("%s: %d %s", do, w.Code, text(w.Body.String()))
		}
	}
}

// The key that is reset is the one that was looked up, whatever bytes it has: no field of a
// form holds a NUL byte, a line's end or what isn't UTF-8 as it is.
func TestTheKeyLookedUpIsReset(t *testing.T) {
	inputs := regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	for _, key := range []string{"a\x00b", "a\nb", "a\r\nb", "a\xffb", "a%00b", "a+b", `a"b`, "\ufffd"} {
		l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("api")), stint.WithKey(stint.GivenKey()))
		h := page(t, console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler)))
		if err := l.Allow(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		form := keyForm("", "reset")
		form.Del("key")
		for _, m := range inputs.FindAllStringSubmatch(ask(h, "POST", "/key", keyForm(key, "look")).Body.String(), -1) {
			// As a browser reads and sends it.
			value := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n", "\x00", "\ufffd").Replace(strings.ToValidUTF8(html.UnescapeString(m[2]), "\ufffd"))
			form.Set(m[1], value)
		}
		w := ask(h, "POST", "/key", form)
		if w.Code != 200 || !strings.Contains(text(w.Body.String()), "This key was reset") {
			t.Errorf("%q: %d %s", key, w.Code, w.Body)
		}
		if d, err := l.Peek(t.Context(), key); err != nil || !d.Allowed {
			t.Errorf("%q was looked up, and another key reset: %v", key, err)
		}
	}
}

// What support knows of a customer finds each part of a FirstOf, alone or hashed: the page shows and resets
// the key that is counted.
func TestPartsOfAKey(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	parts := stint.FirstOf(stint.Header("X-Api-Key"), stint.RemoteIP())
	for name, key := range map[string]stint.Key{
		"first of":           parts,
		"hash":               stint.Hash(secret, parts),
		"first of with hash": stint.FirstOf(stint.Hash(secret, stint.Header("X-Api-Key")), stint.Hash(secret, stint.RemoteIP())),
		"nested":             stint.FirstOf(stint.Cookie("session"), parts),
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, stint.Rate(2, time.Hour, stint.WithName("api")), stint.WithKey(key))
			h := page(t, console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler)))
			for typed, r := range map[string]*http.Request{"ada-123": request("ada-123", "192.0.2.9:1"), "192.0.2.7": request("", "192.0.2.7:1"), "2001:db8:1:2::9": request("", "[2001:db8:1:2::7]:1")} {
				look := func(do, want string) {
					t.Helper()
					if got := text(ask(h, "POST", "/key", keyForm(typed, do)).Body.String()); !strings.Contains(got, want) {
						t.Errorf("%s %s: the page doesn't say %q: %s", do, typed, want, got)
					}
				}
				look("look", "Never seen")
				look("reset", "There was nothing to reset")
				if err := l.Admit(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {}); err != nil {
					t.Fatal(err)
				}
				look("look", "1 of 2 left")
				look("reset", "This key was reset")
				look("look", "2 of 2 left")
			}
		})
	}
}

func request(apiKey, addr string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = addr
	if apiKey != "" {
		r.Header.Set("X-Api-Key", apiKey)
	}
	return r
}
