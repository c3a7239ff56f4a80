package stint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

func TestBanByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		var logged strings.Builder
		ban := func(name string, opts ...stint.BanOption) stint.Limit {
			return stint.Ban(2, time.Hour, append(opts, stint.WithBanFor(time.Minute), stint.WithName(name))...)
		}
		l := limiter(t, theKey, stint.Rate(1, time.Hour), ban("a"), ban("dry", stint.WithDryRun(true)),
			stint.Rate(9, time.Hour, stint.WithName("all"), stint.WithKey(stint.Global())), ban("everybody", stint.WithKey(stint.Global())),
			stint.WithRoute("/x", ban("b")),
			stint.WithLogger(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))), stint.WithLogKeys(),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					d := e.Decision
					events = append(events, fmt.Sprint(d.Limit, " ", e.Key(0), " ", e.ByHand, " ", d.Allowed, " ", d.RetryAfter, " ", len(d.Limits)))
				}
			}))
		left := func(key, limit string) time.Duration {
			t.Helper()
			d, err := l.PeekAll(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range d.Limits {
				if s.Name == limit {
					return s.RetryAfter
				}
			}
			t.Fatalf("no limit %s", limit)
			return 0
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		do(l.Ban(t.Context(), "k", time.Hour))
		for _, name := range []string{"a", "b", "dry"} {
			events = slices.DeleteFunc(events, func(e string) bool { return e == name+" k true false 1h0m0s 1" })
		}
		if len(events) > 0 || left("k", "a") != time.Hour || left("k", "b") != time.Hour || left("k", "everybody") != 0 || left("other", "a") != 0 {
			t.Errorf("events %q, a for %v, b for %v", events, left("k", "a"), left("k", "b"))
		}
		if n := strings.Count(logged.String(), "by_hand=true"); n != 3 || !strings.Contains(logged.String(), "key=k") {
			t.Errorf("logged %s", logged.String())
		}
		var denied *stint.DeniedError
		if err := l.Allow(t.Context(), "k", 1); !errors.As(err, &denied) || denied.Decision.Limit != "a" || denied.Decision.RetryAfter != time.Hour {
			t.Errorf("a banned key: %v", err)
		}
		do(l.Ban(t.Context(), "k", time.Minute, "a")) // the longer one stays
		do(l.Ban(t.Context(), "k", 2*time.Hour, "b", "dry"))
		if want := []string{"dry k true false 2h0m0s 1", "b k true false 2h0m0s 1"}; left("k", "a") != time.Hour || left("k", "b") != 2*time.Hour || !slices.Equal(events, want) {
			t.Errorf("a for %v, b for %v, events %q", left("k", "a"), left("k", "b"), events)
		}
		if found, err := l.Reset(t.Context(), "k", "a"); !found || err != nil || left("k", "a") != 0 || left("k", "b") == 0 {
			t.Errorf("after a Reset of a: %v, %v, a for %v, b for %v", found, err, left("k", "a"), left("k", "b"))
		}
		do(l.Allow(t.Context(), "k", 1))

		// The count stays, and a denial-started ban is not by hand.
		events = nil
		_ = l.Allow(t.Context(), "k", 1)
		do(l.Ban(t.Context(), "k", time.Second, "a"))
		time.Sleep(time.Second)
		_ = l.Allow(t.Context(), "k", 1)
		if want := []string{"a k true false 1s 1", "a k false false 1m0s 5"}; !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

func TestBanByHandErrors(t *testing.T) {
	rate, hour := stint.Rate(9, time.Hour), stint.WithBanFor(time.Hour)
	named := stint.Rate(9, time.Hour, stint.WithName("rate"))
	l := limiter(t, theKey, rate, stint.Ban(9, time.Hour, hour), stint.Ban(9, time.Hour, hour, stint.WithName("dry"), stint.WithDryRun(true)),
		stint.Rate(9, time.Hour, stint.WithName("all"), stint.WithKey(stint.Global())), stint.Ban(9, time.Hour, hour, stint.WithName("everybody"), stint.WithKey(stint.Global())))
	dry := limiter(t, theKey, rate, stint.Ban(9, time.Hour, hour, stint.WithDryRun(true)))
	constant := limiter(t, theKey, rate, stint.Rate(9, time.Hour, stint.WithName("all"), stint.WithKey(stint.Global())), stint.Ban(9, time.Hour, hour, stint.WithKey(stint.Global())))
	bans := stint.Ban(9, time.Hour, hour, stint.WithName("ban"))
	plain := limiter(t, theKey, named, bans, stint.WithStore(storefake.New()))
	for _, tc := range []struct {
		l    *stint.Limiter
		key  string
		d    time.Duration
		of   []string
		want string
	}{
		{l, "k", time.Millisecond - 1, nil, "pass a duration from time.Millisecond to 365*24*time.Hour"},
		{l, "k", -time.Hour, nil, "pass a duration"},
		{l, "k", 365*24*time.Hour + 1, nil, "pass a duration"},
		{l, "", time.Hour, nil, "empty"},
		{l, "k", time.Hour, []string{"ban", "nosuch"}, `no limit "nosuch"`},
		{l, "k", time.Hour, []string{"ban", "rate"}, `"rate" is no ban`},
		{l, "k", time.Hour, []string{"ban", "everybody"}, `the key of "everybody" is constant`},
		{l, "k", time.Hour, []string{"dry"}, "dry run denies nobody"},
		{dry, "k", time.Hour, nil, "dry run denies nobody"},
		{constant, "k", time.Hour, nil, "no ban whose key isn't constant"},
		{limiter(t, theKey, rate), "k", time.Hour, nil, "no ban whose key isn't constant"},
		{plain, "k", time.Hour, nil, "doesn't implement store.Banner"},
	} {
		err := tc.l.Ban(t.Context(), tc.key, tc.d, tc.of...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, new(*stint.StoreError)) {
			t.Errorf("Ban(%q, %v, %q): %v, want %q", tc.key, tc.d, tc.of, err, tc.want)
		}
		if d, err := tc.l.Peek(t.Context(), "k"); err != nil || !d.Allowed {
			t.Errorf("Ban(%q, %v, %q) bans all the same: %+v, %v", tc.key, tc.d, tc.of, d, err)
		}
	}
	for _, d := range []time.Duration{time.Millisecond, 365 * 24 * time.Hour} {
		if err := l.Ban(t.Context(), "k", d); err != nil {
			t.Error(err)
		}
	}
	fails := limiter(t, theKey, named, bans, stint.WithStore(failover.New(bannerDown{storefake.Down()}, nil)))
	var failed *stint.StoreError
	if err := fails.Ban(t.Context(), "k", time.Hour); !errors.As(err, &failed) || !errors.Is(err, storefake.ErrDown) {
		t.Errorf("a store that fails: %v", err)
	}
	decides := memstore.New()
	fallen := limiter(t, theKey, named, bans, stint.WithStore(failover.New(bannerDown{storefake.Down()}, decides)))
	if err := fallen.Ban(t.Context(), "k", time.Hour); err != nil {
		t.Error(err)
	}
	if err := fallen.Allow(t.Context(), "k", 1); !errors.Is(err, stint.ErrDenied) {
		t.Errorf("a key that the store that decides has banned: %v", err)
	}
}

type bannerDown struct{ *storefake.Store }

func (bannerDown) Ban(context.Context, string, time.Duration, ...*store.Limit) ([]store.Result, error) {
	return nil, storefake.ErrDown
}

// The recipe of docs/recipes.md: who doesn't stop is banned for longer each time.
func TestEscalatingBans(t *testing.T) {
	const recipe = `stint.Rate(60, time.Minute),
stint.Ban(20, 10*time.Minute, stint.WithBanFor(10*time.Minute), stint.WithName("ban-10m")),
stint.Ban(60, 3*time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban-1h")),
stint.Ban(180, 24*time.Hour, stint.WithBanFor(24*time.Hour), stint.WithName("ban-1d")),
`
	if document, err := os.ReadFile("docs/recipes.md"); err != nil || !strings.Contains(string(document), recipe) {
		t.Errorf("docs/recipes.md has other limits: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		var bans []string
		l := limiter(t, theKey,
			stint.Rate(60, time.Minute),
			stint.Ban(20, 10*time.Minute, stint.WithBanFor(10*time.Minute), stint.WithName("ban-10m")),
			stint.Ban(60, 3*time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban-1h")),
			stint.Ban(180, 24*time.Hour, stint.WithBanFor(24*time.Hour), stint.WithName("ban-1d")),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					bans = append(bans, e.Decision.Limit)
				}
			}))
		began := time.Now()
		for !slices.Contains(bans, "ban-1d") && time.Since(began) < 24*time.Hour {
			_ = l.Allow(t.Context(), "k", 1)
			time.Sleep(500 * time.Millisecond)
		}
		round := []string{"ban-10m", "ban-10m", "ban-10m", "ban-1h"}
		if want := append(slices.Repeat(round, 3), "ban-1d"); !slices.Equal(bans, want) {
			t.Errorf("bans %q, want %q", bans, want)
		}
		if took := time.Since(began).Round(time.Hour); took != 3*time.Hour {
			t.Errorf("a day's ban after %v", took)
		}
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.RetryAfter < 24*time.Hour-time.Second {
			t.Errorf("banned for %v, %v", d.RetryAfter, err)
		}
	})
}
