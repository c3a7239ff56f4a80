package stint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// tenancy is tenants that hold slots until they are told to go.
type tenancy struct {
	come   func(name string, hold func()) (denied bool)
	mu     sync.Mutex
	held   map[string][]func()
	denied []string
	all    sync.WaitGroup
}

// play plays what comes and goes: "+A" is a request of tenant A that comes, "-A" one that leaves, and "=" is followed
// by how many slots each tenant holds and, behind a bar, of which tenants requests have been denied.
func (ts *tenancy) play(t *testing.T, play string) {
	ts.held = map[string][]func(){}
	leave := func(name string) {
		ts.mu.Lock()
		end := ts.held[name][0]
		ts.held[name] = ts.held[name][1:]
		ts.mu.Unlock()
		end()
		synctest.Wait()
	}
	for step := range strings.FieldsSeq(play) {
		name := step[1:]
		switch step[0] {
		case '+':
			ts.all.Go(func() {
				denied := ts.come(name, func() {
					ended := make(chan struct{})
					ts.mu.Lock()
					ts.held[name] = append(ts.held[name], func() { close(ended) })
					ts.mu.Unlock()
					<-ended
				})
				if denied {
					ts.mu.Lock()
					defer ts.mu.Unlock()
					ts.denied = append(ts.denied, name)
				}
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		case '-':
			leave(name)
		case '=':
			if got := ts.state(); got != name {
				t.Errorf("at %s: %s", step, got)
			}
		}
	}
	for {
		name := ""
		for n, ends := range ts.held {
			if len(ends) > 0 {
				name = n
			}
		}
		if name == "" {
			break
		}
		leave(name)
	}
	ts.all.Wait()
}

func (ts *tenancy) state() string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var held []string
	for name, ends := range ts.held {
		if len(ends) > 0 {
			held = append(held, fmt.Sprintf("%s:%d", name, len(ends)))
		}
	}
	slices.Sort(held)
	return strings.Join(held, ",") + "|" + strings.Join(ts.denied, ",")
}

// overHTTP has the tenants' requests name them in a field.
func overHTTP(l *stint.Limiter) *tenancy {
	return &tenancy{come: func(name string, hold func()) bool {
		r := get("/")
		r.Header.Set("Tenant", name)
		return through(l, r, func(http.ResponseWriter, *http.Request) { hold() }).Code != http.StatusOK
	}}
}

// overTake has the tenants' calls give their names as keys.
func overTake(t *testing.T, take func(ctx context.Context, key string, cost int64) (*stint.Permit, error)) *tenancy {
	return &tenancy{come: func(name string, hold func()) bool {
		p, err := take(t.Context(), name, 1)
		if err != nil {
			_ = denied(t, err)
			return true
		}
		defer p.Done()
		hold()
		return false
	}}
}

func TestFairQueue(t *testing.T) {
	tenant := stint.KeyFunc(func(r *http.Request) (string, error) {
		switch name := r.Header.Get("Tenant"); name {
		case "none":
			return "", nil
		case "fails", "fails-too":
			return "", errors.New(name)
		default:
			return name, nil
		}
	})
	everybody := stint.WithKey(stint.Global())
	slots := func(n, queue int64, opts ...stint.SlotOption) stint.Limit {
		return stint.Concurrency(n, append(opts, stint.WithQueue(queue), stint.WithMaxWait(time.Hour))...)
	}
	fair := stint.WithFairQueue(tenant)
	three := stint.WithCost(func(r *http.Request) int64 {
		if strings.HasPrefix(r.Header.Get("Tenant"), "three") {
			return 3
		}
		return 1
	})
	for _, test := range []struct {
		name  string
		limit stint.Limit
		play  string
	}{
		{"without one, in the order of arrival", slots(3, 9), "+A +A +A +A +B +C -A =A:3| -A =A:2,B:1|"},
		{"the tenant that holds the fewest slots", slots(3, 9, fair), "+A +A +A +A +B +C -A =A:2,B:1| -A =A:1,B:1,C:1| -B =A:2,C:1|"},
		{"an idle limit is anybody's", slots(3, 9, fair), "+A +A +A +B =A:3| -A =A:2,B:1| -B =A:2| +A =A:3|"},
		{"the rank is that of the release", slots(4, 9, fair), "+A +A +B +B +A +B -B =A:2,B:2| -A =A:2,B:2|"},
		{"and not that of the arrival", slots(4, 9, fair), "+A +A +A +B +A +B -A =A:2,B:2| -B =A:3,B:1|"},
		{"of tenants with as many, the oldest request", slots(2, 9, fair), "+X +X +B +A +C -X =B:1,X:1| -X =A:1,B:1|"},
		{"a full queue turns away the newest of the tenant with the most", slots(2, 3, fair), "+A +A +A +A +A +B =A:2|A -A =A:1,B:1|A -A =A:1,B:1|A"},
		{"which has at least two more", slots(1, 2, fair), "+X +A +B +C =X:1|C +A =X:1|C,A"},
		{"running ones count", slots(2, 2, fair), "+A +A +A +B +C =A:2|A -A =A:1,B:1|A"},
		{"a newcomer of the tenant with the most", slots(2, 2, fair), "+A +A +A +B +A =A:2|A"},
		{"without a tenant, and without one that can be read: one tenant", slots(3, 9, fair), "+none +fails +A +fails-too +none +B -A =B:1,fails:1,none:1|"},
		{"a cost of three counts three", slots(7, 9, fair, three), "+three +A +A +X +X +A +three -X =A:3,X:1,three:1| -A =A:2,X:1,three:1| -X =A:2,three:1| -A =A:1,three:2|"},
		{"a dry run", slots(1, 1, fair, stint.WithDryRun(true)), "+A +A +B =A:2,B:1|"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, everybody, test.limit, stint.WithPriority(func(r *http.Request) int { return len(r.Header) }))
				overHTTP(l).play(t, test.play)
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("%d keys and tenants hold slots in the end", n)
				}
			})
		})
	}
}

