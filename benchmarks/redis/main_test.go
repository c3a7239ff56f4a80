package main

import (
	"context"
	"crypto/sha1"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

const program = "redis-server"

func needServer(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("no redis-server on the PATH")
	}
}

// It runs: every subject answers at every load, and the report has all of them.
func TestRun(t *testing.T) {
	needServer(t)
	var out strings.Builder
	c := config{rounds: 2, each: 10 * time.Millisecond, program: program, keys: 100, stored: 500}
	if err := run(&out, c); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, want := range []string{
		"| 64 callers: a rate, a daily quota and slots of the fleet ÷ redis_rate twice, a sorted set |", "| 1 caller, one address |",
		"| 16 callers, 1 key |", "| 128 callers, 100 keys |", "| stint, 128 callers, 100 keys |",
		"| stint |", "| " + evalshaName + " |", "| redis_rate, AutoPipeline |", "| ulule/limiter |",
		"| five rates |", "| a rate, a daily quota and a slot |", "of its parts |",
		"| p50, 1 caller, 100 keys, against a plain EVALSHA of the same script |",
		"| an added limit, in batches: a rate and a daily quota |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, no := range []string{"NaN", "Inf", "unknown version", "0.00 µs"} {
		if strings.Contains(out.String(), no) {
			t.Errorf("the report has a %q", no)
		}
	}
}

// Each kind of decision is measured on a server and on clusters, and each table has it.
func TestSizing(t *testing.T) {
	needServer(t)
	var out strings.Builder
	if err := run(&out, config{rounds: 1, each: 10 * time.Millisecond, program: program, keys: 100, only: "sizing"}); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	measured := len(works()) * 3 * 2 * 2 // on three sites, with many keys and one, each in its own call and in batches
	if n := strings.Count(out.String(), " % |\n"); n != measured {
		t.Errorf("%d rows of measurements, want %d", n, measured)
	}
	for _, w := range works() {
		for _, want := range []string{"a cluster of 3 masters", "1,000,000"} {
			if !strings.Contains(out.String(), "| "+w.name+" | "+want+" |") {
				t.Errorf("no row has %q and %q", w.name, want)
			}
		}
	}
	for _, no := range []string{"NaN", "Inf"} {
		if strings.Contains(out.String(), no) {
			t.Errorf("the report has a %q", no)
		}
	}
}

// A master is busy for half of the time at most.
func TestMasters(t *testing.T) {
	for _, tt := range []struct {
		perSecond float64
		each      time.Duration
		want      int
	}{{1_000, 10 * time.Microsecond, 1}, {50_000, 10 * time.Microsecond, 1}, {51_000, 10 * time.Microsecond, 2}, {1_000_000, 2 * time.Microsecond, 4}} {
		if got := masters(tt.perSecond, tt.each); got != tt.want {
			t.Errorf("%v a second at %v take %d masters, want %d", tt.perSecond, tt.each, got, tt.want)
		}
	}
}

// The plain EVALSHA is the script of package lua that stint uses, and charges the
// very bucket that stint does.
func TestPlainCall(t *testing.T) {
	needServer(t)
	s, err := startServer(program)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	ctx := context.Background()
	// So slow that nothing comes back meanwhile.
	rate := limit(store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: 10})
	client := s.client()
	defer client.Close()
	plain, err := plainCall(s, client, rate)
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("go", "run", "github.com/stint-go/stint/lua/print", "-bare").Output()
	if err != nil {
		t.Fatal(err)
	}
	if known := client.ScriptExists(ctx, fmt.Sprintf("%x", sha1.Sum(text))).Val(); len(known) != 1 || !known[0] {
		t.Errorf("the server doesn't know the script of a token bucket: %v", known)
	}
	mine := redisstore.New(client, redisstore.WithTimeout(time.Minute))
	defer mine.Close()
	for calls, want := range []int64{9, 7, 5} { // a Take, then one of each
		if calls > 0 {
			if err := plain(ctx, "user-00001"); err != nil {
				t.Fatal(err)
			}
		}
		var results [1]store.Result
		if err := mine.Take(ctx, []store.Charge{{Key: "user-00001", Limit: rate, Cost: 1}}, results[:]); err != nil {
			t.Fatal(err)
		}
		if got := results[0].Remaining; got != want {
			t.Errorf("after %d plain calls: %d remain, want %d", calls, got, want)
		}
	}
}

// A clock too coarse for what it measures leaves a gap in the report, not an infinity.
func TestUnmeasured(t *testing.T) {
	g := &group{subjects: []subject{{name: "a"}}, samples: map[string][]sample{
		"a": {{cpu: 10}, {cpu: 0}, {cpu: 40}},
		"b": {{cpu: 5}, {cpu: 0}, {cpu: 0}},
	}}
	if got, want := g.ratio("a", "b", cpuOf), (figures.Spread{Median: 2, Least: 2, Most: 2}); got != want {
		t.Errorf("ratio %v, want %v", got, want)
	}
	if got, want := g.ratio("b", "a", cpuOf).Part(), "0.25 × (0.00–0.50)"; got != want {
		t.Errorf("part %q, want %q", got, want)
	}
	if got := figures.Micros(0); got != "–" {
		t.Errorf("no time at all is written %q", got)
	}
}

func TestSpread(t *testing.T) {
	g := &group{subjects: []subject{{name: "a"}}, samples: map[string][]sample{
		"a": {{perSecond: 10}, {perSecond: 90}, {perSecond: 40}},
		"b": {{perSecond: 5}, {perSecond: 30}, {perSecond: 10}},
	}}
	if got, want := g.ratio("a", "b", callsOf), (figures.Spread{Median: 3, Least: 2, Most: 4}); got != want {
		t.Errorf("ratio %v, want %v", got, want)
	}
	g = &group{subjects: []subject{{name: oneRate}}, samples: map[string][]sample{
		oneRate: {{script: 100}},
		"three": {{script: 180}},
	}}
	if got, want := g.added(&subject{name: "three", charges: 3}, scriptOf), (figures.Spread{Median: .4, Least: .4, Most: .4}); got != want {
		t.Errorf("added %v, want %v", got, want)
	}
	if got := (figures.Spread{Median: .25, Least: .2, Most: .5}).Part(); got != "1/4.0 (1/2.0–1/5.0)" {
		t.Error(got)
	}
	if got := figures.Thousands(1234056); got != "1,234,056" {
		t.Error(got)
	}
}
