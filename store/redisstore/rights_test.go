package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// everyKind has limits of each algorithm, and what they are changed to.
var everyKind = [][2]store.Spec{
	{{Units: 3, Period: time.Hour}, {Units: 7, Period: time.Hour}},
	{{Units: 348_773, Period: time.Minute}, {Units: 348_777, Period: time.Minute}},
	{{Units: 3, Period: time.Hour, Queue: 2, Debt: true}, {Units: 5, Period: time.Hour, Queue: 2, Debt: true}},
	{{Algorithm: store.IntervalBucket, Units: 3, Period: time.Hour}, {Algorithm: store.IntervalBucket, Units: 5, Period: time.Hour}},
	{{Algorithm: store.LeakyBucket, Units: 3, Period: time.Hour, Burst: 2}, {Algorithm: store.LeakyBucket, Units: 5, Period: time.Hour, Burst: 2}},
	{{Algorithm: store.FixedWindow, Units: 3, Window: store.Daily}, {Algorithm: store.FixedWindow, Units: 5, Window: store.Daily}},
	{{Algorithm: store.FixedWindow, Units: 3, Period: time.Hour}, {Algorithm: store.FixedWindow, Units: 5, Period: time.Hour}},
	{{Algorithm: store.SlidingWindow, Units: 3, Period: time.Hour}, {Algorithm: store.SlidingWindow, Units: 5, Period: 2 * time.Hour}},
	{{Algorithm: store.SlidingCounter, Units: 3, Period: time.Hour}, {Algorithm: store.SlidingCounter, Units: 5, Period: time.Hour}},
	{{Algorithm: store.SlidingLog, Units: 3, Period: time.Hour}, {Algorithm: store.SlidingLog, Units: 5, Period: 2 * time.Hour}},
	{{Algorithm: store.SlidingLog, Units: 3, Period: brief}, {Algorithm: store.SlidingLog, Units: 2, Period: brief}},
	{{Algorithm: store.SlidingWindow, Units: 9, Period: brief}, {Algorithm: store.SlidingWindow, Units: 2, Period: brief}},
	{{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: time.Hour}, {Algorithm: store.WarmUp, Units: 2, Period: time.Second, WarmUp: time.Hour}},
	{{Algorithm: store.Concurrency, Units: 3}, {Algorithm: store.Concurrency, Units: 9}},
	{{Algorithm: store.Ban, Units: 3, Period: time.Minute, Ban: time.Hour}, {Algorithm: store.Ban, Units: 5, Period: time.Minute, Ban: time.Hour}},
}

// everything has stores do what there is to do with the limits of everyKind from a number on, by the
// server's clock and by one of their own. It returns the first error.
func everything(t *testing.T, rdb redis.UniversalClient, from int, done func(kind int)) error {
	const hour = time.Hour
	clock, lost := newClock(), 0
	ever := redisstore.WithLeaseTTL(hour)
	told := func(string, *store.Limit) { lost++ }
	byServer := redisstore.New(rdb, patient, ever).WithLost(told)
	defer byServer.Close()
	byCaller := redisstore.New(rdb, patient, ever, redisstore.WithPrefix("stint:told:"), redisstore.WithClock(clock.now)).WithLost(told)
	defer byCaller.Close()
	for i, specs := range everyKind[from:] {
		name := fmt.Sprint("x", from+i)
		if err := exercise(t, byServer, name, specs, func(time.Duration) {}); err != nil {
			return fmt.Errorf("%v: %w", specs[0].Algorithm, err)
		}
		if err := exercise(t, byCaller, name, specs, clock.sleep); err != nil {
			return fmt.Errorf("%v, by the caller's clock: %w", specs[0].Algorithm, err)
		}
		done(from + i)
	}
	if lost > 0 {
		return fmt.Errorf("%d leases are lost", lost)
	}
	return nil
}

// brief is a period that a caller's clock passes quickly, and this machine never.
const brief = 30 * time.Minute

