package lines_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// hall is one line, with the calls that have come to it. A script says what happens:
//
//	join NAME [class=N] [tenant=T] [cost=N] [arrived=D] [until=D] [room=N] [share=N] [turn=D] [comes=D] [several] [slots]
//	grant NAME D	the store grants a turn in D to a call that asks
//	pass NAME D [left=N]	it grants everything to a call that has several charges, to run in D; 99 units are left, or N
//	deny NAME D	it denies the call, which is to ask again after D
//	elsewhere NAME	it denies the call because of another limit
//	fail NAME	the store fails
//	leave NAME	the caller leaves
//	sleep D	time passes
//	trip D	each call of the store takes D from now on
//	hold CLASS N	a class holds N slots more; or, as hold tenant=T N, a tenant
//	wake, forget, wakeall, forgetall, give N, estimate N, standing, counts
//
// Each action is followed by what it changes: "=> b asks, a passes".
type hall struct {
	lines.Lines
	t      *testing.T
	supply lines.Supply
	key    lines.Key
	took   time.Duration
	calls  map[string]*call
	seen   map[string]string // what the script has been told of each call
}

// call is a call that does what its line tells it, and asks the test instead of a store.
type call struct {
	lines.Waiter
	refunds  bool // a turn for more, until the script says that the rest has been refunded
	leave    context.CancelFunc
	answers  chan lines.Answer
	expected atomic.Pointer[time.Time]
	state    atomic.Pointer[string]
}

func (c *call) set(state string) { c.state.Store(&state) }

func (c *call) get() string {
	if state := c.state.Load(); state != nil {
		return *state
	}
	return ""
}

func (h *hall) join(name string, w lines.Waiter, turn *lines.Turn, comes time.Time, refunds bool) {
	ctx, leave := context.WithCancel(h.t.Context())
	c := &call{Waiter: w, refunds: refunds, leave: leave, answers: make(chan lines.Answer)}
	h.calls[name] = c
	go func() {
		defer leave()
		defer h.Leave(&c.Waiter)
		_, expected, err := h.Join(&c.Waiter, turn, comes)
		if c.expected.Store(&expected); err == nil {
			err = c.stand(ctx, h)
		}
		switch {
		case errors.Is(err, lines.ErrFull):
			c.set("is replaced")
		case errors.Is(err, lines.ErrLate):
			c.set("is late")
		case err != nil:
			c.set("leaves")
		}
	}()
}

// stand stands in line until the call has passed.
func (c *call) stand(ctx context.Context, h *hall) error {
	for n := 1; ; n++ {
		t, err := h.Wait(ctx, &c.Waiter)
		if err != nil {
			return err
		}
		if t != nil {
			state := "passes"
			if t.Cost != c.Cost {
				state += fmt.Sprintf(" with %d", t.Cost)
			}
			if c.set(state); c.refunds {
				select {
				case <-c.answers:
				case <-ctx.Done():
				}
			}
			return nil
		}
		state := "asks"
		if !c.Holds {
			state = fmt.Sprintf("asks within %v", c.Horizon)
		}
		c.set(state + strings.Repeat(" ", n)) // another ask is news
		a := <-c.answers
		if state = ""; a.Passed {
			state = "passes"
		}
		c.set(state)
		h.Answer(&c.Waiter, a)
		if a.Passed {
			return nil
		}
	}
}

