package stint_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// workers hold slots in a class until they are told to go.
type workers struct {
	l    *stint.Limiter
	wg   sync.WaitGroup
	mu   sync.Mutex
	in   []int // classes that hold a slot, in the order in which they got it
	ends map[int][]func()
}

func crew(l *stint.Limiter) *workers { return &workers{l: l, ends: map[int][]func(){}} }

// come has n more of a class ask for a slot.
func (w *workers) come(t *testing.T, class, n int) {
	for range n {
		w.wg.Go(func() {
			p, err := w.l.Take(stint.ContextWithPriority(t.Context(), class), "k", 1)
			if err != nil {
				return
			}
			done := make(chan struct{})
			w.mu.Lock()
			w.in = append(w.in, class)
			w.ends[class] = append(w.ends[class], func() { close(done) })
			w.mu.Unlock()
			<-done
			p.Done()
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
}

// leave has n of a class that hold a slot leave, one after the other.
func (w *workers) leave(class, n int) {
	for range n {
		w.mu.Lock()
		end := w.ends[class][0]
		w.ends[class] = w.ends[class][1:]
		w.in = slices.Delete(w.in, slices.Index(w.in, class), slices.Index(w.in, class)+1)
		w.mu.Unlock()
		end()
		synctest.Wait()
	}
}

// held says how many slots each class holds, as "0:7 1:3".
func (w *workers) held() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[int]int{}
	for _, c := range w.in {
		count[c]++
	}
	var parts []string
	for c := range 10 {
		if count[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d", c, count[c]))
		}
	}
	return strings.Join(parts, " ")
}

// TestShare plays what comes and goes: "+1x20" is twenty of class 1 that come,
// "-0x3" are three of class 0 that leave, "=" is followed by who holds slots.
func TestShare(t *testing.T) {
	share := stint.WithShare
	wait, queue := stint.WithMaxWait(50*time.Second), stint.WithQueue(100)
	ten := func(opts ...stint.ConcurrencyOption) stint.Limit {
		return stint.Concurrency(10, append(opts, wait, queue)...)
	}
	tests := []struct {
		name  string
		limit stint.Limit
		play  string
		ranks bool // classes are ranked, or else all are in the order in which they came
	}{
		{"none", ten(), "+0x20 +0x1 =0:10 -0x4 =0:10", false},
		{"an idle share is borrowed", ten(share(1, 30)), "+0x20 =0:10 -0x5 =0:10", false},
		{"and comes back as slots are released, whoever came first", ten(share(1, 30)),
			"+0x20 +1x20 =0:10 -0x1 =0:9|1:1 -0x1 =0:8|1:2 -0x1 =0:7|1:3 -0x3 =0:7|1:3 -1x1 =0:7|1:3", false},
		{"also if the others rank higher", ten(share(1, 30)),
			"+9x20 +1x20 -9x3 =1:3|9:7 -9x3 =1:3|9:7 -1x2 =1:3|9:7", true},
		{"beyond its share a class ranks like all others", ten(share(5, 30)),
			"+0x20 +5x20 -0x3 =0:7|5:3 -0x7 =5:10", true},
		{"an idle limit is anybody's", ten(share(1, 30)), "+1x20 =1:10 +0x20 -1x2 =1:10", false},
		{"two shares", ten(share(0, 40), share(1, 30)), "+5x20 +0x20 +1x20 -5x3 =0:3|5:7 -5x7 =0:4|1:3|5:3", false},
		{"all of it shared", ten(share(0, 40), share(1, 60)), "+1x12 +0x12 -1x5 =0:4|1:6 -0x2 =0:4|1:6 -1x2 =0:5|1:5", false},
		{"a small share is one slot", stint.Concurrency(3, wait, queue, share(1, 10)), "+0x9 +1x9 -0x1 =0:2|1:1 -0x1 =0:2|1:1 -1x1 =0:2|1:1", false},
		{"who leaves the line leaves the share idle", ten(share(1, 50)), "+0x12 +1x1 -0x1 =0:9|1:1 -0x1 =0:9|1:1", false},
		{"of a limit that adapts", stint.AdaptiveConcurrency(10, 10, wait, queue, share(1, 30)), "+0x20 +1x20 -0x3 =0:7|1:3 -0x3 =0:7|1:3", false},
		{"a dry run", stint.Concurrency(1, wait, share(1, 50), stint.WithDryRun()), "+0x3 +1x3 =0:3|1:3", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				aging := time.Nanosecond
				if tt.ranks {
					aging = time.Second
				}
				l := limiter(t, theKey, tt.limit, stint.WithAging(aging))
				w := crew(l)
				for step := range strings.FieldsSeq(tt.play) {
					var class, n int
					switch step[0] {
					case '+':
						_, _ = fmt.Sscanf(step, "+%dx%d", &class, &n)
						w.come(t, class, n)
					case '-':
						_, _ = fmt.Sscanf(step, "-%dx%d", &class, &n)
						w.leave(class, n)
					case '=':
						if got, want := w.held(), strings.ReplaceAll(step[1:], "|", " "); got != want {
							t.Errorf("at %s: %s", step, got)
						}
					}
				}
				for w.held() != "" {
					w.leave(w.in[0], 1)
				}
				w.wg.Wait()
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("shares of %d keys are still counted", n)
				}
			})
		})
	}
}

