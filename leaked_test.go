package stint_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// leasing is a store whose slots come free after a while if their process dies.
type leasing struct{ store.Store }

func (leasing) LeaseTTL() time.Duration { return time.Millisecond }

// leaks returns options with the warnings that they give.
func leaks(opts ...stint.Option) (all []stint.Option, given func() []string) {
	var mu sync.Mutex
	var texts []string
	all = append(opts, stint.WithKey(stint.GivenKey()), newLogged(0).with(), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWarning {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, fmt.Sprintf("%v%v: %s", e.Warning.Kind, e.Warning.Limits, e.Warning.Text))
		}
	}))
	return all, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), texts...)
	}
}

//go:noinline
func forget(t *testing.T, l *stint.Limiter) {
	if _, err := l.Take(t.Context(), "k", 1); err != nil {
		t.Error(err)
	}
}

// The slots of a permit that its holder has dropped come free, which is warned about: once, and
// once more when it is known where such permits are taken.
func TestDroppedPermit(t *testing.T) {
	for name, limits := range map[string][]stint.Option{
		"slots":            {stint.Concurrency(1, stint.WithName("slots"))},
		"slots and a rate": {stint.Rate(1000, time.Second, stint.WithName("calls")), stint.Concurrency(1, stint.WithName("slots"))},
		"of this process":  {stint.AdaptiveConcurrency(1, 1, stint.WithName("slots"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, given := leaks(append(limits, stint.WithStore(leasing{memstore.New()}))...)
			l := limiter(t, opts...)
			free := func() bool {
				runtime.GC()
				d, err := l.Peek(t.Context(), "k")
				return err == nil && d.Remaining > 0
			}
			ended := make(chan stint.Event, 1000)
			l.Observe(func(e stint.Event) {
				if e.Kind == stint.EventEnded {
					ended <- e
				}
			})
			for i := 0; len(given()) < 2; i++ {
				if i > 5000 {
					t.Fatalf("after %d permits: %q", i, given())
				}
				forget(t, l)
				eventually(t, free)
				<-ended
			}
			for i, where := range []string{"", " in github.com/stint-go/stint_test.forget (leaked_test.go:"} {
				want := `permit-leaked[slots]: a permit of Take or Wait for limit "slots" was dropped without Done, so its slots stay taken for another 1ms: write defer permit.Done()`
				if got := given()[i]; !strings.HasPrefix(got, want+where) {
					t.Errorf("warning %d: %s, want %s%s…", i, got, want, where)
				}
			}
			if all := l.Describe().Warnings; len(all) != 1 || !strings.Contains(all[0].Text, "stint_test.forget") {
				t.Errorf("described %+v", all)
			}
			if n := l.Held(); n != 0 {
				t.Errorf("slots of %d keys are held", n)
			}
		})
	}
}

// The time is that of the store's leases.
func TestDroppedPermitOfAStoreWithLeases(t *testing.T) {
	const ttl = 100 * time.Millisecond
	shared := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)), redisstore.WithLeaseTTL(ttl))
	opts, given := leaks(stint.Concurrency(1, stint.WithName("slots")), stint.WithStore(failover.New(shared, memstore.New())))
	l := limiter(t, opts...)
	forget(t, l)
	eventually(t, func() bool { runtime.GC(); return len(given()) == 1 })
	if got := given()[0]; !strings.Contains(got, "stay taken for another 100ms") {
		t.Errorf("warned: %s", got)
	}
	eventually(t, func() bool { d, err := l.Peek(t.Context(), "k"); return err == nil && d.Remaining == 1 })
}

// A permit that somebody may still end isn't dropped, whoever has it.
func TestHeldPermit(t *testing.T) {
	opts, given := leaks(stint.Concurrency(4, stint.WithName("slots")), stint.WithStore(leasing{memstore.New()}))
	l := limiter(t, opts...)
	take := func() *stint.Permit {
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { // by what is deferred
		defer take().Done()
		<-stop
	})
	release := take().Detach()  // by the release of Detach
	decision := take().Decision // by a method
	kept := take()
	eventually(t, func() bool { d, err := l.Peek(t.Context(), "k"); return err == nil && d.Remaining == 0 })
	for range 5 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond) // several leases, in real time: the collector runs in no bubble
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 0 {
		t.Errorf("%d slots are free, error %v", d.Remaining, err)
	}
	release()
	kept.Done()
	close(stop)
	all.Wait()
	if got := given(); got != nil {
		t.Errorf("warned: %q", got)
	}
	if d := decision(); !d.Allowed {
		t.Errorf("the decision became %+v", d)
	}
}

// What Done has released isn't released again, and rates leave nothing to release.
func TestEndedPermitIsNotDropped(t *testing.T) {
	opts, given := leaks(stint.Concurrency(1, stint.WithName("slots")), stint.WithStore(leasing{memstore.New()}))
	l := limiter(t, opts...)
	for range 100 {
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		p.Done()
	}
	rates, more := leaks(stint.Rate(1000, time.Second))
	r := limiter(t, rates...)
	for range 100 {
		forget(t, r)
	}
	runtime.GC()
	runtime.GC()
	forget(t, l)
	eventually(t, func() bool { runtime.GC(); return len(given()) == 1 }) // the finalizers before it have run
	if got := more(); got != nil {
		t.Errorf("warned: %q", got)
	}
}