func number(h *hall, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func duration(h *hall, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// do does what an action of a script says, and returns what it has said at once.
func (h *hall) do(action string) (said string) {
	verb, rest, _ := strings.Cut(action, " ")
	words := strings.Fields(rest)
	now := time.Now()
	answer := func(a lines.Answer) {
		c := h.calls[words[0]]
		if !strings.HasPrefix(c.get(), "asks") {
			h.t.Fatalf("%s: %s isn't asking", action, words[0])
		}
		a.Supply, a.Took = h.supply, h.took
		c.answers <- a
	}
	turnIn := func(d time.Duration, cost int64) *lines.Turn { return &lines.Turn{At: now.Add(d), Cost: cost} }
	switch verb {
	case "join":
		w := lines.Waiter{
			Key: h.key, Cost: 1, Arrived: now, Until: now.Add(time.Hour), Room: 99,
			Holds: h.supply.Every > 0, Supply: h.supply,
		}
		var turn *lines.Turn
		var comes time.Time
		refunds := false
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "class":
				w.Class = uint8(number(h, value))
			case "cost":
				w.Cost = number(h, value)
			case "arrived":
				w.Arrived = now.Add(duration(h, value))
			case "until":
				w.Until = now.Add(duration(h, value))
			case "room":
				w.Room = number(h, value)
			case "tenant":
				w.Tenant = lines.TenantOf(value)
			case "share": // of class 0
				w.Shares = func() *lines.Shares { return &lines.Shares{0: uint8(number(h, value))} }
			case "turn":
				turn = turnIn(duration(h, value), 1)
			case "comes":
				comes = now.Add(duration(h, value))
			case "several":
				w.Holds = false
			case "slots":
				w.Holds, w.TakesSlots = false, true
			case "refunds":
				refunds = true
			default:
				h.t.Fatalf("%s: what is %s?", action, word)
			}
		}
		h.join(words[0], w, turn, comes, refunds)
	case "refunded":
		h.calls[words[0]].answers <- lines.Answer{}
	case "grant":
		answer(lines.Answer{Turn: turnIn(duration(h, words[1]), h.calls[words[0]].Cost)})
	case "pass":
		left := int64(99)
		if len(words) > 2 {
			left = number(h, strings.TrimPrefix(words[2], "left="))
		}
		answer(lines.Answer{Passed: true, At: now.Add(duration(h, words[1])), Left: left})
	case "deny":
		answer(lines.Answer{Retry: duration(h, words[1])})
	case "elsewhere":
		answer(lines.Answer{Elsewhere: true})
	case "fail":
		answer(lines.Answer{Failed: true})
	case "leave":
		h.calls[words[0]].leave()
	case "sleep":
		time.Sleep(duration(h, words[0]))
	case "trip":
		h.took = duration(h, words[0])
	case "hold":
		class, tenant := uint8(0), lines.Tenant(0)
		if name, ok := strings.CutPrefix(words[0], "tenant="); ok {
			tenant = lines.TenantOf(name)
		} else {
			class = uint8(number(h, words[0]))
		}
		h.AddHeld(h.key, class, tenant, number(h, words[1]))
	case "wake":
		h.Wake(h.key)
	case "forget":
		h.Forget(h.key)
	case "wakeall":
		h.WakeAll()
	case "forgetall":
		h.ForgetAll()
	case "give":
		return fmt.Sprint(h.GiveTurn(h.key, turnIn(0, number(h, words[0]))))
	case "estimate":
		if after := h.Estimate(h.key, number(h, words[0])); after > 0 {
			return after.String()
		}
		return "unknown"
	case "expected":
		return h.calls[words[0]].expected.Load().Sub(now).String()
	case "standing":
		s := h.Standing(h.key)
		return fmt.Sprintf("%d wait, %d held, next in %v", s.Units, s.Held, s.Next)
	case "counts":
		waiting, all, held := h.Counts()
		return fmt.Sprintf("%d wait in %d lines, %d hold", waiting, all, held)
	default:
		h.t.Fatalf("what is %s?", action)
	}
	return ""
}

// news returns what has changed since the last news.
func (h *hall) news(said string) string {
	var all []string
	if said != "" {
		all = append(all, said)
	}
	for _, name := range slices.Sorted(maps.Keys(h.calls)) {
		if state := h.calls[name].get(); state != h.seen[name] {
			if h.seen[name] = state; state != "" {
				all = append(all, name+" "+strings.TrimSpace(state))
			}
		}
	}
	return strings.Join(all, ", ")
}

// play does what a script says.
func play(t *testing.T, supply lines.Supply, script string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &hall{
			t: t, supply: supply, key: lines.Key{Limit: "limit", Key: "key"},
			calls: map[string]*call{}, seen: map[string]string{},
		}
		for row := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
			action, want, _ := strings.Cut(row, "=>")
			action, want = strings.TrimSpace(action), strings.TrimSpace(want)
			said := h.do(action)
			synctest.Wait()
			if got := h.news(said); got != want {
				t.Errorf("%s => %s, want %s", action, cmp.Or(got, "nothing"), cmp.Or(want, "nothing"))
			}
		}
		for _, c := range h.calls { // all leave, and nothing stays behind
			c.leave()
			if strings.HasPrefix(c.get(), "asks") {
				c.answers <- lines.Answer{Supply: supply}
			}
			synctest.Wait()
		}
		time.Sleep(time.Hour) // all turns pass
		synctest.Wait()
		if waiting, all, _ := h.Counts(); waiting+all > 0 || h.Waiting() {
			t.Errorf("%d wait in %d lines when all have left", waiting, all)
		}
	})
}

// supplies are how units come, in the tests.
var (
	ofSlots = lines.Supply{}
	// slow gives a unit each 100 ms, fast each 4 ms.
	slow = lines.Supply{Every: 100 * time.Millisecond}
	fast = lines.Supply{Every: 4 * time.Millisecond}
	// The windows have 10 units per second.
	window  = lines.Supply{Every: 100 * time.Millisecond, Window: time.Second, Units: 10, AtOnce: true}
	sliding = lines.Supply{Every: 100 * time.Millisecond, Window: time.Second, Units: 10}
	// prepaid gives what a call costs before that comes.
	prepaid = lines.Supply{Every: 100 * time.Millisecond, Prepaid: true}
)

