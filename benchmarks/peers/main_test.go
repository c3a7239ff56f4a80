package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The servers that are put under load are this program.
func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// It runs: every limiter decides as its rule says, and the report has all of them.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, config{rounds: 2, each: time.Millisecond, keys: 1000}); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, want := range []string{
		"| a decision, one key, 8 goroutines | ns |", "| a request denied | ns |", "| a rate and a daily quota | ns |",
		"| go-limiter in httprate in a semaphore a key |", "| slots alone: stint, slots against a rate of stint's |", "| outside HTTP, one key | ns |", "| outside HTTP, one key, 2 goroutines | ns |", "| failsafe-go behind a sync.Map |",
		"| stint, WithoutPermit |", "| failsafe-go behind a map |", "| httprate |", "| echo's, with echo, no fields |",
		"| a request allowed, with fields: stint, WithoutPermit against ", "| a server's CPU a request: stint against ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, no := range []string{"NaN", "Inf", "unknown"} {
		if strings.Contains(out.String(), no) {
			t.Errorf("the report has a %q", no)
		}
	}
}

func TestFastestIsAPeer(t *testing.T) {
	g := &group{
		subjects: []subject{{name: stintName}, {name: "slow"}, {name: "fast"}},
		samples: map[string][]sample{
			stintName: {{time: 1}, {time: 1}, {time: 1}},
			"slow":    {{time: 8}, {time: 9}, {time: 7}},
			"fast":    {{time: 4}, {time: 90}, {time: 2}},
		},
	}
	if got := g.fastest(); got != "fast" {
		t.Errorf("fastest %q", got)
	}
	if got := g.ratio(stintName, "fast").Median; got != 0.25 {
		t.Errorf("ratio %v, of medians made within rounds", got)
	}
}