// exercise charges a limit beyond what it lets through, under two sets of numbers,
// renews its leases, settles some of that up and some down, the last charges first, and
// resets it.
func exercise(t *testing.T, s redisstore.Told, name string, specs [2]store.Spec, sleep func(time.Duration)) error {
	t.Helper()
	ctx := context.Background()
	var l *store.Limit
	var made []store.Charge
	for k, spec := range specs {
		spec.Name = name
		l = limit(t, spec)
		beside := limit(t, store.Spec{Name: name + "-beside", Units: 1000, Period: time.Hour})
		cost, wait := int64(1), time.Hour
		pause := 5 * time.Millisecond
		if spec.Period == brief { // what is used comes free meanwhile, by the caller's clock
			wait, pause = 0, brief/6
		}
		if spec.Algorithm == store.Concurrency {
			cost += int64(k) // leases of several slots come after those of one
		}
		for i := range 12 {
			results := make([]store.Result, 2)
			charges := []store.Charge{{Key: "k", Limit: l, Cost: cost, MaxWait: wait, Final: true}, {Key: "k", Limit: beside, Cost: int64(1 + i%2)}}
			if err := s.Take(ctx, charges, results); err != nil {
				return err
			}
			for k := range charges {
				if charges[k].Receipt = results[k].Receipt; results[0].OK {
					made = append(made, charges[k])
				}
			}
			sleep(pause)
		}
	}
	if !s.Renew() {
		return errors.New("leases aren't renewed")
	}
	slices.Reverse(made)
	for i := range made {
		made[i].Cost = int64(i / 2 % 3)
		if made[i].Receipt.Lease != (store.LeaseID{}) {
			made[i].Cost = 0
		}
		if err := s.Settle(ctx, made[i:i+1], make([]store.Result, 1)); err != nil {
			return err
		}
	}
	// What a charge has left is removed when the charge is given back at once.
	undone, results := []store.Charge{{Key: "undone", Limit: l, Cost: 1}}, make([]store.Result, 1)
	if err := s.Take(ctx, undone, results); err != nil {
		return err
	}
	undone[0].Cost, undone[0].Receipt = 0, results[0].Receipt
	if err := s.Settle(ctx, undone, results); err != nil {
		return err
	}
	_, err := s.Reset(ctx, "k", l)
	return err
}

// The rights that docs/redis.md lists are those that scripts use, and are enough. Where
// one is missing, calls fail: none is granted instead.
func TestRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Permissions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rights := regexp.MustCompile(`[+~][a-z]+(:\*)?`).FindAllString(section, -1)
	slices.Sort(rights)
	if want := append(used(t), "+eval", "+evalsha", "~stint:*"); !slices.Equal(rights, sorted(want)) {
		t.Errorf("docs/redis.md lists\n%q\nand scripts use\n%q", rights, want)
	}

	server := redistest.Start(t)
	set := func(rules ...any) { server.Do(append([]any{"ACL", "SETUSER", "limits"}, rules...)...) }
	set(append([]any{"on", ">pw"}, anys(rights)...)...)
	rdb := server.Client(func(o *redis.Options) {
		o.Username, o.Password, o.ContextTimeoutEnabled = "limits", "pw", true
	})
	first := map[string]int{} // the kind that uses a right first: without it, those before go on as with it
	if err := everything(t, rdb, 0, func(kind int) {
		for _, right := range commandsRun(server) {
			if _, known := first[right]; !known {
				first[right] = kind
			}
		}
	}); err != nil {
		t.Error(err)
	}
	for _, right := range rights {
		command, is := strings.CutPrefix(right, "+")
		if !is {
			continue
		}
		server.Do("FLUSHALL")
		if command == "eval" { // which sends scripts that the server doesn't know
			server.Do("SCRIPT", "FLUSH")
		}
		set("-" + command)
		if err := everything(t, rdb, first[right], func(int) {}); !errors.Is(err, redisstore.ErrConfiguration) && !errors.Is(err, redisstore.ErrIndeterminate) {
			t.Errorf("without %s: %v", right, err)
		}
		set(right)
	}
}

