package waiting_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/explore"
	"github.com/stint-go/stint/internal/waiting"
)

var noShares = func() *waiting.Shares { return nil }

// pool is a slot of each key, as a store counts them, whose answers take a while.
type pool struct {
	*explore.Scheduler
	lines    waiting.Slots
	taken    map[string]string // by whom
	visitors []*visitor
}

// visitor waits for the slots of all of its keys at once.
type visitor struct {
	*pool
	name, keys string
	rank       waiting.Rank
	until      time.Time // tells visitors apart in a trace
	fits       int64     // in a line
	granted    bool
	stands     bool // in a line
}

func (v *visitor) want(key string) *waiting.Want {
	return &waiting.Want{
		Key: waiting.Key{Limit: key, Key: "k"}, Cost: 1, Rank: v.rank,
		Shares: noShares, Room: v.fits, Until: v.until,
	}
}

func (v *visitor) Came(n int64, joined bool) {
	v.stands = joined
	if joined && n > v.fits {
		v.Broken("%s is one of %d in a line, want %d at the most", v.name, n, v.fits)
	}
}

func (v *visitor) Ask(ctx context.Context) *waiting.Want {
	for _, o := range v.visitors {
		if o.stands && o.rank.Before(v.rank) {
			v.Broken("%s asks before %s", v.name, o.name)
		}
	}
	v.Step(ctx, "asks")
	for key := range strings.SplitSeq(v.keys, "") {
		if v.taken[key] != "" {
			v.Step(ctx, "is denied "+key)
			return v.want(key)
		}
	}
	v.take()
	return nil
}

func (v *visitor) take() {
	v.granted, v.stands = true, false
	for key := range strings.SplitSeq(v.keys, "") {
		v.taken[key] = v.name
		v.lines.AddHeld(v.want(key).Key, v.rank.Class, 1)
	}
}

func (v *visitor) giveBack(ctx context.Context) {
	for key := range strings.SplitSeq(v.keys, "") {
		v.Step(ctx, "gives back "+key)
		v.lines.AddHeld(v.want(key).Key, v.rank.Class, -1)
		delete(v.taken, key)
		v.Step(ctx, "has given back "+key)
		v.lines.Wake(v.want(key).Key)
	}
}

// Waiters for slots get them when they come free, in whatever order callers ask, leave,
// change lines and release: no caller has to wait for the next poll, and none is left
// behind in a line.
func TestSlotsInEveryOrder(t *testing.T) {
	tests := []struct {
		name     string
		holders  []string // "name:keys", who have slots at the beginning
		visitors []string
		leaves   string // whose client leaves at some moment
		fits     int64
		ranked   bool // those named later have a higher class
	}{
		{"one leaves", []string{"a:x"}, []string{"b:x", "c:x"}, "c", 9, false},
		{"all leave", []string{"a:x"}, []string{"b:x", "c:x"}, "bc", 9, false},
		{"from one line to another", []string{"a:x", "b:y"}, []string{"c:xy"}, "", 9, false},
		{"another waits there", []string{"a:xy"}, []string{"b:xy", "c:y"}, "", 9, false},
		{"and leaves", []string{"a:xy"}, []string{"b:xy", "c:y"}, "c", 9, false},
		{"in opposite orders", []string{"a:x"}, []string{"b:xy", "c:yx"}, "", 9, false},
		{"room for one", []string{"a:x"}, []string{"b:x", "c:x"}, "", 1, false},
		{"the higher class first", []string{"a:x"}, []string{"b:x", "c:x"}, "", 9, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			explore.Run(t, func(s *explore.Scheduler) {
				p := &pool{Scheduler: s, taken: map[string]string{}}
				start := time.Now()
				visit := func(ctx context.Context, v *visitor) {
					leave, cancel := context.WithCancel(ctx)
					defer cancel()
					if strings.Contains(tt.leaves, v.name) {
						s.Go(v.name+"'s client", func(ctx context.Context) {
							s.Step(ctx, "leaves")
							cancel()
						})
					}
					s.Step(ctx, "comes")
					err := p.lines.Wait(leave, v.want(v.keys[:1]), v)
					switch {
					case v.granted && err == nil:
						v.giveBack(ctx)
					case v.granted,
						err != waiting.ErrFull && !errors.Is(err, context.Canceled),
						err == waiting.ErrFull && tt.fits > 1,
						errors.Is(err, context.Canceled) && leave.Err() == nil:
						s.Broken("%s: %v, granted: %v", v.name, err, v.granted)
					}
				}
				person := func(who string) *visitor {
					name, keys, _ := strings.Cut(who, ":")
					class := uint8(0)
					if tt.ranked {
						class = name[0] - 'a'
					}
					v := &visitor{pool: p, name: name, keys: keys, rank: waiting.RankOf(class, start, time.Second), fits: tt.fits}
					v.until = start.Add(time.Minute + time.Duration(name[0]))
					p.visitors = append(p.visitors, v)
					return v
				}
				for _, who := range tt.holders {
					v := person(who)
					v.take()
					s.Go(v.name, v.giveBack)
				}
				for _, who := range tt.visitors {
					v := person(who)
					s.Go(v.name, func(ctx context.Context) { visit(ctx, v) })
				}
				s.State(func() string { return fmt.Sprint(p.lines.Trace(), p.taken) })
				s.End(func() {
					if waiting, lines, held := p.lines.Counts(); waiting+lines+held > 0 {
						s.Broken("%d wait in %d lines, slots of %d keys are held", waiting, lines, held)
					}
					if d := time.Since(start); d > 0 {
						s.Broken("somebody has waited for a poll: over after %v", d)
					}
				})
			})
		})
	}
}
