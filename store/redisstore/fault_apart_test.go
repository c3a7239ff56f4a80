package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// tap goes wrong where it is told to, between the store and its client.
type tap struct{ with atomic.Pointer[injectedFault] }

// injectedFault is the fate of commands that call one script for one tag.
type injectedFault struct {
	script *scripts.Script
	tag    string
	become func(context.Context, *redis.Cmd, redis.ProcessHook) error
}

func (h *tap) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f := h.with.Load(); f != nil && f.hits(cmd) {
			return f.become(ctx, cmd.(once).Cmd, next)
		}
		return next(ctx, cmd)
	}
}

func (h *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		one := func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, []redis.Cmder{cmd})
			return errors.Join(err, cmd.Err())
		}
		var failed error
		rest := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool {
			f := h.with.Load()
			hit := f != nil && f.hits(cmd)
			if hit {
				failed = f.become(ctx, cmd.(once).Cmd, one)
				cmd.SetErr(failed)
			}
			return hit
		})
		if len(rest) > 0 {
			failed = errors.Join(failed, next(ctx, rest))
		}
		return failed
	}
}

func (f *injectedFault) hits(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 4 || args[1] != f.script.SHA && args[1] != f.script.Source {
		return false
	}
	key, _ := args[3].(string)
	return wire.TagIn(key) == f.tag
}

// What may become of a command.
var (
	errGone = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errCut  = &net.OpError{Op: "read", Err: errors.New("connection reset")}
)

func notSent(_ context.Context, cmd *redis.Cmd, _ redis.ProcessHook) error {
	cmd.SetErr(errGone)
	return errGone
}

func outOfMemory(_ context.Context, cmd *redis.Cmd, _ redis.ProcessHook) error {
	err := redis.Error(redisError("OOM command not allowed when used memory > 'maxmemory'"))
	cmd.SetErr(err)
	return err
}

func answerLost(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
	_ = next(ctx, once{cmd})
	cmd.SetErr(errCut)
	return errCut
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

const apartTimeout = 150 * time.Millisecond

// A call whose keys are in several places, of which one denies or fails: the
// error says that nothing was charged only if all of what the others had granted
// is known to have been given back. In the end it is, once the fault is over.
func TestApartGivesBack(t *testing.T) {
	server := redistest.Start(t)
	ring := func() *redis.Ring { // of one: keys are apart by what is in their braces
		r := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr()}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { r.Close() })
		return r
	}
	apartGivesBack(t, ring(), ring(), func(string) any { return 0 })
}

func TestFaultsApartInCluster(t *testing.T) {
	redistest.Suite(t, "faults")
	cluster := redistest.StartCluster(t, 3, 0)
	heeds := func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }
	apartGivesBack(t, cluster.Client(heeds), cluster.Client(), func(key string) any { return cluster.NodeOf("{" + key + "}") })
}

