package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

// What travels with keys that are elsewhere goes again, once, and only if
// nothing has been done for it.
func TestSeparating(t *testing.T) {
	type parcel struct {
		site    site
		keys    []string
		touched bool
	}
	sent := func(slot uint16, touched bool, keys ...string) parcel {
		return parcel{site{slot: slot}, keys, touched}
	}
	a, b, both := sent(1, false, "a"), sent(1, false, "b"), sent(1, false, "a", "b")
	for _, tt := range []struct {
		name   string
		fails  string
		calls  []parcel
		rounds []int // calls in each command
	}{
		{"one", "TRYAGAIN", []parcel{a}, []int{1}},
		{"two keys", "TRYAGAIN", []parcel{a, b}, []int{2, 1, 1}},
		{"by their keys", "TRYAGAIN", []parcel{a, b, both, a, both}, []int{5, 2, 1, 2}},
		{"no other keys", "TRYAGAIN", []parcel{both, both}, []int{2}},
		{"well in another slot", "TRYAGAIN", []parcel{a, sent(2, false, "z"), b}, []int{2, 1, 1, 1}},
		{"settled in part", "TRYAGAIN", []parcel{a, sent(1, true, "b"), b}, []int{3, 1, 1}},
		{"another error", "LOADING", []parcel{a, b}, []int{2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rounds []int
			send := resendApart(func(_ context.Context, calls []*batch.Call[parcel]) {
				for _, group := range groupBySite(calls, func(p *parcel) site { return p.site }) {
					rounds = append(rounds, len(group))
					for _, one := range group {
						one.Failed = nil
						if one.Body.site.slot == 1 && one.Body.site.tag == "" {
							one.Failed = fmt.Errorf("wrapped: %w", replied(tt.fails+" words"))
						}
					}
				}
			}, func(p *parcel) (*site, []string, bool) { return &p.site, p.keys, !p.touched })
			var calls []*batch.Call[parcel]
			for _, p := range tt.calls {
				one := batch.NewCall[parcel]()
				one.Body = p
				calls = append(calls, one)
			}
			send(t.Context(), calls)
			if !slices.Equal(rounds, tt.rounds) {
				t.Errorf("commands of %v calls, want %v", rounds, tt.rounds)
			}
			for i, one := range calls {
				if failed := len(rounds) < 2 || one.Body.touched; one.Body.site.slot == 1 && (one.Failed != nil) != failed {
					t.Errorf("call %d: %v", i, one.Failed)
				}
			}
		})
	}
}

// dumb is a server that answers each settlement by what it has been given to say.
type dumb struct{ says func(keys int) (any, error) }

func (d dumb) DialHook(redis.DialHook) redis.DialHook { return nil }

func (d dumb) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		c := cmd.(once).Cmd
		v, err := d.says(c.Args()[2].(int))
		c.SetVal(v)
		c.SetErr(err)
		return err
	}
}

func (d dumb) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = d.ProcessHook(nil)(ctx, cmd)
		}
		return nil
	}
}

// Settlements that have been made after all, each by itself, have not failed.
func TestSettledApart(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(dumb{func(keys int) (any, error) {
		if keys > 1 {
			return nil, replied("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return []any{int64(1), nil}, nil
	}})
	s := New(rdb)
	l := denyLimit(t, store.Spec{Name: "l", Units: 5, Period: time.Hour})
	var calls []*batch.Call[settleRequest]
	for _, key := range []string{"a", "b"} {
		one := batch.NewCall[settleRequest]()
		one.Body.add(store.Charge{Key: key, Limit: l, Receipt: store.Receipt{Cost: 1}}, wire.StorageKey(s.prefix, key, l), 0)
		calls = append(calls, one)
	}
	resendApart(settleSender{&s.server, s.denies}.send, partsOfSettle)(t.Context(), calls)
	for _, one := range calls {
		if one.Failed != nil || !one.Body.results[0].OK {
			t.Errorf("%+v, %v", one.Body.results, one.Failed)
		}
	}
}

// A call of which part has been settled, and part had to wait for the calendar and
// failed then, may have been made.
func TestSettledInPart(t *testing.T) {
	for name, then := range map[string]func() (any, error){
		"fails":         func() (any, error) { return nil, replied("LOADING the dataset") },
		"asks for ever": func() (any, error) { return []any{int64(1), "?1"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{})
			t.Cleanup(func() { rdb.Close() })
			asked := 0
			rdb.AddHook(dumb{func(int) (any, error) {
				if asked++; asked == 1 {
					return []any{int64(1), nil, "?1"}, nil
				}
				return then()
			}})
			s := New(rdb)
			zone, err := time.LoadLocation("Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			charges := []store.Charge{
				{Key: "k", Limit: denyLimit(t, store.Spec{Name: "a", Units: 5, Period: time.Hour}), Receipt: store.Receipt{Cost: 1}},
				{Key: "k", Limit: denyLimit(t, store.Spec{Name: "b", Algorithm: store.FixedWindow, Units: 5, Window: store.Daily.In(zone)}), Receipt: store.Receipt{Cost: 1}},
			}
			if err := s.Settle(t.Context(), charges, make([]store.Result, 2)); !errors.Is(err, ErrIndeterminate) || fault.NotMade(err) {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
}