// Outside HTTP, the tenant is the key that is given. The class of the context doesn't matter.
func TestFairQueueOfGivenKeys(t *testing.T) {
	for _, key := range []stint.Key{stint.GivenKey(), stint.Header("Tenant")} {
		for _, patient := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, stint.WithKey(stint.Global()), stint.Concurrency(2, stint.WithQueue(2), stint.WithMaxWait(time.Hour), stint.WithFairQueue(key)))
				take := l.Take
				if patient {
					take = l.Wait
				}
				ts := overTake(t, func(ctx context.Context, key string, cost int64) (*stint.Permit, error) {
					return take(stint.ContextWithPriority(ctx, int(key[0]-'A')), key, cost)
				})
				ts.play(t, "+F +F +F +B +C =F:2|F -F =B:1,F:1|F -F =B:1,C:1|F")
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("%d keys and tenants hold slots in the end", n)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // one tenant, with an empty key too
		l := limiter(t, stint.WithKey(stint.Global()), stint.Concurrency(1, stint.WithQueue(1), stint.WithFairQueue(stint.GivenKey())))
		ts := overTake(t, func(ctx context.Context, key string, cost int64) (*stint.Permit, error) {
			return l.Take(ctx, key[:0], cost)
		})
		ts.play(t, "+A +B +C =A:1|C")
	})
}