// Whoever comes and goes: while a class waits that holds less than its share, no class
// that has its share gets a slot.
func TestShareUnderStress(t *testing.T) {
	shares := map[int]int{0: 20, 1: 50}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newRand(seed)
			slots := 2 + rnd.IntN(12)
			l := limiter(t, theKey, stint.Concurrency(int64(slots), stint.WithQueue(1000), stint.WithMaxWait(30*time.Second), stint.WithShare(0, shares[0]), stint.WithShare(1, shares[1])))
			var mu sync.Mutex
			var total int
			held, waiting := map[int]int{}, map[int]int{}
			owed := func(class int) bool {
				return shares[class] > 0 && (held[class] == 0 || (held[class]+1)*100 <= shares[class]*(total+1))
			}
			served := 0
			var wg sync.WaitGroup
			for range 200 {
				class := rnd.IntN(3)
				ctx, cancel := context.WithCancel(stint.ContextWithPriority(t.Context(), class))
				if rnd.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(2_000_000))*time.Microsecond, cancel)
				}
				work := time.Duration(1+rnd.IntN(400_000)) * time.Microsecond
				wg.Go(func() {
					defer cancel()
					mu.Lock()
					waiting[class]++
					mu.Unlock()
					p, err := l.Take(ctx, "k", 1)
					mu.Lock()
					defer mu.Unlock()
					waiting[class]--
					if err != nil {
						return
					}
					served++
					for other := range shares {
						if other != class && waiting[other] > 0 && owed(other) && !owed(class) {
							t.Errorf("seed %d: class %d got a slot while class %d waited: %v held of %d, %v waiting", seed, class, other, held, slots, waiting)
						}
					}
					held[class]++
					if total++; total > slots {
						t.Errorf("seed %d: %d of %d slots held", seed, total, slots)
					}
					mu.Unlock()
					time.Sleep(work)
					mu.Lock()
					held[class]--
					total--
					p.Done()
				})
				synctest.Wait()
				time.Sleep(time.Duration(1+rnd.IntN(20_000)) * time.Microsecond)
			}
			wg.Wait()
			if got := remaining(t, l); got != int64(slots) || served < 60 {
				t.Errorf("seed %d: %d of %d slots free at the end, %d served", seed, got, slots, served)
			}
			noLines(t, l)
			if n := l.Held(); n != 0 {
				t.Errorf("shares of %d keys are still counted", n)
			}
		})
	}
}

// What is held is counted once, however the request ends, and across updates.
func TestShareIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := func(opts ...stint.ConcurrencyOption) stint.Limit {
			return stint.Concurrency(3, append(opts, stint.WithMaxWait(time.Minute))...)
		}
		l := limiter(t, theKey, slots(), stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute)))
		before := take(t, l, 1)
		if err := l.Update(theKey, slots(stint.WithShare(0, 50)), stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute))); err != nil {
			t.Fatal(err)
		}
		p := take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := l.Take(ctx, "k", 1); err == nil { // leaves while it waits for its turn
			t.Error("no cancellation")
		}
		if err := l.Update(theKey, slots()); err != nil {
			t.Fatal(err)
		}
		if n := l.Held(); n != 1 {
			t.Errorf("%d keys counted, want that of the permit", n)
		}
		p.Detach()()
		p.Done()
		before.Done()
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys counted at the end", n)
		}
	})
}

