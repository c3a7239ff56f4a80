package redisstore_test

import (
	"context"
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

// everything has a store do what there is to do with limits of each algorithm.
func everything(t *testing.T, s *redisstore.Store) {
	const hour = time.Hour
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
		{{Algorithm: store.SlidingLog, Units: 3, Period: 30 * time.Millisecond}, {Algorithm: store.SlidingLog, Units: 2, Period: 30 * time.Millisecond}},
		{{Algorithm: store.SlidingWindow, Units: 9, Period: 30 * time.Millisecond}, {Algorithm: store.SlidingWindow, Units: 2, Period: 30 * time.Millisecond}},
		{{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: hour}, {Algorithm: store.WarmUp, Units: 2, Period: time.Second, WarmUp: hour}},
		{{Algorithm: store.Concurrency, Units: 3}, {Algorithm: store.Concurrency, Units: 5}},
		{{Algorithm: store.Ban, Units: 3, Period: time.Minute, Ban: hour}, {Algorithm: store.Ban, Units: 5, Period: time.Minute, Ban: hour}},
	} {
		t.Run(specs[0].Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			if err := exercise(t, s, fmt.Sprint("x", i), specs); err != nil {
				t.Error(err)
			}
		})
	}
}

// exercise charges a limit beyond what it lets through, under two sets of numbers,
// pauses, settles some of that up and some down, and resets it.
func exercise(t *testing.T, s *redisstore.Store, name string, specs [2]store.Spec) error {
	t.Helper()
	ctx := context.Background()
	var l *store.Limit
	var made []store.Charge
	for _, spec := range specs {
		spec.Name = name
		l = limit(t, spec)
		beside := limit(t, store.Spec{Name: name + "-beside", Units: 1000, Period: time.Hour})
		for i := range 12 {
			results := make([]store.Result, 2)
			charges := []store.Charge{{Key: "k", Limit: l, Cost: 1, MaxWait: time.Hour}, {Key: "k", Limit: beside, Cost: int64(1 + i%2)}}
			if err := s.Take(ctx, charges, results); err != nil {
				return err
			}
			for k := range charges {
				if charges[k].Receipt = results[k].Receipt; results[0].OK {
					made = append(made, charges[k])
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	time.Sleep(60 * time.Millisecond) // leases are renewed, short windows are over
	for i := range made {
		made[i].Cost = int64(i % 3)
		if made[i].Receipt.Lease != (store.LeaseID{}) {
			made[i].Cost = 0
		}
		if err := s.Settle(ctx, made[i:i+1], make([]store.Result, 1)); err != nil {
			return err
		}
	}
	return s.Reset(ctx, "k", l)
}

// The rights that docs/redis.md lists are enough, and each is one that a script uses.
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
	server.Do(append([]any{"ACL", "SETUSER", "limits", "on", ">pw"}, anys(rights)...)...)
	rdb := server.Client(func(o *redis.Options) {
		o.Username, o.Password, o.ContextTimeoutEnabled = "limits", "pw", true
	})
	s := redisstore.New(rdb, patient, redisstore.WithLeaseTTL(100*time.Millisecond))
	t.Cleanup(func() { s.Close() })
	everything(t, s)
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
