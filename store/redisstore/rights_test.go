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

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// everything has stores do what there is to do with limits of each algorithm, by the
// server's clock and by one of their own. It returns the first error.
func everything(t *testing.T, rdb redis.UniversalClient) error {
	const hour = time.Hour
	clock, lost := newClock(), 0
	ever := redisstore.WithLeaseTTL(hour)
	told := redisstore.WithLost(func(string, *store.Limit) { lost++ })
	byServer := redisstore.New(rdb, patient, ever, told)
	defer byServer.Close()
	byCaller := redisstore.New(rdb, patient, ever, told, redisstore.WithPrefix("stint:told:"), redisstore.WithClock(clock.now))
	defer byCaller.Close()
	for i, specs := range [][2]store.Spec{ // and what it is changed to
		{{Units: 3, Period: hour}, {Units: 7, Period: hour}},
		{{Units: 348_773, Period: time.Minute}, {Units: 348_777, Period: time.Minute}},
		{{Units: 3, Period: hour, Queue: 2, Debt: true}, {Units: 5, Period: hour, Queue: 2, Debt: true}},
		{{Algorithm: store.IntervalBucket, Units: 3, Period: hour}, {Algorithm: store.IntervalBucket, Units: 5, Period: hour}},
		{{Algorithm: store.LeakyBucket, Units: 3, Period: hour, Burst: 2}, {Algorithm: store.LeakyBucket, Units: 5, Period: hour, Burst: 2}},
		{{Algorithm: store.FixedWindow, Units: 3, Window: store.Daily}, {Algorithm: store.FixedWindow, Units: 5, Window: store.Daily}},
		{{Algorithm: store.FixedWindow, Units: 3, Period: hour}, {Algorithm: store.FixedWindow, Units: 5, Period: hour}},
		{{Algorithm: store.SlidingWindow, Units: 3, Period: hour}, {Algorithm: store.SlidingWindow, Units: 5, Period: 2 * hour}},
		{{Algorithm: store.SlidingCounter, Units: 3, Period: hour}, {Algorithm: store.SlidingCounter, Units: 5, Period: hour}},
		{{Algorithm: store.SlidingLog, Units: 3, Period: hour}, {Algorithm: store.SlidingLog, Units: 5, Period: 2 * hour}},
		{{Algorithm: store.SlidingLog, Units: 3, Period: brief}, {Algorithm: store.SlidingLog, Units: 2, Period: brief}},
		{{Algorithm: store.SlidingWindow, Units: 9, Period: brief}, {Algorithm: store.SlidingWindow, Units: 2, Period: brief}},
		{{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: hour}, {Algorithm: store.WarmUp, Units: 2, Period: time.Second, WarmUp: hour}},
		{{Algorithm: store.Concurrency, Units: 3}, {Algorithm: store.Concurrency, Units: 9}},
		{{Algorithm: store.Ban, Units: 3, Period: time.Minute, Ban: hour}, {Algorithm: store.Ban, Units: 5, Period: time.Minute, Ban: hour}},
	} {
		name := fmt.Sprint("x", i)
		if err := exercise(t, byServer, name, specs, func(time.Duration) {}); err != nil {
			return fmt.Errorf("%v: %w", specs[0].Algorithm, err)
		}
		if err := exercise(t, byCaller, name, specs, clock.sleep); err != nil {
			return fmt.Errorf("%v, by the caller's clock: %w", specs[0].Algorithm, err)
		}
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
func exercise(t *testing.T, s *redisstore.Store, name string, specs [2]store.Spec, sleep func(time.Duration)) error {
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
			charges := []store.Charge{{Key: "k", Limit: l, Cost: cost, MaxWait: wait}, {Key: "k", Limit: beside, Cost: int64(1 + i%2)}}
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
	return s.Reset(ctx, "k", l)
}

// The rights that docs/redis.md lists are those that scripts use, and are enough. Where
// one is missing, calls fail: none is granted instead.
func TestRights(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
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
	if err := everything(t, rdb); err != nil {
		t.Error(err)
	}
	for _, right := range rights {
		command, is := strings.CutPrefix(right, "+")
		if !is {
			continue
		}
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		set("-" + command)
		if err := everything(t, rdb); !errors.Is(err, redisstore.ErrConfiguration) {
			t.Errorf("without %s: %v", right, err)
		}
		set(right)
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
