package redisstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// The test binary is also the processes of a fleet, each told what to do by its
// environment.
const fleetRole = "STINT_TEST_FLEET"

func init() {
	role := os.Getenv(fleetRole)
	if role == "" {
		return
	}
	var w worker
	err := json.Unmarshal([]byte(role), &w)
	if err == nil {
		err = w.work()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fleetLease is long enough for a busy machine to renew it, twice.
const fleetLease = 2 * time.Second

// worker is a process that asks one limit as often as it can.
type worker struct {
	Addr    string
	Spec    store.Spec
	For     time.Duration
	Ahead   time.Duration // of its clock
	ByClock bool          // by its clock, and not by the server's
	Hold    bool          // take one, say so, and wait to be killed
}

func (w *worker) store() (*redisstore.Store, *store.Limit, error) {
	l, err := store.NewLimit(w.Spec)
	opts := []redisstore.Option{patient, redisstore.WithLeaseTTL(fleetLease)}
	if w.ByClock {
		ahead := w.Ahead // of others it is changed later
		opts = append(opts, redisstore.WithClock(func() time.Time { return time.Now().Add(ahead) }))
	}
	return redisstore.New(redis.NewClient(&redis.Options{Addr: w.Addr, ContextTimeoutEnabled: true}), opts...), l, err
}

// work asks for as long as it is told, and until it was denied: then a slow machine
// too has used a limit up. It prints the instants of what was granted.
func (w *worker) work() error {
	s, l, err := w.store()
	if err != nil {
		return err
	}
	instants := []int64{}
	denied := false
	for end := time.Now().Add(w.For); time.Now().Before(end) || !denied; {
		r, err := take(s, "k", l, 1)
		if err != nil {
			return err
		}
		if r.OK {
			instants = append(instants, r.Receipt.Instant)
		}
		denied = denied || !r.OK
		if w.Hold {
			fmt.Println("held", r.OK)
			select {}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(instants)
}

func (w worker) command(t *testing.T) *exec.Cmd {
	t.Helper()
	role, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fleetRole+"="+string(role))
	cmd.Stderr = os.Stderr
	return cmd
}

// Four processes hammer one limit: what they are granted together is what the
// rule lets pass, to the unit, by the server's clock; or, where they bring their
// own clocks, an hour apart, by the one that is ahead.
func TestServersFourProcessesAreOneLimit(t *testing.T) {
	redistest.Suite(t, "servers")
	span := time.Second // more than a window of each
	if os.Getenv("STINT_LONG") != "" {
		span = 10 * time.Second
	}
	second := int64(1_000_000)
	for _, spec := range []store.Spec{
		{Units: 50, Period: time.Second, Burst: 1000},
		{Algorithm: store.IntervalBucket, Units: 20, Period: 500 * time.Millisecond},
		{Algorithm: store.FixedWindow, Units: 30, Period: 700 * time.Millisecond},
		{Algorithm: store.SlidingWindow, Units: 30, Period: 500 * time.Millisecond, Buckets: 5},
		{Algorithm: store.SlidingLog, Units: 30, Period: 500 * time.Millisecond},
	} {
		for _, byClock := range []bool{false, true} {
			spec.Name = "n"
			t.Run(fmt.Sprintf("%v/clocks of their own %v", spec.Algorithm, byClock), func(t *testing.T) {
				server := redistest.Start(t)
				w := worker{Addr: server.Addr(), Spec: spec, For: span, ByClock: byClock, Ahead: 3 * time.Hour}
				// The first of all, by the clock that is ahead.
				s, l, err := w.store()
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				// A bucket is half empty when it begins: it takes ten seconds in which
				// no call comes until anything overflows.
				charged := max(1, spec.Burst/2)
				r, err := take(s, "k", l, charged)
				if err != nil {
					t.Fatal(err)
				}
				granted := []int64{r.Receipt.Instant}
				// And it goes on: while no call brings a newer instant, the limit's
				// time stands still and its keys' lifetimes don't, which lets pass
				// what the instants of those granted don't tell of.
				ctx, stop := context.WithCancel(context.Background())
				var looks sync.WaitGroup
				defer looks.Wait()
				defer stop()
				looks.Go(func() {
					for ctx.Err() == nil {
						if _, err := take(s, "k", l, 0); err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Millisecond) // the processes need the server, too
					}
				})

				var outs [4]bytes.Buffer
				var cmds [4]*exec.Cmd
				for i := range cmds {
					w.Ahead = time.Duration(i) * time.Hour
					cmds[i] = w.command(t)
					cmds[i].Stdout = &outs[i]
					if err := cmds[i].Start(); err != nil {
						t.Fatal(err)
					}
				}
				for i := range cmds {
					var instants []int64
					if err := cmds[i].Wait(); err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal(outs[i].Bytes(), &instants); err != nil {
						t.Fatal(err)
					}
					granted = append(granted, instants...)
				}
				// What is left at the instant of the last one is what the others
				// have not been granted.
				eventually(t, "the last one", func() bool {
					r, err = take(s, "k", l, 1)
					return err != nil || r.OK
				})
				if err != nil {
					t.Fatal(err)
				}
				granted = append(granted, r.Receipt.Instant)
				slices.Sort(granted)
				last := granted[len(granted)-1]
				elapsed, n := last-granted[0], int64(len(granted))
				at := func(i int) int64 { return granted[i] - granted[0] }
				switch period := spec.Period.Microseconds(); spec.Algorithm {
				case store.TokenBucket:
					if got, want := charged-1+n+r.Remaining, spec.Burst+elapsed*spec.Units/second; got != want {
						t.Errorf("%d granted or left in %v, want %d", got, time.Duration(elapsed)*time.Microsecond, want)
					}
				case store.IntervalBucket, store.FixedWindow:
					// Each interval or window has its share and no more, one in which
					// a caller was denied all of it, and the last what isn't left of
					// it. A window's instant is its start; an interval's charges have
					// their own, and its intervals begin at the key's first.
					share := map[int64]int64{}
					for _, at := range granted {
						if spec.Algorithm == store.IntervalBucket {
							at -= (at - granted[0]) % period
							last = at
						}
						share[at]++
					}
					most := int64(0)
					for _, got := range share {
						most = max(most, got)
					}
					if most != spec.Units || share[last]+r.Remaining != spec.Units {
						t.Errorf("at most %d granted in a window, and %d in the last with %d left; want %d", most, share[last], r.Remaining, spec.Units)
					}
					if len(share) < 2 {
						t.Errorf("%d windows", len(share))
					}
				default:
					for i := int(spec.Units); i < len(granted); i++ {
						if at(i)-at(i-int(spec.Units)) < period {
							t.Fatalf("%d granted within %d us from %d", spec.Units+1, at(i)-at(i-int(spec.Units)), at(i-int(spec.Units)))
						}
					}
					if n <= spec.Units {
						t.Errorf("%d granted", n)
					}
				}
			})
		}
	}
}

// TestServersRollingDeploy: for each algorithm, processes with one version of a limit are
// replaced by processes with another, and both ask beside each other as often as they can.
// Neither is granted more than by itself in all that time, nor both more than
// docs/guarantees.md says.
func TestServersRollingDeploy(t *testing.T) {
	redistest.Suite(t, "servers")
	server := redistest.Start(t)
	const long, brief = 400 * time.Millisecond, 50 * time.Millisecond
	of := func(a store.Algorithm, n int64, per time.Duration) store.Spec {
		return store.Spec{Algorithm: a, Units: n, Period: per}
	}
	warm := func(n int64, per time.Duration) store.Spec {
		return store.Spec{Algorithm: store.WarmUp, Units: n, Period: per, WarmUp: brief}
	}
	queue := func(n int64, per time.Duration) store.Spec {
		return store.Spec{Algorithm: store.LeakyBucket, Units: n, Period: per, Burst: 20, Queue: 20}
	}
	for _, versions := range [][2]store.Spec{
		{of(store.TokenBucket, 100, long), of(store.TokenBucket, 10, brief)},
		{of(store.IntervalBucket, 100, long), of(store.IntervalBucket, 10, brief)},
		{queue(100, long), queue(10, brief)},
		{of(store.FixedWindow, 100, long), of(store.FixedWindow, 10, brief)},
		{of(store.SlidingWindow, 100, long), of(store.SlidingWindow, 10, brief)},
		{of(store.SlidingCounter, 100, long), of(store.SlidingCounter, 10, brief)},
		{of(store.SlidingLog, 100, long), of(store.SlidingLog, 10, brief)},
		{warm(100, long), warm(10, brief)},
		{{Algorithm: store.Concurrency, Units: 10}, {Algorithm: store.Concurrency, Units: 3}},
	} {
		for name, pair := range map[string][2]store.Spec{"shorter": versions, "longer": {versions[1], versions[0]}} {
			t.Run(pair[0].Algorithm.String()+"/"+name, func(t *testing.T) {
				var outs [2]bytes.Buffer
				var cmds [2]*exec.Cmd
				began := time.Now()
				for i, spec := range pair {
					spec.Name = "deploy-" + name
					w := worker{Addr: server.Addr(), Spec: spec, For: 450 * time.Millisecond}
					cmds[i] = w.command(t)
					cmds[i].Stdout = &outs[i]
					if err := cmds[i].Start(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(150 * time.Millisecond) // a deploy: the old version serves alone, then both do
				}
				var granted [2]int64
				for i := range cmds {
					var instants []int64
					if err := cmds[i].Wait(); err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal(outs[i].Bytes(), &instants); err != nil {
						t.Fatal(err)
					}
					granted[i] = int64(len(instants))
				}
				took := time.Since(began)
				var most [2]int64
				for i, s := range pair {
					flows := int64(0)
					if s.Period > 0 {
						flows = s.Units * int64(took/s.Period+1)
					}
					switch s.Algorithm {
					case store.LeakyBucket:
						most[i] = flows + s.Burst + 1 + s.Queue
					case store.WarmUp:
						most[i] = flows + 1
					default: // a burst, or another window, of n
						most[i] = flows + s.Units
					}
					if granted[i] > most[i] {
						t.Errorf("version %d alone: %d granted in %v, by itself %d", i, granted[i], took, most[i])
					}
				}
				all := most[0] + most[1] // of windows with different periods, each counts by itself
				switch pair[0].Algorithm {
				case store.Concurrency:
					all = 10
				case store.TokenBucket, store.IntervalBucket: // the larger burst and the faster rate
					all = max(most[0], most[1])
				case store.LeakyBucket: // and what the faster rate gives in the longest wait
					all = max(most[0], most[1]) + pair[0].Queue
				case store.WarmUp:
					all = max(most[0], most[1]) + 1
				}
				if sum := granted[0] + granted[1]; sum > all || sum == 0 {
					t.Errorf("%v granted in %v, at most %d", granted, took, all)
				}
				t.Logf("%v granted in %v, %v by themselves", granted, took, most)
			})
		}
	}
}

// The slot of a process that is killed comes free within a lease's time.
func TestKilledProcessFreesItsSlot(t *testing.T) {
	server := redistest.Start(t)
	w := worker{Addr: server.Addr(), Spec: store.Spec{Name: "c", Algorithm: store.Concurrency, Units: 1}, For: time.Hour, Hold: true}
	cmd := w.command(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "held true\n" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	s, l, err := w.store()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key, rdb := "stint:{k}:c/c", server.Client()
	first := runsOut(t, rdb, key)
	eventually(t, "the lease is renewed", func() bool {
		if r, err := take(s, "k", l, 1); err != nil || r.OK {
			t.Fatalf("a slot that is held was given: %+v, %v", r, err)
		}
		return runsOut(t, rdb, key)[0].After(first[0])
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the slot is free", func() bool {
		r, err := take(s, "k", l, 1)
		return err == nil && r.OK
	})
}
