// Package budgets_test simulates streams that share a budget of tokens per minute, and compares ways to charge them.
package budgets_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

const (
	budget  = 60_000 // tokens in each minute
	demand  = 3.3    // times the budget
	minutes = 10
	mean    = 500 // tokens of a stream
	most    = 4000
	chunk   = 20 // tokens that are sent at once
	pace    = 400 * time.Millisecond
)

// stream is a response: when its request comes, and how many tokens it has.
type stream struct {
	at     time.Duration
	tokens int64
}

// streams returns the same streams each time. They come at random, and their lengths are random: most are short, and
// few are long.
func streams() (all []stream) {
	random := rand.New(rand.NewPCG(1, 2))
	perMinute := demand * budget / mean
	for at := time.Duration(0); at < minutes*time.Minute; {
		all = append(all, stream{at, min(1+int64(random.ExpFloat64()*mean), most)})
		at += time.Duration(random.ExpFloat64() / perMinute * float64(time.Minute))
	}
	return all
}

// way is a way to charge a stream.
type way struct {
	name    string // in docs/costs.md
	reserve int64
	extends bool // before each chunk
	waits   bool // longer than any stream
}

const longest = time.Hour

// limits are the limits, by their names in docs/costs.md.
var limits = map[string]func(...stint.RateOption) stint.Limit{
	"quota": func(opts ...stint.RateOption) stint.Limit {
		return stint.Quota(budget, stint.Every(time.Minute), opts...)
	},
	"rate": func(opts ...stint.RateOption) stint.Limit {
		return stint.Rate(budget, time.Minute, append(opts, stint.WithBurst(most))...)
	},
}

// outcome is what has happened to the streams.
type outcome struct {
	mu            sync.Mutex
	sent          [minutes]int64 // tokens in each minute
	admitted, cut int
	paused        time.Duration // by raises that waited, all streams together
}

// figures are the columns of the table in docs/costs.md.
type figures struct {
	worst float64 // minute, in budgets
	used  float64 // of the budget, in percent
	cut   float64 // of the streams that have begun, in percent
	pause float64 // mean, in seconds
}

func (o *outcome) figures() (f figures) {
	for _, n := range o.sent {
		f.worst = max(f.worst, float64(n)/budget)
		f.used += float64(n) / budget / minutes * 100
	}
	f.cut = float64(o.cut) / float64(o.admitted) * 100
	f.pause = o.paused.Seconds() / float64(o.admitted)
	return f
}

// simulate runs the streams against a limit.
func (w *way) simulate(limit func(...stint.RateOption) stint.Limit) *outcome {
	var opts []stint.RateOption
	if w.waits {
		opts = append(opts, stint.WithMaxWait(longest))
	}
	l := stint.Must(stint.New(limit(opts...), stint.WithKey(stint.Global())))
	o := &outcome{}
	start := time.Now().Truncate(time.Minute)
	ctx, end := context.WithCancel(context.Background())
	time.AfterFunc(minutes*time.Minute, end) // no deadline, of which limits would know
	var running sync.WaitGroup
	for _, s := range streams() {
		time.Sleep(time.Until(start.Add(s.at)))
		running.Go(func() {
			p, err := l.Take(ctx, "", w.reserve)
			if err != nil {
				return
			}
			defer p.Done()
			o.serve(ctx, p, w, s.tokens, start)
		})
	}
	running.Wait()
	return o
}

