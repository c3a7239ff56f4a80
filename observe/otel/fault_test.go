package stintotel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/failover"
)

type refused struct{}

func (refused) Error() string { return "refused for key s3cret" }

// An error's type says what went wrong, and never has its text.
func TestErrorTypes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, "_OTHER"},
		{errors.New("gone"), "_OTHER"},
		{fmt.Errorf("asking: %w", errors.New("gone")), "_OTHER"},
		{&stint.StoreError{Err: context.DeadlineExceeded}, "timeout"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timeout"},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "connection"},
		{fmt.Errorf("asking: %w", failover.ErrOpen), "breaker_open"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("asking: %w", refused{}), "stintotel.refused"},
	} {
		if got := errorType(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
}

// The scope has the version of this module that the program was built with.
func TestScopeVersion(t *testing.T) {
	module := debug.Module{Path: Scope, Version: "v1.2.3"}
	other := &debug.Module{Path: "github.com/stint-go/stint", Version: "v9.9.9"}
	for _, tc := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"required", debug.BuildInfo{Deps: []*debug.Module{other, &module}}, "v1.2.3"},
		{"replaced", debug.BuildInfo{Deps: []*debug.Module{{Path: Scope, Version: "v1.2.3", Replace: &debug.Module{Version: "v1.2.4"}}}}, "v1.2.4"},
		{"its own program", debug.BuildInfo{Main: module}, "v1.2.3"},
		{"a checkout", debug.BuildInfo{Main: debug.Module{Path: Scope, Version: "(devel)"}}, ""},
		{"another", debug.BuildInfo{Deps: []*debug.Module{other}}, ""},
	} {
		if got := versionIn(&tc.info); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Each alert has its line in the runbook, by a link, and nothing else has one.
func TestRunbook(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	rules := read("../prometheus/alerts.yml")
	alerts := names(`- alert: (\w+)`, rules)
	if listed := names("(?m)^\\| `(Stint\\w+)` \\|", read("../../docs/operations.md")); !slices.Equal(listed, alerts) || len(alerts) < 12 {
		t.Errorf("docs/operations.md has %q, want %q", listed, alerts)
	}
	if links := names(`runbook_url: (https://github.com/stint-go/stint/blob/main/docs/operations.md#alerts)\n`, rules); len(links) != len(alerts) {
		t.Errorf("%d of %d alerts have a link to their line", len(links), len(alerts))
	}
}