// A request's key is read once, also by several limits, and a panic of the key leaves nothing behind.
func TestFairQueueReadsKeys(t *testing.T) {
	var read atomic.Int64
	key := stint.KeyFunc(func(r *http.Request) (string, error) {
		if read.Add(1); r.Header.Get("Tenant") == "panics" {
			panic("key")
		}
		return r.Header.Get("Tenant"), nil
	})
	slots := func(name string, opts ...stint.SlotOption) stint.Limit {
		return stint.Concurrency(9, append(opts, stint.WithName(name), stint.WithQueue(9), stint.WithFairQueue(key))...)
	}
	global := stint.WithKey(stint.Global())
	for _, opts := range [][]stint.Option{
		{slots("a", global)},
		{slots("a", global), slots("b", global)},
		{slots("a", global), stint.Rate(99, time.Second, stint.WithKey(key))},
		{slots("a", global), stint.AdaptiveConcurrency(9, 9, global), slots("b", stint.WithKey(key))},
	} {
		l := limiter(t, opts...)
		request := func(name string) {
			r := get("/")
			r.Header.Set("Tenant", name)
			through(l, r, func(http.ResponseWriter, *http.Request) {
				if n := read.Load(); n != 1 {
					t.Errorf("the key is read %d times", n)
				}
			})
		}
		read.Store(0)
		request("A")
		func() {
			defer func() { _ = recover() }()
			request("panics")
			t.Error("no panic")
		}()
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys and tenants hold slots in the end", n)
		}
	}
}

// failsWhile returns a store in memory that fails while down is true.
func failsWhile(down *atomic.Bool) *spy {
	s := &spy{Store: memstore.New()}
	s.OnTake = func(c *asks) error {
		if down.Load() {
			return errDown
		}
		return c.Pass()
	}
	return s
}

// A store that fails, or a caller that leaves, leaves no tenant behind.
func TestFairQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		s := failsWhile(&down)
		l := limiter(t, stint.WithKey(stint.Global()), stint.WithStore(s),
			stint.Concurrency(1, stint.WithName("slots"), stint.WithQueue(9), stint.WithMaxWait(time.Second), stint.WithFairQueue(stint.GivenKey())),
			stint.AdaptiveConcurrency(9, 9, stint.WithName("adaptive")))
		holder, err := l.Take(t.Context(), "A", 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := l.Take(ctx, "B", 1); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		all.Go(func() {
			_, err := l.Take(t.Context(), "C", 1)
			_ = denied(t, err)
		})
		synctest.Wait()
		leave()
		all.Wait()
		all.Go(func() {
			if p, err := l.Take(t.Context(), "D", 1); err == nil {
				p.Done()
			}
		})
		synctest.Wait()
		down.Store(true)
		holder.Done()
		all.Wait()
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys and tenants hold slots in the end", n)
		}
		noLines(t, l)
	})
}

// A limit of this process decides a request alone while the store fails. Later requests have tenants of their own.
func TestFairQueueWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		s := failsWhile(&down)
		l := limiter(t, stint.WithKey(stint.Global()), stint.WithStore(s),
			stint.AdaptiveConcurrency(9, 9, stint.WithName("adaptive")),
			stint.Concurrency(2, stint.WithName("slots"), stint.WithQueue(9), stint.WithMaxWait(time.Hour), stint.WithFairQueue(stint.GivenKey())))
		down.Store(true)
		for range 9 {
			p, err := l.Take(t.Context(), "X", 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Done()
		}
		down.Store(false)
		overTake(t, l.Take).play(t, "+A +A +A +B -A =A:1,B:1|")
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys and tenants hold slots in the end", n)
		}
		noLines(t, l)
	})
}

// An Update makes the queue of later requests a fair one, or no longer. Slots are given back as they were counted.
func TestFairQueueOverUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := func(n int64, opts ...stint.SlotOption) stint.Option {
			return stint.Concurrency(n, append(opts, stint.WithName("slots"), stint.WithQueue(9), stint.WithMaxWait(time.Hour))...)
		}
		fair := stint.WithFairQueue(stint.Header("Tenant"))
		l := limiter(t, stint.WithKey(stint.Global()), slots(3))
		update := func(opt stint.Option) {
			t.Helper()
			if err := l.Update(opt); err != nil {
				t.Fatal(err)
			}
		}
		ts := overHTTP(l)
		changing := ts.come
		updates := []stint.Option{slots(3, fair), slots(4, fair), slots(4), slots(4, stint.WithShare(1, 50)), slots(3, fair)}
		ts.come = func(name string, hold func()) bool {
			if name == "update" {
				update(updates[0])
				updates = updates[1:]
				return false
			}
			return changing(name, hold)
		}
		// Slots that are held before the Update are no tenant's.
		ts.play(t, "+A +A +A +A +update +B +B +A -A =A:3| -A =A:2,B:1| -A =A:2,B:1| -A =A:1,B:2|"+
			" +update =A:1,B:2| +A =A:2,B:2| +A +B +update +C -A =A:2,B:2| +update +update +A -B =A:2,B:1| -B =A:2,B:1| -A =A:1,B:1,C:1|")
		if len(updates) != 0 {
			t.Errorf("%d updates are left", len(updates))
		}
		noLines(t, l)
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys and tenants hold slots in the end", n)
		}
	})
}