// Behind a failover, memory decides while the password is wrong or a right is missing that only
// some algorithms need, and until it is there.
func TestMemoryWhileARightIsMissing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	set := func(rules ...any) { server.Do(append([]any{"ACL", "SETUSER", "limits"}, rules...)...) }
	l := limit(t, store.Spec{Name: "log", Algorithm: store.SlidingLog, Units: 5, Period: time.Hour})
	used := used(t)
	set(append([]any{"on", ">pw", "~*", "+eval", "+evalsha"}, anys(used)...)...)
	for i, c := range [][2]string{{"-rpush", "+rpush"}, {"<pw", ">pw"}} {
		set(c[0])
		rdb := server.Client(func(o *redis.Options) {
			o.Username, o.Password, o.ContextTimeoutEnabled = "limits", "pw", true
		})
		primary := redisstore.New(rdb, patient)
		s := failover.New(primary, memstore.New(), failover.WithProbe(5*time.Millisecond, time.Second))
		for n := range 8 {
			if r, err := take(s, fmt.Sprint("k", i), l, 1); err != nil || r.OK != (n < 5) {
				t.Errorf("%s: %d: %+v, %v", c[0], n, r, err)
			}
		}
		eventually(t, "probes", func() bool { return s.Stats().Probes > 5 })
		if _, err := s.Degraded(); !errors.Is(err, store.ErrMisconfigured) {
			t.Errorf("%s: %v", c[0], err)
		}
		set(c[1])
		eventually(t, "the breaker closes", func() bool { return s.State() == failover.Closed })
		if r, err := take(s, fmt.Sprint("k", i), l, 1); err != nil || !r.OK || r.Receipt.Path != 0 {
			t.Errorf("%s: %+v, %v", c[1], r, err)
		}
		s.Close()
		primary.Close()
	}
}

// used are the rights to the commands of the scripts.
func used(t *testing.T) (rights []string) {
	t.Helper()
	files, err := filepath.Glob("../../lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			if right := "+" + strings.ToLower(m[1]); !slices.Contains(rights, right) {
				rights = append(rights, right)
			}
		}
	}
	return rights
}

// commandsRun are the rights to the commands that a server has run, also in scripts, since its
// start or CONFIG RESETSTAT.
func commandsRun(server *redistest.Server) (rights []string) {
	for _, m := range regexp.MustCompile(`cmdstat_([a-z]+):`).FindAllStringSubmatch(server.Do("INFO", "commandstats").(string), -1) {
		rights = append(rights, "+"+m[1])
	}
	return rights
}

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

