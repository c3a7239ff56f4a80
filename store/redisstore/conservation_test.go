package redisstore

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// ledger goes wrong at random between a store and its server, and writes down what
// came of it: the server's side of the books. Every charge costs 2; callers settle
// theirs to 1, and what is given back is settled to 0.
type ledger struct {
	tap
	rnd *rand.Rand
	mu  sync.Mutex

	open    atomic.Bool  // things go wrong
	answers atomic.Int64 // charges granted whose answers were lost
	backs   atomic.Int64 // of what was to be given back, requests that were lost
	settled atomic.Int64 // by callers, whatever they were told
	undone  atomic.Int64 // given back
}

func (g *ledger) roll(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rnd.IntN(n)
}

func (g *ledger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		takes, settles, backs := read(cmd)
		if !takes && settles+backs == 0 || !g.open.Load() {
			return next(context.Background(), cmd)
		}
		fail := func(err error) error {
			cmd.SetErr(err)
			return err
		}
		fate := g.roll(12)
		switch fate {
		case 0: // the server is gone
			return fail(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
		case 1: // the request is lost
			g.backs.Add(backs)
			for _, arg := range cmd.Args() { // it was sent
				if m, ok := arg.(encoding.BinaryMarshaler); ok {
					_, _ = m.MarshalBinary()
				}
			}
			return fail(&net.OpError{Op: "write", Err: errors.New("broken pipe")})
		case 2: // late: its caller has been told that there is no answer
			time.Sleep(2 * ledgerTimeout)
		}
		if err := next(context.Background(), cmd); err != nil {
			return err // NOSCRIPT: not executed
		}
		g.undone.Add(backs)
		g.settled.Add(settles)
		if fate == 3 { // the answer is lost
			if takes {
				reply, _ := cmd.(once).Slice()
				granted, _ := reply[1].(int64)
				g.answers.Add(granted)
			}
			return fail(&net.OpError{Op: "read", Err: errors.New("connection reset")})
		}
		return nil
	}
}

const ledgerTimeout = 20 * time.Millisecond

// read tells a call that takes from one that settles, and of that how many are
// callers' and how many give back.
func read(cmd redis.Cmder) (takes bool, settles, backs int64) {
	args := cmd.Args()
	if len(args) < 4 {
		return false, 0, 0
	}
	take, settle := scripts.Take(scripts.FixedWindow), scripts.Settle(scripts.FixedWindow)
	switch args[1] {
	case take.SHA, take.Source:
		return true, 0, 0
	case settle.SHA, settle.Source:
	default:
		return false, 0, 0
	}
	script := args[3+args[2].(int):]
	n, _ := strconv.Atoi(fmt.Sprint(script[1]))
	for i := range n {
		if fmt.Sprint(script[2+(len(script)-2)/n*i+2]) == "0" {
			backs++
		} else {
			settles++
		}
	}
	return false, settles, backs
}

// Every unit is somewhere: what the server has charged is what callers were
// granted, less what they settled back, and what was lost on the way: answers, and
// requests to give back what an answer that came too late had brought. A give-back
// that is known not to have been made is not lost: it is made again. They are units of a
// window, which a refund returns to in full. A bucket keeps eight lows that bound its refunds,
// and gives back a little less where dozens of charges are refunded at once.
func TestEveryUnitIsAccountedFor(t *testing.T) {
	var all misfortune
	// How much of it there is depends on what else the machine does.
	for seed := uint64(0); seed < 3 || !all.enough(); seed++ {
		for _, heeds := range []bool{true, false} {
			t.Run(fmt.Sprint("heeds deadlines ", heeds, ", ", seed), func(t *testing.T) { account(t, heeds, seed, &all) })
		}
		if seed == 100 || t.Failed() {
			t.Fatalf("%+v: too little has gone wrong, or too much", all)
		}
	}
}

// misfortune counts what has gone wrong, and what hasn't.
type misfortune struct{ granted, left, undone, answers int64 }

func (m *misfortune) enough() bool {
	return m.granted >= 300 && m.left >= 5 && m.undone >= 5 && m.answers > 0
}

func account(t *testing.T, heeds bool, seed uint64, all *misfortune) {
	const burst = 10_000
	rdb := redistest.Shared(t).Client(func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.PoolSize = heeds, 50
	})
	g := &ledger{rnd: rand.New(rand.NewPCG(seed, 3))}
	rdb.AddHook(g)
	s := New(rdb, WithPrefix(redistest.Prefix(t)), WithTimeout(ledgerTimeout))
	defer s.Close()
	l := denyLimit(t, store.Spec{Name: "l", Algorithm: store.FixedWindow, Units: burst, Period: 24 * time.Hour})
	g.open.Store(true)

	var granted, settled, told, left atomic.Int64
	var callers sync.WaitGroup
	for c := range 24 {
		callers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(c)))
			for range 40 {
				ctx, leave := context.WithCancel(context.Background())
				if rnd.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, leave)
				}
				charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 2}}, make([]store.Result, 1)
				err := s.Take(ctx, charges, results)
				leave()
				switch {
				case errors.Is(err, context.Canceled):
					left.Add(1)
				case err == nil && !results[0].OK:
					t.Error("denied")
				case err == nil:
					granted.Add(1)
					if rnd.IntN(3) > 0 {
						continue
					}
					charges[0].Cost, charges[0].Receipt = 1, results[0].Receipt
					switch err := s.Settle(context.Background(), charges, results); {
					case err == nil:
						settled.Add(1)
					case errors.Is(err, ErrIndeterminate):
						told.Add(1)
					}
				}
			}
		})
	}
	callers.Wait()
	g.open.Store(false)
	other := New(rdb, WithTimeout(time.Minute))
	other.prefix = s.prefix
	defer other.Close()
	var charged, want int64
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // late ones
		charged = burst - mustTake(t, other, "k", l, 0).Remaining
		want = 2*granted.Load() - g.settled.Load() + 2*g.answers.Load() + 2*g.backs.Load()
		if charged == want {
			break
		}
	}
	t.Logf("%d granted, %d settled and %d of %d of unknown end, %d callers left, %d given back; lost: %d answers, %d requests to give back",
		granted.Load(), settled.Load(), g.settled.Load()-settled.Load(), told.Load(), left.Load(), g.undone.Load(), g.answers.Load(), g.backs.Load())
	if n := g.settled.Load() - settled.Load(); n < 0 || n > told.Load() {
		t.Errorf("%d settlements were made of which callers were told otherwise", n)
	}
	if charged != want {
		t.Errorf("%d charged, %d are accounted for", charged, want)
	}
	all.granted += granted.Load()
	all.left += left.Load()
	all.undone += g.undone.Load()
	all.answers += g.answers.Load()
}
