package stint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/tenants"
)

// logged is a handler that keeps what it is given, and counts what it is asked.
type logged struct {
	slog.Handler
	mu    sync.Mutex // some lines come from a timer
	out   *bytes.Buffer
	asked atomic.Int64
}

func newLogged(level slog.Level) *logged {
	out := new(bytes.Buffer)
	return &logged{Handler: slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}), out: out}
}

func (h *logged) Enabled(ctx context.Context, level slog.Level) bool {
	h.asked.Add(1)
	return h.Handler.Enabled(ctx, level)
}

func (h *logged) with() stint.Option { return stint.WithLogger(slog.New(h)) }

func (h *logged) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Handler.Handle(ctx, r)
}

// lines returns what was logged since it was last called.
func (h *logged) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := json.NewDecoder(h.out); d.More(); {
		line := map[string]any{}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

// brief is the text of lines, without their numbers.
func brief(lines []map[string]any) string {
	var all []string
	for _, l := range lines {
		all = append(all, fmt.Sprint(l["level"], " ", strings.TrimPrefix(l["msg"].(string), "stint: ")))
	}
	return strings.Join(all, "\n")
}

// A hundred thousand failures in five minutes make one line per minute, and the lines account
// for all of them. When the store has been well for a while, a line says so.
func TestLogsOfManyFailures(t *testing.T) {
	oneGoroutine(t)
	synctest.Test(t, func(t *testing.T) {
		const failures, waves = 100_000, 1000
		h := newLogged(slog.LevelInfo)
		down := newSpy()
		down.FailWith(errDown)
		l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("x")), theKey, stint.WithStore(down), h.with(), stint.WithLimiterName("front"))
		for range waves {
			for range failures / waves {
				if err := l.Allow(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Minute / waves)
		}
		synctest.Wait()
		sum := 0
		lines := h.lines(t)
		for _, line := range lines {
			suppressed, _ := line["suppressed"].(float64)
			sum += 1 + int(suppressed)
			if line["level"] != "ERROR" || line["error"] != errDown.Error() || line["request"] != "passed" || line["limiter"] != "front" || line["store"] != "storefake.Store" {
				t.Errorf("%v", line)
			}
		}
		if len(lines) != 6 || sum != failures {
			t.Errorf("%d lines for %d failures, want 6 for %d", len(lines), sum, failures)
		}

		down.FailWith(nil)
		for range 71 {
			_ = l.Allow(t.Context(), "k", 1)
			time.Sleep(time.Second)
		}
		if got := brief(h.lines(t)); got != "INFO the store answers again" {
			t.Errorf("afterwards: %q", got)
		}
		_ = l.Allow(t.Context(), "k", 1)
		if got := h.lines(t); len(got) != 0 {
			t.Errorf("and again: %v", got)
		}
	})
}

// A recovery says how many failures came since the last logged one, so that all are
// accounted for, however short the trouble was. Several limiters on one store log its state once,
// and a store that fails in part hasn't recovered because some of its calls succeed.
func TestLogsOfShortTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newLogged(slog.LevelInfo), newSpy()
		var all []*stint.Limiter
		for range 3 {
			all = append(all, limiter(t, stint.Rate(999, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with()))
		}
		for range 2 {
			for range 15 {
				for _, err := range []error{errDown, nil} {
					s.FailWith(err)
					for _, l := range all {
						through(l, get("/"), nil)
					}
				}
				time.Sleep(time.Second)
			}
			if got := brief(h.lines(t)); got != "ERROR the store failed to decide a request" {
				t.Errorf("while it fails in part: %q", got)
			}
			time.Sleep(10 * time.Second)
			for _, l := range all {
				through(l, get("/"), nil)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			lines := h.lines(t)
			if got := brief(lines); got != "INFO the store answers again" || lines[0]["suppressed"] != 44.0 || lines[0]["store"] != "storefake.Store" {
				t.Errorf("afterwards: %v", lines)
			}
			time.Sleep(time.Minute)
		}
	})
}