func anys(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

// Whatever command a script may not use: where the error says that nothing was charged,
// nothing was, and no key is left without a lifetime. The error names the command. Each kind of limit is taken beside a
// quota, settled both ways, renewed and reset, unused and used up.
func TestRightsMissingInTheMiddle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rights := used(t)
	set := func(rules ...any) { server.Do(append([]any{"ACL", "SETUSER", "limits"}, rules...)...) }
	set("on", ">pw", "~*", "+@all")
	rdb := server.Client(func(o *redis.Options) {
		o.Username, o.Password, o.ContextTimeoutEnabled = "limits", "pw", true
	})
	admin := server.Client()
	ctx := context.Background()
	names := server.Do("EVAL", "return redis.acl_check_cmd and 1 or 0", 0) == int64(1) // since Redis 7
	partial := 0
	for i, specs := range everyKind {
		// Of the commands that no call of this kind has used, none is missed. So first no right is
		// missing, and then each to a command that the server has counted.
		server.Do("CONFIG", "RESETSTAT")
		missing := []string{""}
		for n := 0; n < len(missing); n++ {
			right := missing[n]
			for _, usedUp := range []int64{0, 1, 100} {
				server.Do("FLUSHALL")
				set("+@all")
				whole := redisstore.New(admin, patient)
				s := redisstore.New(rdb, patient, redisstore.WithLeaseTTL(time.Hour))
				kind := specs[0]
				kind.Name = fmt.Sprint("x", i)
				ls := []*store.Limit{limit(t, kind), limit(t, store.Spec{Name: "beside", Algorithm: store.FixedWindow, Units: 1000, Window: store.Monthly})}
				own, beside := 0, 1 // places in a call: the quota stands before or behind
				if usedUp == 1 {
					own, beside = 1, 0
					slices.Reverse(ls)
				}
				charge := func(cost int64) []store.Charge {
					return []store.Charge{{Key: "k", Limit: ls[0], Cost: cost, Final: true}, {Key: "k", Limit: ls[1], Cost: cost, Final: true}}
				}
				stands := func() (all [2][2]int64) {
					r := make([]store.Result, 2)
					if err := whole.Take(ctx, charge(0), r); err != nil {
						t.Fatal(err)
					}
					if kind.Period < time.Hour && kind.Units > 1000 { // refills meanwhile
						r[own].Remaining = 0
					}
					return [2][2]int64{{r[own].Remaining, r[own].Held}, {r[beside].Remaining, r[beside].Held}}
				}
				var made [][]store.Charge
				for range usedUp {
					cs, r := charge(1), make([]store.Result, 2)
					if err := s.Take(ctx, cs, r); err != nil {
						t.Fatal(err)
					}
					if !r[own].OK {
						break
					}
					cs[0].Receipt, cs[1].Receipt = r[0].Receipt, r[1].Receipt
					made = append(made, cs)
				}
				if right != "" {
					set("-" + right[1:])
				}
				do := func(what string, call func() error) {
					t.Helper()
					before := stands()
					err := call()
					keys := admin.Keys(ctx, "*").Val()
					ttls, _ := admin.Pipelined(ctx, func(p redis.Pipeliner) error {
						for _, key := range keys {
							p.TTL(ctx, key)
						}
						return nil
					})
					for k, key := range keys {
						if ttls[k].(*redis.DurationCmd).Val() == -1 {
							t.Errorf("%s of %v without %s: %s has no lifetime (%v)", what, kind.Algorithm, right, key, err)
							admin.Del(ctx, key)
						}
					}
					if err != nil && names && !strings.Contains(err.Error(), right) && !strings.Contains(err.Error(), "'"+right[1:]+"'") {
						t.Errorf("%s of %v without %s: the error doesn't name it: %v", what, kind.Algorithm, right, err)
					}
					switch after := stands(); {
					case errors.Is(err, redisstore.ErrIndeterminate):
						partial++
					case err != nil && after != before:
						t.Errorf("%s of %v without %s: %v, and left and held are %v, %v before", what, kind.Algorithm, right, err, after, before)
					case err != nil && !errors.Is(err, redisstore.ErrConfiguration):
						t.Errorf("%s of %v without %s: %v", what, kind.Algorithm, right, err)
					}
				}
				take := func() error { return s.Take(ctx, charge(1), make([]store.Result, 2)) }
				do("Take", take)
				do("another Take", take)
				for n, cs := range made[:min(len(made), 2)] {
					for k := range cs {
						if cs[k].Cost = int64(2 * n); cs[k].Receipt.Lease != (store.LeaseID{}) {
							cs[k].Cost = 0
						}
					}
					do("Settle", func() error { return s.Settle(ctx, cs, make([]store.Result, 2)) })
				}
				do("Renew", func() error { s.Renew(); return nil })
				do("Reset", func() error { _, err := s.Reset(ctx, "k", ls...); return err })
				s.Close()
				whole.Close()
			}
			if right == "" {
				for _, right := range commandsRun(server) {
					if slices.Contains(rights, right) {
						missing = append(missing, right)
					}
				}
			}
		}
	}
	if partial == 0 {
		t.Error("no script failed after its first write")
	}
}
