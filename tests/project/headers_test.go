package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
)

// The programs of docs/headers.md answer with the fields that it shows: each is the README's, with its
// limit replaced.
func TestHeaders(t *testing.T) {
	tools(t, "bash", "curl")
	base, addr := readmeProgram(t)
	var start starter
	ran := 0
	for _, block := range fenced.FindAllStringSubmatch(read(t, "docs/headers.md"), -1) {
		switch language, text := block[1], block[2]; {
		case language == "console":
			follow(t, text, addr, start)
			ran++
		case strings.Contains(text, "limit := "):
			start = compile(t, replaceLimit(t, base, text))
		case language == "text" && strings.HasPrefix(text, "Access-Control-Expose-Headers: "):
		default:
			t.Errorf("no test runs\n%s", text)
		}
	}
	if ran != 4 {
		t.Errorf("%d sessions ran, want 4", ran)
	}
}

// downStore decides nothing.
type downStore struct{ store.Store }

func (downStore) Take(context.Context, []store.Charge, []store.Result) error {
	return errors.New("down")
}

// The table of denials in docs/headers.md says how each is answered.
func TestDenials(t *testing.T) {
	one := func(limits ...stint.Option) []stint.Option { return append(limits, stint.WithKey(stint.RemoteIP())) }
	rate := stint.Rate(1, time.Hour, stint.WithName("calls"))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	cases := map[string]struct {
		options []stint.Option
		before  int // requests before
		ctx     context.Context
	}{
		"a rate, a quota or a concurrency limit of a caller is used up": {one(rate), 1, nil},
		"its cost is more than the limit can ever admit": {one(rate,
			stint.WithCost(func(*http.Request) int64 { return 2 })), 0, nil},
		"its key is banned": {one(rate, stint.Ban(1, time.Hour, stint.WithBanFor(2*time.Hour))), 2, nil},
		"all slots of a concurrency limit with the key `Global()` are taken": {one(stint.Concurrency(1, stint.WithKey(stint.Global()))), -1, nil},
		"the store fails, with `FailClosed`": {one(rate, stint.WithStore(downStore{}),
			stint.WithFailurePolicy(stint.FailClosed)), 0, nil},
		"its context is canceled while it waits":                 {one(rate, stint.WithMaxWait(2*time.Hour)), 1, canceled},
		"its key is empty or too long, or `WithBlock` blocks it": {[]stint.Option{rate, stint.WithKey(stint.Header("X-API-Key"))}, 0, nil},
		"a key function or a limit function returns an error": {[]stint.Option{rate, stint.WithKey(stint.KeyFunc(
			func(*http.Request) (string, error) { return "", errors.New("no database") }))}, 0, nil},
	}
	_, table, _ := strings.Cut(read(t, "docs/headers.md"), "| a request is denied because | status |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		reason, wantStatus, wantType, wantRetry := cells[0], cells[1], cells[2], cells[3]
		c, found := cases[reason]
		if !found {
			t.Errorf("no case for %s", reason)
			continue
		}
		delete(cases, reason)
		t.Run(reason, func(t *testing.T) {
			entered, leave := make(chan struct{}, 9), make(chan struct{})
			h := stinthttp.New(append(c.options, logger(new(strings.Builder)))...)(http.HandlerFunc(
				func(http.ResponseWriter, *http.Request) {
					entered <- struct{}{}
					if c.before < 0 {
						<-leave
					}
				}))
			serve := func(ctx context.Context) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				return w
			}
			for range c.before {
				serve(context.Background())
			}
			if c.before < 0 { // one that stays
				go serve(context.Background())
				<-entered
				defer close(leave)
			}
			ctx := context.Background()
			if c.ctx != nil {
				ctx = c.ctx
			}
			w := serve(ctx)
			var body struct{ Type string }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if status := fmt.Sprint(w.Code); !strings.Contains(wantStatus, status) {
				t.Errorf("status %s, want %s", status, wantStatus)
			}
			if !strings.HasSuffix(body.Type, strings.Trim(wantType, "`")) {
				t.Errorf("type %s, want %s", body.Type, wantType)
			}
			switch retry := w.Header().Get("Retry-After"); {
			case wantRetry == "yes" && retry == "", wantRetry == "`1`" && retry != "1",
				strings.HasSuffix(wantRetry, "no") && retry != "":
				t.Errorf("Retry-After: %q, want %s", retry, wantRetry)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("Cache-Control: %q", w.Header().Get("Cache-Control"))
			}
			if about := wantType == "`about:blank`"; about == (w.Header().Get("RateLimit") != "") && reason != "its key is banned" {
				t.Errorf("RateLimit: %q", w.Header().Get("RateLimit"))
			}
		})
	}
	for reason := range cases {
		t.Errorf("docs/headers.md has no row: %s", reason)
	}
}