// apartGivesBack has rdb go wrong, and looks at what comes of it through well. Keys
// whose nodes differ are on different ones.
func apartGivesBack(t *testing.T, rdb, well redis.UniversalClient, node func(key string) any) {
	h := new(tap)
	rdb.AddHook(h)
	s, hasty, other := New(rdb, WithTimeout(time.Minute)), New(rdb, WithTimeout(apartTimeout)), New(well, WithTimeout(time.Minute))
	defer s.Close()
	defer hasty.Close()
	defer other.Close()
	pulse := redistest.StartPulse(t)
	elsewhere := func(key, than string) string {
		for range 30 {
			if node(key) != node(than) {
				break
			}
			key += key[:1]
		}
		return key
	}

	take, back := scripts.Take(scripts.TokenBucket), scripts.Settle(scripts.TokenBucket)
	l := denyLimit(t, store.Spec{Name: "l", Units: 5, Period: 24 * time.Hour})
	ctx := t.Context()
	for n, tt := range []struct {
		name   string
		denies bool // the second key's limit
		faults func(granted, second string) *injectedFault
		late   bool // what is given back is sent when the caller has its answer
		unsent bool // or isn't, as is only known then
		leave  bool // which it has because it leaves, and not because time is up
		class  error
		never  error
	}{
		{name: "denied", denies: true},
		{
			name: "denied, and the server of what is to be given back is gone", denies: true,
			faults: func(granted, _ string) *injectedFault { return &injectedFault{back, granted, notSent} },
			class:  ErrIndeterminate, never: ErrUnavailable,
		},
		{
			name: "denied, and it can't write", denies: true,
			faults: func(granted, _ string) *injectedFault { return &injectedFault{back, granted, outOfMemory} },
			class:  ErrIndeterminate, never: ErrServer,
		},
		{
			name: "denied, and the answer is lost", denies: true,
			faults: func(granted, _ string) *injectedFault { return &injectedFault{back, granted, answerLost} },
			class:  ErrIndeterminate,
		},
		{
			name: "denied, and it takes too long", denies: true, late: true,
			class: ErrIndeterminate,
		},
		{
			name: "denied, and it takes long until it is known that nothing was sent", denies: true, late: true, unsent: true,
			class: ErrIndeterminate,
		},
		{
			name: "denied, and the caller leaves", denies: true, late: true, leave: true,
			class: context.Canceled,
		},
		{
			name:   "one was not asked",
			faults: func(_, second string) *injectedFault { return &injectedFault{take, second, notSent} },
			class:  ErrUnavailable, never: ErrIndeterminate,
		},
		{
			name: "one was not asked, and the server of what is to be given back is gone",
			faults: func(granted, second string) *injectedFault {
				return &injectedFault{take, second, func(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
					for r := make([]store.Result, 1); ctx.Err() == nil && r[0].Remaining != 4; { // until the other has been granted
						_ = other.Take(ctx, []store.Charge{{Key: granted, Limit: l}}, r)
					}
					h.with.Store(&injectedFault{back, granted, notSent})
					return notSent(ctx, cmd, next)
				}}
			},
			class: ErrIndeterminate, never: ErrUnavailable,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			granted := fmt.Sprint("a", n)
			second := elsewhere(fmt.Sprint("b", n), granted)
			if tt.denies {
				if r := mustTake(t, other, second, l, 5); !r.OK {
					t.Fatal(r)
				}
			}
			// Its node knows both scripts.
			first := store.Charge{Key: granted, Limit: l, Receipt: mustTake(t, other, granted, l, 1).Receipt}
			if err := other.Settle(ctx, []store.Charge{first}, make([]store.Result, 1)); err != nil {
				t.Fatal(err)
			}

			caller, leave := context.WithCancel(ctx)
			defer leave()
			if tt.faults != nil {
				h.with.Store(tt.faults(granted, second))
				defer h.with.Store(nil)
			}
			asked, returned := s, make(chan struct{})
			if tt.late {
				h.with.Store(&injectedFault{back, granted, func(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
					if tt.leave {
						leave()
					}
					<-returned
					if tt.unsent {
						return notSent(ctx, cmd, next)
					}
					return next(context.Background(), once{cmd})
				}})
				defer h.with.Store(nil)
			}
			if tt.class == ErrIndeterminate { // it tries again after a timeout's time
				asked = hasty
			}
			charges := []store.Charge{{Key: granted, Limit: l, Cost: 1}, {Key: second, Limit: l, Cost: 1}}
			results := make([]store.Result, 2)
			start := pulse.Elapsed()
			err := asked.Take(caller, charges, results)
			close(returned)
			if held := pulse.Elapsed() - start; held > 3*apartTimeout {
				t.Errorf("held for %v", held)
			}
			if !errors.Is(err, tt.class) || tt.never != nil && errors.Is(err, tt.never) {
				t.Errorf("error %v, want %v and not %v", err, tt.class, tt.never)
			}
			if err == nil && (results[1].OK || !results[0].OK || results[0].Remaining != 5) {
				t.Errorf("%+v", results)
			}
			h.with.Store(nil)
			for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // late ones
				got := mustTake(t, other, granted, l, 0).Remaining
				if got == 5 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d left of 5 where it was granted", got)
				}
			}
		})
	}

	t.Run("settled in one place and not in the other", func(t *testing.T) {
		charges := []store.Charge{{Key: "s", Limit: l, Cost: 2}, {Key: elsewhere("t", "s"), Limit: l, Cost: 2}}
		for i, c := range charges {
			charges[i].Cost, charges[i].Receipt = 1, mustTake(t, s, c.Key, l, 2).Receipt
		}
		h.with.Store(&injectedFault{back, charges[1].Key, notSent})
		defer h.with.Store(nil)
		if err := s.Settle(ctx, charges, make([]store.Result, 2)); !errors.Is(err, ErrIndeterminate) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		h.with.Store(&injectedFault{back, charges[0].Key, notSent})
		if err := s.Settle(ctx, charges[:1], make([]store.Result, 1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("one alone: %v", err)
		}
	})
}

func mustTake(t *testing.T, s *Store, key string, l *store.Limit, cost int64) store.Result {
	t.Helper()
	var r [1]store.Result
	if err := s.Take(t.Context(), []store.Charge{{Key: key, Limit: l, Cost: cost}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0]
}