// serve sends a stream.
func (o *outcome) serve(ctx context.Context, p *stint.Permit, w *way, tokens int64, start time.Time) {
	sent, cut, paused := int64(0), 0, time.Duration(0)
	for sent < tokens && ctx.Err() == nil {
		time.Sleep(pace)
		n := min(chunk, tokens-sent)
		if w.extends {
			asked := time.Now()
			err := p.Extend(ctx, sent+n)
			if paused += time.Since(asked); errors.Is(err, stint.ErrDenied) {
				cut = 1
			}
			if err != nil {
				break
			}
		}
		sent += n
		o.mu.Lock()
		if minute := time.Since(start) / time.Minute; minute < minutes {
			o.sent[minute] += n
		}
		o.mu.Unlock()
	}
	if err := p.Settle(ctx, sent); err != nil {
		panic(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted++
	o.cut += cut
	o.paused += paused
}

// ways are the rows of the table in docs/costs.md for each limit.
var ways = []way{
	{name: "reserve the maximum, then Settle", reserve: most},
	{name: "charge afterwards", reserve: 1},
	{name: "reserve the mean, then Settle", reserve: mean},
	{name: "Extend", reserve: chunk, extends: true},
	{name: "reserve the mean, then Extend", reserve: mean, extends: true},
	{name: "Extend that waits", reserve: chunk, extends: true, waits: true},
	{name: "reserve the mean, then Extend that waits", reserve: mean, extends: true, waits: true},
}

// The table in docs/costs.md has the figures of the simulation, and they are as the document says of them. With
// go test -v, its rows are logged.
func TestBudgets(t *testing.T) {
	for _, name := range []string{"quota", "rate"} {
		rows := map[string]figures{}
		for _, w := range ways {
			if name == "quota" && w.waits && w.reserve == mean {
				continue // requests that go on when a window begins race for it, so two runs differ
			}
			synctest.Test(t, func(*testing.T) { rows[w.name] = w.simulate(limits[name]).figures() })
			f := rows[w.name]
			t.Logf("| %s | %s | %.2f | %.0f %% | %.0f %% | %.1f s |", name, w.name, f.worst, f.used, f.cut, f.pause)
			if f.differ(documented(t, name, w.name)) {
				t.Error("docs/costs.md has another row")
			}
		}
		after, reserved := rows["charge afterwards"], rows["reserve the maximum, then Settle"]
		settled := rows["reserve the mean, then Settle"]
		extended, both, patient := rows["Extend"], rows["reserve the mean, then Extend"], rows["Extend that waits"]
		quota := name == "quota"
		for claim, holds := range map[string]bool{
			"charging afterwards lets more pass":   after.worst > 1.1,
			"about twice a quota's budget":         !quota || 1.6 < after.worst && after.worst < 2.3,
			"reserving the maximum uses half":      reserved.used < 60,
			"an estimate alone lets more pass":     settled.worst > 1.05 && settled.worst > both.worst,
			"Extend keeps to a quota's budget":     !quota || extended.worst <= 1 && both.worst <= 1 && patient.worst <= 1,
			"and to a rate's, with its burst":      extended.worst < 1+float64(most)/budget,
			"and uses it":                          extended.used > 99 && both.used > 98 && patient.used > 98,
			"an estimate before it cuts fewer":     both.cut < extended.cut*0.8,
			"and hardly any of a rate":             quota || both.cut < 5,
			"none is cut where it waits":           patient.cut == 0,
			"a rate pauses briefly":                quota || patient.pause < 2,
			"a quota for more than its own period": !quota || patient.pause > 60,
		} {
			if !holds {
				t.Errorf("%s: not so: %s", name, claim)
			}
		}
	}
}

// documented returns a row of docs/costs.md.
func documented(t *testing.T, limit, way string) (f figures) {
	t.Helper()
	text, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(strings.ReplaceAll(string(text), "`", ""), "\n| "+limit+" | "+way+" | ")
	_, err = fmt.Sscanf(row, "%f | %f %% | %f %% | %f s |", &f.worst, &f.used, &f.cut, &f.pause)
	if !found || err != nil {
		t.Errorf("docs/costs.md has no row for it: %v", err)
	}
	return f
}

// differ reports whether figures differ by more than goroutines that run in another order can make them.
func (f figures) differ(from figures) bool {
	return math.Abs(f.worst-from.worst) > 0.03 || math.Abs(f.used-from.used) > 2 ||
		math.Abs(f.cut-from.cut) > 1 || math.Abs(f.pause-from.pause) > 0.2*from.pause+0.1
}