func TestFairQueueOptions(t *testing.T) {
	fair := stint.WithFairQueue(stint.Header("Tenant"))
	queue := stint.WithQueue(9)
	for _, test := range []struct {
		name string
		opt  stint.Option
		want string
	}{
		{"beside shares", stint.Concurrency(9, queue, fair, stint.WithShare(1, 50)), `limit "concurrency": WithFairQueue: it orders waiting requests by tenant, but WithShare orders them by class: leave one of the two out`},
		{"no queue", stint.Concurrency(9, fair), `limit "concurrency": WithFairQueue: no request may wait for a slot, and a fair queue only orders waiting requests: use stint.WithQueue or stint.WithMaxWait, or leave the fair queue out`},
		{"a queue of none", stint.Concurrency(9, fair, stint.WithQueue(0)), "WithFairQueue: no request may wait for a slot"},
		{"a queue of none, and a wait", stint.Concurrency(9, fair, stint.WithQueue(0), stint.WithMaxWait(time.Second)), "WithFairQueue: no request may wait for a slot"},
		{"on a route", stint.WithRoute("/a", stint.Concurrency(9, fair)), `WithRoute("/a"): limit "concurrency": WithFairQueue: no request may wait for a slot`},
		{"adaptive", stint.AdaptiveConcurrency(1, 9, queue, fair), `limit "adaptive": WithFairQueue: this option doesn't apply to an AdaptiveConcurrency: leave it out, or use it in a Concurrency`},
		{"the zero key", stint.Concurrency(9, queue, stint.WithFairQueue(stint.Key{})), "WithFairQueue(Key{}): use a key, such as stint.RemoteIP()"},
		{"a constant key", stint.Concurrency(9, queue, stint.WithFairQueue(stint.Global())), `limit "concurrency": WithFairQueue(Global()): this key is the same for all requests, so they would be one tenant: use a key that identifies the tenant, or leave the fair queue out`},
		{"a constant key of parts", stint.Concurrency(9, queue, stint.WithFairQueue(stint.Join(stint.Global(), stint.Global()))), "so they would be one tenant"},
		{"a key with a mistake", stint.Concurrency(9, queue, stint.WithFairQueue(stint.Header("a b"))), `WithFairQueue(Header("a b"))`},
	} {
		if err := stint.Check(theKey, stint.Rate(9, time.Second), test.opt); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	wait := stint.WithMaxWait(time.Second)
	shared := stint.Concurrency(9, fair)
	for name, opts := range map[string][]stint.Option{
		"a queue":                           {stint.Concurrency(9, fair, queue)},
		"a wait":                            {stint.Concurrency(9, fair, wait)},
		"a wait of the limiter":             {stint.Concurrency(9, fair), wait},
		"a wait of the route":               {stint.WithRoute("/a", stint.Concurrency(9, fair), wait)},
		"a wait of another route it is in":  {stint.WithRoute("/a", shared), stint.WithRoute("/b", shared, wait)},
		"given keys, for Take":              {stint.Concurrency(9, stint.WithFairQueue(stint.GivenKey()), queue)},
		"twice: the second takes its place": {stint.Concurrency(9, stint.WithFairQueue(stint.GivenKey()), fair, queue)},
	} {
		if err := stint.Check(append(opts, theKey)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Requests have no given key, and those through an adapter none of another one.
	l := limiter(t, theKey, stint.Concurrency(9, stint.WithFairQueue(stint.GivenKey()), queue))
	if err := l.Mount("stinthttp"); err == nil || !strings.Contains(err.Error(), `stint: limit "concurrency": WithFairQueue: GivenKey, which requests don't have`) {
		t.Errorf("a given key: %v", err)
	}
	l = limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{stint.Concurrency(9, stint.WithName("slots"), stint.WithFairQueue(stint.GivenKey()), queue)}, nil
	}))
	if w := through(l, get("/"), func(http.ResponseWriter, *http.Request) {}); w.Code != http.StatusInternalServerError {
		t.Errorf("a limit of a function, of a given key: %d", w.Code)
	}
}