// What is logged, at which level and with which limit; and no key, unless WithLogKeys
// asks for it.
func TestLogs(t *testing.T) {
	name := stint.WithName("x")
	down := func() stint.Option { return stint.WithStore(failing(errDown)) }
	header := stint.WithKey(stint.Header("X-Api-Key"))
	broken := errors.New("no such session")
	tests := []struct {
		name string
		opts []stint.Option
		want string
		key  bool // with WithLogKeys
	}{
		{"a request that passes", []stint.Option{stint.Rate(9, time.Hour), header}, "", false},
		{"a denial", []stint.Option{stint.Rate(1, time.Hour), header}, "DEBUG a request was denied", true},
		{"a block", []stint.Option{stint.Rate(9, time.Hour), header, stint.WithBlock(func(*http.Request) bool { return true })}, "DEBUG a request was denied\nDEBUG a request was denied", false},
		{"a store that fails", []stint.Option{stint.Rate(1, time.Hour, name), header, down()}, "ERROR the store failed to decide a request", true},
		{"a store that fails, closed", []stint.Option{stint.Rate(1, time.Hour, name), header, down(), stint.WithFailurePolicy(stint.FailClosed)}, "ERROR the store failed to decide a request", true},
		{"an empty key", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-None"))}, "DEBUG a request with an empty key was denied\nDEBUG a request with an empty key was denied", false},
		{"a key that fails", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", broken }))}, "WARN a key function failed, and the request was denied", false},
		{"a limit function that fails", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, broken }), header}, "ERROR the limits of a request, or its cost, could not be determined", false},
		{"a tenant without a plan", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, tenants.ErrNoPlan }), header}, "DEBUG a limit function denied a request\nDEBUG a limit function denied a request", false},
		{"a key that is denied", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", tenants.ErrNoPlan }))}, "DEBUG a key function denied a request\nDEBUG a key function denied a request", false},
		{"a source that fails", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, &stint.SourceError{Err: broken} }), header}, "ERROR the source of limits failed, and earlier limits, the default or none hold", false},
		{"a source that fails, closed", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, &stint.SourceError{Err: broken} }), header, stint.WithFailurePolicy(stint.FailClosed)}, "ERROR the limits of a request, or its cost, could not be determined", false},
		{"a cost below 0", []stint.Option{stint.Rate(9, time.Hour), cost(-1), header}, "ERROR the limits of a request, or its cost, could not be determined", false},
		{"a charge that can't be settled", []stint.Option{stint.Rate(9, time.Hour, name, stint.WithSettle(stint.FailedOnly)), header, stint.WithStore(unsettled())}, "WARN a charge could not be settled, or a slot not released", true},
		{"a ban", []stint.Option{stint.Rate(1, time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)), header}, "DEBUG a request was denied\nDEBUG a key is banned", true},
		{"a ban that only reports", []stint.Option{stint.Rate(1, time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithDryRun(true)), header}, "DEBUG a request was denied\nDEBUG a key is banned\nDEBUG a limit in a dry run would have denied a request", true},
	}
	for _, tt := range tests {
		for _, keys := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, keys), func(t *testing.T) {
				h := newLogged(slog.LevelDebug)
				opts := append(tt.opts, h.with(), stint.WithLimiterName("front"))
				if keys {
					opts = append(opts, stint.WithLogKeys())
				}
				l := limiter(t, opts...)
				h.lines(t) // what it has
				for range 2 {
					r := get("/")
					r.Header.Set("X-Api-Key", credential)
					through(l, r, func(http.ResponseWriter, *http.Request) {})
				}
				text := h.out.String()
				lines := h.lines(t)
				if got := brief(lines); got != tt.want {
					t.Errorf("logged\n%s\nwant\n%s", got, tt.want)
				}
				for _, line := range lines {
					if line["limiter"] != "front" {
						t.Errorf("without the limiter's name: %v", line)
					}
				}
				if strings.Contains(text, credential) != (keys && tt.key) {
					t.Errorf("keys %t: %s", keys, text)
				}
			})
		}
	}
}

