package lua_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shim stands before a script: what expires in it expires by the test's clock, which
// stands still between two calls. When a key does is noted in another, and whether this
// call has said so.
const shim = `
local call_, told_ = redis.call, string.match(ARGV[1], '(-?%d+),') + 0
local function set_(key, ms)
  call_('SET', key .. '!until', string.format('%.0f', told_ + ms * 1000))
  call_('SET', key .. '!told', ms)
end
local function noting(run) return function(...)
  local a = {...}
  if a[1] == 'PEXPIRE' then
    set_(a[2], a[3])
    return 1
  elseif a[1] == 'PTTL' then
    local at = call_('GET', a[2] .. '!until')
    return at and math.floor((at - told_) / 1000) or -1
  elseif a[1] == 'SET' and a[4] == 'PX' then
    set_(a[2], a[5])
    a[4], a[5] = nil, nil
  elseif a[1] == 'SET' then
    a[4] = nil
  end
  return run((unpack or table.unpack)(a))
end end
local redis = {call = noting(redis.call), pcall = noting(redis.pcall)}
`

// sets and letters are the algorithms as the scripts know them: those that keep no strings.
var sets = map[store.Algorithm]scripts.Set{store.SlidingLog: scripts.SlidingLog, store.Concurrency: scripts.Concurrency}

var letters = map[store.Algorithm]string{store.SlidingLog: "g", store.Concurrency: "c"}

// arguments are those of a charge, as the algorithm's file says.
func arguments(l *store.Limit, cost int64) []any {
	if s := l.Spec(); s.Algorithm == store.SlidingLog {
		return []any{s.Units, cost, 0, s.Period.Microseconds()}
	}
	return []any{cost, l.Spec().Units, leaseTime, 2 * (leaseTime/1000 + 1)}
}

const leaseTime = 15_000_000

// pair is a key in the server, and the step that its scripts must equal.
type pair struct {
	t            *testing.T
	rdb          *redis.Client
	take, settle *redis.Script
	key          string
	rnd          *rand.Rand
	now          int64
}

type call struct {
	op      string
	cost    int64
	receipt store.Receipt
	lease   store.LeaseID
}

type answer struct {
	ok  bool
	raw string
}

func (p *pair) send(l *store.Limit, c call) answer {
	p.t.Helper()
	script, args := p.take, []any{fmt.Sprintf("%d,0", p.now), 1}
	if c.op == "take" {
		args = append(args, "+"+letters[l.Algorithm()], 1, "", "", "", string(c.lease[:]))
		args = append(args, arguments(l, c.cost)...)
	} else {
		script = p.settle
		args = append(args, letters[l.Algorithm()], 1, c.cost, c.receipt.Cost, c.receipt.Instant, c.receipt.Mark, string(c.lease[:]), "")
		args = append(args, arguments(l, 1)...)
	}
	reply, err := script.EvalSha(context.Background(), p.rdb, []string{p.key}, append(args, 0)...).Slice()
	if err != nil {
		p.t.Fatal(err)
	}
	a := answer{ok: reply[1] == int64(1)}
	if found := reply[len(reply)-1]; found != nil {
		a.raw = fmt.Sprint(found)
	}
	if _, left, ok := strings.Cut(a.raw, "|"); ok {
		a.raw = left
	}
	return a
}

func newPair(t *testing.T, a store.Algorithm) *pair {
	take, settle := redis.NewScript(shim+scripts.Take(sets[a]).Source), redis.NewScript(shim+scripts.Settle(sets[a]).Source)
	rdb := client(t)
	for _, script := range []*redis.Script{take, settle} {
		if err := script.Load(context.Background(), rdb).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return &pair{t: t, rdb: rdb, take: take, settle: settle}
}

// begin begins a trace on a fresh key.
func (p *pair) begin(seed uint64) {
	p.key, p.rnd = redistest.Prefix(p.t)+"k", rand.New(rand.NewPCG(seed, 0x5717))
	p.now = oneOf(p.rnd, 0, p.rnd.Int64N(4e14), p.rnd.Int64N(3e13), -p.rnd.Int64N(5e14))
}

func client(t *testing.T) *redis.Client { return redistest.Shared(t).Client() }

func traces(n int) int {
	if os.Getenv("STINT_LONG") != "" {
		return 50 * n
	}
	return n / 8
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// oracle runs the step on a state.
func (p *pair) oracle(l *store.Limit, c call, s algorithm.State) store.Result {
	now := store.Now{Steady: p.now, Wall: p.now, Lease: c.lease}
	states, results := make([]store.State, 1), make([]store.Result, 1)
	*inside.State(&states[0]) = s
	store.Decide(now, []store.Charge{{Limit: l, Cost: c.cost, Receipt: c.receipt}}, states, results)
	return results[0]
}

func (c call) String() string { return fmt.Sprintf("%s cost %d, %+v", c.op, c.cost, c.receipt) }