// tenantLoad is the requests of a tenant: of callers that send one after the other, or of one that comes every so often.
type tenantLoad struct {
	name    string
	callers int
	every   time.Duration
	work    time.Duration
}

// fairScene is tenants that want the slots of a fleet.
type fairScene struct {
	name    string
	tenants []tenantLoad
}

// fairSlots and fairRoom are the slots of a scene, and how many may wait for them in a process.
const fairSlots, fairRoom = 10, 20

// shares runs the scene in a fleet, and returns what each tenant has held of its max-min share.
func (s fairScene) shares(t *testing.T, processes int, opts ...stint.SlotOption) []float64 {
	const warmUp, span = 10 * time.Second, 90 * time.Second
	var mu sync.Mutex
	held := make([]time.Duration, len(s.tenants))
	synctest.Test(t, func(t *testing.T) {
		fleet := make([]*stint.Limiter, processes)
		shared := stint.WithStore(memstore.New())
		for i := range fleet {
			opts := append([]stint.SlotOption{stint.WithQueue(fairRoom), stint.WithMaxWait(time.Minute), stint.WithName("slots")}, opts...)
			fleet[i] = limiter(t, shared, stint.Concurrency(fairSlots, opts...), stint.WithKey(stint.Global()))
		}
		start := time.Now()
		var all sync.WaitGroup
		for i, tenant := range s.tenants {
			for caller := range max(tenant.callers, 1) {
				rnd := newRand(uint64(i*1000 + caller))
				about := func(d time.Duration) time.Duration { return time.Duration((0.5 + rnd.Float64()) * float64(d)) }
				request := func(l *stint.Limiter, work time.Duration) error {
					p, err := l.Take(t.Context(), tenant.name, 1)
					if err != nil {
						return err
					}
					from := time.Since(start)
					time.Sleep(work)
					if p.Done(); time.Since(start) > warmUp && from < warmUp+span {
						mu.Lock()
						defer mu.Unlock()
						held[i] += min(time.Since(start), warmUp+span) - max(from, warmUp)
					}
					return nil
				}
				all.Go(func() {
					time.Sleep(about(time.Second))
					for time.Since(start) < warmUp+span {
						l, work := fleet[rnd.IntN(len(fleet))], about(tenant.work)
						if tenant.every > 0 {
							all.Go(func() { _ = request(l, work) })
							time.Sleep(about(tenant.every))
							continue
						}
						if err := request(l, work); err != nil {
							time.Sleep(denied(t, err).Decision.RetryAfter)
						}
					}
				})
			}
		}
		all.Wait()
		for _, l := range fleet {
			noLines(t, l)
			if n := l.Held(); n != 0 {
				t.Errorf("%d keys and tenants hold slots in the end", n)
			}
		}
	})
	fair, shares := s.maxMin(), make([]float64, len(s.tenants))
	for i := range held {
		shares[i] = held[i].Seconds() / span.Seconds() / fair[i]
	}
	return shares
}