// Requests that pass don't call the logger, and denials call it once unless they are
// logged.
func TestLogsCost(t *testing.T) {
	h := newLogged(slog.LevelInfo)
	l := limiter(t, stint.Rate(5, time.Hour), theKey, h.with())
	h.asked.Store(0) // when it was made
	for range 5 {
		through(l, get("/"), nil)
	}
	if h.asked.Load() != 0 {
		t.Errorf("asked %d times in 5 requests that passed", h.asked.Load())
	}
	for range 7 {
		through(l, get("/"), nil)
	}
	if h.asked.Load() != 7 || h.out.Len() != 0 {
		t.Errorf("asked %d times in 7 denials, and wrote %q", h.asked.Load(), h.out)
	}
}

// The log belongs to the limiter: it stays across Updates and is used by derived
// limiters without a logger of their own.
func TestWhoLogs(t *testing.T) {
	a, b, c := newLogged(slog.LevelDebug), newLogged(slog.LevelDebug), newLogged(slog.LevelDebug)
	all := []*logged{a, b, c}
	none := stint.Rate(1, time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 }))
	l := limiter(t, none, theKey, a.with(), stint.WithoutWarnings("cost-too-high"))
	d := stint.Must(l.With(stint.WithLogKeys()))
	steps := []struct {
		what string
		do   func() error
		want string // of l, and of d
	}{
		{"from the start", func() error { return nil }, "a, a with keys"},
		{"after an Update", func() error { return l.Update(none, stint.Complete(), theKey) }, "a, a with keys"},
		{"after one with a logger", func() error { return l.Update(none, theKey, b.with()) }, "b, b with keys"},
		{"with a logger of its own", func() error { return d.Update(c.with()) }, "b, c with keys"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			h.lines(t)
		}
		var got []string
		for _, of := range []*stint.Limiter{l, d} {
			through(of, get("/"), nil)
			for i, h := range all {
				for _, line := range h.lines(t) {
					to := string("abc"[i])
					if line["key"] != nil {
						to += " with keys"
					}
					got = append(got, to)
				}
			}
		}
		if got := strings.Join(got, ", "); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// Without WithLogger, the logger is slog.Default at the time of the message.
func TestLogsByDefault(t *testing.T) {
	s := newSpy()
	s.FailWith(errDown)
	l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s))
	var out bytes.Buffer
	logTo(t, &out)
	through(l, get("/"), nil)
	if !strings.Contains(out.String(), "stint: the store failed") {
		t.Errorf("logged %q", &out)
	}
}