// An Update that adds a share applies to those who already hold slots or wait for them,
// as if the share had always been there.
func TestSharesOfThoseWhoCameBefore(t *testing.T) {
	tests := []struct {
		name   string
		adapts bool
		share  stint.SlotOption
		play   string // as in TestShare; "update" adds the share
	}{
		{"who has its share is owed nothing", false, stint.WithShare(1, 50), "+0x2 +1x2 update +0x1 +1x1 -0x1 =0:2|1:2"},
		{"who has less than its share is", false, stint.WithShare(1, 50), "+0x3 +1x1 update +0x1 +1x1 -0x1 =0:2|1:2"},
		{"others count in the whole", false, stint.WithShare(1, 40), "+0x2 +1x1 +2x1 update +2x1 +1x1 -0x1 =0:1|1:1|2:2"},
		{"who waits is owed it", false, stint.WithShare(1, 50), "+0x4 +0x1 +1x2 update -0x1 =0:3|1:1 -0x1 =0:2|1:2"},
		{"of a limit that adapts", true, stint.WithShare(1, 50), "+0x2 +1x2 update +0x1 +1x1 -0x1 =0:2|1:2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wait, queue := stint.WithMaxWait(50*time.Second), stint.WithQueue(100)
				before, after := stint.Concurrency(4, wait, queue), stint.Concurrency(4, wait, queue, tt.share)
				if tt.adapts {
					before, after = stint.AdaptiveConcurrency(4, 4, wait, queue), stint.AdaptiveConcurrency(4, 4, wait, queue, tt.share)
				}
				l := limiter(t, theKey, before, stint.WithAging(time.Nanosecond))
				w := crew(l)
				for step := range strings.FieldsSeq(tt.play) {
					var class, n int
					_, _ = fmt.Sscanf(step[1:], "%dx%d", &class, &n)
					switch step[0] {
					case '+':
						w.come(t, class, n)
					case '-':
						w.leave(class, n)
					case 'u':
						update(t, l, theKey, after, stint.WithAging(time.Nanosecond))
					case '=':
						if got, want := w.held(), strings.ReplaceAll(step[1:], "|", " "); got != want {
							t.Errorf("%s, want %s", got, want)
						}
					}
				}
				for w.held() != "" {
					w.leave(w.in[0], 1)
				}
				w.wg.Wait()
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("what is held of %d keys is still counted", n)
				}
			})
		})
	}
}

func TestShareOptions(t *testing.T) {
	tests := []struct {
		name string
		opt  stint.Option
		want string
	}{
		{"no class", stint.Concurrency(1, stint.WithShare(10, 10)), "a class from 0 to 9"},
		{"less than no class", stint.Concurrency(1, stint.WithShare(-1, 10)), "a class from 0 to 9"},
		{"nothing", stint.Concurrency(1, stint.WithShare(1, 0)), "1 to 100 percent"},
		{"too much", stint.Concurrency(1, stint.WithShare(1, 101)), "1 to 100 percent"},
		{"too much in all", stint.Concurrency(1, stint.WithShare(1, 60), stint.WithShare(2, 41)), "add up to 101 percent"},
		{"twice", stint.Concurrency(1, stint.WithShare(1, 10), stint.WithShare(1, 10)), "has a share already"},
		{"a queue of less than nothing", stint.Concurrency(1, stint.WithQueue(-1)), "WithQueue(-1): write 0 or more"},
		{"no function", stint.WithPriority(nil), "WithPriority(nil)"},
		{"no aging", stint.WithAging(0), "WithAging(0s)"},
		{"aging for ever", stint.WithAging(2 * time.Hour), "WithAging(2h0m0s)"},
	}
	for _, tt := range tests {
		_, err := stint.New(theKey, stint.Rate(9, time.Second, stint.WithName("other")), tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}