// Calls are told to ask, and are served, in the order of the line. A line holds no more than it may.
func TestLine(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"in the order of arrival", slow, `
			join a					=> a asks
			join b					=>
			join c					=>
			grant a 100ms			=>
			sleep 99ms				=>
			sleep 1ms				=> a passes, b asks
			grant b 100ms			=>
			sleep 100ms				=> b passes, c asks
			grant c 100ms			=>
			sleep 100ms				=> c passes
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"one that comes from another line stands where it arrived", slow, `
			join a					=> a asks
			join b					=>
			join c arrived=-1ms		=>
			leave a					=>
			grant a 100ms			=> a leaves
			sleep 100ms				=> b asks, c passes`},
		{"a higher class first", slow, `
			join a					=> a asks
			join b					=>
			join c class=9			=>
			join d class=4			=>
			join e class=9			=>
			grant a 100ms			=>
			sleep 100ms				=> c passes, e asks
			grant e 100ms			=>
			sleep 100ms				=> d asks, e passes
			grant d 100ms			=>
			sleep 100ms				=> a asks, d passes
			grant a 100ms			=>
			sleep 100ms				=> a passes, b asks`},
		{"a class below its share first", ofSlots, `
			hold 1 3				=>
			join a class=1 share=50	=> a asks within 10ms
			deny a 0s				=>
			join b class=0 share=50	=>
			wake					=> b asks within 10ms
			pass b 0s				=> a asks within 10ms, b passes`},
		{"a class at its share last", ofSlots, `
			hold 0 1				=>
			hold 1 1				=>
			join b class=0 share=50	=> b asks within 10ms
			join a class=1 share=50	=>
			deny b 0s				=>
			wake					=> a asks within 10ms`},
		{"a full line", slow, `
			join a room=2			=> a asks
			join b room=2			=>
			join c room=2			=> c is replaced
			join d room=3			=>
			join e room=2 class=1	=> d is replaced
			join f room=2 class=1	=> b is replaced
			join g room=2 class=1	=>
			join h room=2 class=2	=> g is replaced
			grant a 100ms			=> a is replaced
			sleep 100ms				=> e asks, h passes`},
		{"the tenant that holds the fewest slots first, and of two the one that came first", ofSlots, `
			hold tenant=A 2			=>
			hold tenant=B 1			=>
			join a tenant=A			=> a asks within 10ms
			deny a 0s				=>
			join b tenant=B			=>
			join c tenant=C class=9	=>
			join d tenant=D			=>
			wake					=> c asks within 10ms
			pass c 0s				=> c passes, d asks within 10ms
			deny d 0s				=>
			join e tenant=C			=>
			hold tenant=C 1			=>
			hold tenant=D 9			=>
			wake					=> b asks within 10ms
			deny b 0s				=>
			hold tenant=B 1			=>
			wake					=> e asks within 10ms
			pass e 0s				=> a asks within 10ms, e passes
			pass a 0s				=> a passes, b asks within 10ms
			pass b 0s				=> b passes, d asks within 10ms`},
		{"of two tenants that hold as many, the one that has waited longest for its next slot", ofSlots, `
			join a tenant=A				=> a asks within 10ms
			deny a 0s					=>
			join b tenant=A arrived=1ms	=>
			join c tenant=A arrived=2ms	=>
			join d tenant=B arrived=3ms	=>
			join e tenant=B arrived=4ms	=>
			sleep 10ms					=>
			wake						=> a asks within 10ms
			pass a 0s					=> a passes, d asks within 10ms
			sleep 1ms					=>
			pass d 0s					=> b asks within 10ms, d passes
			sleep 1ms					=>
			pass b 0s					=> b passes, e asks within 10ms
			sleep 1ms					=>
			pass e 0s					=> c asks within 10ms, e passes
			leave c						=>
			pass c 0s					=> c passes
			counts						=> 0 wait in 0 lines, 0 hold`},
		{"a replaced call that passes all the same", ofSlots, `
			join a tenant=A room=2				=> a asks within 10ms
			join b tenant=A room=9 arrived=1ms	=>
			join c tenant=B room=2 arrived=2ms	=>
			join d tenant=B room=2				=> d is replaced
			pass a 0s							=> a passes, b asks within 10ms
			pass b 0s							=> b passes, c asks within 10ms
			leave c								=>
			deny c 0s							=> c leaves
			counts								=> 0 wait in 0 lines, 0 hold`},
		{"a tenant that holds as many as before the wait", ofSlots, `
			hold tenant=A 1			=>
			hold tenant=B 1			=>
			join a tenant=A			=> a asks within 10ms
			deny a 0s				=>
			join b tenant=B			=>
			hold tenant=A -1		=>
			hold tenant=B -1		=>
			wake					=> a asks within 10ms
			leave a					=>
			leave b					=> b leaves
			deny a 0s				=> a leaves
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"a full line, and the newest of the tenant with the most, running and waiting", ofSlots, `
			hold tenant=B 2						=>
			join a tenant=A room=5				=> a asks within 10ms
			deny a 0s							=>
			join b tenant=A room=5 arrived=1ms	=>
			join c tenant=A room=5 arrived=2ms	=>
			join d tenant=B room=5 arrived=3ms	=>
			join e tenant=B room=5 arrived=4ms	=>
			join f tenant=C room=5 arrived=5ms	=> e is replaced
			join g tenant=A room=5 arrived=6ms	=> g is replaced
			join h tenant=B room=5 arrived=6ms	=> h is replaced
			join i tenant=C room=5 arrived=6ms	=> d is replaced
			join j tenant=C room=5 arrived=7ms	=> j is replaced
			hold tenant=B -1					=>
			join k tenant=B room=5 arrived=8ms	=> c is replaced
			join l tenant=B room=5 arrived=9ms	=> l is replaced
			hold tenant=B -1					=>
			join m tenant=D room=5 arrived=9ms	=> i is replaced`},
		{"of several tenants with the most, the newest", ofSlots, `
			join a tenant=A room=4				=> a asks within 10ms
			join b tenant=B room=4 arrived=1ms	=>
			join c tenant=B room=4 arrived=2ms	=>
			join d tenant=A room=4 arrived=3ms	=>
			join e tenant=C room=4 arrived=4ms	=> d is replaced
			join f tenant=D room=4 arrived=5ms	=> c is replaced
			join g tenant=A room=4 arrived=6ms	=> g is replaced`},
		{"a cost of several slots counts as many in a full line", ofSlots, `
			join a tenant=A cost=5 room=2	=> a asks within 10ms
			join b tenant=A cost=3 room=2	=>
			join c tenant=B cost=6 room=2	=> c is replaced
			join d tenant=B cost=5 room=2	=> b is replaced
			join e tenant=A cost=1 room=2	=> e is replaced`},
		{"who has room beside all others isn't replaced for a tenant either", ofSlots, `
			join a tenant=A room=9	=> a asks within 10ms
			join b tenant=A room=2	=>
			join c tenant=A room=9	=>
			join d tenant=B room=3	=> b is replaced
			join e tenant=C room=3	=> e is replaced`},
		{"calls of a class and of a tenant, by arrival", ofSlots, `
			join a class=1				=> a asks within 10ms
			deny a 0s					=>
			join b tenant=B arrived=1ms	=>
			join c class=2 arrived=2ms	=>
			join d tenant=D arrived=3ms	=>
			wake					=> b asks within 10ms
			pass b 0s				=> b passes, c asks within 10ms
			pass c 0s				=> a asks within 10ms, c passes
			pass a 0s				=> a passes, d asks within 10ms`},
		{"no room at all, and nobody waits", slow, `
			join a room=0			=> a asks
			join b room=0			=> b is replaced`},
		{"who has room beside all others isn't replaced", slow, `
			join a room=9			=> a asks
			join b room=1 class=1	=> b is replaced`},
		{"a slow rate: one turn", slow, `
			join a					=> a asks
			join b					=>
			grant a 11ms			=>
			sleep 11ms				=> a passes, b asks`},
		{"a fast rate: as many turns as come within 10 ms", fast, `
			join a					=> a asks
			join b					=> b asks
			join c					=>
			grant a 4ms				=>
			grant b 8ms				=>
			standing				=> 3 wait, 2 held, next in 4ms
			sleep 4ms				=> a passes, c asks
			join d					=>
			grant c 8ms				=>
			sleep 4ms				=> b passes, d asks`},
		{"whatever their order", fast, `
			join a					=> a asks
			join b					=> b asks
			join c					=>
			grant b 8ms				=>
			join d					=>
			grant a 4ms				=>`},
		{"a slow store: as many as come within a round trip and 5 ms", fast, `
			trip 64ms				=>
			join a					=> a asks
			join b					=> b asks
			join c					=>
			grant a 4ms				=> c asks`},
		{"the cost counts", fast, `
			join a cost=2			=> a asks
			join b cost=2			=>
			grant a 8ms				=>
			sleep 8ms				=> a passes, b asks`},
		{"calls of other costs don't ask meanwhile", fast, `
			join a cost=2			=> a asks
			join b cost=1			=>
			join c cost=2			=>
			grant a 1ms				=> b asks
			deny b 0s				=> b asks
			grant b 5ms				=>`},
		{"a turn goes to the first call that it suffices for", slow, `
			join a cost=1			=> a asks
			join b cost=2			=>
			join c cost=1			=>
			leave a					=>
			grant a 100ms			=> a leaves
			sleep 100ms				=> b asks, c passes`},
		{"a turn for more goes to the next call", slow, `
			join a cost=3			=> a asks
			join b cost=2			=>
			leave a					=>
			grant a 300ms			=> a leaves
			sleep 300ms				=> b passes with 3`},
		{"no call asks before the rest of a turn has been refunded", slow, `
			join a cost=3			=> a asks
			join b class=9 refunds	=>
			grant a 300ms			=>
			sleep 300ms				=> b passes with 3
			join c					=>
			refunded b				=> a asks
			grant a 100ms			=>
			sleep 100ms				=> a passes, c asks`},
		{"one that leaves with a turn for more", slow, `
			join a cost=3			=> a asks
			leave a					=>
			join b refunds			=>
			grant a 300ms			=> a leaves
			sleep 300ms				=> b passes with 3
			join c					=>
			leave b					=> c asks`},
		{"a turn for which no call waits passes", slow, `
			join a					=> a asks
			leave a					=>
			grant a 100ms			=> a leaves
			counts					=> 0 wait in 1 lines, 0 hold
			sleep 99ms				=>
			join b					=>
			sleep 1ms				=> b passes
			join c					=> c asks
			leave c					=>
			grant c 100ms			=> c leaves
			sleep 100ms				=>
			counts					=> 0 wait in 0 lines, 0 hold
			join d					=> d asks`},
		{"a turn that suffices for none passes", slow, `
			join a					=> a asks
			leave a					=>
			grant a 100ms			=> a leaves
			join b cost=2			=>
			sleep 100ms				=> b asks`},
		{"a call brings the turn that it was granted", slow, `
			join a turn=100ms		=>
			join b					=>
			sleep 100ms				=> a passes, b asks`},
		{"a turn of a call that finds no room stays", slow, `
			join a room=1			=> a asks
			join b room=1 turn=50ms	=> b is replaced
			grant a 150ms			=>
			sleep 50ms				=> a passes
			counts					=> 0 wait in 1 lines, 0 hold`},
		{"a call that leaves before it has asked", slow, `
			join a					=> a asks
			deny a 50ms				=>
			leave a					=> a leaves
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"a call that leaves while it asks is denied", slow, `
			join a					=> a asks
			join b					=>
			leave a					=>
			deny a 30ms				=> a leaves
			sleep 29ms				=>
			sleep 1ms				=> b asks`},
		{"a denied call asks again when the store has said", slow, `
			join a					=> a asks
			join b					=>
			deny a 300ms			=>
			sleep 299ms				=>
			sleep 1ms				=> a asks`},
		{"but not after more than a second", slow, `
			join a					=> a asks
			deny a 5s				=>
			sleep 1s				=> a asks`},
		{"and a round trip earlier", slow, `
			trip 80ms				=>
			join a					=> a asks
			deny a 300ms			=>
			sleep 289ms				=>
			sleep 1ms				=> a asks`},
		{"but not more than half", slow, `
			trip 8s					=>
			join a					=> a asks
			deny a 300ms			=>
			sleep 149ms				=>
			sleep 1ms				=> a asks`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// A window gives many units at once. Its calls ask one after the other if it is the store's clock that begins it,
// since those of all processes ask then. Otherwise more ask at once while each is granted immediately.
func TestWindows(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"a store with a round trip", window, `
			trip 1ms				=>
			join a					=> a asks
			join b					=>
			join c cost=2			=>
			join d					=>
			grant a 0s				=> a passes
			sleep 24ms				=>
			sleep 1ms				=> b asks
			grant b 0s				=> b passes
			sleep 25ms				=> c asks
			grant c 0s				=> c passes
			sleep 49ms				=>
			sleep 1ms				=> d asks`},
		{"a store that answers at once", window, `
			join a					=> a asks
			join b					=>
			join c cost=2			=>
			grant a 0s				=> a passes, b asks
			grant b 0s				=> b passes, c asks
			grant c 700ms			=>
			join d					=>
			sleep 700ms				=> c passes, d asks`},
		{"a higher cost than was granted immediately asks alone", slow, `
			join a					=> a asks
			join b					=>
			join c cost=3			=>
			join d cost=3			=>
			grant a 0s				=> a passes, b asks
			grant b 0s				=> b passes, c asks
			grant c 300ms			=>
			sleep 300ms				=> c passes, d asks`},
		{"units that come one by one", sliding, `
			trip 1ms				=>
			join a					=> a asks
			join b					=>
			join c					=>
			join d					=>
			join e					=>
			join f					=>
			join g					=>
			grant a 0s				=> a passes, b asks, c asks
			grant b 0s				=> b passes, d asks, e asks, f asks
			grant c 0s				=> c passes, g asks
			grant d 50ms			=>
			deny e 50ms				=>
			deny f 50ms				=>
			deny g 50ms				=>
			sleep 50ms				=> d passes, e asks`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// A call whose turn would come too late isn't let in. Its turn is estimated by the line's last turn, the units ahead,
// and the pace of the line, or the rate if that is slower; for windows by whole windows.
func TestEstimate(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"by the rate", slow, `
			join a					=> a asks
			grant a 100ms			=>
			estimate 1				=> 200ms
			join b until=199ms		=> b is late
			expected b				=> 200ms
			join c until=200ms		=>
			join d cost=2 until=399ms	=> d is late
			join e cost=2 until=400ms	=>
			estimate 1				=> 500ms`},
		{"calls of a lower class count for nothing", slow, `
			join a					=> a asks
			grant a 100ms			=>
			join b class=1			=>
			expected b				=> 100ms
			join c class=1 until=199ms	=> c is late
			join d class=1			=>
			expected d				=> 200ms
			join e class=2			=>
			expected e				=> 100ms
			join f class=1			=>
			expected f				=> 400ms
			join g					=>
			expected g				=> 600ms`},
		{"while the first call asks", slow, `
			join a comes=60ms		=> a asks
			expected a				=> 60ms
			join b					=>
			expected b				=> 160ms`},
		{"by the pace of the line", slow, `
			join a					=> a asks
			join b					=>
			join c					=>
			grant a 100ms			=>
			sleep 100ms				=> a passes, b asks
			grant b 300ms			=>
			sleep 300ms				=> b passes, c asks
			grant c 300ms			=>
			estimate 1				=> 600ms
			join d until=599ms		=> d is late
			join e until=600ms		=>`},
		{"a line that was faster", slow, `
			join a					=> a asks
			join b					=>
			join c					=>
			grant a 0s				=> a passes, b asks, c asks
			grant b 0s				=> b passes
			grant c 100ms			=>
			estimate 1				=> 200ms`},
		{"without the call's own units", prepaid, `
			join a cost=5			=> a asks
			grant a 100ms			=>
			estimate 7				=> 100ms
			join b cost=5			=>
			estimate 7				=> 600ms`},
		{"by windows", window, `
			join a					=> a asks
			grant a 400ms			=>
			estimate 9				=> 400ms
			estimate 10				=> 1.4s
			join b cost=9			=>
			estimate 1				=> 1.4s
			join c until=1399ms		=> c is late
			join d until=1400ms		=>`},
		{"a cost above any", slow, `
			join a					=> a asks
			join b cost=1000000000000	=> b is late
			grant a 100ms			=>
			sleep 100ms				=> a passes`},
		{"slots", ofSlots, `
			join a					=> a asks within 10ms
			estimate 1				=> unknown
			join b until=1ns		=>
			sleep 1ns				=> b is late`},
		{"nobody waits", slow, `
			estimate 1				=> unknown
			standing				=> 0 wait, 0 held, next in 0s`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// A call with several charges, or with slots, reserves nothing: it asks for everything shortly before the store would
// let it pass. If a call of another process is faster, the line asks for what comes later still.
func TestHoldsNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"asks 10 ms before the store would let it pass", slow, `
			join a several comes=100ms	=>
			sleep 89ms				=>
			sleep 1ms				=> a asks within 10ms
			pass a 10ms				=> a passes`},
		{"and a round trip", slow, `
			trip 80ms				=>
			join a several			=> a asks within 10ms
			join b several			=>
			pass a 10ms				=> a passes
			sleep 89ms				=>
			sleep 1ms				=> b asks within 10ms`},
		{"one after the other", slow, `
			join a several			=> a asks within 10ms
			join b several cost=2	=>
			join c several			=>
			pass a 10ms				=> a passes
			sleep 199ms				=>
			sleep 1ms				=> b asks within 10ms
			pass b 10ms				=> b passes
			sleep 100ms				=> c asks within 10ms`},
		{"lost races double the horizon", slow, `
			join a several comes=100ms	=>
			sleep 90ms				=> a asks within 10ms
			deny a 90ms				=>
			sleep 79ms				=>
			sleep 1ms				=> a asks within 20ms
			deny a 80ms				=>
			sleep 60ms				=> a asks within 40ms
			deny a 960ms			=>
			sleep 920ms				=> a asks within 80ms
			deny a 920ms			=>
			sleep 840ms				=> a asks within 160ms
			deny a 840ms			=>
			sleep 680ms				=> a asks within 320ms
			deny a 680ms			=>
			sleep 360ms				=> a asks within 640ms
			deny a 900ms			=>
			sleep 540ms				=> a asks within 1s
			deny a 100ms			=>
			sleep 100ms				=> a asks within 1s
			pass a 0s				=> a passes`},
		{"grants bring it back", slow, `
			join a several comes=100ms	=>
			join b several			=>
			join c several			=>
			sleep 90ms				=> a asks within 10ms
			deny a 30ms				=>
			sleep 20ms				=> a asks within 20ms
			pass a 10ms				=> a passes
			sleep 91250us			=> b asks within 18.75ms
			pass b 8750us			=> b passes
			sleep 91250us			=> c asks within 17.5ms`},
		{"a denial that the line didn't time is no race", slow, `
			join a several			=> a asks within 10ms
			deny a 90ms				=>
			sleep 90ms				=> a asks within 10ms`},
		{"with slots the horizon stays", slow, `
			join a slots comes=100ms	=>
			sleep 90ms				=> a asks within 10ms
			deny a 90ms				=>
			sleep 90ms				=> a asks within 10ms`},
		{"a call denied by another limit", slow, `
			join a several			=> a asks within 10ms
			join b several			=>
			elsewhere a				=>
			leave a					=> a leaves
			sleep 99ms				=>
			sleep 1ms				=> b asks within 10ms`},
		{"a call that holds stands behind one that doesn't", slow, `
			join a several			=> a asks within 10ms
			join b					=>
			join c several			=>
			pass a 0s				=> a passes, b asks
			grant b 100ms			=>
			sleep 100ms				=> b passes, c asks within 10ms`},
		{"no turn is served to it", slow, `
			join a					=> a asks
			leave a					=>
			grant a 100ms			=> a leaves
			join b several			=>
			sleep 100ms				=> b asks within 10ms`},
		{"a release while it asks", ofSlots, `
			join a					=> a asks within 10ms
			wake					=>
			deny a 0s				=> a asks within 10ms
			deny a 0s				=>
			wake					=> a asks within 10ms`},
		{"what comes free goes to the next", ofSlots, `
			join a					=> a asks within 10ms
			join b					=>
			join c					=>
			pass a 0s				=> a passes, b asks within 10ms
			leave b					=>
			pass b 0s				=> b passes, c asks within 10ms`},
		{"when nothing is left, nobody asks before a slot is released", ofSlots, `
			join a					=> a asks within 10ms
			join b					=>
			pass a 0s left=0			=> a passes
			wake					=> b asks within 10ms`},
		{"a call asks for each slot that is released, beside others", ofSlots, `
			join a					=> a asks within 10ms
			join b					=>
			join c					=>
			join d					=>
			wake					=> b asks within 10ms
			wake					=> c asks within 10ms
			pass b 0s left=0			=> b passes
			deny a 0s				=>
			pass c 0s left=0			=> c passes
			wake					=> a asks within 10ms
			pass a 0s left=1			=> a passes, d asks within 10ms`},
		{"and as many as are found free", ofSlots, `
			join a					=> a asks within 10ms
			join b					=>
			join c					=>
			join d					=>
			wake					=> b asks within 10ms
			pass a 0s left=2			=> a passes, c asks within 10ms
			pass b 0s left=1			=> b passes
			pass c 0s left=1			=> c passes, d asks within 10ms`},
		{"calls of different costs don't ask beside each other for slots", ofSlots, `
			join a					=> a asks within 10ms
			join b cost=2				=>
			wake					=>
			deny a 0s				=> a asks within 10ms
			pass a 0s left=2			=> a passes, b asks within 10ms`},
		{"a slot that was released while others asked isn't forgotten", ofSlots, `
			join a					=> a asks within 10ms
			join b					=>
			join c cost=2				=>
			wake					=> b asks within 10ms
			wake					=>
			deny a 0s				=> a asks within 10ms`},
		{"what tenants ask for counts as held", ofSlots, `
			hold tenant=B 1				=>
			join a tenant=A				=> a asks within 10ms
			join b tenant=B				=>
			join c tenant=A				=>
			join d tenant=A				=>
			wake					=> c asks within 10ms
			wake					=> b asks within 10ms`},
		{"and what a class asks for", ofSlots, `
			hold 1 2				=>
			join a share=50				=> a asks within 10ms
			join b class=1				=>
			join c share=50				=>
			join d share=50				=>
			wake					=> c asks within 10ms
			wake					=> b asks within 10ms`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// A failed store paces the line: its calls don't all ask, and pass, at once.
func TestStoreFails(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"as the rate", slow, `
			join a					=> a asks
			join b cost=2			=>
			join c					=>
			fail a					=>
			leave a					=> a leaves
			sleep 99ms				=>
			sleep 1ms				=> b asks
			fail b					=>
			leave b					=> b leaves
			sleep 199ms				=>
			sleep 1ms				=> c asks`},
		{"but at least 10 ms", lines.Supply{Every: time.Microsecond}, `
			join a					=> a asks
			join b					=> b asks
			fail a					=>
			leave a					=> a leaves
			join c					=>
			sleep 9ms				=>
			sleep 1ms				=> c asks`},
		{"and at most a second", lines.Supply{Every: time.Hour}, `
			join a					=> a asks
			fail a					=>
			sleep 999ms				=>
			sleep 1ms				=> a asks`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// A line hears what changes for its calls from elsewhere.
func TestChanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"units have been given back", slow, `
			join a					=> a asks
			deny a 300ms			=>
			wake					=> a asks`},
		{"while a turn is held", slow, `
			join a					=> a asks
			join b					=>
			grant a 300ms			=>
			wake					=>
			wakeall					=>
			sleep 300ms				=> a passes, b asks`},
		{"a reset drops the turns", slow, `
			join a					=> a asks
			grant a 30m				=>
			join b					=>
			forget					=> a asks
			grant a 100ms			=>
			estimate 1				=> 300ms
			sleep 100ms				=> a passes, b asks`},
		{"a failover drops those of all lines", slow, `
			join a					=> a asks
			grant a 1h				=>
			forgetall				=> a asks`},
		{"a turn for which no call waits", slow, `
			join a					=> a asks
			leave a					=>
			grant a 1h				=> a leaves
			forget					=>
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"there is no line", slow, `
			wake					=>
			forget					=>
			wakeall					=>
			forgetall				=>
			give 1					=> false
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"a turn is given to the first call that it suffices for", slow, `
			join a cost=2			=> a asks
			join b					=>
			give 1					=> true, b passes
			give 1					=> false
			grant a 200ms			=>
			give 3					=> true, a passes with 3
			sleep 200ms				=>
			counts					=> 0 wait in 0 lines, 0 hold`},
		{"a turn is given to a call that asks", slow, `
			join a					=> a asks
			give 1					=> true
			join b					=>
			deny a 1s				=> a passes
			counts					=> 1 wait in 1 lines, 0 hold`},
		{"no turn is given to a call that holds nothing", slow, `
			join a several			=> a asks within 10ms
			give 1					=> false`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// However a wait ends, the call leaves the line, and not before its time. The first of a line asks once more when its
// time is up.
func TestWaitEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		supply lines.Supply
		script string
	}{
		{"late as the first", slow, `
			join a until=900ms		=> a asks
			deny a 1s				=>
			sleep 899ms				=>
			sleep 1ms				=> a asks
			deny a 100ms			=> a is late`},
		{"late behind another", slow, `
			join a					=> a asks
			join b until=1s			=>
			deny a 900ms			=>
			sleep 900ms				=> a asks
			sleep 99ms				=>
			sleep 1ms				=> b is late`},
		{"late while a turn is held", slow, `
			join a until=1s			=> a asks
			grant a 1001ms			=>
			sleep 1s				=> a is late
			counts					=> 0 wait in 1 lines, 0 hold`},
		{"a turn comes at the last instant", slow, `
			join a until=1s			=> a asks
			grant a 1s				=>
			sleep 1s				=> a passes`},
		{"slots come free at the last instant", ofSlots, `
			join a until=50ms		=> a asks within 10ms
			deny a 0s				=>
			sleep 50ms				=> a asks within 0s
			pass a 0s				=> a passes`},
		{"the caller leaves", slow, `
			join a					=> a asks
			join b					=>
			leave b					=> b leaves
			counts					=> 1 wait in 1 lines, 0 hold`},
		{"replaced while it asks, and granted", ofSlots, `
			join a room=1			=> a asks within 10ms
			join b room=1 class=1	=>
			counts					=> 1 wait in 1 lines, 0 hold
			pass a 0s				=> a passes, b asks within 10ms`},
		{"replaced while it asks, and granted a turn", slow, `
			join a room=1			=> a asks
			join b room=1 class=1	=>
			grant a 100ms			=> a is replaced
			sleep 100ms				=> b passes`},
	} {
		t.Run(test.name, func(t *testing.T) { play(t, test.supply, test.script) })
	}
}

// The first calls of all lines of slots together ask a hundred times a second, and each at least once.
func TestPoll(t *testing.T) {
	for _, n := range []int{1, 5, 20, 500} {
		synctest.Test(t, func(t *testing.T) {
			var ls lines.Lines
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			asked := make([]int, n)
			for i := range asked {
				go func() {
					now := time.Now()
					key := lines.Key{Limit: "x", Key: strconv.Itoa(i)}
					w := &lines.Waiter{Key: key, Cost: 1, Arrived: now, Until: now.Add(time.Hour), Room: 2}
					defer ls.Leave(w)
					_, _, err := ls.Join(w, nil, time.Time{})
					for err == nil {
						if _, err = ls.Wait(ctx, w); err == nil {
							asked[i]++
							ls.Answer(w, lines.Answer{})
						}
					}
				}()
			}
			<-ctx.Done()
			synctest.Wait()
			sum := 0
			for _, n := range asked {
				polls := n - 1 // the first is at once
				if polls < 9 {
					t.Errorf("of %d lines one has asked again %d times in 10s, want 9 at the least", len(asked), polls)
				}
				sum += polls
			}
			if most := max(1200, 12*n); sum > most {
				t.Errorf("%d lines have asked %d times in 10s, want %d at the most", n, sum, most)
			}
		})
	}
}

// Of calls that come at once, one at a time may be granted a turn without standing in line.
func TestBeginFirst(t *testing.T) {
	var ls lines.Lines
	a := lines.Key{Limit: "x", Key: "a"}
	if !ls.BeginFirst(a) || ls.BeginFirst(a) {
		t.Error("not one of two is first")
	}
	if ls.EndFirst(a); !ls.BeginFirst(a) {
		t.Error("none is first again")
	}
}

// A line knows how the units of each algorithm come.
func TestSupplyOf(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		spec store.Spec
		want lines.Supply
	}{
		{store.Spec{Algorithm: store.TokenBucket, Units: 10, Period: s, Burst: 5}, lines.Supply{Every: s / 10}},
		{store.Spec{Algorithm: store.TokenBucket, Units: 10, Period: s, Burst: 5, Debt: true},
			lines.Supply{Every: s / 10, Prepaid: true}},
		{store.Spec{Algorithm: store.LeakyBucket, Units: 10, Period: s, Queue: 5}, lines.Supply{Every: s / 10}},
		{store.Spec{Algorithm: store.FixedWindow, Units: 10, Period: s},
			lines.Supply{Every: s / 10, Window: s, AtOnce: true}},
		{store.Spec{Algorithm: store.SlidingLog, Units: 10, Period: s}, lines.Supply{Every: s / 10, Window: s}},
		{store.Spec{Algorithm: store.FixedWindow, Units: 1e9, Period: s / 10},
			lines.Supply{Every: 1, Window: s / 10, AtOnce: true}},
	} {
		test.want.Units = test.spec.Units
		test.spec.Name = "x"
		l, err := store.NewLimit(test.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines.SupplyOf(l, time.Now()); got != test.want {
			t.Errorf("%+v: %+v, want %+v", test.spec, got, test.want)
		}
	}
	l, err := store.NewLimit(store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 10})
	if got := lines.SupplyOf(l, time.Now()); err != nil || got != (lines.Supply{}) {
		t.Errorf("slots: %+v, %v, want no supply", got, err)
	}
}