// maxMin returns how many slots each tenant has on average by max-min fairness: as many as its requests use if they never
// wait, but no more than the level at which all slots are in use.
func (s fairScene) maxMin() []float64 {
	wanted, order := make([]float64, len(s.tenants)), make([]int, len(s.tenants))
	for i, tenant := range s.tenants {
		wanted[i], order[i] = float64(tenant.callers), i
		if tenant.every > 0 {
			wanted[i] = tenant.work.Seconds() / tenant.every.Seconds()
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(wanted[i], wanted[j]) })
	left, fair := float64(fairSlots), make([]float64, len(wanted))
	for n, i := range order {
		fair[i] = min(wanted[i], left/float64(len(order)-n))
		left -= fair[i]
	}
	return fair
}

func fairScenes() (all []fairScene) {
	const work = 200 * time.Millisecond
	several := func(n int, of tenantLoad) (all []tenantLoad) {
		for i := range n {
			of.name = fmt.Sprint("tenant-", i)
			all = append(all, of)
		}
		return all
	}
	for c := 1; c <= 3; c++ {
		all = append(all, fairScene{fmt.Sprintf("ten tenants of %d callers, one of 30", c),
			append(several(10, tenantLoad{callers: c, work: work}), tenantLoad{name: "large", callers: 30, work: work})})
	}
	return append(all,
		fairScene{"four tenants with requests of 0.2 s, one with 5 s, of 10 callers each",
			append(several(4, tenantLoad{callers: 10, work: work}), tenantLoad{name: "slow", callers: 10, work: 5 * time.Second})},
		fairScene{"four tenants that want a slot each, one of 100 callers",
			append(several(4, tenantLoad{every: work, work: work}), tenantLoad{name: "greedy", callers: 100, work: work})})
}

// In a process, each tenant gets its max-min share of the slots, whatever others do. docs/waiting.md has the table.
func TestFairShares(t *testing.T) {
	for _, s := range fairScenes() {
		fair, unfair := s.shares(t, 1, stint.WithFairQueue(stint.GivenKey())), s.shares(t, 1)
		t.Logf("%s: %.2f to %.2f, and %.2f for the last. In the order of arrival: %.2f to %.2f, and %.2f", s.name,
			slices.Min(fair[:len(fair)-1]), slices.Max(fair[:len(fair)-1]), fair[len(fair)-1],
			slices.Min(unfair[:len(fair)-1]), slices.Max(unfair[:len(fair)-1]), unfair[len(fair)-1])
		if least, most := slices.Min(fair), slices.Max(fair); least < 0.97 || most > 1.12 {
			t.Errorf("%s: shares of %.2f to %.2f, want 0.98 to 1.11", s.name, least, most)
		}
		if least, most := slices.Min(unfair), slices.Max(unfair); least > 0.7 || most < 1.3 {
			t.Errorf("%s: shares of %.2f to %.2f without a fair queue, so the scene shows nothing", s.name, least, most)
		}
	}
}

// In a fleet, what remains of that is a part.
func TestFairSharesInAFleet(t *testing.T) {
	for _, processes := range []int{4, 10} {
		for _, s := range fairScenes() {
			fair, unfair := s.shares(t, processes, stint.WithFairQueue(stint.GivenKey())), s.shares(t, processes)
			small := func(shares []float64) (sum float64) {
				for _, share := range shares[:len(shares)-1] {
					sum += share / float64(len(shares)-1)
				}
				return sum
			}
			t.Logf("%d processes, %s: %.2f, and %.2f for the last. In the order of arrival: %.2f, and %.2f", processes, s.name,
				small(fair), fair[len(fair)-1], small(unfair), unfair[len(fair)-1])
			// Ten processes hold a slot each, so there is little to divide, and polls at random instants decide.
			if slack := map[int]float64{4: 0.05, 10: 0.15}[processes]; small(fair) < small(unfair)-slack {
				t.Errorf("%d processes, %s: the others get %.2f of their shares, and %.2f in the order of arrival", processes, s.name,
					small(fair), small(unfair))
			}
		}
	}
}
