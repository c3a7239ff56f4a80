package stint_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// faraway is a store whose answers take a millisecond: in fake time, whoever asks
// it without pause would otherwise do so for ever.
type faraway struct{ *spy }

func (s faraway) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	time.Sleep(time.Millisecond)
	return s.spy.Take(ctx, charges, results)
}

// A call that waits for two limits in turn waits for each as long as that limit's
// WithMaxWait says, and asks the store as often as in one line.
func TestPatienceIsTheLinesOwn(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	tests := []struct {
		name         string
		a, b         time.Duration // until when others hold them
		again        time.Duration // when a is taken once more, if it is, for a second
		ahead        bool          // another heads the line of b, and has its slot for 100ms
		admitted     bool
		after        time.Duration
		most         int // takes of the store
		aWait, bWait time.Duration
	}{
		{name: "a, then heads the line of b", a: ms(100), b: ms(3000), admitted: true, after: ms(3000), most: 40, aWait: ms(100), bWait: ms(2900)},
		{name: "a, then second in the line of b", a: ms(100), b: ms(3000), ahead: true, admitted: true, after: ms(3100), most: 45, aWait: ms(100), bWait: ms(3000)},
		{name: "a's patience ends in a's line", a: ms(1000), b: ms(40), after: ms(200), most: 10, aWait: ms(200)},
		{name: "b's patience ends in b's line", a: ms(100), b: ms(9000), after: ms(5100), most: 65, aWait: ms(100), bWait: ms(5000)},
		{name: "b's patience ends behind another", a: ms(100), b: ms(9000), ahead: true, after: ms(5100), most: 75, aWait: ms(100), bWait: ms(5000)},
		{name: "back in a's line, what is left of a's patience", a: ms(160), b: ms(1000), again: ms(500), after: ms(1040), most: 25, aWait: ms(200), bWait: ms(840)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := stint.Concurrency(1, stint.WithName("a"), stint.WithMaxWait(ms(200)))
				b := stint.Concurrency(1, stint.WithName("b"), stint.WithQueue(2), stint.WithMaxWait(ms(5000)))
				s := newSpy()
				root := limiter(t, theKey, stint.WithStore(faraway{s}), stint.Rate(1000, time.Second, stint.WithName("rate")))
				with := func(limits ...stint.Option) *stint.Limiter {
					l, err := root.With(limits...)
					if err != nil {
						t.Fatal(err)
					}
					return l
				}
				onlyA, onlyB, both := with(a), with(b), with(a, b)
				heldA, heldB := take(t, onlyA, 1), take(t, onlyB, 1)
				start := time.Now()
				time.AfterFunc(tt.a, heldA.Done)
				time.AfterFunc(tt.b, heldB.Done)
				if tt.again > 0 {
					time.AfterFunc(tt.again, func() { time.AfterFunc(time.Second, take(t, onlyA, 1).Done) })
				}
				var wg sync.WaitGroup
				if tt.ahead {
					wg.Go(func() {
						if p, err := onlyB.Take(t.Context(), "k", 1); err == nil {
							time.Sleep(ms(100))
							p.Done()
						}
					})
					synctest.Wait()
				}
				p, err := both.Take(t.Context(), "k", 1)
				takes, _ := s.counts()
				near := func(d time.Duration) time.Duration { return d.Round(20 * time.Millisecond) }
				if after := near(time.Since(start)); (err == nil) != tt.admitted || after != tt.after {
					t.Errorf("%v after %v, want admitted: %v after %v", err, after, tt.admitted, tt.after)
				}
				if takes > tt.most {
					t.Errorf("%d takes, want %d at the most", takes, tt.most)
				}
				d := p.Decision()
				if de := (*stint.DeniedError)(nil); errors.As(err, &de) {
					d = de.Decision
				}
				waits := map[string]time.Duration{}
				for _, l := range d.Limits {
					waits[l.Name] = l.Delay
				}
				if near(waits["a"]) != tt.aWait || near(waits["b"]) != tt.bWait || near(d.Delay) != tt.after {
					t.Errorf("waited %v for a and %v for b, %v in all; want %v, %v, %v", waits["a"], waits["b"], d.Delay, tt.aWait, tt.bWait, tt.after)
				}
				p.Done()
				wg.Wait()
				time.Sleep(10 * time.Second)
				noLines(t, root)
				take(t, both, 1).Done()
			})
		})
	}
}
