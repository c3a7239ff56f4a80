package stint_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/explore"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// paused is a store whose answers take a while once it has a scheduler: anybody may
// come in before and after.
type paused struct {
	store.Store
	s *explore.Scheduler
}

func (st *paused) step(ctx context.Context, label string) {
	if st.s != nil {
		st.s.Step(ctx, label)
	}
}

func (st *paused) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	st.step(ctx, "asks")
	err := st.Store.Take(ctx, charges, results)
	if !results[0].OK {
		st.step(ctx, "is refused")
	}
	return err
}

func (st *paused) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	st.step(ctx, "gives back")
	return st.Store.Settle(ctx, charges, results)
}

// A waiter gets a slot when it is released, in whatever order callers ask, leave and
// release: nobody has to wait for the next poll, no slot is held twice, and none is
// lost.
func TestLineOfSlotsInEveryOrder(t *testing.T) {
	explore.Run(t, func(s *explore.Scheduler) {
		start := time.Now()
		st := &paused{Store: memstore.New()}
		l, err := stint.New(theKey, stint.WithStore(st),
			stint.Concurrency(1, stint.WithName("x"), stint.WithQueue(2), stint.WithMaxWait(time.Minute)))
		if err != nil {
			s.Broken("%v", err)
			return
		}
		inside := 1
		enter := func(waits context.Context) {
			p, err := l.Take(waits, "k", 1)
			if err != nil {
				if !errors.Is(err, context.Canceled) || waits.Err() == nil {
					s.Broken("%v", err)
				}
				return
			}
			if inside++; inside > 1 || time.Since(start) > 0 {
				s.Broken("%d inside after %v", inside, time.Since(start))
			}
			p.Done()
			inside--
		}
		s.Go("a", func(ctx context.Context) {
			p, err := l.Take(ctx, "k", 1)
			if err != nil {
				s.Broken("%v", err)
			}
			st.s = s
			for _, name := range []string{"b", "c"} {
				s.Go(name, func(ctx context.Context) {
					waits, cancel := context.WithCancel(ctx)
					defer cancel()
					if name == "c" {
						s.Go("c's client", func(ctx context.Context) {
							s.Step(ctx, "leaves")
							cancel()
						})
					}
					enter(waits)
				})
			}
			p.Done()
			inside--
		})
		s.End(func() {
			if waiting, slots, _ := l.Lines(); waiting != 0 || slots != 0 || l.Held() != 0 {
				s.Broken("%d wait in %d lines, %d keys are held", waiting, slots, l.Held())
			}
		})
	})
}
