package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// panicking is a hook that panics while it is told to.
type panicking struct {
	redis.Hook
	before, after bool
}

func (h *panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.before {
			panic("oops before")
		}
		err := next(ctx, cmd)
		if h.after {
			panic("oops after")
		}
		return err
	}
}

func (h *panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A panic in the client ends neither the process, whoever's goroutine it is, nor the
// calls that come after: it fails the call that it is in, and is in the log.
func TestHookPanics(t *testing.T) {
	for name, own := range map[string]bool{"on the store's goroutine": false, "on the caller's": true} {
		t.Run(name, func(t *testing.T) {
			logged := logs(t)
			rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			hook := &panicking{}
			rdb.AddHook(hook)
			s := manyStore(t, rdb)
			s.takes.Direct, s.settles.Direct = own, own
			rate := denyLimit(t, store.Spec{Name: "n", Units: 9, Period: 24 * time.Hour})
			slot := denyLimit(t, store.Spec{Name: "n", Units: 1, Algorithm: store.Concurrency})
			take := func(l *store.Limit) (r [1]store.Result, err error) {
				err = s.Take(context.Background(), []store.Charge{{Key: "a", Limit: l, Cost: 1}}, r[:])
				return r, err
			}
			held, err := take(slot)
			if err != nil || !held[0].OK {
				t.Fatal(held, err)
			}
			if r, err := take(rate); err != nil || r[0].Remaining != 8 { // the server knows the script now
				t.Fatal(r, err)
			}

			hook.before = true
			for range 3 * s.takes.MaxInFlight {
				if r, err := take(rate); !errors.Is(err, ErrIndeterminate) {
					t.Fatalf("%v, %v, want ErrIndeterminate", r, err)
				}
			}
			give := store.Charge{Key: "a", Limit: slot, Receipt: held[0].Receipt}
			if err := s.Settle(context.Background(), []store.Charge{give}, held[:]); !errors.Is(err, ErrIndeterminate) {
				t.Errorf("Settle: %v, want ErrIndeterminate", err)
			}
			if _, err := s.Reset(context.Background(), "a", rate); !errors.Is(err, ErrIndeterminate) {
				t.Errorf("Reset: %v, want ErrIndeterminate", err)
			}
			if s.renewals.renew(0) && len(s.leases.byKey) > 0 {
				t.Error("a renewal was answered")
			}

			hook.before, hook.after = false, true
			if r, err := take(rate); err != nil || r[0].Remaining != 7 {
				t.Errorf("%v, %v: the answer was there before the panic", r, err)
			}
			hook.after = false
			if r, err := take(rate); err != nil || r[0].Remaining != 6 {
				t.Errorf("%v, %v, want 6 left", r, err)
			}
			if text := logged.String(); !strings.Contains(text, `"oops before"`) || !strings.Contains(text, `"oops after"`) || !strings.Contains(text, "stack=") {
				t.Errorf("in the log: %.300s", text)
			}
		})
	}
}

// logs has slog.Default write to what it returns.
func logs(t *testing.T) *bytes.Buffer {
	t.Helper()
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	return &logged
}