// A policy file that is good and bad in turn, ten times a second, makes a line a minute, and the
// last line says what has become of it.
func TestLogsOfAPolicyFileThatFlips(t *testing.T) {
	for _, flips := range []int{1, 2, 3, 6000, 6001} {
		synctest.Test(t, func(t *testing.T) {
			h := newLogged(slog.LevelInfo)
			l := limiter(t, stint.Rate(1, time.Hour), theKey, h.with())
			for i := range flips {
				var err error
				if i%2 == 0 {
					err = fmt.Errorf("mistake %d", i)
				}
				l.ReportPolicy("limits.yaml", err)
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			lines := h.lines(t)
			if want := 1 + min(flips-1, 1+flips/600); len(lines) > want {
				t.Errorf("%d flips: %d lines, want %d", flips, len(lines), want)
			}
			last, want := lines[len(lines)-1], "INFO the policy is in force"
			if flips%2 == 1 {
				want = "ERROR the policy could not be reloaded, and the last good one stays in force"
				if mistake := fmt.Sprint("mistake ", flips-1); last["error"] != mistake {
					t.Errorf("%d flips: the last line has the error %v, want %s", flips, last["error"], mistake)
				}
			}
			if got := brief([]map[string]any{last}); got != want {
				t.Errorf("%d flips: the last line is %q, want %q", flips, got, want)
			}
		})
	}
}

// A primary store that fails one call has a line about that. That it fails is logged when the
// breaker opens, and that it answers when it closes: once, however many limiters share the store.
func TestLogsOfAPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, primary := newLogged(slog.LevelInfo), newSpy()
		s := failover.New(primary, memstore.New(), failover.WithThreshold(3))
		defer s.Close()
		var all []*stint.Limiter
		for range 2 {
			all = append(all, limiter(t, stint.Rate(999, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with()))
		}
		ask := func(times int, err error) {
			primary.FailWith(err)
			for i := range times {
				through(all[i%2], get("/"), nil)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		}
		const one, fails, answers = "WARN a call of the store failed", "WARN the primary store fails, and limits in memory are per process", "INFO the primary store answers again"
		ask(1, errDown)
		ask(10, nil)
		lines := h.lines(t)
		if got := brief(lines); got != one || lines[0]["store"] != "storefake.Store" {
			t.Errorf("after one failure: %v", lines)
		}
		primary.FailWith(errDown)
		for i := range 3 {
			through(all[i%2], get("/"), nil)
		}
		time.Sleep(time.Second)
		ask(1, nil)
		if got, want := brief(h.lines(t)), one+"\n"+fails+"\n"+one+"\n"+answers; got != want && got != one+"\n"+fails+"\n"+answers+"\n"+one {
			t.Errorf("after a failure of a second:\n%s\nwant\n%s", got, want)
		}
		ask(0, nil)
		ask(3, errDown)
		lines = h.lines(t)
		for _, line := range lines[2:] {
			if got := brief([]map[string]any{line}); got != fails && got != one || line["store"] != "storefake.Store" {
				t.Errorf("while it fails: %v", line)
			}
		}
		if n := len(lines); n < 5 || n > 9 {
			t.Errorf("%d lines in five minutes", n)
		}
	})
}

// Of a misconfigured primary there is one line, and one when that is over.
func TestLogsOfAMisconfiguredPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, primary := newLogged(slog.LevelInfo), newSpy()
		s := failover.New(primary, memstore.New())
		defer s.Close()
		l := limiter(t, stint.Rate(5, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with())
		primary.FailWith(store.NotMade(fmt.Errorf("WRONGPASS: %w", store.ErrMisconfigured)))
		passed := 0
		for range 8 {
			if err := l.Allow(t.Context(), "k", 1); err == nil {
				passed++
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		const line = "ERROR the primary store is misconfigured, and limits in memory are per process"
		if got := brief(h.lines(t)); got != line || passed != 5 {
			t.Errorf("%d of 5 passed, and logged:\n%s", passed, got)
		}
		primary.FailWith(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lines := h.lines(t)
		if got := brief(lines[len(lines)-1:]); got != "INFO the primary store answers again" {
			t.Errorf("when the password is right, logged %s", got)
		}
	})
}

// The lines about a denial and about an empty key have the method and the path of the request.
func TestDenialsAreLoggedWithTheirRequests(t *testing.T) {
	for _, opts := range [][]stint.Option{
		{theKey},
		{stint.WithKey(stint.Header("X-API-Key"))},
		{theKey, stint.WithBlock(func(*http.Request) bool { return true })},
	} {
		h := newLogged(slog.LevelDebug)
		l := limiter(t, append(opts, stint.Rate(1, time.Second), h.with())...)
		h.lines(t)
		for range 2 {
			through(l, httptest.NewRequest("PUT", "/items/"+strings.Repeat("x", 300)+"?token=secret", nil), nil)
		}
		lines := h.lines(t)
		if len(lines) == 0 || lines[0]["method"] != "PUT" || lines[0]["url_path"] != "/items/"+strings.Repeat("x", 193) {
			t.Errorf("logged %v", lines)
		}
	}
}
